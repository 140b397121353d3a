"""Training with progress, summary and closing lines, begun or resumed. Torch is imported here, after all checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rl_training.cli.results import announce, closing_lines, summarize
from rl_training.cli.tables import say
from rl_training.errors import TrainingInterrupted

if TYPE_CHECKING:
    from rl_training.cli.progress import ProgressCallback
    from rl_training.experiment.config import TrainConfig
    from rl_training.types import TrainResult


def train_and_report(config: TrainConfig, *, run_suffix: str | None, quiet: bool) -> TrainResult:
    """One run from its beginning. Its closing lines are the caller's, who may have more to say, unless it is interrupted."""
    if not quiet:
        announce(config)
    from rl_training.experiment.registry import get_algorithm_spec

    train = get_algorithm_spec(config.algo).train_fn
    return _report(lambda progress: train(config, run_suffix=run_suffix, callbacks=[progress]), quiet=quiet)


def resume_and_report(path: str, changes: dict[str, Any], *, run_suffix: str | None, quiet: bool) -> None:
    """The rest of a run."""
    if not quiet:
        say(f"resuming {path}")
    from rl_training.runtime.workflows import resume_training

    closing_lines(
        _report(lambda progress: resume_training(path, **changes, run_suffix=run_suffix, callbacks=[progress]), quiet=quiet)
    )


def _report(train: Callable[[ProgressCallback], TrainResult], *, quiet: bool) -> TrainResult:
    from rl_training.cli.progress import ProgressCallback

    try:
        with ProgressCallback(quiet=quiet) as progress:
            result = train(progress)
    except TrainingInterrupted as interrupt:
        closing_lines(interrupt.result)
        raise
    if not quiet:
        summarize(result, progress)
    return result
