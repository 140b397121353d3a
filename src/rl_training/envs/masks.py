"""Action masks: which choices are allowed now, as the environment says it, checked before anybody acts on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from rl_training.errors import words_of
from rl_training.types import EnvSpec

METHOD, INFO_KEY = "action_masks", "action_mask"  # as sb3-contrib's and Gymnasium's environments call them
HOW = f"an environment says what is allowed by {METHOD}() or by info[{INFO_KEY!r}], in reset and at every step"

Way: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""From a step's info to the mask as the environment gives it."""


def as_masks(given: Any, spec: EnvSpec, *, rows: int | None = None) -> np.ndarray:
    """One flag for each choice, (action_dim,) bool or (rows, action_dim), those of a MultiDiscrete action one part after the
    other; ValueError that says what is wrong with it."""
    parts = spec.choices
    if isinstance(given, tuple | list) and rows is None and len(given) == len(spec.nvec) > 0 and np.ndim(given[0]) == 1:
        if (lengths := tuple(map(len, given))) != spec.nvec:  # one array for each part, as Gymnasium samples with
            raise ValueError(f"has parts of lengths {lengths}; those of the action have {spec.nvec} choices")
        given = np.concatenate(given)
    masks, shape = np.asarray(given), (spec.action_dim,) if rows is None else (rows, spec.action_dim)
    if masks.shape != shape:
        raise ValueError(f"has shape {masks.shape}; with one flag for each choice it would be {shape}")
    if masks.dtype != np.bool_:
        if masks.dtype.kind not in "iuf" or not ((masks == 0) | (masks == 1)).all():
            raise ValueError(f"is not of flags, True and False or 1 and 0: {np.array2string(masks, threshold=8)}")
        masks = masks.astype(np.bool_)
    allowed = np.logical_or.reduceat(masks, np.cumsum((0, *parts[:-1])), axis=-1)
    if not allowed.all():
        row, part = divmod(int(np.flatnonzero(~allowed)[0]), len(parts))
        where = [f"in row {row}"] * (rows is not None) + [f"in part {part} of the action"] * (len(parts) > 1)
        raise ValueError(" ".join(["allows nothing", *where]))
    return masks


class MaskReader:
    """What is allowed now in each of some environments, `self.now` (environments, action_dim).

    Whether and how they say it is seen at the first reset of the first of them; `spec.masked` says where it is known before.
    """

    def __init__(self, envs: Sequence[gym.Env[Any, Any]], spec: EnvSpec) -> None:
        self._envs, self._spec = envs, spec
        self._ways: dict[int, Way] = {}
        self._optional = spec.masked is None
        self.now = np.zeros((len(envs), spec.action_dim), dtype=np.bool_)

    def read(self, index: int, info: Any) -> bool:
        """Take in what one environment says after a reset or a step; False where none need say anything, and the first does
        not. ValueError that says what is wrong."""
        if index not in self._ways:
            way = self._way(index, info)
            if way is None:
                if self._optional:
                    return False
                raise ValueError(f"says nothing of what is allowed; {HOW}")
            self._ways[index], self._optional = way, False
        try:
            given = self._ways[index](info)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise ValueError(f"gave no action mask: {words_of(error)}; {HOW}") from error
        try:
            self.now[index] = as_masks(given, self._spec)
        except ValueError as error:
            raise ValueError(f"gave an action mask that {error}") from error
        return True

    def _way(self, index: int, info: Any) -> Way | None:
        """How the environment, which was just reset, says what is allowed."""
        env = self._envs[index]
        if env.has_wrapper_attr(METHOD) and callable(ask := env.get_wrapper_attr(METHOD)):
            return lambda _: ask()
        return (lambda info: info[INFO_KEY]) if isinstance(info, Mapping) and INFO_KEY in info else None
