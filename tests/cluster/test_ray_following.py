"""What a Ray worker does, without Ray: it follows the learner to the bit, and notices when it cannot."""

from __future__ import annotations

import math
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import toy_envs
from small_runs import small_config, train

from rl_training.cluster import ray_cluster
from rl_training.cluster.ray_population import RayPopulation, Traffic, Worker
from rl_training.cluster.ray_worker import PopulationWorker, state_of
from rl_training.envs.source import EnvSource
from rl_training.envs.workers import AsyncEnvs
from rl_training.errors import ConfigError, EnvError, MissingExtraError, RLTrainingError
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.kernels.threads import num_threads
from rl_training.runtime.evolution import EvolutionLoop, Outcome, make_loop
from rl_training.runtime.generation import Fitness


@pytest.fixture(autouse=True)
def workers_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker has torch's settings for itself; here it is not alone in its process."""
    made: list[PopulationWorker] = []
    begin = PopulationWorker.__init__

    def remembered(self: PopulationWorker, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        made.append(self)

    before = torch.get_num_threads(), num_threads()
    monkeypatch.setattr(PopulationWorker, "__init__", remembered)
    yield
    for worker in reversed(made):
        worker.close()
    assert (torch.get_num_threads(), num_threads()) == before


def learner(name: str, **changes: Any) -> tuple[EvolutionLoop, PopulationWorker]:
    """A loop that has its generations evaluated by one worker, which is given the loop's first state."""
    config = small_config(name, Path("unused"), **changes)
    spec = EnvSource(config.env_id, config.env_kwargs).spec()
    torch.manual_seed(5)
    algorithm = get_algorithm_spec(config.algo).build_fn(config.options, spec, torch.device("cpu"))
    torch.manual_seed(6)  # the worker's own first parameters are others
    worker = PopulationWorker(config.to_dict(), None, num_episodes=16)
    loop = make_loop(config, algorithm, lambda generation, directions: pytest.fail("the test evaluates"))
    return loop, worker


def generation_evaluated(loop: EvolutionLoop, worker: PopulationWorker, **given: Any) -> np.ndarray:
    rows = worker.evaluate(0, 4, loop.generation().digest(), **given)
    assert isinstance(rows, np.ndarray)
    return rows


@pytest.mark.parametrize("name", ["openai_es", "ars"])
def test_a_worker_that_hears_the_scores_stands_where_the_learner_stands(name: str):
    loop, worker = learner(name)
    heard: dict[str, Any] = {"state": state_of(loop.algorithm, loop)}
    for number in range(5):
        rows = generation_evaluated(loop, worker, **heard)
        fitness = Fitness.from_rows(rows, range(4), episodes=loop.options.episodes_per_direction)
        if number == 2:
            fitness.returns[1, 0] = np.nan  # a pair that is dropped
        loop.algorithm.schedule("step_size", 0.1 / (number + 1))
        loop._under_way = loop.generation(), fitness
        loop.learn(global_step=0, max_updates=None)
        assert loop.outcome is not None
        heard = {"outcome": loop.outcome.pack()}
    generation_evaluated(loop, worker, **heard)  # its digest is the learner's
    assert worker.loop.generation().parameters.tobytes() == loop.generation().parameters.tobytes()
    assert worker.loop.number == loop.number == 5


def test_with_a_time_out_a_worker_evaluates_in_a_process_that_can_be_ended():
    """The numbers are the same, and an environment that hangs becomes words about it."""
    patient, plain = (learner("openai_es", **given) for given in ({"execution_backend": "ray", "env_timeout": 60.0}, {}))
    rows = [generation_evaluated(loop, worker, state=state_of(loop.algorithm, loop)) for loop, worker in (patient, plain)]
    assert isinstance(patient[1].envs.envs, AsyncEnvs)
    assert rows[0].tobytes() == rows[1].tobytes()

    config = small_config("openai_es", Path("unused"), execution_backend="ray", env_timeout=1.0, env_kwargs={})
    hanging = partial(toy_envs.Broken, fault="hang", at=3, episode=1, continuous=True)
    worker = PopulationWorker(config.to_dict(), hanging, num_episodes=8)
    answers = [worker.evaluate(0, 4, worker.loop.generation().digest()) for _ in range(2)]
    assert isinstance(answers[0], np.ndarray)
    assert str(answers[1]).endswith("gave no answer within 1 s; its process was ended")
    assert "generation 0, direction 0" in str(answers[1])


def test_a_worker_that_is_elsewhere_says_so_and_the_state_brings_it_back():
    loop, worker = learner("openai_es")
    digest = loop.generation().digest()
    assert worker.evaluate(0, 4, digest) is None
    assert worker.evaluate(0, 4, digest, state=state_of(loop.algorithm, loop)) is not None
    assert worker.evaluate(0, 4, digest + 1) is None


def test_a_worker_that_followed_an_update_the_learner_took_back_asks_for_its_state():
    loop, worker = learner("openai_es")
    before = loop.algorithm.state_dict()
    before = {**before, "model": {name: value.clone() for name, value in before["model"].items()}}
    generation_evaluated(loop, worker, state=state_of(loop.algorithm, loop))
    outcome = Outcome(np.array([[1.0, 2.0]] * 4), np.zeros((2, worker.spec.obs_dim)), 8, 2.0, math.inf)
    loop.follow(outcome)
    loop.algorithm.load_state_dict(before)  # on_nan: skip
    digest = loop.generation().digest()
    assert worker.evaluate(0, 4, digest, outcome=outcome.pack()) is None
    assert worker.evaluate(0, 4, digest, state=state_of(loop.algorithm, loop)) is not None


class FewWords:
    """Ray as far as a population that sends states needs it; workers answer at once."""

    def __init__(self) -> None:
        self.puts: list[Any] = []

    def put(self, state: Any) -> int:
        self.puts.append(state)
        return len(self.puts)

    def wait(self, references: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return references[:1], references[1:]


def population_of(count: int, loop: EvolutionLoop, monkeypatch: pytest.MonkeyPatch) -> tuple[RayPopulation, list[Any]]:
    """One whose workers have begun; what they are asked is noted, and they never come to the learner's parameters."""
    asked: list[Any] = []

    def answer(*words: Any) -> str:
        asked.append(words)
        return f"answer {len(asked)}"

    actor = SimpleNamespace(evaluate=SimpleNamespace(remote=answer))
    population = object.__new__(RayPopulation)
    population._ray, population._loop, population.num_workers = FewWords(), loop, count
    population._workers = [Worker(actor, None, ready=True) for _ in range(count)]
    population._state_there, population._said, population.traffic = None, set(), Traffic()
    monkeypatch.setattr(population._ray, "get", lambda reference: None, raising=False)
    monkeypatch.setattr(population._ray, "exceptions", ray_errors(), raising=False)
    return population, asked


def ray_errors() -> Any:
    return SimpleNamespace(RayActorError=OSError, WorkerCrashedError=OSError, RayTaskError=OSError)


def test_a_state_is_put_there_once_and_one_that_does_not_help_is_an_error(monkeypatch: pytest.MonkeyPatch):
    loop, _ = learner("openai_es")
    population, asked = population_of(4, loop, monkeypatch)
    with pytest.raises(EnvError, match=r"generation 0 comes to others .*the same versions as here"):
        population.evaluate(loop.generation(), range(4))
    assert len(population._ray.puts) == 1
    assert [state for *_, state in asked] == [1] * 4


def test_what_goes_through_the_network_comes_out_as_it_was():
    fitness = Fitness(
        np.array([3, 4]),
        np.array([[[1.5, np.nan]] * 2] * 2),
        np.array([[[7, 2**40]] * 2] * 2),
        np.arange(12.0).reshape(2, 2, 3),
    )
    back = Fitness.from_rows(fitness.to_rows(), [3, 4], episodes=2)
    assert all(a.tobytes() == b.tobytes() and a.shape == b.shape for a, b in zip(fitness, back, strict=True))
    outcome = Outcome(np.array([[1.0, np.nan], [0.1, 2.0]]), np.arange(6.0).reshape(2, 3), 2**40, 1 / 3, 0.02)
    again = Outcome.unpack(outcome.pack(), obs_dim=3)
    assert again[2:] == outcome[2:]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(again[:2], outcome[:2], strict=True))


# --- refusals, all before any file is made


def refused(config: Any, tmp_path: Path, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        train(config)
    assert list(tmp_path.iterdir()) == []


def test_an_algorithm_without_a_population_says_what_ray_is_for(tmp_path: Path):
    config = small_config("ppo", tmp_path, execution_backend="ray")
    refused(config, tmp_path, ConfigError, "spreads the population of openai_es or ars.*a run of ppo has none.*--seeds 1,2,3")


def test_an_address_without_ray_is_a_contradiction(tmp_path: Path):
    with pytest.raises(ConfigError, match="ray_address: belongs to execution_backend 'ray'; given is 'local_sync'"):
        small_config("ars", tmp_path, ray_address="auto")


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    config = small_config("openai_es", tmp_path, execution_backend="ray")
    refused(config, tmp_path, MissingExtraError, r"rl-training\[ray\]")


@pytest.mark.parametrize("address", ["nonsense", "host:99999999", "host:", "http://host:1"])
def test_an_address_that_is_none_is_refused_with_what_one_looks_like(address: str, tmp_path: Path):
    config = small_config("ars", tmp_path, execution_backend="ray", ray_address=address)
    refused(config, tmp_path, ConfigError, "possible: 'auto', HOST:PORT")


def test_an_address_that_does_not_answer_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert ray_cluster.CONNECT_SECONDS + ray_cluster.HEALTH_SECONDS < 20
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        config = small_config("ars", tmp_path, execution_backend="ray", ray_address=address)
        refused(config, tmp_path, RLTrainingError, f"{address}'.*Tried: to connect to 127.0.0.1.*refused.*ray start --head")
        silent.listen()  # takes connections, but never says a word
        monkeypatch.setattr(ray_cluster, "HEALTH_SECONDS", 1.0)
        refused(config, tmp_path, RLTrainingError, "ray health-check` for 1 s: something takes connections")
