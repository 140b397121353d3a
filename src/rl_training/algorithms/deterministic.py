"""What TD3 and DDPG have in common: a deterministic actor that climbs a learnt Q function (Silver et al., 2014)."""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.td import td_targets
from rl_training.kernels.losses import critic_loss, deterministic_actor_loss
from rl_training.models.adapters import actions_of, exported, q_values_of
from rl_training.models.deterministic import DeterministicActorCritic
from rl_training.models.encoded_policy import StandalonePolicy
from rl_training.models.entry import of_any_obs, type_of
from rl_training.models.optim import Adam, polyak_update
from rl_training.types import Batch, EnvSpec, Metrics

FIRST = torch.tensor([0])  # of the critics: the one that the actor climbs


def smoothed(actions: Tensor, *, std: float, clip: float = math.inf) -> Tensor:
    """Actions with Gaussian noise that is cut off at `clip`, brought back into [-1, 1]."""
    return torch.randn_like(actions).mul_(std).clamp_(-clip, clip).add_(actions).clamp_(-1.0, 1.0)


class DeterministicActorAlgorithm(Algorithm):
    """The pieces of an update; what the target is, and which pieces move when, is each algorithm's own.

    `model` is a `DeterministicActorCritic`, or any module with submodules `actor` (observations to actions in
    [-1, 1]) and `critics`, and `q_values(obs, actions)` of shape (critics, batch) or one of (batch,) for each critic.
    """

    def __init__(
        self,
        model: DeterministicActorCritic | nn.Module,
        *,
        learning_rate: float,
        gamma: float,
        tau: float,
        exploration_noise: float,
        actor_learning_rate: float | None,
    ) -> None:
        self.model = cast("Any", model)
        self.learning_rate, self.gamma, self.tau, self.exploration_noise = learning_rate, gamma, tau, exploration_noise
        # unlike SAC's, the next action of the target is the target actor's, so the copy is of both
        self.target: Any = copy.deepcopy(self.model).requires_grad_(False)
        self.actions, self.q_values = actions_of(model), q_values_of(model)
        self.target_actions, self.target_q_values = actions_of(self.target), q_values_of(self.target)
        self.actor_parameters = list(self.model.actor.parameters())
        self.critic_parameters = list(self.model.critics.parameters())
        self.dtype = type_of(self.actor_parameters)
        self.reads_bytes = getattr(model, "reads_bytes", False)
        self.target_parameters = [*self.target.actor.parameters(), *self.target.critics.parameters()]
        self.actor_optimizer = Adam(self.actor_parameters, learning_rate=actor_learning_rate or learning_rate)
        self.critic_optimizer = Adam(self.critic_parameters, learning_rate=learning_rate)

    @of_any_obs
    @torch.no_grad()
    def act(self, obs: Tensor, *, deterministic: bool = False) -> Tensor:  # noqa: ARG002 (there is no other way to act)
        actions: Tensor = self.actions(obs)
        return actions

    def policy_network(self, env: EnvSpec) -> StandalonePolicy | None:
        return exported(self.model, env)

    @of_any_obs
    @torch.no_grad()
    def explore(self, obs: Tensor) -> Tensor:
        """The actor's actions with Gaussian noise, brought back into [-1, 1]."""
        return smoothed(self.actions(obs), std=self.exploration_noise)

    def next_actions(self, next_obs: Tensor) -> Tensor:
        """What the target assumes will be done next: what the target actor would do."""
        actions: Tensor = self.target_actions(next_obs)
        return actions

    def targets(self, batch: Batch) -> Tensor:
        """r + γ (1 − done) min Q̄(s′, a′); with one critic the minimum is that critic."""
        next_obs = batch["next_obs"]
        values = self.target_q_values(next_obs, self.next_actions(next_obs)).amin(dim=0)
        return td_targets(batch, values, self.gamma)

    def update_critics(self, batch: Batch) -> Metrics:
        """One step of the critics towards the target."""
        targets = self.targets(batch)
        q_values, pull = self.q_values.vjp(batch["obs"], batch["actions"])
        losses, d = critic_loss.vjp(q_values, targets)
        self.critic_optimizer.step(pull(d.q_values))
        return losses

    def update_actor(self, batch: Batch) -> Metrics:
        """One step of the actor up the first critic, which stays as it is."""
        actions, pull_actor = self.actions.vjp(batch["obs"])
        q_values, pull_q = self.q_values.vjp(batch["obs"], actions, wrt=1, members=FIRST)
        losses, d = deterministic_actor_loss.vjp(q_values)
        self.actor_optimizer.step(pull_actor(pull_q(d.q_values)))
        return losses

    def move_targets(self) -> None:
        """Both target copies follow a little."""
        polyak_update([*self.actor_parameters, *self.critic_parameters], self.target_parameters, self.tau)
