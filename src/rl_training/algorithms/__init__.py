"""The learners, under their names and as `<Name>Algorithm`, and their loss functions."""

from rl_training.algorithms.base import Algorithm, OnPolicyAlgorithm
from rl_training.algorithms.ppo import PPO, PPOAlgorithm, ppo_loss
from rl_training.algorithms.sac import SAC, SACAlgorithm, sac_loss

__all__ = ["PPO", "SAC", "Algorithm", "OnPolicyAlgorithm", "PPOAlgorithm", "SACAlgorithm", "ppo_loss", "sac_loss"]
