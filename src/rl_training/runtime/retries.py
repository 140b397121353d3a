"""The collecting half of a turn, which leaves no trace where it fails."""

from __future__ import annotations

import logging

from rl_training.envs.faults import ActionFault, NumberFault
from rl_training.errors import EnvError, NumericsError, RLTrainingError
from rl_training.runtime.loops import CollectingLoop, Loop
from rl_training.runtime.numerics import NumericsGuard
from rl_training.runtime.rng import TorchRng
from rl_training.runtime.signals import Abandoned
from rl_training.types import Collected

log = logging.getLogger(__name__)


def collect_turn(loop: Loop, guard: NumericsGuard, rng: TorchRng) -> Collected:
    """The turn's experience. Where it fails, all is as before the turn, and what is saved then can be resumed as if it
    had never begun; or it is tried anew without the episode that gave a number that is not finite, if that is wanted."""
    before, leave, passing = rng.state_dict(), None, 0
    loop.mark()
    while True:
        try:
            if leave is not None and isinstance(loop, CollectingLoop):
                loop.leave_episode(leave, passing=passing)
                loop.mark()
                leave = None
            collected = loop.collect()
        except Abandoned:  # noqa: PERF203 (a turn is long, and seldom tried twice)
            loop.rewind()
            rng.load_state_dict(before)
            raise
        except (EnvError, NumericsError) as error:
            loop.rewind()
            rng.load_state_dict(before)
            stuck, leave = leave, _episode_to_leave(error, loop, guard)
            if leave is None:
                raise
            passing = passing + 1 if leave == stuck else 0  # the next episode cannot begin either: try the one after it
        else:
            if collected.episode_returns:
                guard.bad_episodes = 0
            return collected


def _episode_to_leave(error: RLTrainingError, loop: Loop, guard: NumericsGuard) -> int | None:
    """The environment whose episode is given up, where that is wanted and can help."""
    if not (guard.skips and isinstance(loop, CollectingLoop) and isinstance(error, NumberFault | ActionFault)):
        return None
    if not guard.count_episode():
        return None
    log.warning("%s; this episode is left and the turn begun anew (on_nan: skip)", error)
    return error.index
