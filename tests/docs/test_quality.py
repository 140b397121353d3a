"""What the linters and the type checker say, and that generated pages are those their sources give."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from conftest import REPOSITORY


def run(*command):
    done = subprocess.run([sys.executable, *command], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(find_spec("ruff") is None, reason="ruff is not installed")
@pytest.mark.parametrize("command", [("check", "."), ("format", "--check", ".")], ids=lambda words: words[0])
def test_ruff_finds_nothing(command):
    run("-m", "ruff", *command)


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy_strict_finds_nothing():
    run("-m", "mypy")


def test_the_speed_page_is_what_the_results_give():
    run("benchmarks/speed/page.py", "--check")


def test_the_head_to_head_page_is_what_the_results_give():
    run("benchmarks/head_to_head/page.py", "--check")


def test_the_page_of_promises_is_what_the_results_give():
    run("benchmarks/faults/page.py", "--check")


def test_tables_and_options_in_the_docs_are_what_results_and_code_give():
    run("benchmarks/learning/tables.py", "--check")
