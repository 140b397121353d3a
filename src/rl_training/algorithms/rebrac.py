"""ReBRAC (Tarasov et al., 2023, arXiv:2305.09836), and with no penalty on the critics TD3+BC (Fujimoto and Gu, 2021).

TD3 on recorded data, kept near the recorded actions twice: the actor is pulled towards them, and the critics value a next
action the less, the farther it is from the recorded one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.algorithms.td import td_targets
from rl_training.algorithms.td3 import TD3
from rl_training.kernels.differentiable import loss
from rl_training.kernels.losses import critic_loss
from rl_training.models.entry import flat_columns
from rl_training.models.mlp_td3 import MLPTD3Model
from rl_training.types import Batch, Metrics


def distance(actions: Tensor, recorded: Tensor) -> Tensor:
    """Squared, of each row's action to the recorded one, summed over its dimensions."""
    return (actions - recorded.reshape(actions.shape)).square().sum(-1)


@loss("actor_loss", wrt=("q_values", "actions"))
def cloning_actor_loss(q_values: Tensor, actions: Tensor, recorded: Tensor, *, penalty_coef: float) -> Metrics:
    """Minus the value of the actor's actions by the lowest critic, on the scale of one, and their distance to the recorded
    ones."""
    q, penalty = q_values.amin(dim=0), distance(actions, recorded)
    scale = q.abs().mean().detach()  # rewards of any size leave the penalty its weight
    return {"actor_loss": (penalty_coef * penalty - q / scale).mean(), "actor_penalty": penalty.mean()}


def rebrac_loss(batch: Mapping[str, Any], *, actor_penalty_coef: float) -> Metrics:
    """Both losses, from `q1_values, q2_values, target_q_values, sampled_q1, sampled_q2, sampled_actions, actions`; the
    critics' penalty stands in their targets."""
    q1, q2, targets = flat_columns(batch, "q1_values", "q2_values", "target_q_values")
    sampled = torch.stack(flat_columns(batch, "sampled_q1", "sampled_q2"))
    actions, recorded = batch["sampled_actions"], batch["actions"]
    actor = cloning_actor_loss(sampled, actions, recorded, penalty_coef=actor_penalty_coef)
    return critic_loss(torch.stack([q1, q2]), targets) | actor


class ReBRAC(TD3):
    """Learns from batches of `obs, actions, rewards, next_obs, dones`, and where critics are penalised of `next_actions` and
    `next_known` (1 where there is one). Further settings are those of `TD3`."""

    def __init__(
        self,
        model: MLPTD3Model | nn.Module,
        *,
        actor_penalty_coef: float = 0.05,
        critic_penalty_coef: float = 0.01,
        **settings: Any,
    ) -> None:
        super().__init__(model, **settings)
        self.actor_penalty_coef, self.critic_penalty_coef = actor_penalty_coef, critic_penalty_coef

    def targets(self, batch: Batch) -> Tensor:
        """r + γ (1 − done) (min Q̄(s′, a′) − β ‖a′ − â′‖²), where the recorded next action â′ is known."""
        next_obs, coef = batch["next_obs"], self.critic_penalty_coef
        actions = self.next_actions(next_obs)
        values = self.target_q_values(next_obs, actions).amin(dim=0)
        if coef:
            values = values - coef * batch["next_known"] * distance(actions, batch["next_actions"])
        return td_targets(batch, values, self.gamma)

    def update_actor(self, batch: Batch) -> Metrics:
        """One step of the actor up the lowest critic, and towards the recorded actions."""
        actions, pull_actor = self.actions.vjp(batch["obs"])
        q_values, pull_q = self.q_values.vjp(batch["obs"], actions, wrt=1)
        coef = self.actor_penalty_coef
        losses, d = cloning_actor_loss.vjp(q_values, actions, batch["actions"], penalty_coef=coef)
        self.actor_optimizer.step(pull_actor(pull_q(d.q_values) + d.actions))
        return losses


ReBRACAlgorithm = ReBRAC
