"""Environments that raise, hang, die, leak, lie about their shape or change it: named, saved, and no process left behind."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import toy_envs
from gymnasium.spaces import Box
from small_runs import small_config, train

from rl_training.errors import ConfigError, EnvError
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.runtime.callbacks import Callback


def children() -> dict[int, str]:
    """Of this process, the dead that nobody asked after among them; python's own tracker is none of ours."""
    pids: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended has no children any more
            pids += map(int, (task / "children").read_text().split())
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in pids if Path(f"/proc/{pid}").exists()}
    return {pid: command for pid, command in commands.items() if "resource_tracker" not in command}


@pytest.fixture
def children_before() -> dict[int, str]:
    """Other tests of this process may keep helpers of their own."""
    return children()


def broken(name, folder, *, fault, at=3, episode=1, **changes):
    """A small run in which every environment breaks at step `at` of its second episode."""
    kwargs = {"fault": fault, "at": at, "episode": episode}
    changes = {"eval_episodes": 0, **changes}
    return small_config(name, folder, env_id="toy_envs:ToyBrokenContinuous-v0", env_kwargs=kwargs, **changes)


def checkpoint_in(folder):
    (run_dir,) = folder.iterdir()
    return load_checkpoint(next((run_dir / "checkpoints").glob("step_*.safetensors")))


@pytest.mark.parametrize("name", ["ppg_alt", "sac", "pets"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise", "step raised ValueError: told to break at step 3"),
        ("shape", r"an observation of shape \(3,\) and dtype float32; declared are numbers of shape \(2,\)"),
        ("complex", r"dtype complex64"),
        ("text", "an observation of shape"),
        ("reward_none", "a reward that is not one number: NoneType None"),
        ("flag_int", "terminated that is not a bool: int 0"),
        ("four_values", "step must return"),
        ("speechless_obs", r"an observation that is no array: Speechless \(OSError: the device is gone\)"),
        ("speechless_reward", r"a reward that is not one number: Speechless \(OSError: the device is gone\)"),
        ("speechless_flag", r"terminated that is not a bool: Speechless"),
        ("speechless_all", r"step must return \(observation, .*; it returned Speechless"),
        ("graph_obs", r"an observation that is no array: Tensor .*tensor.detach\(\).numpy\(\)"),
        ("graph_reward", r"a reward that is not one number: Tensor .*tensor.detach\(\).numpy\(\)"),
    ],
)
def test_whatever_an_environment_does_wrong_is_named_and_the_run_saved(name, fault, said, tmp_path, children_before):
    # late enough for every one of them to have made a turn
    with pytest.raises(EnvError, match=rf"environment 0, episode 3, step 3: .*{said}(.|\n)*is saved"):
        train(broken(name, tmp_path, fault=fault, episode=3))
    state = checkpoint_in(tmp_path)
    assert state.trainer_state["progress"]["global_step"] > 0
    assert children() == children_before


@pytest.mark.parametrize("fault", ["raise", "shape"])
def test_an_evolution_strategy_names_the_generation_and_the_direction(fault, tmp_path):
    with pytest.raises(EnvError, match=r"generation 1, direction \d: .*(.|\n)*is saved"):
        train(broken("openai_es", tmp_path, fault=fault))
    assert checkpoint_in(tmp_path).trainer_state["loop"]["generation"] == 1


@pytest.mark.parametrize(
    ("fault", "said"),
    [("hang", "gave no answer within 1 s; its process was ended"), ("kill", "its process ended: signal SIGKILL")],
)
def test_a_worker_that_hangs_or_dies_is_named_the_run_saved_and_no_process_left(fault, said, tmp_path, children_before):
    timeout = {"env_timeout": 1.0} if fault == "hang" else {}
    config = broken("sac", tmp_path, fault=fault, execution_backend="local_async", num_envs=2, **timeout)
    with pytest.raises(EnvError, match=rf"environment [01], episode 1, step 3: {said}(.|\n)*step 14 is saved"):
        train(config)
    assert checkpoint_in(tmp_path).trainer_state["progress"]["global_step"] == 14
    assert children() == children_before


def test_an_evaluation_that_hangs_is_ended_too(tmp_path, children_before):
    # an environment that evaluates is in its fourth episode long before one that trains
    config = broken("ddpg", tmp_path, fault="hang", episode=3, execution_backend="local_async", env_timeout=1.0, num_envs=1)
    config = config.replace(eval_episodes=80, algo_kwargs={**config.algo_kwargs, "eval_interval": 10})
    with pytest.raises(EnvError, match=r"evaluation episode \d+, step 3: gave no answer within 1 s(.|\n)*step 10 is saved"):
        train(config)
    assert children() == children_before


@pytest.mark.parametrize("backend", ["local_sync", "batched"])
def test_a_time_out_that_could_not_be_kept_is_refused(backend, tmp_path):
    with pytest.raises(ConfigError, match="env_timeout, execution_backend: a time-out needs execution_backend 'local_async'"):
        small_config("sac", tmp_path, execution_backend=backend, env_timeout=3.0)


class Changing(toy_envs.Counting):
    """Has other spaces from its third episode on."""

    def __init__(self, which: str) -> None:
        super().__init__(continuous=True)
        self.which, self.episodes = which, 0

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        if self.episodes == 3 and self.which == "actions":
            self.action_space = Box(-2.0, 2.0, (2,), dtype=np.float32)
        if self.episodes == 3 and self.which == "bounds":
            self.action_space = Box(-9.0, 9.0, (1,), dtype=np.float32)
        if self.episodes == 3 and self.which == "same":
            self.action_space = Box(-2.0, 2.0, (1,), dtype=np.float32)
        obs, info = super().reset(seed=seed)
        if self.episodes == 3 and self.which == "obs":
            self.observation_space = Box(-np.inf, np.inf, (4,), dtype=np.float32)
            obs = np.zeros(4, dtype=np.float32)
        return obs, info


@pytest.mark.parametrize("which", ["actions", "bounds", "obs"])
def test_spaces_that_change_while_training_runs_are_named(which, tmp_path):
    config = small_config("sac", tmp_path, eval_episodes=0, env_kwargs={})
    with pytest.raises(EnvError, match=r"environment 0, episode 2, step 0: its spaces are not those(.|\n)*is saved"):
        train(config, env=lambda: Changing(which))


def test_an_equal_space_in_place_of_another_is_no_change(tmp_path):
    train(small_config("sac", tmp_path, eval_episodes=0, env_kwargs={}), env=lambda: Changing("same"))


class Tracked(toy_envs.Counting):
    """Holds a file open until it is closed; some cannot be closed in peace."""

    made: list[Tracked] = []  # noqa: RUF012 (one list for all is what is wanted)

    def __init__(self, *, angry: bool = False) -> None:
        super().__init__(continuous=True)
        self.file, self.angry = Path(os.devnull).open(), angry  # noqa: SIM115 (closing it is the point)
        Tracked.made.append(self)

    def step(self, action):
        if self.angry and self.steps == 3:
            raise ZeroDivisionError("the motor is gone")
        return super().step(action)

    def close(self):
        self.file.close()
        if self.angry:
            raise OSError("and the door is stuck")


def test_every_environment_is_closed_at_the_end_whether_training_ends_well_or_not(tmp_path, caplog):
    Tracked.made = []
    train(small_config("td3", tmp_path / "well", env_kwargs={}), env=Tracked)
    with pytest.raises(EnvError, match="the motor is gone"):
        train(
            small_config("td3", tmp_path / "badly", env_kwargs={}, eval_episodes=0),
            env=lambda: Tracked(angry=bool(Tracked.made)),
        )
    assert len(Tracked.made) > 5
    assert all(env.file.closed for env in Tracked.made)
    assert "close raised OSError: and the door is stuck" in caplog.text


def test_a_callback_that_raises_leaves_no_worker_behind(tmp_path, children_before):
    class Raises(Callback):
        def on_collect_end(self, trainer, result):
            raise LookupError("of the user's own")

    with pytest.raises(LookupError):
        train(small_config("sac", tmp_path, execution_backend="local_async"), callbacks=[Raises()])
    assert children() == children_before
