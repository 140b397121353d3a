"""The turn of an evolution strategy: evaluate a generation of perturbed policies, then move the one they surround."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from rl_training.algorithms.evolution import EvolutionAlgorithm
from rl_training.envs.population import PopulationEnvs
from rl_training.errors import EnvNumericsError, NumericsError
from rl_training.experiment.config import TrainConfig
from rl_training.forms import Form, Maybe, Number, Record, Whole
from rl_training.options._evolution import EvolutionOptions
from rl_training.runtime.generation import Filter, Fitness, Generation, RemotePopulation
from rl_training.runtime.population import PopulationEvaluator
from rl_training.runtime.session import Session
from rl_training.runtime.signals import StopSignals
from rl_training.types import Collected, State, Stateful, UpdateResult

log = logging.getLogger(__name__)

Evaluate: TypeAlias = Callable[[Generation, Sequence[int]], Fitness]
"""Finds out the fitness of directions: here (`PopulationEvaluator.run`) or on other machines; the numbers are the same."""


class Outcome(NamedTuple):
    """All that a generation teaches: whoever stood where the learner stood can follow it from these few numbers.

    Directions that met a number that is not finite have a score that is not a number.
    """

    scores: np.ndarray  # [num_directions, 2] float64: what the signs of each direction are judged by
    moments: np.ndarray  # [2, obs_dim] float64: mean distance of the observations from the filter's shift, and mean square
    num_observations: int
    mean_length: float  # of the episodes
    step_size: float

    def pack(self) -> bytes:
        """Float64 numbers one behind another: all that goes out to a worker about a generation."""
        return np.concatenate([self[2:], self.moments.ravel(), self.scores.ravel()]).tobytes()

    @classmethod
    def unpack(cls, packed: bytes, *, obs_dim: int) -> Outcome:
        """The inverse of `pack`."""
        few, moments, scores = np.split(np.frombuffer(packed), [3, 3 + 2 * obs_dim])
        count, mean_length, step_size = few.tolist()
        # copies, for torch wants memory that it may write to
        return cls(scores.reshape(-1, 2).copy(), moments.reshape(2, -1).copy(), int(count), mean_length, step_size)


class EvolutionLoop:
    """One turn is one generation. Everything random in it follows from the run's seed and the generation's number, so
    these few numbers are all there is to save.

    `action_noise` and `survival_bonus` act in training only; reported returns are the environment's own. A direction is
    left out when an episode of it meets a number that is not finite, unless `on_nan` is "stop".
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
        on_nan: str | None = None,
    ) -> None:
        self.algorithm, self.evaluate, self.options, self.seed = algorithm, evaluate, options, seed
        self.action_noise, self.survival_bonus, self.on_nan = action_noise, survival_bonus, on_nan
        self.buffers: dict[str, Stateful] = {}
        self.number = 0
        self.dropped = 0
        self.mean_length: float | None = None
        self.outcome: Outcome | None = None  # of the last generation, once it was learnt from
        self._under_way: tuple[Generation, Fitness] | None = None

    def collect(self) -> Collected:
        generation = self.generation()
        fitness = self.evaluate(generation, range(self.options.num_directions))
        broken = np.isnan(fitness.returns).any(axis=(1, 2))
        if broken.all():
            raise EnvNumericsError(f"generation {self.number}: every direction met a number that is not finite")
        if self.on_nan == "stop" and broken.any():
            lost = fitness.directions[broken]
            raise EnvNumericsError(
                f"generation {self.number}, direction {lost[0]}{f' and {len(lost) - 1} more' if len(lost) > 1 else ''}: "
                "an observation or a reward of its episodes is not finite; without on_nan: stop such directions are left out"
            )
        self._under_way = generation, fitness
        finite = np.isfinite(fitness.returns)
        steps = int(fitness.lengths.sum())
        return Collected(steps, fitness.returns[finite].tolist(), fitness.lengths[finite].tolist())

    def learn(self, *, global_step: int, max_updates: int | None) -> UpdateResult:  # noqa: ARG002 (one update is one turn)
        assert self._under_way is not None
        (generation, fitness), self._under_way = self._under_way, None
        fitness = self._without_broken_pairs(fitness)
        self.outcome = self._outcome(fitness)
        result = self.follow(self.outcome, generation)
        best = {"population_return_mean": fitness.returns.mean(), "population_return_max": fitness.returns.mean(axis=2).max()}
        return UpdateResult({**result.metrics, **{name: torch.tensor(value) for name, value in best.items()}})

    def follow(self, outcome: Outcome, generation: Generation | None = None) -> UpdateResult:
        """Learn what the current generation taught, found out here or elsewhere, and be at the next."""
        generation = generation or self.generation()
        directions = np.flatnonzero(~np.isnan(outcome.scores).any(axis=1))
        scores = torch.from_numpy(outcome.scores[directions]).to(self.algorithm.model.flat.device)
        perturbations = torch.from_numpy(generation.perturbations(directions.tolist())).to(scores.device)
        self.algorithm.step_size = outcome.step_size
        result = self.algorithm.update(
            {"perturbations": perturbations, "positive_returns": scores[:, 0], "negative_returns": scores[:, 1]}
        )
        # only now: all episodes of the generation saw the same statistics
        if generation.wants_moments:
            distance, square = outcome.moments
            mean = distance if generation.filter is None else distance + generation.filter.shift
            var = np.maximum(square - distance * distance, 0.0)
            self.algorithm.observe(mean=torch.from_numpy(mean), var=torch.from_numpy(var), count=outcome.num_observations)
        self.mean_length = outcome.mean_length
        self.number += 1
        return result

    def generation(self) -> Generation:
        """The one that is evaluated next."""
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

    def _outcome(self, fitness: Fitness) -> Outcome:
        scores = np.full((self.options.num_directions, 2), math.nan)
        scores[fitness.directions] = (fitness.returns - self.survival_bonus * fitness.lengths).mean(axis=2)
        count = int(fitness.lengths.sum())
        moments = fitness.sums.sum(axis=0) / count
        return Outcome(scores, moments, count, float(fitness.lengths.mean()), float(self.algorithm.step_size))

    def mark(self) -> None:
        """Nothing to remember: `collect` changes nothing that is saved."""

    def rewind(self) -> None:
        self._under_way = None

    def metrics(self) -> dict[str, Any]:
        return {"generation": self.number, "dropped_directions": self.dropped}

    def state_dict(self) -> State:
        return {"generation": self.number, "dropped": self.dropped, "mean_length": self.mean_length}

    def state_form(self, steps: int) -> Record:
        """What its state must look like after so many steps of a run; episodes are capped by the mean length."""
        count = Whole(0, steps)
        return Record({"generation": count, "dropped": count, "mean_length": Maybe(Number(0, steps))})

    def buffer_forms(self, steps: int) -> dict[str, Form]:  # noqa: ARG002 (it has no buffers)
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.number, self.dropped, self.mean_length = state["generation"], state["dropped"], state["mean_length"]


def evolution_loop(session: Session, algorithm: EvolutionAlgorithm) -> EvolutionLoop:
    """The loop of a run, whose population is evaluated in the session's environments or by its Ray workers."""
    config, pool = session.config, session.pool
    if isinstance(pool, RemotePopulation):
        loop = make_loop(config, algorithm, _left_at_signals(pool.evaluate, session.signals))
        pool.lead(loop)
        return loop
    assert isinstance(pool, PopulationEnvs)
    evaluate = PopulationEvaluator(algorithm.model, pool.envs, session.spec).run
    return make_loop(config, algorithm, _left_at_signals(evaluate, session.signals))


def _left_at_signals(evaluate: Evaluate, signals: StopSignals) -> Evaluate:
    """A generation whose episodes do not end must not keep a run from ending; what it found out is found out again."""

    def evaluate_or_leave(generation: Generation, directions: Sequence[int]) -> Fitness:
        with signals.breaking():
            return evaluate(generation, directions)

    return evaluate_or_leave


def make_loop(config: TrainConfig, algorithm: EvolutionAlgorithm, evaluate: Evaluate) -> EvolutionLoop:
    """As the configuration says; options that only one of the algorithms has do nothing in the others."""
    options = config.options
    assert isinstance(options, EvolutionOptions)
    only_some = {name: getattr(options, name, 0.0) for name in ("action_noise", "survival_bonus")}
    return EvolutionLoop(algorithm, evaluate, options, seed=config.seed, on_nan=config.on_nan, **only_some)
