"""An environment in a file beside the user, named on the real command line."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from doc_blocks import blocks_of

from conftest import REPOSITORY
from rl_training.cli import current_folder_imported, main

SCRIPT = Path(sys.executable).with_name("rl-training")
PAGE = REPOSITORY / "docs" / "howto" / "own-environment.md"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of somebody who follows the page."""
    blocks = {block.title: block for block in blocks_of(PAGE)}
    (tmp_path / "corridor.py").write_text(blocks["corridor.py"].text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def by_script(line: str) -> subprocess.CompletedProcess[str]:
    """One line as a shell would run it: the program's own folder is on the path, the current one is not."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [SCRIPT, *shlex.split(line.removeprefix("rl-training "))]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)


@pytest.mark.skipif(not SCRIPT.exists(), reason="the package is not installed here")
def test_the_commands_of_the_page_work_from_the_folder_of_the_environment(folder):
    (block,) = [block for block in blocks_of(PAGE) if block.kind == "bash"]
    train, evaluate = block.text.splitlines()
    train = train.replace("total_timesteps=4_000", "total_timesteps=256") + " num_envs=2 num_steps=32 eval_episodes=1"
    done = by_script(train)
    assert done.returncode == 0, done.stderr
    done = by_script(evaluate)
    assert done.returncode == 0, done.stderr
    # the workers of local_async and the processes of --jobs find the module too
    apart = train.replace("--run-suffix mine", "--run-suffix apart --execution-backend local_async --seeds 1,2 --jobs 2")
    done = by_script(apart)
    assert done.returncode == 0, done.stderr


def test_from_another_folder_the_module_is_missed_by_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "ppo", "env_id=nowhere:Corridor-v0", "--output-dir", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert f"there is no module 'nowhere', neither in the current folder ({tmp_path})" in said
    assert not (tmp_path / "runs").exists()


def test_what_a_module_itself_misses_is_not_taken_for_the_module(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "needy.py").write_text("import not_installed_here\n")
    assert main(["train", "ppo", "env_id=needy:Corridor-v0", "--output-dir", str(tmp_path / "runs")]) == 2
    assert "needs a package that is not installed: No module named 'not_installed_here'" in capsys.readouterr().err


def test_the_current_folder_is_looked_in_last_and_only_while_a_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", [path for path in before if path])
    with current_folder_imported():
        assert sys.path[-1] == str(tmp_path)
    assert str(tmp_path) not in sys.path
