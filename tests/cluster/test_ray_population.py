"""A population on a real Ray cluster of two nodes: the same numbers as at home, whoever is lost on the way."""

from __future__ import annotations

import gc
import logging
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import toy_envs
from small_runs import history, small_config, state_difference, train

from conftest import REPOSITORY
from rl_training.cli import main
from rl_training.cluster.ray_cluster import require_answer
from rl_training.errors import EnvError, RLTrainingError
from rl_training.runtime.callbacks import Callback
from test_cli import closing

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.xdist_group("ray"),  # one cluster for all of them
    # Ray leaves sockets open that it asked for a free port
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and a second node, one core each, as processes of this machine."""
    from ray.cluster_utils import Cluster

    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # what a cluster's machines have installed
    folders = (REPOSITORY / "src", REPOSITORY / "tests", REPOSITORY / "tests" / "helpers", REPOSITORY / "tests" / "cluster")
    patch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))
    small = {"num_cpus": 1, "object_store_memory": 80 << 20}
    made = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    made.add_second = lambda: made.add_node(**small)
    made.second = made.add_second()
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()
    patch.undo()
    with warnings.catch_warnings():  # they must not turn up in the next module's tests
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture
def on_ray(cluster: Any) -> dict[str, Any]:
    # this program stays connected: that is done once
    if not ray.is_initialized():
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    return {"execution_backend": "ray", "ray_address": cluster.address}


class AtGeneration(Callback):
    """Does something when a generation has been learnt from."""

    def __init__(self, number: int, action: Any) -> None:
        self.number, self.action = number, action

    def on_update_end(self, trainer: Any, result: Any) -> None:
        if trainer.loop.number == self.number:
            self.action(trainer)


def place(_worker: Any) -> tuple[int, str]:
    """The process and the node it is asked in."""
    return os.getpid(), ray.get_runtime_context().get_node_id()


def assert_same_run(one: Any, other: Any) -> None:
    assert state_difference(one.checkpoint_path, other.checkpoint_path) is None
    assert history(one.run_dir) == history(other.run_dir)


def test_a_node_that_is_killed_changes_nothing_and_workers_hear_only_scores(
    tmp_path: Path, cluster: Any, on_ray: dict[str, Any], caplog: Any
):
    traffic = []

    def kill_second_node(trainer: Any) -> None:
        workers = trainer.pool._workers
        assert [worker.ready for worker in workers] == [True, True]
        places = [ray.get(worker.actor.__ray_call__.remote(place)) for worker in workers]
        cluster.remove_node(cluster.second, allow_graceful=False)
        for pid, node in places:
            if node != ray.get_runtime_context().get_node_id():
                # a machine takes its processes with it; here one outlives its node by a moment, enough for this run to end
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    notes = [AtGeneration(number, lambda trainer: traffic.append(trainer.pool.traffic)) for number in (2, 3)]
    config = small_config("openai_es", tmp_path / "ray", **on_ray)
    try:
        with caplog.at_level(logging.WARNING):
            away = train(config, callbacks=[*notes, AtGeneration(4, kill_second_node)])
    finally:
        cluster.second = cluster.add_second()
    assert caplog.text.count("was lost and is replaced") == 1
    assert_same_run(train(small_config("openai_es", tmp_path / "home")), away)
    sent, received, states = (after - before for before, after in zip(*traffic, strict=True))
    assert states == 0
    # to each of two workers: what to do, three numbers, the moments of three observations, two scores of four directions
    assert sent == 2 * 8 * (4 + 3 + 2 * 3 + 2 * 4)
    assert received == 8 * 4 * (2 + 2 + 2 * 3)


def mortal_run(where: Path, deaths: int, **changes: Any) -> Any:
    graves = where.with_name(f"{where.name}-graves")
    graves.mkdir()
    factory = partial(toy_envs.Mortal, folder=str(graves), deaths=deaths)
    settings = {"env_kwargs": {}, "total_timesteps": 300, "eval_episodes": 0, **changes}
    return train(small_config("ars", where, **settings), env=factory)


def test_a_worker_that_dies_is_replaced(tmp_path: Path, on_ray: dict[str, Any], caplog: Any):
    with caplog.at_level(logging.WARNING):
        away = mortal_run(tmp_path / "ray", 1, ray_workers=2, **on_ray)
    assert caplog.text.count("was lost and is replaced") == 1
    assert_same_run(mortal_run(tmp_path / "home", 0), away)


@pytest.mark.parametrize("at", [0, 2])
def test_an_environment_that_leaves_by_sys_exit_is_named_from_its_worker(at: int, tmp_path: Path, on_ray: dict[str, Any]):
    kwargs = {"fault": "sys_exit", "at": at, "episode": 1}
    config = small_config("ars", tmp_path, env_id="toy_envs:ToyBroken-v0", env_kwargs=kwargs, eval_episodes=0, **on_ray)
    # in which generation, and whether while a worker is made, depends on which worker is given what
    said = r"toy_envs:ToyBroken-v0(.|\n)*SystemExit: 0"
    with pytest.raises(EnvError, match=said):
        train(config)


@pytest.mark.slow
def test_a_share_that_kills_every_worker_is_named(tmp_path: Path, on_ray: dict[str, Any]):
    with pytest.raises(EnvError, match="directions 0 to 3 of generation 0 were lost with 3 workers one after another"):
        mortal_run(tmp_path / "ray", 99, ray_workers=1, **on_ray)


@pytest.mark.slow
def test_an_environment_that_raises_far_away_is_named_here(tmp_path: Path, on_ray: dict[str, Any]):
    factory = partial(toy_envs.Broken, fault="raise", at=3, episode=1, continuous=True)
    settings = {"env_kwargs": {}, "eval_episodes": 0, "ray_workers": 1}
    with pytest.raises(EnvError, match=r"generation 1, direction \d: step raised"):
        train(small_config("openai_es", tmp_path, **settings, **on_ray), env=factory)


@pytest.mark.slow
def test_an_environment_that_hangs_far_away_is_ended_and_named(tmp_path: Path, on_ray: dict[str, Any]):
    factory = partial(toy_envs.Broken, fault="hang", at=3, episode=1, continuous=True)
    settings = {"env_kwargs": {}, "eval_episodes": 0, "ray_workers": 1, "env_timeout": 1.0}
    with pytest.raises(EnvError, match=r"generation 1, direction \d: gave no answer within 1 s"):
        train(small_config("openai_es", tmp_path, **settings, **on_ray), env=factory)


@pytest.mark.slow
def test_a_time_out_changes_no_number(tmp_path: Path, on_ray: dict[str, Any]):
    away = train(small_config("openai_es", tmp_path / "ray", env_timeout=60.0, ray_workers=2, **on_ray))
    assert_same_run(train(small_config("openai_es", tmp_path / "home")), away)


def test_seeds_of_any_algorithm_run_side_by_side_on_ray(tmp_path: Path, on_ray: dict[str, Any], capsys: Any):
    tiny = ["ppo/cartpole", "num_envs=1", "num_steps=32", "total_timesteps=64", "eval_episodes=2", "--run-suffix", "a"]
    apart = ["--execution-backend", "ray", f"ray_address={on_ray['ray_address']}"]
    assert main(["train", *tiny, "--output-dir", str(tmp_path / "ray"), "--seeds", "2,1", *apart]) == 0
    out = capsys.readouterr().out
    runs = closing(out)
    assert [run["run_dir"].name for run in runs] == [f"ppo__CartPole-v1__seed{seed}__a" for seed in (2, 1)]
    assert "all seeds" in out
    assert main(["train", *tiny, "--output-dir", str(tmp_path / "home"), "--seeds", "2,1"]) == 0
    for away, home in zip(runs, closing(capsys.readouterr().out), strict=True):
        assert state_difference(away["checkpoint_path"], home["checkpoint_path"]) is None
        assert away["metrics"] == home["metrics"]


@pytest.mark.slow
def test_without_an_address_a_cluster_is_started_for_the_run_and_ended_after_it(tmp_path: Path):
    ray.shutdown()
    addresses = []
    note = AtGeneration(1, lambda trainer: addresses.append(ray.get_runtime_context().gcs_address))
    config = small_config("ars", tmp_path / "ray", execution_backend="ray", ray_workers=3)
    assert_same_run(train(small_config("ars", tmp_path / "home")), train(config, callbacks=[note]))
    assert not ray.is_initialized()
    with pytest.raises(RLTrainingError, match="no Ray cluster answers"):
        require_answer(addresses[0])
