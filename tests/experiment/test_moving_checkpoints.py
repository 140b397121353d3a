"""Reading a run that goes on: the checkpoint that was found may be deleted, for a newer one, before it is read."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from small_runs import StopAt, small_config, train

from rl_training import PPO
from rl_training.errors import CheckpointError
from rl_training.experiment.checkpoint_reader import CheckpointFile
from rl_training.experiment.locate import latest_good_checkpoint, step_files, step_of
from rl_training.runtime.policy import load_policy
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint, resume_training
from rl_training.shipping.export import export_checkpoint

WAYS = {
    "load_policy": load_policy,
    "evaluate": lambda run: evaluate_checkpoint(run, num_episodes=1),
    "predict": lambda run: predict_checkpoint(run, np.zeros(4)),
    "export": lambda run: export_checkpoint(run, run.parent / "policy.safetensors"),
    "load": PPO.load,
    "resume": lambda run: resume_training(run, run_suffix="again"),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return train(small_config("ppo", tmp_path, eval_episodes=0, env_kwargs={}), callbacks=[StopAt(100)]).run_dir


@pytest.fixture
def goes_on_at(run: Path, monkeypatch: pytest.MonkeyPatch):
    """Have the run write a checkpoint and delete the one before, just as those checkpoints are opened for these times."""

    def go_on_at(*times: int) -> None:
        opens, opened = CheckpointFile._open, []

        def open_after(file):
            opened.append(file.path)
            if len(opened) in times:
                (newest,) = step_files(run / "checkpoints")
                newest.rename(newest.with_name(f"step_{step_of(newest) + 1:09d}.safetensors"))
            return opens(file)

        monkeypatch.setattr(CheckpointFile, "_open", open_after)

    return go_on_at


@pytest.mark.parametrize("times", [(1,), (2,), (1, 2), (1, 2, 3, 4)])
@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_that_goes_gives_way_to_the_newest(way, times, run, goes_on_at):
    goes_on_at(*times)
    WAYS[way](run)


def test_one_that_is_always_gone_is_told_in_the_end(run, goes_on_at):
    goes_on_at(*range(1, 1000))
    with pytest.raises(CheckpointError, match="there is no checkpoint in it"):
        latest_good_checkpoint(run)


def test_a_file_that_is_named_and_gone_is_not_looked_for_elsewhere(run):
    (file,) = step_files(run / "checkpoints")
    shutil.move(file, run / "elsewhere.safetensors")
    with pytest.raises(CheckpointError, match="there is no such file"):
        load_policy(file)
