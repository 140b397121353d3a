"""Gymnasium's classic control environments, many at a time in numpy, with Gymnasium's numbers bit for bit.

Every operation stands in the order, and is of the precision, in which Gymnasium does it for one environment, and an
episode's start is drawn from its seed by the same generator. Constants are read from an environment of Gymnasium's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import get_ident
from typing import Any, ClassVar, NamedTuple, TypeAlias

import gymnasium as gym
import numpy as np

from rl_training.envs.seeds import generators
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import Indices, Transitions, action_dtype
from rl_training.errors import ConfigError
from rl_training.types import EnvSpec

HARMLESS = (gym.wrappers.OrderEnforcing, gym.wrappers.PassiveEnvChecker, gym.wrappers.TimeLimit)  # they change no number


class Outcome(NamedTuple):
    """What one step led to: the states after it [state_size, n], rewards [n] and where it ended the episode [n]."""

    state: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray


class BatchedEnvs(ABC):
    """`VectorEnvs` whose states are columns of one matrix. An episode that has ended is reset before it is stepped again."""

    state_size: ClassVar[int]

    def __init__(self, core: Any, spec: EnvSpec, *, num_envs: int, max_episode_steps: int | None) -> None:
        self.core = core  # an environment of Gymnasium's own, for its constants
        self._spec, self._num_envs = spec, num_envs
        self._limit = max_episode_steps
        self._dtype = action_dtype(spec)
        self._state = np.zeros((self.state_size, num_envs))
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._unlimited = 0  # steps in which nobody can reach the limit, whoever is stepped
        self._nobody = np.zeros(num_envs, dtype=bool)
        self._nobody.flags.writeable = False  # it is handed out again and again

    @property
    def num_envs(self) -> int:
        return self._num_envs

    def reset(self, indices: Indices, seeds: Sequence[int]) -> np.ndarray:
        """Begin a new episode in the environments named; their first observations."""
        different = dict.fromkeys(map(int, seeds))  # in a population several environments begin the same episode
        rngs = generators([(seed,) for seed in different])
        starts = {seed: self.start(rng) for seed, rng in zip(different, rngs, strict=True)}
        index = np.asarray(indices)
        state = self.begun(np.array([starts[int(seed)] for seed in seeds]).T.reshape(-1, len(index)))
        self._state[:, index] = state
        self._elapsed[index] = 0
        return self.first_obs(state)

    def step(self, actions: np.ndarray) -> Transitions:
        """One step in every environment."""
        elapsed = self._elapsed
        done = self.advance(self._state, np.asarray(actions, dtype=self._dtype), elapsed)
        self._state = done.state
        elapsed += 1
        return self._told(done, elapsed)

    def step_some(self, indices: Indices, actions: np.ndarray) -> Transitions:
        """One step in the environments named, and none in the others."""
        index = np.asarray(indices)
        elapsed = self._elapsed[index]
        done = self.advance(self._state[:, index], np.asarray(actions, dtype=self._dtype), elapsed)
        self._state[:, index] = done.state
        elapsed += 1
        self._elapsed[index] = elapsed
        return self._told(done, elapsed)

    def close(self) -> None:  # noqa: B027 (there is nothing to close)
        """Nothing is open."""

    def nobody(self, count: int) -> np.ndarray:
        """False for as many as are stepped, to be read only."""
        return self._nobody[:count]

    def _told(self, done: Outcome, elapsed: np.ndarray) -> Transitions:
        truncated = self.nobody(len(elapsed))
        if self._unlimited > 0:
            self._unlimited -= 1
        elif self._limit is not None:
            truncated = elapsed >= self._limit
            self._unlimited = self._limit - 1 - int(self._elapsed.max())
        return Transitions(self.observe(done.state), done.rewards, done.terminated, truncated)

    @abstractmethod
    def start(self, rng: np.random.Generator) -> np.ndarray:
        """What an episode's start is drawn as: its state, or what `begun` makes the state of."""

    def begun(self, drawn: np.ndarray) -> np.ndarray:
        """The states [state_size, n] of what was drawn for so many episodes."""
        return drawn

    @abstractmethod
    def advance(self, state: np.ndarray, actions: np.ndarray, elapsed: np.ndarray) -> Outcome:
        """One step from `state` [state_size, n], which is left as it is; `elapsed` says how many came before."""

    @abstractmethod
    def observe(self, state: np.ndarray) -> np.ndarray:
        """Observations [n, obs_dim] float32."""

    def first_obs(self, state: np.ndarray) -> np.ndarray:
        """Observations at the start, where they are computed in another precision."""
        return self.observe(state)


def squared(x: np.ndarray) -> np.ndarray:
    """What `scalar ** 2` gives for each number: the C library's pow, which is not x·x in one case of a thousand."""
    return _squaring(x.shape, x.dtype.char, get_ident())(x)


Squaring: TypeAlias = Callable[[np.ndarray], np.ndarray]


@lru_cache(maxsize=256)
def _squaring(shape: tuple[int, ...], dtype: str, thread: int) -> Squaring:  # noqa: ARG001 (each has memory of its own)
    """How arrays of this kind are squared: in one call, where there is a way that gives the C library's numbers."""
    way = _way_to_square(dtype)
    return _by_loop if way is None else way(np.full(shape, 2, dtype=dtype))


@lru_cache(maxsize=2)
def _way_to_square(dtype: str) -> Callable[[np.ndarray], Squaring] | None:
    """Numpy's power has vector instructions of its own on some processors, with other last bits; its float_power, of
    double precision only, never has. Whichever it is, it is held against scalars before it is used."""
    probe = np.random.default_rng(0).uniform(-10, 10, 20_000).astype(dtype)
    expected, twos = _by_loop(probe), np.full_like(probe, 2)
    ways = (_by_numpy, _by_torch)
    return next((way for way in ways if np.array_equal(way(twos)(probe), expected)), None)


def _by_numpy(twos: np.ndarray) -> Squaring:
    power = np.float_power if twos.dtype == np.float64 else np.power  # a scalar exponent would make the latter x·x
    return lambda x: power(x, twos)


def _by_torch(twos: np.ndarray) -> Squaring:
    """Torch's pow takes vector instructions of its own only where all numbers lie side by side."""
    import torch

    # tensors are made once: around a step of many policies the three of a call take longer than the loop would save
    apart, given = torch.from_numpy(np.stack([twos, twos], axis=-1))[..., 0], torch.from_numpy(np.empty_like(twos))
    powers = torch.empty_like(given)
    given_array, powers_array = given.numpy(), powers.numpy()

    def squares(x: np.ndarray) -> np.ndarray:
        given_array[...] = x
        torch.pow(given, apart, out=powers)
        copy: np.ndarray = powers_array.copy()
        return copy

    return squares


def _by_loop(x: np.ndarray) -> np.ndarray:
    """It takes ten times as long."""
    return np.array([number**2 for number in x.ravel()], dtype=x.dtype).reshape(x.shape)


def each(function: Any, x: np.ndarray) -> np.ndarray:
    """A function of the math module for each number; numpy's own may round differently."""
    return np.fromiter(map(function, x.tolist()), dtype=np.float64, count=len(x))


def available() -> dict[str, type[BatchedEnvs]]:
    """Environment classes of Gymnasium by their names, and what stands for them here."""
    from rl_training.envs.batched_acrobot import BatchedAcrobot
    from rl_training.envs.batched_classic import BatchedCartPole, BatchedMountainCarContinuous, BatchedPendulum

    return {
        "gymnasium.envs.classic_control.acrobot.AcrobotEnv": BatchedAcrobot,
        "gymnasium.envs.classic_control.cartpole.CartPoleEnv": BatchedCartPole,
        "gymnasium.envs.classic_control.continuous_mountain_car.Continuous_MountainCarEnv": BatchedMountainCarContinuous,
        "gymnasium.envs.classic_control.pendulum.PendulumEnv": BatchedPendulum,
    }


def batched_class(env: gym.Env[Any, Any]) -> type[BatchedEnvs] | None:
    """What stands for `env`, if nothing around it changes its numbers."""
    *wrappers, core = _layers(env)
    if any(type(layer) not in HARMLESS for layer in wrappers):
        return None
    # a picture may be asked for at every step, and noise is drawn from the generator within an episode
    special = getattr(core, "render_mode", None) is not None or getattr(core, "torque_noise_max", 0.0) > 0.0
    return None if special else available().get(f"{type(core).__module__}.{type(core).__qualname__}")


def find_batched(source: EnvSource, spec: EnvSpec, *, num_envs: int) -> BatchedEnvs | None:
    """Batched environments that are those of `source`; None where there are none."""
    env = source.make()
    try:
        kind = batched_class(env)
        if kind is None:
            return None
        limits = [layer._max_episode_steps for layer in _layers(env) if isinstance(layer, gym.wrappers.TimeLimit)]
        return kind(env.unwrapped, spec, num_envs=num_envs, max_episode_steps=min(limits, default=None))
    finally:
        source.release(env)


def make_batched(source: EnvSource, spec: EnvSpec, *, num_envs: int) -> BatchedEnvs:
    """The same, or ConfigError naming the environments that have them."""
    envs = find_batched(source, spec, num_envs=num_envs)
    if envs is None:
        ids = sorted(name for name, entry in gym.registry.items() if str(entry.entry_point).replace(":", ".") in available())
        possible = f"the plain {', '.join(ids)} have batched environments"
        raise ConfigError(f"execution_backend: {possible}, {spec.env_id} has none; use 'local_sync' or 'local_async'")
    return envs


def _layers(env: gym.Env[Any, Any]) -> list[gym.Env[Any, Any]]:
    layers = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    return layers
