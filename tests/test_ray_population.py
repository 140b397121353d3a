"""A population on a real Ray cluster of two nodes: the same numbers as at home, whoever is lost on the way."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toy_envs
from rl_training.errors import EnvError
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.callbacks import Callback
from small_runs import history, small_config, state_difference, train

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and a second node, one core each, as processes of this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80 << 20}
    made = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    made.second = made.add_node(**small)
    made.wait_for_nodes()
    made.small = small
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def on_ray(cluster: Any) -> Iterator[dict[str, Any]]:
    yield {"execution_backend": "ray", "ray_address": cluster.address}
    ray.shutdown()


class AtGeneration(Callback):
    """Does something once, when a generation has been learnt from."""

    def __init__(self, number: int, action: Any) -> None:
        self.number, self.action = number, action

    def on_update_end(self, trainer: Any, result: Any) -> None:
        if trainer.loop.number == self.number:
            self.action(trainer)


def assert_same_run(one: Any, other: Any) -> None:
    assert state_difference(one.checkpoint_path, other.checkpoint_path) is None
    assert history(one.run_dir) == history(other.run_dir)


@pytest.mark.parametrize("name", ["openai_es", "ars"])
def test_two_workers_train_the_policy_that_one_process_trains(name: str, tmp_path: Path, on_ray: dict[str, Any]):
    at_home = train(small_config(name, tmp_path / "home"))
    traffic = []
    note = AtGeneration(3, lambda trainer: traffic.append(trainer.pool.traffic))
    assert_same_run(at_home, train(small_config(name, tmp_path / "ray", **on_ray), callbacks=[note]))


def test_a_node_that_is_killed_changes_nothing(tmp_path: Path, cluster: Any, on_ray: dict[str, Any], caplog: Any):
    killed = []

    def kill_second_node(trainer: Any) -> None:
        cluster.remove_node(cluster.second, allow_graceful=False)
        killed.append(trainer.loop.number)

    at_home = train(small_config("openai_es", tmp_path / "home"))
    with caplog.at_level(logging.WARNING):
        away = train(small_config("openai_es", tmp_path / "ray", **on_ray), callbacks=[AtGeneration(3, kill_second_node)])
    assert killed == [3]
    assert "was lost and is replaced" in caplog.text
    assert_same_run(at_home, away)
