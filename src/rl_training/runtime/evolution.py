"""The turn of an evolution strategy: evaluate a generation of perturbed policies, then move the one they surround."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from rl_training.algorithms.evolution import EvolutionAlgorithm
from rl_training.envs.population import PopulationEnvs
from rl_training.errors import EnvNumericsError, NumericsError
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.options._evolution import EvolutionOptions
from rl_training.runtime.population import Filter, Fitness, Generation, PopulationEvaluator
from rl_training.runtime.session import Session
from rl_training.types import Collected, State, Stateful, UpdateResult

log = logging.getLogger(__name__)

Evaluate: TypeAlias = Callable[[Generation, Sequence[int]], Fitness]
"""Finds out the fitness of directions: here (`PopulationEvaluator.run`) or on other machines; the numbers are the same."""


def population_evaluator(session: Session, model: MLPARSModel) -> Evaluate:
    """What evaluates perturbations of `model` in the session's environments."""
    assert isinstance(session.pool, PopulationEnvs)
    return PopulationEvaluator(model, session.pool.envs, session.spec).run


class EvolutionLoop:
    """One turn is one generation. Everything random in it follows from the run's seed and the generation's number, so
    these few numbers are all there is to save.

    `action_noise` and `survival_bonus` act in training only; reported returns are the environment's own. With `on_nan`
    "skip" a direction is left out when an episode of it meets a number that is not finite.
    """

    def __init__(
        self,
        algorithm: EvolutionAlgorithm,
        evaluate: Evaluate,
        options: EvolutionOptions,
        *,
        seed: int,
        action_noise: float = 0.0,
        survival_bonus: float = 0.0,
        on_nan: str = "stop",
    ) -> None:
        self.algorithm, self.evaluate, self.options, self.seed = algorithm, evaluate, options, seed
        self.action_noise, self.survival_bonus, self.on_nan = action_noise, survival_bonus, on_nan
        self.buffers: dict[str, Stateful] = {}
        self.number = 0
        self.dropped = 0
        self.mean_length: float | None = None
        self._under_way: tuple[Generation, Fitness] | None = None

    def collect(self) -> Collected:
        generation = self._generation()
        fitness = self.evaluate(generation, range(self.options.num_directions))
        broken = np.isnan(fitness.returns).any(axis=(1, 2))
        if broken.all():
            raise EnvNumericsError(f"generation {self.number}: every direction met a number that is not finite")
        if self.on_nan == "stop" and broken.any():
            lost = fitness.directions[broken]
            raise EnvNumericsError(
                f"generation {self.number}, direction {lost[0]}{f' and {len(lost) - 1} more' if len(lost) > 1 else ''}: "
                "an observation or a reward of its episodes is not finite; on_nan: skip leaves such directions out"
            )
        self._under_way = generation, fitness
        finite = np.isfinite(fitness.returns)
        steps = int(fitness.lengths.sum())
        return Collected(steps, fitness.returns[finite].tolist(), fitness.lengths[finite].tolist())

    def learn(self, *, global_step: int, max_updates: int | None) -> UpdateResult:  # noqa: ARG002 (one update is one turn)
        assert self._under_way is not None
        generation, fitness = self._under_way
        self._under_way = None
        fitness = self._without_broken_pairs(fitness)
        scores = (fitness.returns - self.survival_bonus * fitness.lengths).mean(axis=2)
        device = self.algorithm.model.flat.device
        batch = {
            "perturbations": torch.from_numpy(generation.perturbations(fitness.directions.tolist())).to(device),
            "positive_returns": torch.from_numpy(scores[:, 0]).to(device),
            "negative_returns": torch.from_numpy(scores[:, 1]).to(device),
        }
        result = self.algorithm.update(batch, global_step=global_step)
        # only now: all episodes of the generation saw the same statistics
        self._observe(generation, fitness)
        self.mean_length = float(fitness.lengths.mean())
        self.number += 1
        best = {"population_return_mean": fitness.returns.mean(), "population_return_max": fitness.returns.mean(axis=2).max()}
        return UpdateResult({**result.metrics, **{name: torch.tensor(value) for name, value in best.items()}})

    def _generation(self) -> Generation:
        algorithm, options = self.algorithm, self.options
        parameters = algorithm.model.flat_parameters().cpu().numpy()
        if not np.isfinite(parameters).all():
            raise NumericsError(f"generation {self.number}: the policy has parameters that are not finite")
        normalizer = algorithm.observation_normalizer
        shown = None if normalizer is None else normalizer.shift_and_scale
        cap = None
        if options.episode_cap is not None and self.mean_length is not None:
            cap = max(1, round(options.episode_cap * self.mean_length))
        return Generation(
            self.seed,
            self.number,
            parameters,
            algorithm.noise_std,
            episodes=options.episodes_per_direction,
            action_noise=self.action_noise,
            max_steps=cap,
            filter=Filter(shown[0].numpy(), shown[1].numpy(), normalizer.clip) if normalizer and shown else None,
            wants_moments=normalizer is not None,
        )

    def _without_broken_pairs(self, fitness: Fitness) -> Fitness:
        broken = np.isnan(fitness.returns).any(axis=(1, 2))
        if not broken.any():
            return fitness
        self.dropped += int(broken.sum())
        lost = ", ".join(map(str, fitness.directions[broken]))
        log.warning("generation %d: dropped direction %s: an episode gave a number that is not finite", self.number, lost)
        return Fitness(*(column[~broken] for column in fitness))

    def _observe(self, generation: Generation, fitness: Fitness) -> None:
        if not generation.wants_moments:
            return
        count = int(fitness.lengths.sum())
        distance, square = fitness.sums.sum(axis=0) / count
        mean = distance if generation.filter is None else distance + generation.filter.shift
        var = np.maximum(square - distance * distance, 0.0)
        self.algorithm.observe(mean=torch.from_numpy(mean), var=torch.from_numpy(var), count=count)

    def mark(self) -> None:
        """Nothing to remember: `collect` changes nothing that is saved."""

    def rewind(self) -> None:
        self._under_way = None

    def metrics(self) -> dict[str, Any]:
        return {"generation": self.number, "dropped_directions": self.dropped}

    def state_dict(self) -> State:
        return {"generation": self.number, "dropped": self.dropped, "mean_length": self.mean_length}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.number, self.dropped, self.mean_length = state["generation"], state["dropped"], state["mean_length"]
