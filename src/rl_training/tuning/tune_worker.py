"""One process of a search: `python -m rl_training.tuning.tune_worker DIRECTORY TRIALS`. Makes trials until none is left."""

from __future__ import annotations

import logging
import math
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.bench.bench_job import end_with_parent, newest_checkpoint
from rl_training.errors import ConfigError, NumericsError, RLTrainingError, TrainingInterrupted
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.experiment.trust import named_code
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.workflows import resume_training
from rl_training.tuning.tune_plan import METRIC, TunePlan
from rl_training.tuning.tune_study import next_trial, open_study, require_optuna, suggest

if TYPE_CHECKING:
    from optuna.trial import Trial

    from rl_training.runtime.session import Session
    from rl_training.types import TrainResult

log = logging.getLogger(__name__)


class Curve(Callback):
    """Tells a trial how each evaluation went, and ends a run that is not worth going on with."""

    def __init__(self, trial: Trial, *, offset: int, end: int, told: set[int]) -> None:
        self.trial, self.offset, self.end, self.told = trial, offset, end, told
        self.pruned = False

    def on_eval_end(self, trainer: Session, metrics: dict[str, Any]) -> None:
        value, step = float(metrics[METRIC]), self.offset + trainer.global_step
        if not math.isfinite(value):
            return
        if step not in self.told:  # a run that goes on from a checkpoint meets some evaluations twice
            self.told.add(step)
            self.trial.report(value, step)
        if step < self.end and self.trial.should_prune():  # what is trained to its end is worth its score
            self.pruned = True
            trainer.request_stop(f"worse than half of the earlier trials at step {trainer.global_step}")


def work(plan: TunePlan, *, num_trials: int) -> None:
    """Make trials until there are enough."""
    study, states = open_study(plan), require_optuna().trial.TrialState
    while (trial := next_trial(study, plan, num_trials=num_trials)) is not None:
        values = suggest(trial, plan)
        log.info("trial %d: %s", trial.number, values)
        try:
            score = run_trial(trial, plan, values)
        except (NumericsError, ConfigError) as error:  # these settings do not work, others may
            log.warning("trial %d failed: %s", trial.number, error)
            trial.set_user_attr("failure", str(error).splitlines()[0])
            study.tell(trial, state=states.FAIL)
        else:
            state = states.PRUNED if score is None else states.COMPLETE
            study.tell(trial, score, state=state)


def run_trial(trial: Trial, plan: TunePlan, values: dict[str, Any]) -> float | None:
    """Mean of the last evaluations over the seeds; None when the trial was given up on the way."""
    scores = [float(score) for score in trial.user_attrs.get("scores", [])]
    told = _retell(trial)
    for index, seed in enumerate(plan.seeds):
        if index < len(scores):  # a process that died had finished this one
            continue
        config = plan.trial_config(values, seed=seed)
        steps = config.total_timesteps
        curve = Curve(trial, offset=index * steps, end=len(plan.seeds) * steps, told=told)
        origin = trial.user_attrs.get("continues", trial.number)
        result = train_or_resume(config, f"trial{origin:04d}", curve)
        if curve.pruned:
            _drop_checkpoints(result)
            return None
        score = float(result.metrics[METRIC])
        if not math.isfinite(score):
            raise NumericsError(f"{METRIC} is {score}")
        scores.append(score)
        trial.set_user_attr("scores", scores)
        _drop_checkpoints(result)  # not before: a process that dies in between would have to train this seed again
    return sum(scores) / len(scores)


def _retell(trial: Trial) -> set[int]:
    """The learning curve up to where the process that made it died."""
    curve = {int(step): value for step, value in trial.user_attrs.get("curve", {}).items()}
    for step, value in curve.items():
        trial.report(value, step)
    return set(curve)


def train_or_resume(config: TrainConfig, suffix: str, callback: Callback) -> TrainResult:
    """The run of a trial: from its newest checkpoint if an earlier process left one, else from the beginning."""
    found = sorted(Path(config.output_dir).glob(f"{config.algo}__*__seed{config.seed}__{suffix}"))
    checkpoint = newest_checkpoint(found[0]) if found else None
    if checkpoint is not None:
        return resume_training(checkpoint, callbacks=[callback], trust=[name for _, name in named_code(config)])
    result: TrainResult = get_algorithm_spec(config.algo).train_fn(config, run_suffix=suffix, callbacks=[callback])
    return result


def _drop_checkpoints(result: TrainResult) -> None:
    """Only the best policy of a finished trial is kept: whole checkpoints of a hundred trials would fill a disk."""
    for path in (result.run_dir / "checkpoints").glob("step_*.safetensors"):
        path.unlink(missing_ok=True)


def main(argv: Sequence[str] | None = None) -> int:
    """0 done, 1 failed, 128 + signal interrupted and saved."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "--with-parent" in words:
        words.remove("--with-parent")
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # how to end is the parent's to say
        end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S")
    try:
        work(TunePlan.read(Path(words[0])), num_trials=int(words[1]))
    except TrainingInterrupted as error:
        log.warning("%s", error)
        return 128 + error.signum
    except RLTrainingError as error:
        log.error("%s: %s", type(error).__name__, error)  # noqa: TRY400 (the message says all)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
