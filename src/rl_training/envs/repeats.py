"""Episodes played once more: to come back into those that run, and to see whether those that are over come out as they did.

That an episode is a function of its seed and its actions is what exact resume stands on, and nobody but the environment's
author can promise it. So each checkpoint keeps a few whole episodes, and a resume repeats them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rl_training.envs.faults import EnvFault
from rl_training.envs.vector import VectorEnvs, action_dtype
from rl_training.errors import CheckpointError
from rl_training.rows import layout_of
from rl_training.types import EnvSpec, State

KEPT_BYTES = 16 << 20  # of actions, over all environments; a longer episode is not kept
NO_FUNCTION = (
    "Its episodes are no function of their seeds and actions, or its version has changed: what follows is not what an "
    "uninterrupted run would have given"
)


class Episode(NamedTuple):
    """A whole one, or one up to where it is: what it was given, and what came of it."""

    seed: int
    actions: np.ndarray  # [length, ...] the environment's own
    total: float  # the return
    obs: np.ndarray  # [obs_dim] the last
    masks: np.ndarray | None = None  # [action_dim] what is allowed next, of one that goes on
    origin: Origin | None = None  # where it is taken up, in place of the seed; `actions` are those since


class Origin(NamedTuple):
    """A state that an environment gave, so many steps into an episode that had earned so much."""

    state: bytes
    steps: int
    total: float


def most_steps(spec: EnvSpec, *, num_envs: int) -> int:
    """The longest finished episode that is kept."""
    return KEPT_BYTES // (num_envs * action_dtype(spec).itemsize * math.prod(spec.action_shape))


def repeat(envs: VectorEnvs, spec: EnvSpec, episodes: Mapping[int, Episode], *, over: bool) -> dict[int, str]:
    """Play episodes once more, each in the environment it is given for; for those that come out differently, how.

    Those that are `over` must end with their last action; others must not, and their environments are left there.
    """
    index, known = list(episodes), list(episodes.values())
    if not known:
        return {}
    found = {}
    played = _played(envs, spec, index, known)
    states = envs.states.get(index) if known[0].origin else None
    for row, (env, episode, obs, total, end) in enumerate(zip(index, known, *played, strict=True)):
        length = len(episode.actions)
        if end != (length if over else 0):
            found[env] = f"it ended after {end} of {length} steps" if end else f"it did not end after its {length} steps"
        elif total != episode.total or obs.tobytes() != episode.obs.tobytes():
            seen, earned = np.abs(obs.astype(np.float64) - episode.obs).max(), abs(total - episode.total)
            found[env] = f"its observation after {length} steps differs by up to {seen:g}, its return by {earned:g}"
        elif not over and episode.masks is not None and not np.array_equal(envs.masks[env], episode.masks):  # type: ignore[index]
            found[env] = f"something else is allowed after {length} steps"
        elif episode.origin and not length and states and states[row] != episode.origin.state:
            found[env] = "get_state() gives something else than set_state() was given"
    return found


def _played(
    envs: VectorEnvs, spec: EnvSpec, index: Sequence[int], episodes: Sequence[Episode]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The last observation of each, its return, and the number of the step that ended it, 0 where none did."""
    lengths, step = np.array([len(episode.actions) for episode in episodes]), 0
    returns, ends = np.zeros(len(index)), np.zeros(len(index), dtype=np.int64)
    try:
        if origins := [episode.origin for episode in episodes if episode.origin]:
            envs.states.put(index, [origin.state for origin in origins], [origin.steps for origin in origins])
            returns[:] = [origin.total for origin in origins]
            obs = _as_left(envs, index, episodes)
        else:
            obs = envs.reset(index, [episode.seed for episode in episodes])
        for step in range(1, int(lengths.max()) + 1):
            rows = np.flatnonzero((lengths >= step) & (ends == 0))
            if not len(rows):
                break
            actions = np.array([episodes[row].actions[step - 1] for row in rows.tolist()], dtype=action_dtype(spec))
            done = envs.step_some([index[row] for row in rows.tolist()], actions)
            obs[rows] = done.obs
            returns[rows] += done.rewards
            ends[rows[done.terminated | done.truncated]] = step
    except EnvFault as fault:
        raise EnvFault(spec.env_id, fault.index, fault.what, where=f"step {step} of an episode that is repeated") from fault
    return obs, returns, ends


def _as_left(envs: VectorEnvs, index: Sequence[int], episodes: Sequence[Episode]) -> np.ndarray:
    """What was seen last, and allowed, in episodes that are taken up; where nothing follows, nobody says it again."""
    for env, episode in zip(index, episodes, strict=True):
        if envs.masks is not None and episode.masks is not None and not len(episode.actions):
            envs.masks[env] = episode.masks
    return np.array([episode.obs for episode in episodes])


class Recorder:
    """Notes down one episode while it runs, unless it becomes longer than `most` steps."""

    def __init__(self, seed: int, *, most: int) -> None:
        self._seed, self._most = seed, most
        self._actions: list[np.ndarray] = []

    def add(self, action: np.ndarray) -> None:
        """Before the step, since an environment may write into what it is given."""
        if len(self._actions) <= self._most:
            self._actions.append(np.array(action))

    def finished(self, total: float, obs: np.ndarray) -> Episode | None:
        """The episode, if it is one that can be kept."""
        return Episode(self._seed, np.array(self._actions), total, obs.copy()) if len(self._actions) <= self._most else None


def episodes_state(episodes: Sequence[Episode | None], spec: EnvSpec) -> State:
    """Some finished episodes, as a checkpoint holds them; a length of 0 stands for none."""
    no_actions = np.zeros((0, *spec.action_shape), dtype=action_dtype(spec))
    none = Episode(0, no_actions, 0.0, layout_of(spec).zeros(1)[0])
    rows = [none if episode is None else episode for episode in episodes]
    return {
        "seeds": np.array([row.seed for row in rows], dtype=np.int64),
        "lengths": np.array([len(row.actions) for row in rows], dtype=np.int64),
        "returns": np.array([row.total for row in rows], dtype=np.float64),
        "obs": np.array([row.obs for row in rows]),
        "actions": np.concatenate([row.actions for row in rows]),
    }


def episodes_from(state: Mapping[str, Any], spec: EnvSpec, *, count: int) -> list[Episode | None]:
    """The inverse of `episodes_state`."""
    arrays = checked_arrays(state, spec, dict.fromkeys(("seeds", "lengths", "returns"), (count,)))
    actions = np.split(arrays["actions"], np.cumsum(arrays["lengths"])[:-1])
    rows = zip(arrays["seeds"].tolist(), actions, arrays["returns"].tolist(), arrays["obs"], strict=True)
    return [Episode(*row) if len(row[1]) else None for row in rows]


def origins_state(origins: Sequence[Origin]) -> State:
    """As a checkpoint holds them."""
    states = [np.frombuffer(origin.state, dtype=np.uint8) for origin in origins]
    steps, totals = ([getattr(origin, name) for origin in origins] for name in ("steps", "total"))
    return {"states": states, "steps": np.array(steps, dtype=np.int64), "totals": np.array(totals)}


def origins_from(state: Mapping[str, Any], *, count: int) -> list[Origin]:
    """Those of `count` saved environments; none where there are none."""
    if "origins" not in state:
        return []
    saved = state["origins"]
    columns = [np.asarray(saved.get(name, ())).tolist() for name in ("steps", "totals")]
    states = [np.asarray(one, dtype=np.uint8).tobytes() for one in saved.get("states", ())]
    if any(len(column) != count for column in (states, *columns)):
        raise CheckpointError(f"the saved environments have {len(states)} states; there must be {count}")
    return [Origin(one, int(steps), float(total)) for one, steps, total in zip(states, *columns, strict=True)]


def checked_arrays(
    state: Mapping[str, Any], spec: EnvSpec, shapes: Mapping[str, tuple[int, ...]], *, without: int = 0
) -> dict[str, np.ndarray]:
    """The arrays of saved episodes, if they have these shapes; beside them `obs`, and `actions` that are as many as `lengths`
    says (`without` some), one episode behind another."""
    names = (*shapes, "obs", "actions")
    if missing := [name for name in names if name not in state]:
        raise CheckpointError(f"the saved episodes lack {', '.join(missing)}")
    arrays = {name: np.asarray(state[name]) for name in names}
    total = int(np.maximum(arrays["lengths"], 0).sum()) - without
    wanted = {**shapes, "obs": (*shapes["lengths"], spec.obs_dim), "actions": (total, *spec.action_shape)}
    for name, shape in wanted.items():
        if arrays[name].shape != shape:
            raise CheckpointError(f"{name} saved with {spec.env_id} has shape {arrays[name].shape}; it needs {shape}")
    return arrays
