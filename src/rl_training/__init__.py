"""Train, resume, compare and ship reinforcement-learning agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training._lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.api.algorithms import PPO, SAC
    from rl_training.experiment.config import TrainConfig

__version__ = "0.1.0"
__getattr__, __dir__, _names = lazy_exports(
    __name__,
    {
        "PPO": "rl_training.api.algorithms",
        "SAC": "rl_training.api.algorithms",
        "TrainConfig": "rl_training.experiment.config",
    },
)
__all__ = ["PPO", "SAC", "TrainConfig", "__version__"]
