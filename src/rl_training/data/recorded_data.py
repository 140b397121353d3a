"""Transitions as somebody recorded them: found by the names in use, checked, and brought to the learner's terms."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from rl_training.data.recorded_arrays import Arrays
from rl_training.data.successors import limits_reached, stand_ins
from rl_training.errors import DatasetError
from rl_training.types import EnvSpec

log = logging.getLogger(__name__)

BOUND_TOLERANCE = 1e-4  # of half the range: what rounding can do to an action that lies on a bound


@dataclass(frozen=True)
class RecordedData:
    """One row per transition, actions in the environment's own scale. `origin` is what messages call it.

    `terminations` is true where an episode was really over, `truncations` where it was cut by a limit or where the
    recording ends.
    """

    origin: str
    obs: np.ndarray  # (n, obs_dim) float32
    actions: np.ndarray  # (n, action_dim) float32; (n,) or, of an action in parts, (n, parts) int64 when discrete
    rewards: np.ndarray  # (n,) float32
    next_obs: np.ndarray  # (n, obs_dim) float32
    terminations: np.ndarray  # (n,) bool
    truncations: np.ndarray  # (n,) bool
    unfinished: int = 0  # rows of a last episode that only the end of the recording cut

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def cuts(self) -> np.ndarray:
        """True where an episode ended for any reason."""
        cuts: np.ndarray = self.terminations | self.truncations
        return cuts

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], origin: str, *, time_limit: int | None = None) -> RecordedData:
        """From named arrays, or DatasetError with the array, the row and the column at fault.

        `time_limit` is the environment's own: where neither next observations nor cuts are recorded, episodes are taken to
        be cut there.
        """
        given = Arrays(arrays, origin)
        obs, actions, rewards = given.matrix("obs"), given.actions(), given.vector("rewards")
        terminations, truncations = given.ends()
        if given.has("next_obs"):
            next_obs = given.matrix("next_obs")
            if next_obs.shape != obs.shape:
                given.refuse("next_obs", f"has shape {next_obs.shape}, the observations have {obs.shape}")
            return cls(origin, obs, actions, rewards, next_obs, terminations, truncations)
        if not given.tells_cuts:
            truncations = _assumed_cuts(terminations, time_limit, origin)
        return cls(origin, obs, actions, rewards, np.roll(obs, -1, axis=0), terminations, truncations)._with_successors()

    def _with_successors(self) -> RecordedData:
        """Without recorded next observations the next row's stand in; rows cut by a limit have none and are left out."""
        last = np.arange(len(self)) == len(self) - 1
        kept = self.terminations | ~(self.truncations | last)
        if not kept.any():
            raise DatasetError(f"{self.origin}: no next observations are recorded, and no row has a successor in its episode")
        if dropped := int((~kept).sum()):
            log.info(
                "%s: no next observations recorded; %d rows at the end of episodes have no successor", self.origin, dropped
            )
        # nothing follows a termination; its own observation is as good as any, and `stand_ins` knows it by that
        next_obs = np.where(self.terminations[:, None], self.obs, self.next_obs)
        # the row before one that was left out is now the last of its episode
        truncations = self.truncations | np.append(~kept[1:], True) & ~self.terminations
        whole = RecordedData(self.origin, self.obs, self.actions, self.rewards, next_obs, self.terminations, truncations)
        return whole.select(kept)

    @property
    def stand_ins(self) -> np.ndarray:
        """True where `next_obs` is not what the action led to (see `successors.stand_ins`)."""
        return stand_ins(self.obs, self.next_obs, self.terminations)

    def select(self, rows: np.ndarray | slice) -> RecordedData:
        """Some of the rows."""
        names = ("obs", "actions", "rewards", "next_obs", "terminations", "truncations")
        return RecordedData(self.origin, **{name: getattr(self, name)[rows] for name in names})

    def episodes(self) -> list[slice]:
        """The stretches of rows that belong together; rows after the last end are an episode that was not finished."""
        ends = (np.flatnonzero(self.cuts) + 1).tolist()
        if not ends or ends[-1] != len(self):
            ends.append(len(self))
        return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    def columns(
        self, spec: EnvSpec, *, clip_actions: bool = False, reward_scale: float = 1.0, reward_shift: float = 0.0
    ) -> dict[str, np.ndarray]:
        """As a learner in `spec`'s environment wants them, or DatasetError when they are of another environment."""
        if self.obs.shape[1] != spec.obs_dim:
            self._refuse(f"observations have {self.obs.shape[1]} numbers, those of {spec.env_id} have {spec.obs_dim}")
        return {
            "obs": self.obs,
            "actions": self._indices(spec) if spec.discrete else self._scaled_actions(spec, clip=clip_actions),
            "rewards": self.rewards * np.float32(reward_scale) + np.float32(reward_shift),
            "next_obs": self.next_obs,
            "dones": self.terminations.astype(np.float32),
            "cuts": self.cuts.astype(np.float32),
        }

    def _scaled_actions(self, spec: EnvSpec, *, clip: bool) -> np.ndarray:
        actions = self.actions.reshape(len(self), -1)
        if actions.shape[1] != spec.action_dim:
            self._refuse(f"actions have {actions.shape[1]} numbers, those of {spec.env_id} have {spec.action_dim}")
        scaled = spec.from_env(actions)
        outside = np.abs(scaled) > 1 + BOUND_TOLERANCE
        if outside.any() and not clip:
            row, column = (int(i) for i in np.argwhere(outside)[0])
            count = int(outside.any(axis=1).sum())
            bounds = f"{spec.low[column]:g} to {spec.high[column]:g}"
            self._refuse(
                f"actions, row {row}, column {column}: {actions[row, column]:g} lies outside {bounds} ({count} of "
                f"{len(self)} rows do); if the environment clips them as well, allow it with dataset_clip_actions: true"
            )
        inside: np.ndarray = scaled.clip(-1, 1)
        return inside

    def _indices(self, spec: EnvSpec) -> np.ndarray:
        actions, choices = self.actions.reshape(len(self), -1), np.array(spec.choices)
        if actions.shape[1] != len(choices):
            takes = f"{len(choices)} choices" if spec.nvec else f"one of {spec.action_dim}"
            self._refuse(f"actions have {actions.shape[1]} numbers, {spec.env_id} takes {takes}")
        chosen = spec.from_env(actions)
        bad = (actions != np.round(actions)) | (chosen < 0) | (chosen >= choices)
        if bad.any():
            row, part = (int(i) for i in np.argwhere(bad)[0])
            first, last = spec.starts[part], spec.starts[part] + choices[part] - 1
            self._refuse(f"actions, row {row}: {actions[row, part]:g} is none of {first} to {last}")
        return chosen.astype(np.int64).reshape(len(self), *spec.action_shape)

    def _refuse(self, problem: str) -> NoReturn:
        raise DatasetError(f"{self.origin}: {problem}; was it recorded in another environment?")


def _assumed_cuts(terminations: np.ndarray, time_limit: int | None, origin: str) -> np.ndarray:
    """Where episodes were cut in a recording that says nothing of it; what is assumed is said."""
    reached = np.zeros_like(terminations) if time_limit is None else limits_reached(terminations, time_limit)
    assumed = "every row that is no termination is taken to have led to the next row's observation"
    if time_limit is not None:
        assumed = f"episodes are taken to be cut by the environment's own limit of {time_limit} steps, as {reached.sum():,} are"
    log.warning(
        "%s: neither next observations nor truncations are recorded; %s. Where that is wrong the data has jumps in it: record "
        "truncations, episode_id or next_observations",
        *(origin, assumed),
    )
    return reached
