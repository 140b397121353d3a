"""TD3: addressing function approximation error in actor-critic methods (Fujimoto et al., 2018, arXiv:1802.09477)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rl_training.algorithms.deterministic import DeterministicActorAlgorithm, smoothed
from rl_training.forms import Form, Named, scalar
from rl_training.kernels.losses import critic_loss, deterministic_actor_loss
from rl_training.models.entry import flat_columns, plain
from rl_training.models.mlp_td3 import MLPTD3Model
from rl_training.types import Batch, Metrics, UpdateResult


def td3_loss(batch: Mapping[str, Any]) -> Metrics:
    """Both losses, from `q1_values, q2_values, target_q_values, sampled_q1`, the last being the first critic's values
    of the actor's actions."""
    q1, q2, target = flat_columns(batch, "q1_values", "q2_values", "target_q_values")
    return critic_loss(torch.stack([q1, q2]), target) | deterministic_actor_loss(batch["sampled_q1"])


class TD3(DeterministicActorAlgorithm):
    """Learns from batches of `obs, actions, rewards, next_obs, dones`.

    Against DDPG's overestimation: the target is the lower of two critics, at an action blurred by clipped noise,
    and the actor and all targets move only at every `policy_delay`-th update. In between, `actor_loss` is reported
    as it last was; before the actor's first step there is none.
    """

    saved: ClassVar[tuple[str, ...]] = ("updates", "actor_metrics")
    forms: ClassVar[Mapping[str, Form]] = {"actor_metrics": Named(scalar)}

    def __init__(
        self,
        model: MLPTD3Model | nn.Module,
        *,
        learning_rate: float,
        gamma: float = 0.99,
        tau: float = 0.005,
        policy_noise: float = 0.2,
        noise_clip: float = 0.5,
        policy_delay: int = 2,
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
        self.policy_noise, self.noise_clip, self.policy_delay = policy_noise, noise_clip, policy_delay
        self.updates = 0
        self.actor_metrics: Metrics = {}  # state as well: a resumed run must log what the whole one does

    @torch.no_grad()
    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (it counts its own updates)
        batch = plain(batch, self.dtype)
        critic = self.update_critics(batch)
        self.updates += 1
        if self.updates % self.policy_delay == 0:
            self.actor_metrics = self.update_actor(batch)
            self.move_targets()
        return UpdateResult(critic | self.actor_metrics)

    def next_actions(self, next_obs: Tensor) -> Tensor:
        """The target actor's, with noise: similar actions should have similar values."""
        return smoothed(super().next_actions(next_obs), std=self.policy_noise, clip=self.noise_clip)


TD3Algorithm = TD3
