"""Every block of the README is run, as it stands, in an empty folder."""

import re
import shlex
import subprocess
import sys

import pytest

from conftest import REPOSITORY

BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", (REPOSITORY / "README.md").read_text(), re.MULTILINE | re.DOTALL)
TARGETS = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)


def test_there_are_blocks_and_all_are_of_a_kind_that_is_run():
    assert {kind for kind, _ in BLOCKS} == {"bash", "python"}


@pytest.mark.learning
def test_python_blocks_run(tmp_path):
    for kind, text in BLOCKS:
        if kind == "python":
            done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert float(done.stdout.split()[0]) > 100  # it learnt something


@pytest.mark.learning
def test_command_lines_run_one_after_another(tmp_path):
    for kind, text in BLOCKS:
        for line in text.splitlines() if kind == "bash" else ():
            words = shlex.split(line, comments=True)
            if words[:1] == ["make"]:
                assert words[1] in TARGETS
            elif words:
                assert words[0] == "rl-training"
                command = [sys.executable, "-m", "rl_training", *words[1:]]
                done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def test_links_lead_somewhere():
    text = (REPOSITORY / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("http") or (REPOSITORY / target).exists(), target
