"""Environments that keep their simulator over episodes, so that each has to be given a new one.

Exact resume, evaluation and `eval` take an episode for a function of its seed and its actions. These break that: what an
earlier episode left in the simulator shows in the last bits of a later one. `tests/contracts/test_episodes.py` looks for them
among all of Gymnasium's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym

Renew = Callable[[], None]


def renewal(env: gym.Env[Any, Any]) -> Renew | None:
    """What to do before each of its episodes begins; None for those that need nothing, as nearly all."""
    core = env.unwrapped
    for kind in type(core).__mro__:
        if (renew := KEEP_THEIR_WORLD.get(f"{kind.__module__}.{kind.__qualname__}")) is not None:
            return partial(renew, core)
    return None


def _new_box2d_world(core: Any) -> None:
    """As Gymnasium's LunarLander does for itself, which had the same fault."""
    core._destroy()
    core.world = type(core.world)()


def _forget_last_action(core: Any) -> None:
    """Which is repeated with some probability, in the first step of an episode too."""
    core.game.last_action = 0


KEEP_THEIR_WORLD: dict[str, Callable[[Any], None]] = {
    "gymnasium.envs.box2d.bipedal_walker.BipedalWalker": _new_box2d_world,
    "minatar.gym.BaseEnv": _forget_last_action,
}
