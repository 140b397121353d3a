"""The managed classes. One line each; everything else about an algorithm is in its own files."""

from rl_training.api.managed import ManagedAlgorithm


class PPO(ManagedAlgorithm, algo="ppo"):
    """Proximal policy optimisation, for discrete and continuous actions."""


class SAC(ManagedAlgorithm, algo="sac"):
    """Soft actor-critic, for continuous actions."""
