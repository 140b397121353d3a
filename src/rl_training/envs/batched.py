"""Gymnasium's classic control environments, many at a time in numpy, with Gymnasium's numbers bit for bit.

Every operation stands in the order, and is of the precision, in which Gymnasium does it for one environment, and an
episode's start is drawn from its seed by the same generator. Constants are read from an environment of Gymnasium's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np

from rl_training.envs.seeds import generators
from rl_training.envs.source import EnvSource
from rl_training.envs.states import NoStates
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
    masks: ClassVar[None] = None  # everything is allowed
    states: ClassVar[NoStates] = NoStates()  # episodes are repeated in no time

    def __init__(self, core: Any, spec: EnvSpec, *, num_envs: int, max_episode_steps: int | None) -> None:
        self.core = core  # an environment of Gymnasium's own, for its constants
        self._spec, self._num_envs = spec, num_envs
        self._limit = max_episode_steps
        self._dtype = action_dtype(spec)
        self._state = np.zeros((self.state_size, num_envs))
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._unlimited = 0  # steps in which nobody can reach the limit, whoever is stepped
        self._all_false = np.zeros(num_envs, dtype=bool)
        self._all_false.flags.writeable = False  # it is handed out again and again

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
        return self._transitions(done, elapsed)

    def step_some(self, indices: Indices, actions: np.ndarray) -> Transitions:
        """One step in the environments named, and none in the others."""
        index = np.asarray(indices)
        elapsed = self._elapsed[index]
        done = self.advance(self._state[:, index], np.asarray(actions, dtype=self._dtype), elapsed)
        self._state[:, index] = done.state
        elapsed += 1
        self._elapsed[index] = elapsed
        return self._transitions(done, elapsed)

    def close(self) -> None:  # noqa: B027 (there is nothing to close)
        """Nothing is open."""

    def all_false(self, count: int) -> np.ndarray:
        """False for as many as are stepped, to be read only."""
        return self._all_false[:count]

    def _transitions(self, done: Outcome, elapsed: np.ndarray) -> Transitions:
        truncated = self.all_false(len(elapsed))
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
    # numpy's power has vector instructions of its own; its float_power, of double precision only, never has
    squares: np.ndarray = np.float_power(x, 2.0) if x.dtype == np.float64 else np.array([number**2 for number in x])
    return squares


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
    if any(type(layer) not in HARMLESS for layer in wrappers) or any(map(_patched, (*wrappers, core))):
        return None
    # a picture may be asked for at every step, and noise is drawn from the generator within an episode
    special = getattr(core, "render_mode", None) is not None or getattr(core, "torque_noise_max", 0.0) > 0.0
    return None if special else available().get(f"{type(core).__module__}.{type(core).__qualname__}")


def _patched(layer: gym.Env[Any, Any]) -> bool:
    """Whether a method was replaced on this very object: constants are read from it, what it does is not."""
    return any(callable(value) and callable(getattr(type(layer), name, None)) for name, value in vars(layer).items())


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
