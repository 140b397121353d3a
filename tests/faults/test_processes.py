"""Environments with processes of their own: workers die visibly all the same, and none outlives its parent."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import small_config, train

from conftest import REPOSITORY
from rl_training.envs.faults import EnvFault
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import make_envs
from rl_training.errors import EnvError
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.runtime.callbacks import Callback


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))


@pytest.fixture
def helpers(tmp_path: Path) -> Iterator[Path]:
    """Where environments write down what they have started; whatever is left of it is ended."""
    folder = tmp_path / "helpers"
    folder.mkdir()
    yield folder
    for pid in pids_in(folder):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def pids_in(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir()]


def helped(how: str, helpers: Path, **kwargs: object) -> EnvSource:
    return EnvSource("toy_envs:ToyHelped-v0", {"how": how, "folder": str(helpers), **kwargs})


HOWS = ["fork", "popen", "popen_with_files", "multiprocessing", "pool"]


@pytest.mark.parametrize("fault", ["exit", "kill"])
@pytest.mark.parametrize("how", HOWS)
def test_a_workers_death_is_seen_though_a_helper_of_it_lives_and_the_helper_ends_too(how: str, fault: str, helpers: Path):
    source = helped(how, helpers, fault=fault, at=2)
    envs = make_envs(source, source.spec(), num_envs=2, backend="local_async", num_workers=2)
    try:
        envs.reset([0, 1], [0, 0])
        envs.step(np.zeros(2))
        began, started = time.monotonic(), pids_in(helpers)
        assert len(started) >= 2
        assert all(map(alive, started))
        with pytest.raises(EnvFault, match="environment 0: its process ended: "):
            envs.step(np.zeros(2))
        assert time.monotonic() - began < 5
        assert all_gone(started)
    finally:
        envs.close()


@pytest.mark.parametrize("how", HOWS)
def test_an_environment_may_start_processes_and_ends_them_itself(how: str, helpers: Path):
    source = helped(how, helpers)
    envs = make_envs(source, source.spec(), num_envs=2, backend="local_async", num_workers=1)
    envs.reset([0, 1], [0, 0])
    assert envs.step(np.zeros(2)).rewards.tolist() == [1.0, 1.0]
    started = pids_in(helpers)
    began = time.monotonic()
    envs.close()
    assert time.monotonic() - began < 4  # nobody had to be killed for want of an answer
    assert not any(map(alive, started))


def test_a_helper_that_an_environment_leaves_behind_holds_nobody_up_and_is_left_alone(helpers: Path):
    source = helped("fork", helpers, tidy=False)
    envs = make_envs(source, source.spec(), num_envs=1, backend="local_async")
    envs.reset([0], [0])
    (pid,) = pids_in(helpers)
    began = time.monotonic()
    envs.close()
    assert time.monotonic() - began < 4
    assert alive(pid)


def test_a_worker_lost_in_training_is_named_and_the_run_saved_though_its_helper_lives(tmp_path: Path, helpers: Path):
    kwargs = {"how": "fork", "folder": str(helpers), "fault": "kill", "at": 3, "episode": 2, "continuous": True}
    changes = {"env_id": "toy_envs:ToyHelped-v0", "env_kwargs": kwargs, "execution_backend": "local_async", "eval_episodes": 0}
    with pytest.raises(
        EnvError, match=r"environment [01], episode 2, step 3: its process ended: signal SIGKILL(.|\n)*is saved"
    ):
        train(small_config("sac", tmp_path / "runs", **changes))
    assert all_gone(pids_in(helpers))


LONELY = """
import sys, threading
import numpy as np
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import make_envs
source = EnvSource("toy_envs:ToyStuck-v0", {"at": 2})
opened = []
def make():
    opened.append(make_envs(source, source.spec(), num_envs=2, backend="local_async", num_workers=2))
if sys.argv[1] == "thread":
    maker = threading.Thread(target=make)
    maker.start()
    maker.join()
else:
    make()
envs = opened[0]
envs.reset([0, 1], [0, 0])
envs.step(np.zeros(2, dtype=np.int64))
print(*[worker.process.pid for worker in envs._workers], flush=True)
if sys.argv[1] == "main":
    envs.step(np.zeros(2, dtype=np.int64))
else:
    input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part of it is Linux's")
@pytest.mark.parametrize("maker", ["main", "thread"])
def test_no_worker_outlives_a_killed_parent_even_in_code_that_holds_the_interpreter(maker: str):
    """Workers that another thread has begun live on when that ends, and are watched from within."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(REPOSITORY / part) for part in ("src", "tests/helpers"))}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", LONELY, maker], text=True, env=environment, **pipes)
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.3)
    assert all(map(alive, pids))
    process.kill()
    process.communicate()
    assert all_gone(pids)


def test_workers_begun_by_a_thread_that_has_ended_go_on():
    source, made = EnvSource("toy_envs:ToyCounting-v0"), []
    maker = threading.Thread(target=lambda: made.append(make_envs(source, source.spec(), num_envs=1, backend="local_async")))
    maker.start()
    maker.join()
    time.sleep(0.2)
    try:
        assert made[0].reset([0], [0]).tolist() == [[0.0, 0.0]]
    finally:
        made[0].close()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def limit_files(number: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@pytest.fixture
def limits() -> Iterator[None]:
    """Put back how many files may be open."""
    before, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    limit_files(before)


@pytest.mark.parametrize("room", range(2, 12, 3))
def test_too_few_files_for_workers_are_named_with_what_to_do_and_none_is_lost(room: int, limits: None):
    source = EnvSource("toy_envs:ToyCounting-v0")
    spec = source.spec()
    make_envs(source, spec, num_envs=1, backend="local_async").close()  # multiprocessing's own are open from now on
    before = open_files()
    limit_files(before + room)
    with pytest.raises(EnvError, match=r"only [0-3] of 4 worker processes could be started: Too many open files; fewer"):
        make_envs(source, spec, num_envs=4, backend="local_async", num_workers=4)
    assert open_files() == before


class Tighten(Callback):
    """Leaves room for a checkpoint, which needs two files at a time."""

    def on_train_start(self, trainer: Any) -> None:
        limit_files(open_files() + 3)


def test_an_evaluation_that_gets_no_workers_ends_the_run_saved(tmp_path: Path, limits: None):
    changes = {"env_id": "toy_envs:ToyCountingContinuous-v0", "env_kwargs": {}, "execution_backend": "local_async"}
    with pytest.raises(EnvError, match=r"only 0 of 1 worker processes could be started: Too many open files(.|\n)*60 is saved"):
        train(small_config("sac", tmp_path, **changes), callbacks=[Tighten()])
    (run_dir,) = tmp_path.iterdir()
    newest = max((run_dir / "checkpoints").glob("step_*.safetensors"))
    assert load_checkpoint(newest).trainer_state["progress"]["global_step"] == 60
