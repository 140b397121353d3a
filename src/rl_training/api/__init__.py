"""The managed classes: learn, evaluate, predict, save, load."""

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
    "OpenAIES",
    "ReBRAC",
]
