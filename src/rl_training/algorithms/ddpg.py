"""DDPG: continuous control with deep reinforcement learning (Lillicrap et al., 2015, arXiv:1509.02971)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from rl_training.algorithms.deterministic import DeterministicActorAlgorithm
from rl_training.kernels.losses import critic_loss, deterministic_actor_loss
from rl_training.models.entry import flat_columns, plain
from rl_training.models.mlp_ddpg import MLPDDPGModel
from rl_training.types import Batch, Metrics, UpdateResult


def ddpg_loss(batch: Mapping[str, Any]) -> Metrics:
    """Both losses, from `q_values, target_q_values, sampled_q`, the last being the values of the actor's actions."""
    q_values, target = flat_columns(batch, "q_values", "target_q_values")
    return critic_loss(q_values.unsqueeze(0), target) | deterministic_actor_loss(batch["sampled_q"])


class DDPG(DeterministicActorAlgorithm):
    """Learns from batches of `obs, actions, rewards, next_obs, dones`; critic, actor and targets move at every update.

    Explores with independent Gaussian noise. The paper's correlated (Ornstein-Uhlenbeck) noise is not here: later
    work, TD3's among it, found no gain in it.
    """

    def __init__(
        self,
        model: MLPDDPGModel | nn.Module,
        *,
        learning_rate: float,
        gamma: float = 0.99,
        tau: float = 0.005,
        exploration_noise: float = 0.1,
        actor_learning_rate: float | None = None,
    ) -> None:
        super().__init__(
            model,
            learning_rate=learning_rate,
            gamma=gamma,
            tau=tau,
            exploration_noise=exploration_noise,
            actor_learning_rate=actor_learning_rate,
        )

    @torch.no_grad()
    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (DDPG needs no clock)
        batch = plain(batch, self.dtype, reads_bytes=self.reads_bytes)
        critic = self.update_critics(batch)
        actor = self.update_actor(batch)
        self.move_targets()
        return UpdateResult(critic | actor)


DDPGAlgorithm = DDPG
