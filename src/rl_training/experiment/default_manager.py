"""Experiments as objects: set one up from a configuration or from a checkpoint, then `train()`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import get_algorithm_spec

if TYPE_CHECKING:
    from rl_training.types import TrainResult


@dataclass(frozen=True)
class Experiment:
    """Something that can be trained, once or again."""

    run: Callable[[], Any]

    def train(self) -> TrainResult:
        result: TrainResult = self.run()
        return result


class DefaultExperimentManager:
    """Runs experiments on this machine, by whichever algorithm their configuration names."""

    def setup(self, config: TrainConfig, *, callbacks: Sequence[Any] | None = None) -> Experiment:
        return Experiment(partial(get_algorithm_spec(config.algo).train_fn, config, callbacks=callbacks))

    def resume(self, path: str | Path, **changes: Any) -> Experiment:
        """`changes` are those of `resume_training`."""
        # by name: this layer lies below the one that trains
        resume_training = import_module("rl_training.runtime.workflows").resume_training
        return Experiment(partial(resume_training, path, **changes))
