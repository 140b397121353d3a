"""From an id, an object or a factory to running environments; all space checks stand here, once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.envs.episodes import Evaluator, run_episodes
    from rl_training.envs.pool import EnvPool, PoolStep
    from rl_training.envs.source import EnvSource
    from rl_training.envs.spaces import describe_env, require_actions
    from rl_training.envs.vector import SyncEnvs, VectorEnvs, make_envs
    from rl_training.envs.workers import AsyncEnvs

_HOMES = {
    "AsyncEnvs": "workers",
    "EnvPool": "pool",
    "EnvSource": "source",
    "Evaluator": "episodes",
    "PoolStep": "pool",
    "SyncEnvs": "vector",
    "VectorEnvs": "vector",
    "describe_env": "spaces",
    "make_envs": "vector",
    "require_actions": "spaces",
    "run_episodes": "episodes",
}

__all__ = [
    "AsyncEnvs",
    "EnvPool",
    "EnvSource",
    "Evaluator",
    "PoolStep",
    "SyncEnvs",
    "VectorEnvs",
    "describe_env",
    "make_envs",
    "require_actions",
    "run_episodes",
]


def __getattr__(name: str) -> Any:
    # gymnasium is imported when a name is asked for, not when the package is
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
