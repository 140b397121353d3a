"""The record of an experiment: configuration, registry, run directory, checkpoints, statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training._lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.experiment.checkpoint import CheckpointState, load_checkpoint, save_checkpoint
    from rl_training.experiment.config import TrainConfig
    from rl_training.experiment.registry import AlgorithmSpec, get_algorithm_spec, list_algorithm_specs
    from rl_training.experiment.run_logger import RunLogger
    from rl_training.experiment.sinks import BatchingSink, MetricsSink

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "AlgorithmSpec": "rl_training.experiment.registry",
        "BatchingSink": "rl_training.experiment.sinks",
        "CheckpointState": "rl_training.experiment.checkpoint",
        "MetricsSink": "rl_training.experiment.sinks",
        "RunLogger": "rl_training.experiment.run_logger",
        "TrainConfig": "rl_training.experiment.config",
        "get_algorithm_spec": "rl_training.experiment.registry",
        "list_algorithm_specs": "rl_training.experiment.registry",
        "load_checkpoint": "rl_training.experiment.checkpoint",
        "save_checkpoint": "rl_training.experiment.checkpoint",
    },
)
__all__ = [
    "AlgorithmSpec",
    "BatchingSink",
    "CheckpointState",
    "MetricsSink",
    "RunLogger",
    "TrainConfig",
    "get_algorithm_spec",
    "list_algorithm_specs",
    "load_checkpoint",
    "save_checkpoint",
]
