"""Environments that give their state away themselves: `get_state()`, which gives bytes, and `set_state(state)`.

Their episodes are taken up where the state says, rather than repeated from their seed: at once, and also where no seed would
bring them back.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from itertools import pairwise
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from rl_training.errors import words_of

GET_STATES, PUT_STATES = 3.0, 4.0  # orders to worker processes, beside those in `workers.py`
# layers that remember nothing but the number of steps, which is known; any other must offer the state of all that is in it
LOOKED_THROUGH = (gym.wrappers.OrderEnforcing, gym.wrappers.PassiveEnvChecker, gym.wrappers.TimeLimit)


class EnvStates(Protocol):
    """The states of several environments."""

    def get(self, indices: Sequence[int]) -> list[bytes] | None:
        """Those of the environments named; None where not all of them offer any."""
        ...

    def put(self, indices: Sequence[int], states: Sequence[bytes], steps: Sequence[int]) -> None:
        """Bring the environments named into these states, so many steps after their episodes' beginnings."""
        ...


class NoStates:
    """Of environments that have none to give."""

    def get(self, indices: Sequence[int]) -> None:  # noqa: ARG002
        return None

    def put(self, indices: Sequence[int], states: Sequence[bytes], steps: Sequence[int]) -> None:
        raise NotImplementedError


class HeldStates:
    """Of environments in this process, which were reset before; `fault` makes the error of one of them."""

    def __init__(
        self,
        envs: Sequence[gym.Env[Any, Any]],
        fault: Callable[[int, str], Exception],
        progress: MutableSequence[int],
    ) -> None:
        self._envs, self._fault, self._progress = envs, fault, progress

    def get(self, indices: Sequence[int]) -> list[bytes] | None:
        states: list[bytes] = []
        for index in indices:
            self._progress[0] = index
            keeper = keeper_of(self._envs[index])
            if keeper is None:
                return None
            try:
                state = keeper.get_state()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # as whatever else environments run, it may raise anything
                raise self._fault(index, f"get_state() raised {words_of(error)}") from error
            if not isinstance(state, bytes):  # something else by the same name
                return None
            states.append(state)
        return states

    def put(self, indices: Sequence[int], states: Sequence[bytes], steps: Sequence[int]) -> None:
        for index, state, count in zip(indices, states, steps, strict=True):
            self._progress[0] = index
            layer: Any = self._envs[index]
            while isinstance(layer, LOOKED_THROUGH):
                if isinstance(layer, gym.wrappers.TimeLimit):
                    layer._elapsed_steps = int(count)  # type: ignore[assignment]
                layer = layer.env
            try:
                layer.set_state(state)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise self._fault(index, f"set_state(...) raised {words_of(error)}") from error


class AskedStates:
    """Of environments in worker processes; `ask` gives for an order and its content each worker's answer, and whose it is."""

    def __init__(self, ask: Callable[..., list[tuple[Any, np.ndarray, memoryview]]]) -> None:
        self._ask = ask

    def get(self, indices: Sequence[int]) -> list[bytes] | None:
        states = [b""] * len(indices)
        for _, mine, answer in self._ask(GET_STATES, np.asarray(indices), lambda _: b""):
            if not len(answer):
                return None
            for place, state in zip(mine, unpacked(bytes(answer), len(mine)), strict=True):
                states[place] = state
        return states

    def put(self, indices: Sequence[int], states: Sequence[bytes], steps: Sequence[int]) -> None:
        counts = np.asarray(steps, dtype=np.float64)
        self._ask(
            PUT_STATES, np.asarray(indices), lambda mine: counts[mine].tobytes() + packed([states[place] for place in mine])
        )


def keeper_of(env: gym.Env[Any, Any]) -> Any:
    """The layer that answers for the state of the whole environment; None where none does."""
    while isinstance(env, LOOKED_THROUGH):
        env = env.env
    return env if all(callable(getattr(env, name, None)) for name in ("get_state", "set_state")) else None


def packed(states: Sequence[bytes]) -> bytes:
    """Their lengths and then themselves, filled up to whole numbers of eight bytes."""
    body = b"".join(states)
    return np.array([len(state) for state in states], dtype=np.float64).tobytes() + body + bytes(-len(body) % 8)


def unpacked(given: bytes, count: int) -> list[bytes]:
    """The inverse of `packed`."""
    edges = 8 * count + np.cumsum([0, *np.frombuffer(given, count=count)]).astype(int)
    return [given[start:end] for start, end in pairwise(edges.tolist())]
