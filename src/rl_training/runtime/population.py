"""How good perturbed policies are: whole shares of a population evaluated as one batched policy in many environments.

What comes out for a direction depends on the generation and the direction's number alone: not on how many are
evaluated together, in which environments, or on which machine of the same kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rl_training.envs.faults import EnvFault, all_finite, learnable
from rl_training.envs.vector import VectorEnvs
from rl_training.kernels.population import policies_around
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.runtime.generation import Fitness, Generation
from rl_training.runtime.observation_sums import ObservationSums
from rl_training.runtime.rng import Stream
from rl_training.types import EnvSpec

CACHE_BYTES = 2 << 20  # of parameters evaluated together; much more than the second-level cache holds is slower
NOISE_STEPS = 256  # action noise is drawn for as many steps at a time


class PopulationEvaluator:
    """Evaluates directions in environments it is given; they are kept, and reset for every episode."""

    def __init__(self, model: MLPARSModel, envs: VectorEnvs, spec: EnvSpec) -> None:
        self.model, self.envs, self.spec = model, envs, spec

    def run(self, generation: Generation, directions: Sequence[int]) -> Fitness:
        """Both signs of the directions, as many at a time as fit the cache and the environments."""
        room = self.envs.num_envs // (2 * generation.episodes)
        fit = CACHE_BYTES // (2 * generation.parameters.nbytes)
        count = math.ceil(len(directions) / max(1, min(room, fit)))
        edges = [len(directions) * i // count for i in range(count + 1)]
        return Fitness.join([self._evaluate(generation, directions[a:b]) for a, b in pairwise(edges)])

    def _evaluate(self, generation: Generation, directions: Sequence[int]) -> Fitness:
        share = _Share(self.model, self.envs, self.spec, generation, directions)
        while len(share.rows):
            share.step()
        shape = (len(directions), 2, generation.episodes)
        returns = np.where(learnable(share.returns), share.returns, np.nan)
        sums = share.sums.reshape(2, len(directions), 2 * generation.episodes, -1).sum(axis=2).swapaxes(0, 1)
        return Fitness(np.asarray(directions), returns.reshape(shape), share.lengths.reshape(shape), sums)


class _Share:
    """Members that are evaluated together, in pairs, + before −. Row r is episode r % episodes of member r // episodes.

    `rows` are the episodes under way, `slots` the environments they run in; `obs`, `births` (steps that the share had
    made before), `totals` and `seen` belong to them, in the same order. Episodes for which there is no environment yet
    wait for one.
    """

    def __init__(
        self, model: MLPARSModel, envs: VectorEnvs, spec: EnvSpec, generation: Generation, directions: Sequence[int]
    ) -> None:
        self.model, self.envs, self.spec, self.generation, self.directions = model, envs, spec, generation, directions
        count = 2 * len(directions) * generation.episodes
        self.returns, self.lengths = np.zeros(count), np.zeros(count, dtype=np.int64)
        self.sums = np.zeros((2, count, spec.obs_dim))
        self.seeds = generation.episode_seeds(directions).repeat(2, axis=0).ravel().tolist()
        self.steps = np.float32(generation.noise_std) * generation.perturbations(directions)
        self.noise = _ActionNoise(generation, directions, spec)
        self.rows = self.slots = self.births = np.zeros(0, dtype=np.int64)
        self.obs, self.totals = np.zeros((0, spec.obs_dim), dtype=np.float32), np.zeros(0)
        self.seen = ObservationSums(spec.obs_dim, raw=generation.filter is None)
        self.begun = self.clock = 0
        if (how := generation.filter) is not None:  # matrices: with one row for all an operation takes three times as long
            self.tiles = [np.tile(row, (min(count, envs.num_envs), 1)) for row in (how.shift, how.scale)]
            self.clips = [np.array(sign * how.clip, dtype=np.float32) for sign in (-1, 1)]
        self._lay_out(np.arange(2 * len(directions)))
        self._begin(np.arange(min(count, envs.num_envs)))

    def step(self) -> None:
        """One step of every episode under way."""
        actions = self.spec.to_env(self.noise.added(self._act(), *self._when()))
        try:
            done = self.envs.step(actions) if self.every_slot else self.envs.step_some(self.slots, actions)
        except EnvFault as fault:
            raise self._located(fault) from fault
        self.obs = done.obs
        self.totals += done.rewards
        self.clock += 1
        over = done.terminated | done.truncated
        if self.generation.max_steps is not None:
            over |= self.births <= self.clock - self.generation.max_steps
        if not all_finite(done.obs):  # rewards show in the totals
            broken = ~np.isfinite(done.obs).all(axis=1)
            self.totals[broken] = np.nan
            over |= broken
        if 1 in over.tobytes():
            self._end(over)

    def _act(self) -> np.ndarray:
        """The learner's actions for the rows under way, from the observations as the filter shows them."""
        shown, seen = self.obs, self.seen.next_step() if self.generation.wants_moments else None
        if (how := self.generation.filter) is not None:
            distance = np.subtract(shown, self.shift, out=seen)
            shown = distance * self.scale
            if how.clip < math.inf:
                np.maximum(shown, self.clips[0], out=shown)
                np.minimum(shown, self.clips[1], out=shown)
        elif seen is not None:
            seen[:] = shown
        if self.everywhere:
            self.inputs[:] = shown.reshape(self.inputs.shape)
        else:
            self.inputs[self.where] = shown
        actions = self.policies.act()
        return actions.reshape(self.as_rows) if self.everywhere else actions[self.where]

    def _when(self) -> tuple[Any, Any]:
        """The rows under way and how many steps each has made, as indices; a slice and a number where all go together."""
        return (slice(None), self.clock - self.birth) if self.birth is not None else (self.rows, self.clock - self.births)

    def _begin(self, slots: np.ndarray) -> None:
        """The next episodes that wait, in the environments named."""
        slots = slots[: len(self.returns) - self.begun]
        rows = np.arange(self.begun, self.begun + len(slots))
        self.begun += len(slots)
        if len(rows):
            self.rows, self.slots = np.append(self.rows, rows), np.append(self.slots, slots)
            try:
                obs = self.envs.reset(slots, [self.seeds[row] for row in rows])
            except EnvFault as fault:
                raise self._located(fault) from fault
            totals = np.zeros(len(rows))
            if not all_finite(obs):  # its return is lost already; nobody acts on what it showed
                broken = ~np.isfinite(obs).all(axis=1)
                obs[broken], totals[broken] = 0.0, np.nan
            self.obs = np.concatenate([self.obs, obs])
            self.births = np.append(self.births, np.full_like(rows, self.clock))
            self.totals = np.append(self.totals, totals)
            self.seen.append(len(rows))
        self._place()

    def _end(self, over: np.ndarray) -> None:
        """Note down the episodes that are over and go on with the others; those that wait get their environments."""
        rows, free = self.rows[over], self.slots[over]
        self.returns[rows], self.lengths[rows] = self.totals[over], self.clock - self.births[over]
        self.sums[:, rows] = self.seen.pop(over)
        left = ~over
        self.rows, self.slots, self.births = self.rows[left], self.slots[left], self.births[left]
        self.obs, self.totals = self.obs[left], self.totals[left]
        if self.begun == len(self.returns) and 0 < 2 * len(self.rows) <= len(self.members) * self.generation.episodes:
            members = np.unique(self.rows // self.generation.episodes)
            if 2 * len(members) <= len(self.members) and len(self.members) > 2:
                self._lay_out(members if len(members) > 1 else np.unique(np.append(members, [0, 1])))
        self._begin(free)

    def _lay_out(self, members: np.ndarray) -> None:
        """Make the batched policy of these members; those whose episodes are over need not be computed."""
        generation, self.members = self.generation, members
        self.policies = policies_around(self.model.shape, generation.parameters, self.steps, members, rows=generation.episodes)
        self.inputs = self.policies.obs.numpy()
        self.as_rows = (-1, *self.spec.action_shape)

    def _place(self) -> None:
        """Where the rows under way stand in the batched policy, and whether they are all there is."""
        episodes = self.generation.episodes
        self.where = np.searchsorted(self.members, self.rows // episodes), self.rows % episodes
        self.everywhere = np.array_equal(self.where[0] * episodes + self.where[1], np.arange(len(self.members) * episodes))
        self.every_slot = np.array_equal(self.slots, np.arange(self.envs.num_envs))
        all_together = len(self.rows) == len(self.returns) and len(np.unique(self.births)) == 1
        self.birth = int(self.births[0]) if all_together else None
        if self.generation.filter is not None:
            self.shift, self.scale = (tile[: len(self.rows)] for tile in self.tiles)

    def _located(self, fault: EnvFault) -> EnvFault:
        row = self.rows[self.slots.tolist().index(fault.index)]
        direction = self.directions[row // (2 * self.generation.episodes)]
        where = f"generation {self.generation.number}, direction {direction}"
        return EnvFault(self.spec.env_id, fault.index, fault.what, where=where)


class _ActionNoise:
    """Noise on continuous actions: a table that grows, from a stream for each direction. Both signs meet the same."""

    def __init__(self, generation: Generation, directions: Sequence[int], spec: EnvSpec) -> None:
        wanted = generation.action_noise > 0 and not spec.discrete
        self.streams = generation.rngs(Stream.ACTION_NOISE, directions) if wanted else []
        self.episodes, self.std = generation.episodes, np.float32(generation.action_noise)
        self.table = np.zeros((0, 2 * len(directions) * self.episodes, spec.action_dim), dtype=np.float32)

    def added(self, actions: np.ndarray, rows: Any, ages: Any) -> np.ndarray:
        """`actions` of the rows, each with the noise for its age."""
        if not self.streams:
            return actions
        while (ages if isinstance(ages, int) else ages.max()) >= len(self.table):
            self._grow()
        noisy: np.ndarray = actions + self.table[ages, rows]
        return noisy

    def _grow(self) -> None:
        shape = (NOISE_STEPS, 1, self.episodes, self.table.shape[2])
        block = self.std * np.stack([stream.standard_normal(shape, dtype=np.float32) for stream in self.streams], axis=1)
        self.table = np.concatenate([self.table, block.repeat(2, axis=2).reshape(NOISE_STEPS, *self.table.shape[1:])])
