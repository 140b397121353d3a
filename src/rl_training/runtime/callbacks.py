"""What may be hooked into the training loop, and the hooks the library itself brings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rl_training.errors import ConfigError
from rl_training.forms import COUNT, Maybe, Record, metric
from rl_training.types import Collected, State, TrainResult, UpdateResult

if TYPE_CHECKING:
    from rl_training.options.base import EarlyStopping
    from rl_training.runtime.session import Session


class Callback:
    """Override what you need. `trainer.global_step` says where training is; `trainer.request_stop(reason)` ends it
    after the current turn's update.

    `on_eval_end` hears of every evaluation. The one after the last turn comes too late to stop anything; it and `on_train_end`
    come after the last checkpoint is written, so a resumed callback does not know of them.

    A callback that changes while training runs and must survive a resume gives its memory by `state_dict`.
    """

    def on_train_start(self, trainer: Session) -> None: ...

    def on_collect_end(self, trainer: Session, result: Collected) -> None: ...

    def on_update_end(self, trainer: Session, result: UpdateResult) -> None: ...

    def on_eval_end(self, trainer: Session, metrics: dict[str, Any]) -> None: ...

    def on_train_end(self, trainer: Session, result: TrainResult) -> None: ...

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


HOOKS = [name for name in vars(Callback) if not name.startswith("__")]


def checked_callbacks(given: Any) -> list[Callback]:
    """A list of callbacks; a function or one alone is what other libraries take, so that is said."""
    callbacks = list(given or ()) if isinstance(given, Iterable) or given is None else [given]
    for callback in callbacks:
        missing = [name for name in HOOKS if not callable(getattr(callback, name, None))]
        if isinstance(callback, type) or missing:
            lacks = "" if isinstance(callback, type) or len(missing) == len(HOOKS) else f", which has no {', '.join(missing)}"
            possible = "a list of Callback objects; derive your class from rl_training.Callback"
            raise ConfigError(f"callbacks: given {callback!r}{lacks}; possible: {possible}")
    return callbacks


def named_callbacks(callbacks: Sequence[Callback]) -> list[tuple[str, Callback]]:
    """Each with a name it will have again after a resume: its class, numbered where there are several of one."""
    kinds = [type(callback).__name__ for callback in callbacks]
    return [(f"{kind}#{kinds[:i].count(kind)}", callbacks[i]) for i, kind in enumerate(kinds)]


class EarlyStoppingCallback(Callback):
    """Stops when a metric has reached its target, or has not improved for `patience` evaluations."""

    def __init__(self, options: EarlyStopping) -> None:
        self.options = options
        self.best: float | None = None
        self.waited = 0

    def on_eval_end(self, trainer: Session, metrics: dict[str, Any]) -> None:
        options = self.options
        if options.metric not in metrics:
            known = ", ".join(sorted(metrics))
            trainer.request_stop(f"early_stopping.metric {options.metric!r} is not among the metrics: {known}")
            return
        sign = 1.0 if options.mode == "max" else -1.0
        value = sign * float(metrics[options.metric])
        if self.best is None or value > self.best + options.min_delta:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        if trainer.global_step < options.min_steps:
            return
        if options.target_value is not None and value >= sign * options.target_value:
            trainer.request_stop(f"{options.metric} reached {sign * value:.6g} (target {options.target_value:.6g})")
        elif options.patience is not None and self.waited >= options.patience:
            trainer.request_stop(f"{options.metric} has not improved for {self.waited} evaluations")

    state_form = Record({"best": Maybe(metric), "waited": COUNT})

    def state_dict(self) -> State:
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state_form(state, "the memory of early stopping")
        self.best, self.waited = state["best"], state["waited"]
