"""Which spaces can be learnt in, and what to do about the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.errors import UnsupportedSpace
from rl_training.rows import RowLayout, image_shape
from rl_training.types import EnvSpec, ObsPart

MOST_CHOICES = 10_000  # of a Discrete: each has a column of its own
FLATTEN = "wrap it and pass the factory: lambda: gymnasium.wrappers.FlattenObservation(gymnasium.make(...))"
BY_TRANSFORM = "with gymnasium.wrappers.TransformAction and pass the factory"
BOUND = (
    "give it bounds with gymnasium.wrappers.TransformAction(env, lambda action: action, Box(-1, 1, shape)) and pass the "
    "factory, or with env_kwargs if the environment has an option for it"
)


def describe_env(env: gym.Env[Any, Any], env_id: str) -> EnvSpec:
    """Shapes and bounds of `env`, or `UnsupportedSpace` that says what was found and what would work."""
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), spaces.Space):
            raise UnsupportedSpace(f"{env_id} has no {name}; set it in __init__, to a Box for instance (gymnasium.spaces)")
    obs_dim, parts = _observation(env.observation_space, env_id)
    action = env.action_space
    if isinstance(action, spaces.Discrete):
        return EnvSpec(env_id, obs_dim, int(action.n), discrete=True, action_start=int(action.start), observation=parts)
    if isinstance(action, spaces.MultiDiscrete | spaces.MultiBinary):
        nvec, start = _choices(action, env_id)
        return EnvSpec(env_id, obs_dim, sum(nvec), discrete=True, action_start=start, observation=parts, nvec=nvec)
    low, high = _bounds(action, env_id)
    return EnvSpec(env_id, obs_dim, len(low), low=low, high=high, observation=parts)


def shown_actions(spec: EnvSpec) -> str:
    """The kind of action space in the field's words."""
    if spec.nvec:
        return f"MultiDiscrete({list(spec.nvec)})" if set(spec.nvec) != {2} else f"MultiBinary({len(spec.nvec)})"
    return f"Discrete({spec.action_dim})" if spec.discrete else f"a Box of {spec.action_dim}"


def require_actions(spec: EnvSpec, *, algo: str, discrete: bool, continuous: bool, alternatives: Sequence[str] = ()) -> None:
    """Refuse an environment whose kind of action `algo` cannot choose; `alternatives` are algorithms that can."""
    if discrete if spec.discrete else continuous:
        return
    kind, other = ("discrete", "continuous") if spec.discrete else ("continuous", "discrete")
    advice = f" For {kind} actions: {', '.join(alternatives)}." if alternatives else ""
    raise UnsupportedSpace(f"{algo.upper()} takes {other} actions; {spec.env_id} takes {shown_actions(spec)}.{advice}")


def require_one_choice(spec: EnvSpec, *, algo: str, alternatives: Sequence[str]) -> None:
    """Refuse actions in several parts for an algorithm that makes a single choice."""
    if spec.nvec:
        raise UnsupportedSpace(
            f"{algo.upper()} makes one choice at a time; {spec.env_id} takes {shown_actions(spec)}. For actions in several "
            f"parts: {', '.join(alternatives)}. Or number all combinations in one Discrete {BY_TRANSFORM}"
        )


def require_vectors(spec: EnvSpec, *, algo: str, alternatives: Sequence[str]) -> None:
    """Refuse observations with images in them for an algorithm without a network for these."""
    for part in spec.observation:
        if part.image:
            raise UnsupportedSpace(
                f"{algo.upper()} reads vectors; {spec.env_id} observes the image {part.name} of shape {part.shape}. For "
                f"images: {', '.join(alternatives)}. Or {FLATTEN}"
            )


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
    shape = image_shape(part) if part.image else part.shape or (1,)
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


def _observation(space: spaces.Space[Any], env_id: str) -> tuple[int, tuple[ObsPart, ...]]:
    """The width of a row, and what is in it unless it is a flat vector."""
    parts = tuple(_parts_of(space, (), env_id))
    if not parts:
        raise UnsupportedSpace(f"{env_id} observes {_name(space)}, in which there is nothing to learn from")
    layout = RowLayout(parts)
    return layout.width, () if layout.is_vector else parts


def _parts_of(space: spaces.Space[Any], path: tuple[str | int, ...], env_id: str) -> Iterator[ObsPart]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, inner in named:
            if not isinstance(key, str | int):
                raise UnsupportedSpace(f"{env_id} observes a Dict with the key {key!r}; keys must be texts")
            yield from _parts_of(inner, (*path, key), env_id)
    elif isinstance(space, spaces.Box):
        yield _box_part(space, path, env_id)
    elif isinstance(space, spaces.MultiBinary):
        yield ObsPart(path, "multi_binary", tuple(space.shape or ()), "int8")
    elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        choices, start = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec), np.ravel(space.start)
        if choices.sum() > MOST_CHOICES:
            advice = f"each choice has a column of its own, {MOST_CHOICES:,} at most; number fewer, or observe numbers in a Box"
            raise _no_observation(space, path, env_id, advice)
        kind = "discrete" if isinstance(space, spaces.Discrete) else "multi_discrete"
        yield ObsPart(
            path, kind, tuple(space.shape or ()), "int64", choices=tuple(choices.tolist()), start=tuple(start.tolist())
        )
    else:
        advice = "leave it out or translate it with gymnasium.wrappers.TransformObservation and pass the factory"
        raise _no_observation(space, path, env_id, advice)


def _box_part(space: spaces.Box, path: tuple[str | int, ...], env_id: str) -> ObsPart:
    if 0 in space.shape:
        raise _no_observation(space, path, env_id, "it needs at least one number")
    if space.dtype.kind not in "fiub":
        raise _no_observation(space, path, env_id, "its numbers must be floats or integers")
    if len(space.shape) > 4:
        raise _no_observation(space, path, env_id, f"there are networks for up to four axes; {FLATTEN}")
    part = ObsPart(path, "box", tuple(map(int, space.shape)), str(space.dtype))
    return replace(part, high=max(float(space.high.max()), 1.0)) if part.in_bytes else part


def _no_observation(space: spaces.Space[Any], path: tuple[str | int, ...], env_id: str, advice: str) -> UnsupportedSpace:
    possible = "observations are Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these"
    where = f"{_name(space)} as {ObsPart(path, 'box').name}" if path else _name(space)
    return UnsupportedSpace(f"{possible}; {env_id} observes {where}: {advice}")


def _choices(
    space: spaces.MultiDiscrete | spaces.MultiBinary, env_id: str
) -> tuple[tuple[int, ...], tuple[int, ...] | Literal[0]]:
    """Those in each part of an action, and where each begins to count if not all do so at 0."""
    if len(space.shape) != 1 or space.shape[0] == 0:
        raise _no_action(space, env_id, f"flatten it {BY_TRANSFORM}")
    if isinstance(space, spaces.MultiBinary):
        return (2,) * space.shape[0], 0
    start = tuple(space.start.tolist())
    return tuple(space.nvec.tolist()), start if any(start) else 0


def _no_action(space: spaces.Space[Any], env_id: str, advice: str) -> UnsupportedSpace:
    needed = "actions must be Discrete, MultiDiscrete, MultiBinary or a flat Box of floats with finite bounds"
    return UnsupportedSpace(f"{needed}; {env_id} takes {_name(space)}: {advice}")


def _bounds(space: spaces.Space[Any], env_id: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if not isinstance(space, spaces.Box):
        raise _no_action(space, env_id, f"translate it to a Box or a Discrete {BY_TRANSFORM}")
    if len(space.shape) != 1 or space.shape[0] == 0:
        raise _no_action(space, env_id, f"flatten it {BY_TRANSFORM}")
    if space.dtype not in (np.float32, np.float64):
        raise _no_action(space, env_id, f"translate it to a Box of floats {BY_TRANSFORM}")
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        if not np.isfinite(high - low).all():  # the largest float32 as a bound is no bound either
            raise _no_action(space, env_id, BOUND)
    # actions are float32: the nearest float32 may lie outside a float64 bound, the one towards the inside never does
    low = np.where(low < space.low, np.nextafter(low, np.float32(np.inf)), low)
    high = np.where(high > space.high, np.nextafter(high, np.float32(-np.inf)), high)
    if not (low < high).all():
        raise _no_action(space, env_id, "every low must be below its high; leave out actions that have no choice")
    return tuple(low.tolist()), tuple(high.tolist())


def _name(space: spaces.Space[Any]) -> str:
    """The space in one short line: Box prints all its bounds where they differ."""
    if isinstance(space, spaces.Box):
        bounds = f"{space.low.min()}, {space.high.max()}, " if space.low.size else ""
        return f"Box({bounds}{space.shape}, {space.dtype})"
    text = " ".join(repr(space).split())
    return text if len(text) <= 120 else text[:117] + "..."
