"""Train, resume, compare and ship reinforcement-learning agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training._lazy import lazy_exports

if TYPE_CHECKING:
    from rl_training.api.algorithms import (
        ARS,
        BC,
        CQL,
        DDPG,
        IQL,
        MOPO,
        PETS,
        PPG,
        PPO,
        RLPD,
        SAC,
        TD3,
        TQC,
        CalQL,
        OpenAIES,
        ReBRAC,
    )
    from rl_training.experiment.config import TrainConfig
    from rl_training.runtime.callbacks import Callback

__version__ = "0.1.0"
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ARS": "rl_training.api.algorithms",
        "BC": "rl_training.api.algorithms",
        "CQL": "rl_training.api.algorithms",
        "CalQL": "rl_training.api.algorithms",
        "Callback": "rl_training.runtime.callbacks",
        "DDPG": "rl_training.api.algorithms",
        "IQL": "rl_training.api.algorithms",
        "MOPO": "rl_training.api.algorithms",
        "OpenAIES": "rl_training.api.algorithms",
        "PETS": "rl_training.api.algorithms",
        "PPG": "rl_training.api.algorithms",
        "PPO": "rl_training.api.algorithms",
        "RLPD": "rl_training.api.algorithms",
        "ReBRAC": "rl_training.api.algorithms",
        "SAC": "rl_training.api.algorithms",
        "TD3": "rl_training.api.algorithms",
        "TQC": "rl_training.api.algorithms",
        "TrainConfig": "rl_training.experiment.config",
    },
)
__all__ = [
    "ARS",
    "BC",
    "CQL",
    "DDPG",
    "IQL",
    "MOPO",
    "PETS",
    "PPG",
    "PPO",
    "RLPD",
    "SAC",
    "TD3",
    "TQC",
    "CalQL",
    "Callback",
    "OpenAIES",
    "ReBRAC",
    "TrainConfig",
    "__version__",
]
