"""One of the processes that a population is spread over: it follows the learner by itself and evaluates its share."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch

from rl_training.envs.population import PopulationEnvs
from rl_training.envs.source import EnvSource
from rl_training.errors import EnvError, NumericsError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.metadata import numeric_environment
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.options._evolution import EvolutionOptions
from rl_training.runtime.evolution import Outcome, make_loop
from rl_training.runtime.population import PopulationEvaluator
from rl_training.runtime.torch_settings import torch_settings
from rl_training.types import State


class PopulationWorker:
    """Stands where the learner stands: it is told the scores of each generation and makes the learner's step itself, with
    the noise that anybody can make from the seed. So parameters are sent once, when it begins.

    Arguments and answers are plain values and arrays. `env` is a factory where the id alone does not say enough.
    """

    def __init__(self, config: Mapping[str, Any], env: Any, *, num_episodes: int) -> None:
        self.config = TrainConfig.from_dict(config)
        options = self.config.options
        assert isinstance(options, EvolutionOptions)
        # until it is closed, or for the life of its process; the learner has the same settings, and so the same bits
        self._open = ExitStack()
        self._open.enter_context(torch_settings(self.config.threads))
        source = EnvSource(self.config.env_id, None if env else self.config.env_kwargs, env)
        self.spec = source.spec()
        algorithm = get_algorithm_spec(self.config.algo).build_fn(options, self.spec, torch.device("cpu"))
        self.envs = PopulationEnvs(
            source,
            self.spec,
            num_episodes=num_episodes,
            num_envs=options.population_envs,
            # one that hangs would keep the worker for good; with a limit its environments are in one more process
            backend="local_async" if self.config.envs_apart else "local_sync",
            batched=options.batched_envs,
            timeout=self.config.step_timeout,
            num_workers=1,
        )
        self._open.callback(self.envs.close)
        self.loop = make_loop(self.config, algorithm, PopulationEvaluator(algorithm.model, self.envs.envs, self.spec).run)

    def close(self) -> None:
        """End its environments and leave torch as it was, where the process goes on without it."""
        self._open.close()

    def hello(self) -> dict[str, Any]:
        """What can change the bits of a result here."""
        return numeric_environment()

    def evaluate(
        self, first: int, last: int, digest: int, outcome: bytes | None = None, state: State | None = None
    ) -> np.ndarray | str | None:
        """The fitness of directions `first` to `last`, exclusive, of the generation that has this digest, as rows.

        None where this worker, after the outcome or the state it was given, is not at that generation; the words of
        the fault where an environment failed.
        """
        if state is not None:
            self.loop.algorithm.load_state_dict(_tensors(state["algorithm"]))
            self.loop.load_state_dict(state["loop"])
        if outcome is not None:
            self.loop.follow(Outcome.unpack(outcome, obs_dim=self.spec.obs_dim))
        try:
            generation = self.loop.generation()
        except NumericsError:  # an update the learner has taken back, as `on_nan: skip` does
            return None
        if generation.digest() != digest:
            return None
        try:
            return self.loop.evaluate(generation, range(first, last)).to_rows()
        except EnvError as error:
            return str(error)


def state_of(algorithm: Any, loop: Any) -> State:
    """All that a worker needs to stand where the learner stands, as arrays and plain values."""
    return {"algorithm": _arrays(algorithm.state_dict()), "loop": {**loop.state_dict(), "sample": None}}


def _arrays(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _arrays(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_arrays(value) for value in tree]
    return tree.detach().cpu().numpy().copy() if isinstance(tree, torch.Tensor) else tree


def _tensors(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _tensors(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_tensors(value) for value in tree]
    return torch.from_numpy(tree.copy()) if isinstance(tree, np.ndarray) else tree
