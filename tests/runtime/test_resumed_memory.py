"""A resumed run takes no more memory than one that was never stopped: neither while it is put together nor later."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
import torch
from checkpoint_helpers import SOURCES
from small_runs import ALGORITHMS, NAMES, StopAt, difference, small_config, train

from rl_training.api import algorithms as managed
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.errors import CheckpointError
from rl_training.experiment.checkpoint import CheckpointState, load_checkpoint, save_checkpoint
from rl_training.experiment.stored_checkpoint import StoredCheckpoint
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.workflows import resume_training


def tensor_bytes() -> int:
    """Of all memory that some tensor holds."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor) and thing.layout is torch.strided]
    memory = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(memory.values())


class Held(Callback):
    """Bytes of tensors that the run holds when training has come to its end."""

    def __init__(self):
        self.before = tensor_bytes()

    def on_train_end(self, trainer, result):
        self.bytes = tensor_bytes() - self.before


@pytest.mark.parametrize("way", ["resume_training", "learn"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_resumed_run_holds_what_an_uninterrupted_one_holds(name, way, tmp_path):
    config = small_config(name, tmp_path / "whole", eval_episodes=0)
    held = Held()
    whole = train(config, callbacks=[held])
    half = train(config.replace(output_dir=tmp_path / "half"), callbacks=[StopAt(whole.metrics["global_step"] // 2)])
    held_later = Held()
    if way == "learn":
        agent = next(kind for kind in vars(managed).values() if getattr(kind, "algo", None) == name).load(half.run_dir)
        agent.learn(config.total_timesteps, callbacks=[held_later])
    else:
        resume_training(half.run_dir, callbacks=[held_later])
    assert held_later.bytes <= held.bytes


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_in_its_file_says_what_a_loaded_one_says(name, tmp_path):
    config = small_config(name, tmp_path, eval_episodes=0)
    path = train(config, callbacks=[StopAt(config.total_timesteps // 2)]).checkpoint_path
    loaded, stored = load_checkpoint(path), StoredCheckpoint(path)
    for part in ("algorithm_state", "trainer_state", "config", "metadata"):
        assert difference(getattr(loaded, part), getattr(stored, part)) is None
    buffers = {name: dict(buffer) for name, buffer in stored.buffer_state.items()}
    assert difference(loaded.buffer_state, buffers) is None


ROWS, WIDTH = 80_000, 2 * 250 + 1 + 3  # 161 MB, more than importing torch takes on the way
PEAK = """
import re, sys
from pathlib import Path
import torch
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.experiment.stored_checkpoint import StoredCheckpoint

def memory(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

before = memory("VmRSS")
buffer = ReplayBuffer(80_000, obs_dim=250, action_dim=1, seed=0)
buffer.load_state_dict(StoredCheckpoint(sys.argv[1]).buffer_state["replay"])
assert buffer._rows.min() == buffer._rows.max() == 7
print(memory("VmHWM") - before)
"""


def filled_buffer():
    buffer = ReplayBuffer(ROWS, obs_dim=250, action_dim=1, seed=0)
    buffer._rows.fill_(7)
    buffer.added = ROWS
    return buffer


def test_a_replay_buffer_comes_back_without_a_second_copy_of_it(tmp_path):
    state = CheckpointState(buffer_state={"replay": filled_buffer().state_dict()})
    path = save_checkpoint(tmp_path / "full.safetensors", state)
    command = [sys.executable, "-c", PEAK, str(path)]
    done = subprocess.run(command, env={"PYTHONPATH": SOURCES}, capture_output=True, text=True, check=True)
    assert 4 * ROWS * WIDTH < int(done.stdout) < 1.2 * 4 * ROWS * WIDTH


def test_rows_of_another_width_and_damaged_ones_are_refused(tmp_path):
    state = filled_buffer().state_dict()
    state["rows"] = state["rows"][:9, :30]
    path = save_checkpoint(tmp_path / "narrow.safetensors", CheckpointState(buffer_state={"replay": state}))
    buffer = ReplayBuffer(20, obs_dim=13, action_dim=2, seed=0)
    with pytest.raises(
        CheckpointError, match=r"rows has shape \(9, 30\) and type float32; here it needs \(9, 31\) and float32"
    ):
        buffer.load_state_dict(StoredCheckpoint(path).buffer_state["replay"])
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match="the checksum of buffer_state/replay/rows does not match"):
        ReplayBuffer(20, obs_dim=12, action_dim=3, seed=0).load_state_dict(StoredCheckpoint(path).buffer_state["replay"])


# --- a resume that fails


def test_a_resume_that_fails_leaves_no_empty_directory_of_its_new_run(tmp_path):
    run = train(small_config("sac", tmp_path / "old", eval_episodes=0), callbacks=[StopAt(120)]).run_dir
    (file,) = (run / "checkpoints").glob("step_*")
    state = load_checkpoint(file)
    state.algorithm_state.popitem()
    before = sorted(path.name for path in run.rglob("*"))
    save_checkpoint(file, state)
    with pytest.raises(CheckpointError, match="SAC has the parts"):
        resume_training(file, run_suffix="again")
    with pytest.raises(CheckpointError, match="SAC has the parts"):
        resume_training(file, output_dir=tmp_path / "new")
    with pytest.raises(CheckpointError, match="SAC has the parts"):
        resume_training(file)
    assert [path.name for path in (tmp_path / "old").iterdir()] == [run.name]
    assert list((tmp_path / "new").iterdir()) == []
    assert sorted(path.name for path in run.rglob("*")) == before  # its own directory stays as it is


class Writes(Callback):
    def on_train_start(self, trainer):
        (trainer.run.directory / "notes.txt").write_text("dear to somebody")
        raise LookupError


def test_what_somebody_else_has_put_into_a_new_directory_is_kept(tmp_path):
    with pytest.raises(LookupError):
        train(small_config("sac", tmp_path), callbacks=[Writes()])
    (run_dir,) = tmp_path.iterdir()
    assert (run_dir / "notes.txt").read_text() == "dear to somebody"
