"""Where a run stands in its episodes, and the actions that lead there again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rl_training.envs.repeats import Episode, Origin, checked_arrays, episodes_state, origins_state
from rl_training.envs.vector import VectorEnvs
from rl_training.errors import CheckpointError
from rl_training.types import EnvSpec, State


class Book(NamedTuple):
    """Where the run stands. Never changed, only replaced whole: a bookmark is a reference, and half a step cannot happen."""

    time: int  # rows of the action log in use
    episodes: np.ndarray  # [N] which episode each environment is in
    seeds: list[int]  # [N] theirs
    lengths: np.ndarray  # [N] steps in it
    returns: np.ndarray  # [N] float64, rewards in it
    obs: np.ndarray  # [N, obs_dim] what the next action answers to
    finished: list[Episode | None]  # [N] the last of each environment that is over and can be kept
    masks: np.ndarray | None  # [N, action_dim] what the next action may be, where the environments say so
    origins: list[Origin]  # [N] states to take the episodes up from, where the environments give such; else none

    @property
    def logged(self) -> np.ndarray:
        """[N] the actions that lead here from where an episode can be taken up."""
        return self.lengths - np.array([origin.steps for origin in self.origins]) if self.origins else self.lengths


class ActionLog:
    """One row of actions for every step of all environments, as far back as the running episodes go."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._rows = np.empty((64, *shape), dtype=dtype)

    def __len__(self) -> int:
        """How many steps there is room for."""
        return len(self._rows)

    def write(self, time: int, actions: np.ndarray) -> None:
        self._rows[time] = actions

    def last(self, time: int, env: int, count: int) -> np.ndarray:
        """The last so many actions of an environment before a time."""
        actions: np.ndarray = self._rows[time - count : time, env]
        return actions

    def since(self, book: Book, env: int) -> np.ndarray:
        """What an environment was given since its running episode can be taken up."""
        return self.last(book.time, env, int(book.logged[env]))

    def state_of(self, book: Book, spec: EnvSpec) -> State:
        """The book as a checkpoint holds it; `actions` are those that can be repeated, environment behind environment."""
        more: State = {} if book.masks is None else {"masks": book.masks.copy()}
        more |= {"origins": origins_state(book.origins)} if book.origins else {}
        return {
            "episodes": book.episodes.copy(),
            "lengths": book.lengths.copy(),
            "returns": book.returns.copy(),
            "obs": book.obs.copy(),
            "actions": np.concatenate([self.since(book, env) for env in range(len(book.lengths))]),
            "finished": episodes_state(book.finished, spec),
            **more,
        }

    def load(self, actions: np.ndarray, counts: Sequence[int]) -> int:
        """Begin with so many actions of each environment, one environment behind another; gives the time."""
        time = max(counts)
        self._rows = np.empty((max(64, 2 * time), *self._rows.shape[1:]), dtype=self._rows.dtype)
        for env, mine in enumerate(np.split(actions, np.cumsum(counts)[:-1])):
            self._rows[time - len(mine) : time, env] = mine
        return time

    def make_room(self, book: Book, mark: Book | None) -> tuple[Book, Book | None]:
        """Drop the actions of episodes that neither run nor ran at the mark; where that is not enough, double the log."""
        first = mark or book
        oldest = int(min((book.time - book.logged).min(), (first.time - first.logged).min()))
        kept = self._rows[oldest : book.time]
        room = len(self._rows) if 2 * len(kept) <= len(self._rows) else 2 * len(self._rows)
        self._rows = np.empty((room, *self._rows.shape[1:]), dtype=self._rows.dtype)
        self._rows[: len(kept)] = kept
        moved = book._replace(time=book.time - oldest)
        if mark is None or mark is book:
            return moved, mark and moved
        return moved, mark._replace(time=mark.time - oldest)


def with_origins(book: Book, envs: VectorEnvs, index: Sequence[int] | None = None) -> Book:
    """The book with the states in which the environments named, or all, are now; as it is where they give none."""
    chosen = range(len(book.lengths)) if index is None else index
    states = envs.states.get(chosen)
    if states is None:
        return book
    origins = dict(enumerate(book.origins))
    for env, state in zip(chosen, states, strict=True):
        origins[env] = Origin(state, int(book.lengths[env]), float(book.returns[env]))
    return book._replace(origins=[origins[env] for env in range(len(book.lengths))])


def checked_state(
    state: Mapping[str, Any], spec: EnvSpec, book: Book, origins: Sequence[Origin], *, seed: int, stream: int
) -> dict[str, np.ndarray]:
    """The arrays of a saved state, if it is one of environments such as those that `book` is of."""
    if missing := [name for name in ("lengths", "seed", "stream", "exact") if name not in state]:
        raise CheckpointError(f"the saved environments lack {', '.join(missing)}")
    num_envs, masked = len(book.lengths), book.masks is not None
    saved = f"num_envs={np.asarray(state['lengths']).size}, seed={state['seed']}, stream={state['stream']}"
    here = f"num_envs={num_envs}, seed={seed}, stream={stream}"
    if saved != here:
        raise CheckpointError(f"the environments were saved with {saved}; this run has {here}")
    if ("masks" in state) != masked:
        was, now = ("with", "without") if "masks" in state else ("without", "with")
        raise CheckpointError(f"the environments were saved {was} action masks; {spec.env_id} now comes {now} them")
    if origins and not book.origins:
        raise CheckpointError(f"the environments were saved by their get_state(); {spec.env_id} now offers none")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("episodes", "lengths", "returns"), (num_envs,))
    shapes |= {"masks": (num_envs, spec.action_dim)} if masked else {}
    return checked_arrays(state, spec, shapes, without=sum(origin.steps for origin in origins))
