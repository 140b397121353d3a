"""Environments that other packages bring, by their ids alone: the package is imported when one of its ids is asked for."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import gymnasium as gym

from rl_training.envs import procgen
from rl_training.envs.atari import make_standard_atari
from rl_training.errors import ConfigError, MissingExtraError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Family:
    """Ids that begin alike."""

    beginnings: tuple[str, ...]
    package: str
    extra: str  # of this distribution
    register: Callable[[Any], object]  # of the package


def _register_minatar(package: Any) -> None:
    import_module(f"{package.__name__}.gym").register_envs()


ROBOTICS = (
    *("AdroitHand", "AntMaze_", "PointMaze_", "FrankaKitchen-", "HandReach", "HandManipulate"),
    *("FetchReach", "FetchPush", "FetchSlide", "FetchPickAndPlace"),
)
ATARI = Family(("ALE/",), "ale_py", "atari", gym.register_envs)
FAMILIES = (
    ATARI,
    Family(("MinAtar/",), "minatar", "minatar", _register_minatar),
    Family(ROBOTICS, "gymnasium_robotics", "robotics", gym.register_envs),
)


def make_by_id(env: Any, *, atari: bool = False, **kwargs: Any) -> gym.Env[Any, Any]:
    """As `gym.make`, of an id or of what is registered under one; the family of the id is registered first."""
    env_id = str(getattr(env, "id", env)).rpartition(":")[2]
    register_family(env_id)
    if not isinstance(atari, bool):
        raise ConfigError(f"env_kwargs: atari: given {atari!r}; possible: true, false")
    if atari:
        if not env_id.startswith(ATARI.beginnings):
            raise ConfigError(f"env_kwargs: atari: true is for games of ale-py such as ALE/Pong-v5; given {env_id}")
        return make_standard_atari(env, **kwargs)
    made: gym.Env[Any, Any] = gym.make(env, **kwargs)
    return made


def register_family(env_id: str) -> None:
    """Have Gymnasium know an id that a package brings; MissingExtraError where the package is missing."""
    if env_id in gym.registry:
        return
    if env_id.startswith("Procgen/"):
        procgen.register()
    family = next((family for family in FAMILIES if env_id.startswith(family.beginnings)), None)
    if family is None:
        return
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):  # some packages say hello there
            package = import_module(family.package)
            family.register(package)
    except ModuleNotFoundError as error:
        if error.name != family.package:
            raise
        raise MissingExtraError(family.package, extra=family.extra, purpose=env_id) from error
    if said.getvalue():
        log.debug("%s: %s", family.package, said.getvalue().strip())
