"""Whether two environments of the same classes are set alike: what was done to an object, and its spec knows nothing of.

Only what can be compared is: numbers, texts, arrays, functions, and what is made of them. What changes when an environment is
reset and stepped is its state, and how it is drawn is no part of the task. Both say nothing.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import random
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from itertools import islice
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rl_training.envs.layers import UNSEEN

PLAIN = (bool, int, float, complex, str, bytes, type(None), Enum, np.generic)
FUNCTIONS = (functools.partial, FunctionType, MethodType, BuiltinFunctionType, type)
CONTAINERS = (Mapping, list, tuple, deque, set, frozenset)
# what is drawn from, and what belongs to the whole process
OPAQUE = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random, ModuleType, logging.Logger)
# how it is drawn, and what its copy is made from
ASIDE = re.compile(r"render|viewer|screen|window|clock|surf|camera|imgs?$|image|^(spec|_cached_spec|_saved_kwargs)$")
MUJOCO = ("MjModel", "MjOption", "MjStatistic")  # arrays and numbers without a __dict__
MOST_VALUES = 50_000  # of one environment; an array counts as one
STEPS = 100  # of a copy at most, to see what changes


class Difference(NamedTuple):
    """A setting by its path, such as PendulumEnv.g, and in words what it is in the given environment and in the other."""

    path: str
    given: str
    other: str


def differences(given: gym.Env[Any, Any], other: gym.Env[Any, Any]) -> list[Difference]:
    """Settings in which `given` is not like `other`, which has the same layers. The latter is reset and stepped to find out
    what is its state; the former is only read."""
    settings, state = _settings_and_state(other)
    mine = dict(islice(_described(given), MOST_VALUES))
    # of what was cut short the rest is not known
    missing = _ABSENT if max(len(mine), len(settings) + len(state)) < MOST_VALUES else _UNKNOWN
    found: list[Difference] = []
    for path in sorted(mine.keys() | settings.keys()):
        here, there = mine.get(path, missing), settings.get(path, missing)
        alike = here.key == there.key or None in (here.key, there.key)
        if not (alike or _within(path, found[-1].path if found else "") or any(_within(path, part) for part in state)):
            found.append(Difference(path, here.words(), there.words()))
    return found


def told(found: Sequence[Difference], *, most: int = 3) -> str:
    """The first few in words."""
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(f"{path}={given} (not {other})" for path, given, other in found[:most]) + more


class _Value(NamedTuple):
    """What is compared, None where that cannot be, and whose it is."""

    key: Any
    value: Any

    def words(self) -> str:
        if isinstance(self.value, np.ndarray):
            return " ".join(np.array2string(self.value, threshold=6, precision=6).split())
        text = repr(self.value.item() if isinstance(self.value, np.generic) else self.value)
        text = f"a {type(self.value).__name__}" if " at 0x" in text or isinstance(self.value, CONTAINERS) else text
        return text if len(text) <= 60 else f"{text[:57]}..."


class _Absent:
    def __repr__(self) -> str:
        return "not there"


_ABSENT, _UNKNOWN = _Value("absent", _Absent()), _Value(None, None)


def _settings_and_state(env: gym.Env[Any, Any]) -> tuple[dict[str, _Value], set[str]]:
    """All values that stay as they are while `env` is used, and the paths of those that do not."""
    seen = [dict(islice(_described(env), MOST_VALUES))]
    with suppress(Exception):  # what is wrong with it is found, and told, where it is trained in
        for _ in _use(env):
            seen.append(dict(islice(_described(env), MOST_VALUES)))  # noqa: PERF401 (what there is counts when it fails)
    paths = {path for values in seen for path in values}
    state = {path for path in paths if len({values.get(path, _ABSENT).key for values in seen}) > 1}
    return {path: value for path, value in seen[-1].items() if path not in state}, state


def _use(env: gym.Env[Any, Any]) -> Iterator[None]:
    """The beginning of an episode, its first step, its end, and the beginning of the next."""
    env.action_space.seed(0)
    env.reset(seed=0)
    yield
    for step in range(STEPS):
        if any(env.step(env.action_space.sample())[2:4]):
            break
        if step == 0:
            yield
    yield
    env.reset(seed=1)
    yield


def _within(path: str, whole: str) -> bool:
    return path == whole or (whole != "" and path.startswith(whole) and path[len(whole)] in ".[")


def _described(env: gym.Env[Any, Any]) -> Iterator[tuple[str, _Value]]:
    """Every value that can be reached, layer by layer, by its path."""
    layers = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    known: dict[int, Any] = {id(layer): layer for layer in layers}  # kept, or another could get the same number
    for layer in layers:
        if type(layer) not in UNSEEN:
            yield from _parts(layer, type(layer).__name__, known)


def _parts(value: Any, path: str, known: dict[int, Any]) -> Iterator[tuple[str, _Value]]:
    """The values that an object is made of; what was met before is passed over."""
    for name, part in sorted(_named(value).items()):
        if not ASIDE.search(name) and " at 0x" not in name:
            yield from _values(part, f"{path}{name}" if name.startswith("[") else f"{path}.{name}", known)


def _values(value: Any, path: str, known: dict[int, Any]) -> Iterator[tuple[str, _Value]]:
    if isinstance(value, PLAIN):
        number = isinstance(value, int | float) and value == value  # noqa: PLR0124 (nan is none)
        yield path, _Value(("number", value) if number else (type(value), repr(value)), value)
    elif isinstance(value, CodeType):
        yield path, _Value(value, value)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest = hashlib.blake2b(value.tobytes(), digest_size=16).digest()
        yield path, _Value((value.dtype, value.shape, digest), value)
    elif isinstance(value, OPAQUE) or not (isinstance(value, CONTAINERS) or _named(value)):
        yield path, _Value(None, value)
    elif id(value) not in known:
        known[id(value)] = value
        yield path, _Value((type(value), len(_named(value))), value)
        yield from _parts(value, path, known)


def _named(value: Any) -> dict[str, Any]:
    """What a value is made of, by names of attributes or by indices in brackets; empty for what cannot be looked into."""
    if isinstance(value, CONTAINERS):
        return dict(_items(value))
    if isinstance(value, FUNCTIONS):
        return _of_function(value)
    if type(value).__name__ in MUJOCO and type(value).__module__.startswith("mujoco"):
        every = {name: getattr(value, name) for name in dir(value) if not name.startswith("_")}
        return {name: part for name, part in every.items() if not callable(part)}
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if not name.startswith("__")]
    return {**{name: getattr(value, name) for name in slots if hasattr(value, name)}, **getattr(value, "__dict__", {})}


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, set | frozenset):
        yield from ((f"[{item!r}]", True) for item in value)
    else:
        yield from ((f"[{index}]", item) for index, item in enumerate(value))


def _of_function(value: Any) -> dict[str, Any]:
    """Two functions of one text differ by what they have taken from around them."""
    if isinstance(value, functools.partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return {"code": value.__code__, "closure": cells, "defaults": value.__defaults__}
    return {"name": getattr(value, "__qualname__", type(value).__qualname__)}
