"""What a checkpoint holds of a session, and how another session goes on from it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rl_training.experiment.checkpoint import STATE_PARTS, CheckpointState, Saved
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.callbacks import EarlyStoppingCallback, named_callbacks
from rl_training.runtime.progress import plain_metrics
from rl_training.types import State

if TYPE_CHECKING:
    from rl_training.runtime.session import Session

log = logging.getLogger(__name__)


def checkpoint_of(session: Session, parts: Sequence[str] = STATE_PARTS) -> CheckpointState:
    """The whole state at this moment, or only some parts of it."""
    makers: dict[str, Callable[[], State]] = {
        "algorithm_state": session.algorithm.state_dict,
        "buffer_state": lambda: {name: buffer.state_dict() for name, buffer in session.loop.buffers.items()},
        "trainer_state": lambda: _trainer_state(session),
    }
    states = {name: make() if name in parts else {} for name, make in makers.items()}
    metadata = {"env_spec": session.spec.to_dict(), **session.origins, **session.run.checkpoint_metadata()}
    return CheckpointState(config=session.config.to_dict(), metadata=metadata, **states)


def _trainer_state(session: Session) -> State:
    memories = session.absent_memories | {name: each.state_dict() for name, each in named_callbacks(session.callbacks)}
    return {
        "progress": session.progress.state_dict(),
        "numerics": session.guard.state_dict(),
        "loop": session.loop.state_dict(),
        "torch_rng": session.rng.state_dict(),
        "callbacks": {name: memory for name, memory in memories.items() if memory},
        "history_lines": session.run.history_lines,
        "update_metrics": plain_metrics(session.update_metrics),
        "evaluation": _evaluation_state(session),
        "over": session.stop_reason if session.over else None,
        "exact": session.exact,
    }


def _evaluation_state(session: Session) -> State:
    """What is known of the last evaluation, and whether one was cut short since."""
    known = {"step": session.eval_step, "metrics": plain_metrics(session.eval_metrics), "due": session.eval_due}
    return {**known, "episode": session.evaluator.state_dict()}


def restore(session: Session, saved: Saved) -> None:
    """Put the session where `saved` was; states of older versions lack some of it."""
    session.algorithm.load_state_dict(saved.algorithm_state)
    for name, buffer in session.loop.buffers.items():
        buffer.load_state_dict(saved.buffer_state[name])
    trainer = saved.trainer_state
    session.loop.load_state_dict(trainer["loop"])
    session.progress.load_state_dict(trainer["progress"])
    if "numerics" in trainer:
        session.guard.load_state_dict(trainer["numerics"])
    _restore_callbacks(session, trainer["callbacks"])
    session.run.continue_history(trainer["history_lines"])
    session.run.continue_best(session.global_step, eval_episodes=session.config.eval_episodes)
    session.update_metrics = dict(trainer.get("update_metrics", {}))
    _restore_evaluation(session, trainer.get("evaluation", {}))
    _restore_end(session, trainer.get("over"), saved)
    session.rng.load_state_dict(trainer["torch_rng"])
    if not (session.loop.exact and trainer.get("exact", True)):
        session.note_inexact()


def _restore_callbacks(session: Session, memories: Mapping[str, State]) -> None:
    """Each gets its memory back; that of one which is not there any more is kept for when it is given again."""
    given = dict(named_callbacks(session.callbacks))
    for name, memory in memories.items():
        if name in given:
            given[name].load_state_dict(memory)
        elif not name.startswith(EarlyStoppingCallback.__name__):  # that one goes with its option
            session.absent_memories[name] = memory
    if session.absent_memories:
        session.note_inexact()
        log.warning(
            "NOT EXACT: callbacks that the run was trained with are not given now: %s. What they do to training does not "
            "happen; their memory is kept. Give them by resume_training(..., callbacks=[...]), for the command line has none",
            ", ".join(name.partition("#")[0] for name in session.absent_memories),
        )


def _restore_evaluation(session: Session, saved: Mapping[str, Any]) -> None:
    """What is known of the policy at this step need not be found out again, unless other episodes are asked for."""
    session.eval_due = bool(saved.get("due") and session.config.eval_episodes)
    if saved.get("metrics", {}).get("eval_episodes") == session.config.eval_episodes:
        session.eval_step, session.eval_metrics = saved["step"], dict(saved["metrics"])
    num_episodes = session.config.eval_episodes
    if num_episodes and "episode" in saved and not session.evaluator.repeat(saved["episode"], num_episodes=num_episodes):
        session.note_inexact()


def _restore_end(session: Session, reason: str | None, saved: Saved) -> None:
    """A run that something has ended stays ended, unless what decides about that was changed since."""
    if reason is None:
        return
    step, total = session.global_step, session.config.total_timesteps
    if _limits(TrainConfig.from_dict(saved.config)) != _limits(session.config):
        log.info("stopped at step %d (%s); goes on, as its limits were changed", step, reason)
        return
    session.stop_reason, session.over = reason, True
    log.warning(
        "the run is over since step %d: %s. Nothing is trained; to go on all the same change total_timesteps (now %d) or "
        "early_stopping",
        *(step, reason, total),
    )


def _limits(config: TrainConfig) -> tuple[Any, ...]:
    """What decides when a run is over."""
    return config.total_timesteps, config.budget, config.options.max_updates, config.options.early_stopping
