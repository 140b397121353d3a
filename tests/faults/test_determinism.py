"""The same configuration gives the same bytes in another process, with or without a progress bar, whatever else differs.

How often one evaluates, logs and saves, worker processes and resuming are held to the same in `contracts/test_exact_resume.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from nursery import SOURCES, Nursery
from small_runs import ALGORITHMS, history, small_config, state_difference, train

from conftest import REPOSITORY

TRAIN_ALL = """
import json, sys
from pathlib import Path
from small_runs import small_config, train
import torch
torch.rand(11)
folder, names = Path(sys.argv[1]), sys.argv[2:]
print(json.dumps({name: str(train(small_config(name, folder)).run_dir) for name in names}))
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every algorithm, trained one after another in a process that orders its sets otherwise, in another folder."""
    folder = tmp_path_factory.mktemp("elsewhere")
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4242",
        "PYTHONPATH": os.pathsep.join([str(SOURCES), str(REPOSITORY / "tests" / "helpers")]),
    }
    command = [sys.executable, "-c", TRAIN_ALL, str(folder), *reversed(ALGORITHMS)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return {name: Path(run) for name, run in json.loads(done.stdout.splitlines()[-1]).items()}


def last(run: Path) -> Path:
    return max((run / "checkpoints").glob("step_*.safetensors"))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_another_process_another_hash_seed_and_another_folder_give_the_same_bytes(
    name: str, elsewhere: dict[str, Path], tmp_path: Path
):
    here = train(small_config(name, tmp_path)).run_dir
    assert state_difference(last(here), last(elsewhere[name])) is None
    assert history(here) == history(elsewhere[name])


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_a_progress_bar_on_a_terminal_changes_no_byte(name: str, tmp_path: Path, nursery: Nursery):
    config = tmp_path / "config.yaml"
    config.write_text(small_config(name, tmp_path / "runs").to_yaml())
    command = ["train", "--config", config, "--run-suffix"]
    assert nursery.run(*command, "quiet", "--quiet", log=tmp_path / "log") == 0
    master, slave = os.openpty()
    shown: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(master, shown))
    reader.start()
    code = nursery.run(*command, "bar", log=Path(os.ttyname(slave)))
    os.close(slave)
    reader.join()
    os.close(master)
    assert code == 0
    assert b"\x1b[" in b"".join(shown), "no bar was drawn; this test proves nothing"
    quiet, bar = sorted((tmp_path / "runs").iterdir(), reverse=True)
    assert last(quiet).read_bytes() == last(bar).read_bytes()
    assert history(quiet) == history(bar)


def _read_all(terminal: int, shown: list[bytes]) -> None:
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # the other side is closed
            return
        if not data:
            return
        shown.append(data)
