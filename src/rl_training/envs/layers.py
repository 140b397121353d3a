"""What an environment is made of, in words: to tell an object or a factory from what its id alone gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

# they change no number that a learner sees
UNSEEN = (
    gym.wrappers.OrderEnforcing,
    gym.wrappers.PassiveEnvChecker,
    gym.wrappers.RecordEpisodeStatistics,
    gym.wrappers.RecordVideo,
)
# their running statistics are part of what a policy learns from, and no checkpoint has them
FORGETFUL = {"NormalizeObservation": "normalize_observations", "NormalizeReward": "normalize_rewards"}


def layers_of(env: gym.Env[Any, Any]) -> list[str]:
    """From the outermost wrapper inwards, as `TransformReward`, `TimeLimit(50)` and `Pendulum-v1(g=5.0)`; what the id's own
    registration says need not be said."""
    names = []
    while isinstance(env, gym.Wrapper):
        if type(env) is gym.wrappers.TimeLimit:
            limit = env._max_episode_steps
            names += [] if limit == getattr(_registered(env), "max_episode_steps", None) else [f"TimeLimit({limit})"]
        elif type(env) not in UNSEEN:
            names.append(type(env).__name__)
        env = env.env
    spec, registered = env.spec, _registered(env)
    if spec is None:
        return [*names, type(env).__name__]
    usual: Mapping[str, Any] = {} if registered is None else registered.kwargs
    special = [
        f"{name}={_shown(value)}"
        for name, value in sorted(spec.kwargs.items())
        if name != "render_mode" and (name not in usual or _shown(usual[name]) != _shown(value))
    ]
    return [*names, f"{spec.id}({', '.join(special)})" if special else str(spec.id)]


def time_limit_of(env: gym.Env[Any, Any]) -> int | None:
    """The steps after which an episode is cut; None where there is no such limit, or none to be seen from outside."""
    limits = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            limits.append(int(env._max_episode_steps))
        env = env.env
    return min(limits, default=None)


def _registered(env: gym.Env[Any, Any]) -> Any:
    spec = env.unwrapped.spec
    return None if spec is None else gym.registry.get(spec.id)


def _shown(value: Any) -> str:
    """A value as text that is the same in another process; what has an address in its text is told by its type alone."""
    text = repr(value)
    text = type(value).__name__ if " at 0x" in text else " ".join(text.split())
    return text if len(text) <= 80 else text[:77] + "..."
