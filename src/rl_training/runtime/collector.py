"""Stepping environments, and saying truthfully what happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from rl_training.envs.pool import EnvPool
from rl_training.forms import COUNT, GENERATOR, Array, Record, flag
from rl_training.runtime.rng import Stream
from rl_training.types import Collected, EnvSpec, State

if TYPE_CHECKING:
    from torch import Tensor

    from rl_training.types import Batch


class Explorer(Protocol):
    """Whoever chooses the actions: a learner, or a behaviour to record."""

    def explore(self, obs: Tensor) -> Tensor: ...


class Collector:
    """The only place that steps environments for training.

    `dones` is 1 where an episode was really over, `cuts` where it ended for any reason; `next_obs` is what the
    action led to, even where an episode ended.
    """

    def __init__(self, pool: EnvPool, spec: EnvSpec, algorithm: Explorer, *, seed: int, device: torch.device) -> None:
        self.pool, self.spec, self.algorithm, self.device = pool, spec, algorithm, device
        self.rng = np.random.default_rng((seed, Stream.WARMUP_ACTIONS))
        self._here = device.type == "cpu"
        self._rng_mark, self._drawn = self.rng.bit_generator.state, False

    @property
    def num_envs(self) -> int:
        return self.pool.num_envs

    def collect(self, num_steps: int, *, random: bool = False) -> tuple[dict[str, np.ndarray], Collected]:
        """`num_steps` in every environment: columns of shape (num_steps, num_envs, ...), and the episodes that ended."""
        pool, shape = self.pool, (num_steps, self.pool.num_envs)
        obs = np.empty((*shape, self.spec.obs_dim), dtype=np.float32)
        next_obs = np.empty_like(obs)
        if self.spec.discrete:
            actions: np.ndarray = np.empty(shape, dtype=np.int64)
        else:
            actions = np.empty((*shape, self.spec.action_dim), dtype=np.float32)
        rewards = np.empty(shape, dtype=np.float32)
        dones, cuts = np.empty(shape, dtype=bool), np.empty(shape, dtype=bool)
        returns: list[float] = []
        lengths: list[int] = []
        for t in range(num_steps):
            obs[t] = pool.obs
            actions[t] = self._random_actions() if random else self._explore(pool.obs)
            step = pool.step(self.spec.to_env(actions[t]))
            next_obs[t], rewards[t], dones[t] = step.next_obs, step.rewards, step.terminated
            np.logical_or(step.terminated, step.truncated, out=cuts[t])
            returns += step.episode_returns
            lengths += step.episode_lengths
        columns = {"obs": obs, "actions": actions, "rewards": rewards, "next_obs": next_obs}
        columns |= {"dones": dones.astype(np.float32), "cuts": cuts.astype(np.float32)}
        return columns, Collected(num_steps * pool.num_envs, returns, lengths)

    def _explore(self, obs: np.ndarray) -> np.ndarray:
        rows = torch.from_numpy(obs)
        if self._here:  # as most are, and then these two calls are the dearest here
            return self.algorithm.explore(rows).numpy()
        return self.algorithm.explore(rows.to(self.device)).cpu().numpy()

    def _random_actions(self) -> np.ndarray:
        self._drawn = True
        if self.spec.discrete:
            return self.rng.integers(self.spec.action_dim, size=self.pool.num_envs)
        return self.rng.uniform(-1, 1, size=(self.pool.num_envs, self.spec.action_dim)).astype(np.float32)

    def mark(self) -> None:
        """Remember where the turn began, so that `rewind` can go back there should an environment break."""
        self.pool.mark()
        if self._drawn:  # reading it takes longer than all else here, and most turns leave it as it is
            self._rng_mark, self._drawn = self.rng.bit_generator.state, False

    def rewind(self) -> None:
        self.pool.rewind()
        self.rng.bit_generator.state = self._rng_mark

    def state_dict(self) -> State:
        return {"envs": self.pool.state_dict(), "rng": self.rng.bit_generator.state}

    def state_form(self, steps: int) -> Record:
        """What its state must look like after so many steps of a run."""
        envs, spec, most = self.num_envs, self.spec, float(steps)
        actions = Array((None,), "i") if spec.discrete else Array((None, spec.action_dim))
        return Record(
            {
                "rng": GENERATOR,
                "envs": Record(
                    {
                        "seed": COUNT,
                        "stream": COUNT,
                        "exact": flag,
                        **dict.fromkeys(("episodes", "lengths"), Array((envs,), "i", least=0, most=most)),
                        "returns": Array((envs,)),
                        "obs": Array((envs, spec.obs_dim)),
                        "actions": actions,
                    }
                ),
            }
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.pool.load_state_dict(state["envs"])
        self.rng.bit_generator.state = state["rng"]
        self._drawn = True


def to_batch(columns: Mapping[str, np.ndarray], device: torch.device) -> Batch:
    """Columns as tensors; on the CPU they share their memory."""
    return {name: torch.from_numpy(column).to(device) for name, column in columns.items()}
