"""The networks."""

from rl_training.models.flat_mlp import FlatMLP
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_sac import MLPSACModel

__all__ = ["FlatMLP", "MLPActorCritic", "MLPSACModel"]
