"""Rewards and episode ends that are known functions of a transition, as torch code over any leading shape.

Each is called with `obs`, `actions` (in the environment's units) and `next_obs`; rewards are numbers, ends are booleans.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from types import BuiltinFunctionType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from rl_training.errors import ConfigError
from rl_training.types import EnvSpec

TransitionFn: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]


def pendulum_reward(obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:  # noqa: ARG001 (one signature for all)
    """Pendulum-v1: of the angle, speed and torque before the step."""
    angle = torch.atan2(obs[..., 1], obs[..., 0])
    return -(angle.square() + 0.1 * obs[..., 2].square() + 0.001 * actions[..., 0].square())


def inverted_pendulum_ends(obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:  # noqa: ARG001
    """InvertedPendulum-v5: the pole leans by more than 0.2 rad."""
    return _not_finite(next_obs) | (next_obs[..., 1].abs() > 0.2)


def inverted_pendulum_reward(obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
    """InvertedPendulum-v5: one for every step after which the pole stands."""
    return (~inverted_pendulum_ends(obs, actions, next_obs)).to(obs.dtype)


def inverted_pendulum_centered_reward(obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
    """InvertedPendulum-v5's reward less a little for leaning and for being off the middle.

    By the reward itself all plans that stay up for the horizon are equal, and the cart drifts off its rail.
    """
    off = next_obs[..., 1].square() + 0.1 * next_obs[..., 0].square()
    return inverted_pendulum_reward(obs, actions, next_obs) - off


def cartpole_ends(obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:  # noqa: ARG001
    """CartPole-v1 and its continuous kin: off the track, or the pole leans by more than 12 degrees."""
    return (next_obs[..., 0].abs() > 2.4) | (next_obs[..., 2].abs() > 12 * 2 * torch.pi / 360)


def cartpole_reward(obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:  # noqa: ARG001
    """CartPole-v1: one for every step, the last included."""
    return torch.ones_like(obs[..., 0])


def halfcheetah_reward(obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
    """HalfCheetah-v5 that observes its position: speed over the step less the cost of control."""
    return (next_obs[..., 0] - obs[..., 0]) / 0.05 - 0.1 * actions.square().sum(-1)


def hopper_ends(obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:  # noqa: ARG001
    """Hopper-v5: too low, leaning too far, or out of all proportion."""
    healthy = (next_obs[..., 1:].abs() < 100).all(-1) & (next_obs[..., 0] > 0.7) & (next_obs[..., 1].abs() < 0.2)
    return ~healthy


def walker2d_ends(obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:  # noqa: ARG001
    """Walker2d-v5: not upright, or too low or too high."""
    height, angle = next_obs[..., 0], next_obs[..., 1]
    return ~((height > 0.8) & (height < 2.0) & (angle.abs() < 1.0))


class Known(NamedTuple):
    """A function and the number of observed values it is written for."""

    function: TransitionFn
    obs_dim: int
    advice: str = ""


REWARDS = {
    "cartpole": Known(cartpole_reward, 4),
    "halfcheetah": Known(halfcheetah_reward, 18, "; give env_kwargs: {exclude_current_positions_from_observation: false}"),
    "inverted_pendulum": Known(inverted_pendulum_reward, 4),
    "inverted_pendulum_centered": Known(inverted_pendulum_centered_reward, 4),
    "pendulum": Known(pendulum_reward, 3),
}
TERMINATIONS = {
    "cartpole": Known(cartpole_ends, 4),
    "hopper": Known(hopper_ends, 11),
    "inverted_pendulum": Known(inverted_pendulum_ends, 4),
    "walker2d": Known(walker2d_ends, 17),
}


class NamedFunction:
    """One by its import path, imported when it is first called: a policy may be read, and act, that never asks for it."""

    def __init__(self, option: str, name: str) -> None:
        self.option, self.name = option, name
        self._function: TransitionFn | None = None

    def __call__(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        function = self._function or self.resolve()
        return function(obs, actions, next_obs)

    def resolve(self) -> TransitionFn:
        """Import it; ConfigError for what is not there, or no function of a transition."""
        module, _, attribute = self.name.partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"{self.option}: {self.name!r} could not be imported: {error}") from error
        if not _takes_transitions(found):
            kind = type(found).__name__
            must = "it must be a Python function of (obs, actions, next_obs)"
            raise ConfigError(f"{self.option}: {self.name!r} is a {kind}; {must}")
        self._function = found
        return self._function


def _takes_transitions(found: Any) -> bool:
    """Whether it is written in Python to be called with three arguments: no class, and none of the system's own functions."""
    if not callable(found) or isinstance(found, type | BuiltinFunctionType):
        return False
    try:
        inspect.signature(found).bind(None, None, None)
    except (TypeError, ValueError):
        return False
    return True


def reward_function(name: str | None, *, obs_dim: int) -> TransitionFn | None:
    """The reward with this name or import path; None stays None."""
    return _function("reward_fn", name, REWARDS, obs_dim)


def termination_function(name: str | None, *, obs_dim: int) -> TransitionFn | None:
    """The end of episodes with this name or import path; None stays None."""
    return _function("termination_fn", name, TERMINATIONS, obs_dim)


def require_functions(
    env: EnvSpec, *, rows: tuple[int, ...], reward_fn: str | None = None, termination_fn: str | None = None
) -> None:
    """ConfigError where one of them cannot be found, or does not give a value for every transition of an array `rows`."""
    for option, name, find, kind in (
        ("reward_fn", reward_fn, reward_function, "a number"),
        ("termination_fn", termination_fn, termination_function, "true or false"),
    ):
        function = find(name, obs_dim=env.obs_dim)
        if isinstance(function, NamedFunction):
            function.resolve()
        if function is not None:
            _try(f"{option}: {name!r}", function, env, rows=rows, kind=kind)


def _try(what: str, function: TransitionFn, env: EnvSpec, *, rows: tuple[int, ...], kind: str) -> None:
    obs, actions = (torch.zeros(*rows, width, dtype=torch.float32) for width in (env.obs_dim, env.action_dim))
    try:
        given = function(obs, actions, obs)
    except Exception as error:
        shapes = f"{tuple(obs.shape)}, {tuple(actions.shape)}, {tuple(obs.shape)}"
        raise ConfigError(
            f"{what} fails for obs, actions, next_obs of shapes {shapes}: {type(error).__name__}: {error}"
        ) from error
    words = f"a tensor of shape {tuple(given.shape)} and {given.dtype}" if isinstance(given, Tensor) else type(given).__name__
    fits = isinstance(given, Tensor) and given.shape == rows and (given.dtype == torch.bool) == (kind == "true or false")
    if not fits:
        raise ConfigError(f"{what} gives {words} for transitions of shape {rows}; it must give {kind} for each")


def _function(option: str, name: str | None, known: dict[str, Known], obs_dim: int) -> TransitionFn | None:
    if name is None:
        return None
    if name in known:
        function, wanted, advice = known[name]
        if wanted != obs_dim:
            raise ConfigError(f"{option}: {name!r} is for {wanted} observed values; this environment has {obs_dim}{advice}")
        return function
    return NamedFunction(option, name)


def _not_finite(obs: Tensor) -> Tensor:
    return ~obs.isfinite().all(-1)
