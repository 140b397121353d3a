"""A search for good settings: processes that make trials, and what comes out of them. Imports no torch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.bench.bench import LocalHandle, exit_words, log_tail, start_module
from rl_training.errors import ConfigError, RLTrainingError, TrainingInterrupted
from rl_training.experiment.files import write_text
from rl_training.experiment.lock import RunLock
from rl_training.options._words import counted
from rl_training.runtime.signals import StopSignals
from rl_training.tuning.tune_plan import METRIC, TunePlan
from rl_training.tuning.tune_study import counted_trials, importances, open_study, recover, trial_values

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
BEST_FILE = "best.yaml"


class Trial(NamedTuple):
    """One set of values that was tried."""

    number: int
    state: str  # complete, pruned, fail, running or waiting
    score: float | None  # mean of the last evaluations over the seeds; of a pruned one, its last evaluation
    values: dict[str, Any]
    failure: str = ""


@dataclass(frozen=True)
class Tuned:
    """What a search has found so far."""

    plan: TunePlan
    trials: list[Trial]
    best: Trial | None
    importances: dict[str, float]

    def finished(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.state in ("complete", "pruned", "fail")]


def tune(plan: TunePlan, *, num_trials: int, jobs: int = 1, on_trial: Callable[[Trial], None] = lambda _: None) -> Tuned:
    """Make trials until there are `num_trials`, in so many processes; a search that was stopped is gone on with."""
    if num_trials < 1 or jobs < 1:
        raise ConfigError(f"trials and jobs: given {num_trials} and {jobs}; possible: at least 1")
    if not plan.config.eval_episodes:
        raise ConfigError("eval_episodes: given 0; trials are judged by evaluations, so there must be some")
    plan.write()
    with RunLock(plan.directory):
        waiting = recover(plan)
        if waiting:
            log.info("%d trials were under way when the search was stopped; they go on", waiting)
        told = {trial.number for trial in read_tuned(plan).finished()}
        _run_workers(plan, num_trials=num_trials, jobs=jobs, on_trial=on_trial, told=told)
    tuned = read_tuned(plan)
    write_best(tuned)
    return tuned


def _run_workers(plan: TunePlan, *, num_trials: int, jobs: int, on_trial: Callable[[Trial], None], told: set[int]) -> None:
    logs = [plan.directory / f"worker{number}.log" for number in range(jobs)]
    begins = [path.stat().st_size if path.exists() else 0 for path in logs]
    words = ("tuning.tune_worker", str(plan.directory), str(num_trials))
    with StopSignals() as signals:
        workers = [LocalHandle(start_module(*words, log_file=path, threads=plan.config.threads)) for path in logs]
        try:
            while any(worker.poll() is None for worker in workers):
                if signals.received is not None:
                    for worker in workers:
                        worker.stop()
                time.sleep(POLL_SECONDS)
                _tell_new(plan, on_trial, told)
        except BaseException:
            for worker in workers:
                worker.kill()
            raise
    _tell_new(plan, on_trial, told)
    if signals.received is not None:
        message = f"interrupted; {len(told)} of {num_trials} trials are done, the others are saved. The same command goes on"
        raise TrainingInterrupted(message, signum=signals.received, result=None)
    for worker, path, begin in zip(workers, logs, begins, strict=True):
        if code := worker.poll():
            raise RLTrainingError(f"a process of the search {exit_words(code)}:\n{log_tail(path, begin)}")


def _tell_new(plan: TunePlan, on_trial: Callable[[Trial], None], told: set[int]) -> None:
    tuned = read_tuned(plan, explain=False)
    fresh = [trial for trial in tuned.finished() if trial.number not in told]
    if fresh:
        write_best(tuned)  # a search that is stopped leaves the best so far
    for trial in fresh:
        told.add(trial.number)
        on_trial(trial)


def read_tuned(plan: TunePlan, *, explain: bool = True) -> Tuned:
    """What the journal holds."""
    study = open_study(plan)
    trials = [_plain(trial, plan) for trial in counted_trials(study)]
    complete = [trial for trial in trials if trial.state == "complete" and trial.score is not None]
    best = max(complete, key=lambda trial: trial.score or 0.0, default=None)
    return Tuned(plan, trials, best, importances(study) if explain else {})


def _plain(trial: Any, plan: TunePlan) -> Trial:
    state = trial.state.name.lower()
    score = trial.value
    if state == "pruned" and trial.intermediate_values:
        score = trial.intermediate_values[max(trial.intermediate_values)]
    return Trial(trial.number, state, score, trial_values(trial, plan), trial.user_attrs.get("failure", ""))


def write_best(tuned: Tuned) -> Path | None:
    """`best.yaml`, ready for `train --config`; None while no trial is complete."""
    if tuned.best is None:
        return None
    path, plan = tuned.plan.directory / BEST_FILE, tuned.plan
    trials, seeds = counted(len(tuned.finished()), "trial"), ", ".join(map(str, plan.seeds))
    over = f"the mean over seeds {seeds}" if len(plan.seeds) > 1 else f"seed {seeds}"
    about = [
        f"{plan.config.algo} on {plan.config.env_id}: the best of {trials}, number {tuned.best.number}.",
        f"{METRIC} {tuned.best.score:.6g} at its end, {over}.",
        "It was chosen by these seeds, so train others to judge it.",
    ]
    write_text(path, plan.best_yaml(tuned.best.values, about=about))
    return path
