"""The trials of a search, in Optuna's journal: one file of JSON lines that several processes share."""

from __future__ import annotations

import fcntl
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.errors import MissingExtraError
from rl_training.experiment.files import no_link, plain
from rl_training.options._search import Choice, Whole, label
from rl_training.tuning.tune_plan import TunePlan

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

JOURNAL_FILE = "journal.log"
STARTUP_TRIALS = 8  # drawn at random before the sampler begins to learn from them
WARMUP_SHARE = 0.1  # of training, in which no trial is given up


def require_optuna() -> Any:
    """The package, or what to install."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("optuna", extra="tune", purpose="tuning") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_study(plan: TunePlan) -> Study:
    """The study of a plan; made with its first trial, the configuration as it is, if it is not there yet."""
    optuna = require_optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(plan.directory / JOURNAL_FILE)))
    fresh = not storage.get_all_studies()
    study: Study = optuna.create_study(
        study_name="tune", storage=storage, direction="maximize", load_if_exists=True, pruner=make_pruner(plan)
    )
    if fresh:
        study.enqueue_trial(_encoded(plan, plan.baseline()), user_attrs={"baseline": True})
    return study


def make_pruner(plan: TunePlan) -> Any:
    """A trial is given up when, at an evaluation, it is worse than the median of the earlier ones was there."""
    optuna = require_optuna()
    if plan.pruner == "none":
        return optuna.pruners.NopPruner()
    warmup = int(WARMUP_SHARE * plan.config.total_timesteps)
    return optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS // 2, n_warmup_steps=warmup)


def next_trial(study: Study, plan: TunePlan, *, num_trials: int) -> Trial | None:
    """A trial that waits to be gone on with, or a new one; None when all are made or under way.

    The sampler is seeded by how many there are, so that a search that was killed goes on as if it had not been.
    """
    optuna = require_optuna()
    with _alone(plan.directory):
        trials = counted_trials(study)
        waiting = any(trial.state == optuna.trial.TrialState.WAITING for trial in trials)
        if not waiting and len(trials) >= num_trials:
            return None
        seed = int(np.random.SeedSequence([plan.sampler_seed, len(trials)]).generate_state(1)[0])
        with _quietly():
            study.sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, constant_liar=True, n_startup_trials=STARTUP_TRIALS
            )
            return study.ask()


def counted_trials(study: Study) -> list[FrozenTrial]:
    """All but those that another trial goes on with."""
    return [trial for trial in study.get_trials(deepcopy=False) if not trial.user_attrs.get("replaced")]


def suggest(trial: Trial, plan: TunePlan) -> dict[str, Any]:
    """Values for a trial, in the options' own types."""
    with _quietly():
        return {name: _suggested(trial, plan, name) for name in plan.space}


def _suggested(trial: Trial, plan: TunePlan, name: str) -> Any:
    found = plan.space[name]
    if isinstance(found, Choice):
        return json.loads(trial.suggest_categorical(name, [label(value) for value in found.values]))
    if isinstance(found, Whole):
        return trial.suggest_int(name, found.low, found.high, log=found.log)
    return trial.suggest_float(name, found.low, found.high, log=found.log)


def trial_values(trial: FrozenTrial, plan: TunePlan) -> dict[str, Any]:
    """The settings of a trial, in the options' own types."""
    decoded = {
        name: json.loads(value) if isinstance(plan.space[name], Choice) else value for name, value in trial.params.items()
    }
    return {name: decoded[name] for name in plan.space if name in decoded}


def _encoded(plan: TunePlan, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: label(value) if isinstance(plan.space[name], Choice) else value for name, value in values.items()}


def recover(plan: TunePlan) -> int:
    """Have trials whose process died gone on with; only when no process of the search runs. Gives their number."""
    optuna = require_optuna()
    _mend_journal(plan.directory / JOURNAL_FILE)
    study, states = open_study(plan), optuna.trial.TrialState
    orphans = [trial for trial in study.get_trials(deepcopy=False) if trial.state == states.RUNNING]
    for orphan in orphans:
        kept = {key: value for key, value in orphan.user_attrs.items() if key != "replaced"}
        kept |= {
            "continues": kept.get("continues", orphan.number),
            "curve": {str(k): v for k, v in orphan.intermediate_values.items()},
        }
        optuna.trial.Trial(study, orphan._trial_id).set_user_attr("replaced", True)
        study.tell(orphan.number, state=states.FAIL)
        study.enqueue_trial(dict(orphan.params), user_attrs=kept)
    return len(orphans)


def _mend_journal(path: Path) -> None:
    """A line torn by a kill would swallow the next one, and a lock left behind would hold everybody up."""
    with suppress(FileNotFoundError):
        Path(f"{path}.lock").unlink()
    if no_link(path).exists():
        data = path.read_bytes()
        if data and not data.endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One process of the search at a time."""
    with FileIO(directory / ".ask", "a", opener=plain) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _quietly() -> Iterator[None]:
    """Some of what is used here is called experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def importances(study: Study) -> dict[str, float]:
    """How much of what makes trials good each setting explains, largest first; empty while too few are finished."""
    optuna = require_optuna()
    try:
        with _quietly():
            found = optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
    except (ValueError, RuntimeError):  # fewer than two finished trials, or all of them equal
        return {}
    return {name: float(share) for name, share in found.items() if np.isfinite(share)}
