"""The README holds what it says: its blocks run as they stand, and what they train learns."""

import re

import pytest
from doc_blocks import Runner, blocks_of

from conftest import REPOSITORY

BLOCKS = blocks_of(REPOSITORY / "README.md")


def test_no_block_is_left_out():
    assert {block.kind for block in BLOCKS} == {"bash", "python"}
    assert not any(block.reason for block in BLOCKS)


@pytest.mark.learning
def test_python_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if block.kind == "python":
            Runner().run(block)
            assert float(capsys.readouterr().out.split()[0]) > 100  # it learnt something


@pytest.mark.learning
def test_command_lines_run_one_after_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if block.kind == "bash":
            Runner().run(block)
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def test_links_lead_somewhere():
    text = (REPOSITORY / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("http") or (REPOSITORY / target).exists(), target
