"""The managed classes: learn, evaluate, predict, save, load."""

from rl_training.api.algorithms import PPO, SAC

__all__ = ["PPO", "SAC"]
