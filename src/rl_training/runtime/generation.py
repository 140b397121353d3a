"""A generation of perturbed policies, what they came to, and who else may find it out."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from rl_training.envs.seeds import episode_seeds, generators
from rl_training.runtime.rng import Stream
from rl_training.types import State


class Filter(NamedTuple):
    """How observations are shown to the policies of a whole generation."""

    shift: np.ndarray  # [obs_dim] float32
    scale: np.ndarray  # [obs_dim] float32
    clip: float


@dataclass(frozen=True, slots=True)
class Generation:
    """All that decides what a generation's episodes are, but for the environment."""

    seed: int
    number: int
    parameters: np.ndarray  # [P] float32, the policy that is perturbed
    noise_std: float
    episodes: int = 1  # for each sign of a direction
    action_noise: float = 0.0
    max_steps: int | None = None
    filter: Filter | None = None
    wants_moments: bool = False  # of the observations, for the next generation's filter

    def perturbation(self, direction: int) -> np.ndarray:
        """Anybody can make it from these few numbers, so it need not be sent. To be read only."""
        return self._drawn([direction])[0]

    def perturbations(self, directions: Sequence[int]) -> np.ndarray:
        """One below the other."""
        return np.stack(self._drawn(directions))

    def _drawn(self, directions: Sequence[int]) -> list[np.ndarray]:
        drawn = _drawn(self.seed, self.number, len(self.parameters))
        missing = [direction for direction in directions if direction not in drawn]
        for direction, rng in zip(missing, self.rngs(Stream.PERTURBATIONS, missing), strict=True):
            drawn[direction] = rng.standard_normal(len(self.parameters), dtype=np.float32)
            drawn[direction].flags.writeable = False
        return [drawn[direction] for direction in directions]

    def digest(self) -> int:
        """Of the policy and of how it sees; two who mean the same generation have the same."""
        crc = zlib.crc32(self.parameters.tobytes(), self.max_steps or 0)
        for seen in () if self.filter is None else (self.filter.shift, self.filter.scale):
            crc = zlib.crc32(seen.tobytes(), crc)
        return zlib.crc32(self.number.to_bytes(8, "little"), crc)

    def episode_seeds(self, directions: Sequence[int]) -> np.ndarray:
        """[directions, episodes]. Both signs meet the same, so that their difference is due to the parameters alone."""
        first = (self.seed, Stream.POPULATION_ENVS, self.number)
        seeds = episode_seeds([(*first, direction, episode) for direction in directions for episode in range(self.episodes)])
        return np.array(seeds).reshape(len(directions), self.episodes)

    def rngs(self, stream: Stream, directions: Sequence[int]) -> list[np.random.Generator]:
        """A generator for each direction."""
        return generators([(self.seed, stream, self.number, direction) for direction in directions])


@lru_cache(maxsize=1)
def _drawn(seed: int, number: int, size: int) -> dict[int, np.ndarray]:  # noqa: ARG001 (they say whose they are)
    """The perturbations of the last generation by direction: who has evaluated it learns from it next."""
    return {}


class Fitness(NamedTuple):
    """What was found out about some directions, one row each; axis 1 is the sign, + before −."""

    directions: np.ndarray  # [D]
    returns: np.ndarray  # [D, 2, episodes] float64; not a number where the environment gave one that is not finite
    lengths: np.ndarray  # [D, 2, episodes]
    sums: np.ndarray  # [D, 2, obs_dim] of the observations' distances from the filter's shift, and of their squares

    @classmethod
    def join(cls, parts: Sequence[Fitness]) -> Fitness:
        """In the order of the directions, whoever evaluated them and whenever."""
        joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        return cls(*(column[order] for column in joined))

    def to_rows(self) -> np.ndarray:
        """Everything but the directions' numbers, one row of float64 each, for a way through the network."""
        return np.concatenate([column.reshape(len(column), -1) for column in self[1:]], axis=1, dtype=np.float64)

    @classmethod
    def from_rows(cls, rows: np.ndarray, directions: Sequence[int], *, episodes: int) -> Fitness:
        """The inverse of `to_rows`."""
        returns, lengths, sums = np.split(rows, [2 * episodes, 4 * episodes], axis=1)
        shape = (len(rows), 2, episodes)
        counts = lengths.astype(np.int64).reshape(shape)
        return cls(np.asarray(directions), returns.reshape(shape), counts, sums.reshape(len(rows), 2, -1))


class Sample(NamedTuple):
    """One direction of a generation and what it came to, for whoever goes on to find it out once more."""

    generation: Generation
    fitness: Fitness

    @classmethod
    def of(cls, generation: Generation, fitness: Fitness) -> Sample:
        """The first of some directions."""
        shown = generation.filter and generation.filter._replace(
            shift=generation.filter.shift.copy(), scale=generation.filter.scale.copy()
        )
        return cls(replace(generation, filter=shown, wants_moments=False), Fitness(*(column[:1].copy() for column in fitness)))

    def difference(self, again: Fitness) -> str | None:
        """How the second time differs, if it does."""
        if again.returns.tobytes() == self.fitness.returns.tobytes() and np.array_equal(again.lengths, self.fitness.lengths):
            return None
        earned = np.abs(again.returns - self.fitness.returns).max()
        steps = np.abs(again.lengths - self.fitness.lengths).max()
        return f"returns differ by up to {earned:g}, its lengths by up to {steps}"

    def state_dict(self) -> State:
        generation, fitness = self
        return {
            **{name: getattr(generation, name) for name in ("number", "parameters", "noise_std", "max_steps")},
            "filter": generation.filter and {"shift": generation.filter.shift, "scale": generation.filter.scale},
            **{name: getattr(fitness, name) for name in ("directions", "returns", "lengths")},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], like: Generation, *, clip: float) -> Sample:
        """The inverse of `state_dict`; what is the same for all generations of a run is that of `like`."""
        shown = state["filter"] and Filter(state["filter"]["shift"], state["filter"]["scale"], clip)
        own = {name: state[name] for name in ("number", "parameters", "noise_std", "max_steps")}
        directions, returns, lengths = (np.asarray(state[name]) for name in ("directions", "returns", "lengths"))
        fitness = Fitness(directions, returns, lengths, sums=np.zeros((1, 2, 0)))
        return cls(replace(like, filter=shown, wants_moments=False, **own), fitness)


@runtime_checkable
class RemotePopulation(Protocol):
    """Workers on other machines that evaluate generations, each following the learner by itself."""

    def lead(self, loop: Any) -> None:
        """From now on the workers follow this evolution loop."""

    def evaluate(self, generation: Generation, directions: Sequence[int]) -> Fitness:
        """The fitness of these directions."""

    def close(self) -> None:
        """End the workers."""
