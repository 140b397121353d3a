"""Which spaces can be learnt in, and what to do about the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.errors import UnsupportedSpace
from rl_training.rows import image_shape
from rl_training.types import EnvSpec, ObsPart

FLAT = "a flat Box of numbers"
FLATTEN = "wrap it and pass the factory: lambda: gymnasium.wrappers.FlattenObservation(gymnasium.make(...))"
BOUND = (
    "give it bounds with gymnasium.wrappers.TransformAction(env, lambda action: action, Box(-1, 1, shape)) and pass the "
    "factory, or with env_kwargs if the environment has an option for it"
)


def describe_env(env: gym.Env[Any, Any], env_id: str) -> EnvSpec:
    """Shapes and bounds of `env`, or `UnsupportedSpace` that says what was found and what would work."""
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), spaces.Space):
            raise UnsupportedSpace(f"{env_id} has no {name}; set it in __init__, to a Box for instance (gymnasium.spaces)")
    obs_dim = _obs_dim(env.observation_space, env_id)
    action = env.action_space
    if isinstance(action, spaces.Discrete):
        return EnvSpec(env_id, obs_dim, int(action.n), discrete=True, action_start=int(action.start))
    low, high = _bounds(action, env_id)
    return EnvSpec(env_id, obs_dim, len(low), low=low, high=high)


def require_actions(spec: EnvSpec, *, algo: str, discrete: bool, continuous: bool, alternatives: Sequence[str] = ()) -> None:
    """Refuse an environment whose kind of action `algo` cannot choose; `alternatives` are algorithms that can."""
    if discrete if spec.discrete else continuous:
        return
    kind, other = ("discrete", "continuous") if spec.discrete else ("continuous", "discrete")
    found = f"Discrete({spec.action_dim})" if spec.discrete else f"a Box of {spec.action_dim}"
    advice = f" For {kind} actions: {', '.join(alternatives)}." if alternatives else ""
    raise UnsupportedSpace(f"{algo.upper()} takes {other} actions; {spec.env_id} takes {found}.{advice}")


def network_space(spec: EnvSpec) -> spaces.Space[Any]:
    """The observation space as networks see it: images have their channels first, and of vectors no bounds are known."""
    if not spec.observation:
        return spaces.Box(-np.inf, np.inf, (spec.obs_dim,), np.float32)
    parts = spec.observation
    return _space_tree([part.path for part in parts], [_part_space(part) for part in parts])


def _part_space(part: ObsPart) -> spaces.Space[Any]:
    if part.kind == "discrete":
        return spaces.Discrete(part.choices[0], start=part.start[0])
    if part.kind == "multi_discrete":
        return spaces.MultiDiscrete(np.reshape(part.choices, part.shape), start=np.reshape(part.start, part.shape))
    if part.kind == "multi_binary":
        return spaces.MultiBinary(part.shape)
    shape = image_shape(part) if part.image else part.shape
    if part.in_bytes:
        return spaces.Box(0, int(part.high), shape, np.dtype(part.dtype) if part.dtype != "bool" else np.uint8)
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


def _space_tree(paths: Sequence[tuple[str | int, ...]], leaves: Sequence[spaces.Space[Any]]) -> spaces.Space[Any]:
    """Spaces by their paths as nested Dict and Tuple."""
    if not paths[0]:
        return leaves[0]
    inner: dict[Any, spaces.Space[Any]] = {}
    for key in dict.fromkeys(path[0] for path in paths):
        where = [i for i, path in enumerate(paths) if path[0] == key]
        inner[key] = _space_tree([paths[i][1:] for i in where], [leaves[i] for i in where])
    return spaces.Dict(inner) if isinstance(paths[0][0], str) else spaces.Tuple(tuple(inner.values()))


def _obs_dim(space: spaces.Space[Any], env_id: str) -> int:
    if isinstance(space, spaces.Box):
        if len(space.shape) == 1 and space.shape[0] > 0 and space.dtype.kind in "fiu":
            return int(space.shape[0])
        if len(space.shape) == 1:
            advice = "it needs at least one number" if space.shape[0] == 0 else "its numbers must be floats or integers"
        elif len(space.shape) >= 3 or space.dtype == np.uint8:
            advice = f"there is no network for images here; use an environment that observes its state, or {FLATTEN}"
        else:
            advice = FLATTEN
    elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Dict | spaces.Tuple):
        advice = FLATTEN
    else:
        advice = "translate it with gymnasium.wrappers.TransformObservation and pass the factory"
    raise UnsupportedSpace(f"observations must be {FLAT}; {env_id} observes {_name(space)}: {advice}")


def _bounds(space: spaces.Space[Any], env_id: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    def refuse(advice: str) -> UnsupportedSpace:
        needed = "actions must be Discrete or a flat Box of floats with finite bounds"
        return UnsupportedSpace(f"{needed}; {env_id} takes {_name(space)}: {advice}")

    if not isinstance(space, spaces.Box):
        one_number = isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary)
        advice = "number all combinations in one Discrete" if one_number else "translate it to a Box or a Discrete"
        raise refuse(f"{advice} with gymnasium.wrappers.TransformAction and pass the factory")
    if len(space.shape) != 1 or space.shape[0] == 0:
        raise refuse("flatten it with gymnasium.wrappers.TransformAction and pass the factory")
    if space.dtype not in (np.float32, np.float64):
        raise refuse("translate it to a Box of floats with gymnasium.wrappers.TransformAction and pass the factory")
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        if not np.isfinite(high - low).all():  # the largest float32 as a bound is no bound either
            raise refuse(BOUND)
    # actions are float32: the nearest float32 may lie outside a float64 bound, the one towards the inside never does
    low = np.where(low < space.low, np.nextafter(low, np.float32(np.inf)), low)
    high = np.where(high > space.high, np.nextafter(high, np.float32(-np.inf)), high)
    if not (low < high).all():
        raise refuse("every low must be below its high; leave out actions that have no choice")
    return tuple(low.tolist()), tuple(high.tolist())


def _name(space: spaces.Space[Any]) -> str:
    """The space in one short line: Box prints all its bounds where they differ."""
    if isinstance(space, spaces.Box):
        bounds = f"{space.low.min()}, {space.high.max()}, " if space.low.size else ""
        return f"Box({bounds}{space.shape}, {space.dtype})"
    text = " ".join(repr(space).split())
    return text if len(text) <= 120 else text[:117] + "..."
