"""Implicit Q-learning (Kostrikov et al., 2021, arXiv:2110.06169).

No value of an action that nobody recorded is ever asked for. A state's value is a high expectile of the recorded actions'
values, which stands for the best of them; the critics are fitted to it, and the policy imitates each recorded action the
more, the more it is better than that value.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.td import td_targets
from rl_training.kernels.differentiable import loss
from rl_training.kernels.losses import critic_loss
from rl_training.models.adapters import exported, log_probs_of, q_network, q_values_of, state_values_of
from rl_training.models.encoded_policy import StandalonePolicy
from rl_training.models.entry import flat_columns, of_any_obs, plain, type_of
from rl_training.models.mlp_iql import MLPIQLModel
from rl_training.models.optim import Adam, polyak_update
from rl_training.types import Batch, EnvSpec, Metrics, UpdateResult


@loss("value_loss", wrt=("values",))
def expectile_loss(values: Tensor, recorded_q: Tensor, *, expectile: float) -> Metrics:
    """Squared error of the states' values, weighing `expectile` where a recorded action is worth more and the rest where less:
    at 0.5 the values tend to the mean over recorded actions, towards 1 to the best of them."""
    error = recorded_q - values
    weight = torch.where(error > 0, expectile, 1.0 - expectile)
    return {"value_loss": (weight * error.square()).mean(), "value_mean": values.mean()}


@loss("actor_loss", wrt=("logprobs",))
def advantage_weighted_loss(
    logprobs: Tensor, advantages: Tensor, *, inverse_temperature: float, max_weight: float = 100.0
) -> Metrics:
    """Recorded actions made more likely by exp(β · advantage), at most by `max_weight`."""
    weights = (inverse_temperature * advantages).exp().clamp(max=max_weight)
    return {"actor_loss": -(weights * logprobs).mean(), "advantage_weight_mean": weights.mean()}


def iql_loss(batch: Mapping[str, Any], *, expectile: float, inverse_temperature: float, max_weight: float = 100.0) -> Metrics:
    """All three losses, from `values, recorded_q_values, logprobs, q1_values, q2_values, target_q_values`; the second are what
    the target critics say of the recorded actions."""
    values, recorded_q, logprobs = flat_columns(batch, "values", "recorded_q_values", "logprobs")
    q1, q2, targets = flat_columns(batch, "q1_values", "q2_values", "target_q_values")
    actor = advantage_weighted_loss(
        logprobs, recorded_q - values, inverse_temperature=inverse_temperature, max_weight=max_weight
    )
    return expectile_loss(values, recorded_q, expectile=expectile) | actor | critic_loss(torch.stack([q1, q2]), targets)


class IQL(Algorithm):
    """Learns from batches of `obs, actions, rewards, next_obs, dones`.

    `model` is an `MLPIQLModel`, or any module with submodules `actor`, `critics` and `value_net`, `sample_actions(obs,
    deterministic=)`, `log_prob(obs, actions)` and `values(obs)` of shape (batch,), and `q_values(obs, actions)` of shape
    (critics, batch) or one of (batch,) for each critic.
    """

    def __init__(
        self,
        model: MLPIQLModel | nn.Module,
        *,
        learning_rate: float,
        gamma: float = 0.99,
        tau: float = 0.005,
        expectile: float = 0.7,
        inverse_temperature: float = 3.0,
        max_advantage_weight: float = 100.0,
        actor_learning_rate: float | None = None,
    ) -> None:
        self.model = cast("Any", model)
        self.learning_rate, self.gamma, self.tau, self.expectile = learning_rate, gamma, tau, expectile
        self.inverse_temperature, self.max_advantage_weight = inverse_temperature, max_advantage_weight
        # only the critics have a copy: next states are worth what the value function says now
        self.target: Any = copy.deepcopy(q_network(model)).requires_grad_(False)
        self.log_prob, self.values = log_probs_of(model), state_values_of(model)
        self.q_values, self.target_q_values = q_values_of(model), q_values_of(self.target)
        self.critic_parameters = list(self.model.critics.parameters())
        self.target_parameters = list(getattr(self.target, "critics", self.target).parameters())
        actor_parameters: list[Tensor] = list(self.model.actor.parameters())
        self.dtype = type_of(actor_parameters)
        self.actor_optimizer = Adam(actor_parameters, learning_rate=actor_learning_rate or learning_rate)
        self.critic_optimizer = Adam(self.critic_parameters, learning_rate=learning_rate)
        self.value_optimizer = Adam(list(self.model.value_net.parameters()), learning_rate=learning_rate)

    @of_any_obs
    @torch.no_grad()
    def act(self, obs: Tensor, *, deterministic: bool = False) -> Tensor:
        actions: Tensor = self.model.sample_actions(obs, deterministic=deterministic).actions
        return actions

    def policy_network(self, env: EnvSpec) -> StandalonePolicy | None:
        return exported(self.model, env)

    @torch.no_grad()
    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (IQL needs no clock)
        batch = plain(batch, self.dtype)
        recorded_q = self.target_q_values(batch["obs"], batch["actions"]).amin(dim=0)
        # the order of the authors' code: actor and critics already see what the value function has learnt here
        metrics = self.update_value(batch, recorded_q) | self.update_actor(batch, recorded_q) | self.update_critics(batch)
        polyak_update(self.critic_parameters, self.target_parameters, self.tau)
        return UpdateResult(metrics)

    def update_value(self, batch: Batch, recorded_q: Tensor) -> Metrics:
        """One step of the value function towards the expectile of the recorded actions' values."""
        values, pull = self.values.vjp(batch["obs"])
        losses, d = expectile_loss.vjp(values, recorded_q, expectile=self.expectile)
        self.value_optimizer.step(pull(d.values))
        return losses

    def update_actor(self, batch: Batch, recorded_q: Tensor) -> Metrics:
        """One step of the actor towards the recorded actions, by their advantages."""
        advantages = recorded_q - self.values(batch["obs"])
        logprobs, pull = self.log_prob.vjp(batch["obs"], batch["actions"])
        losses, d = advantage_weighted_loss.vjp(
            logprobs, advantages, inverse_temperature=self.inverse_temperature, max_weight=self.max_advantage_weight
        )
        self.actor_optimizer.step(pull(d.logprobs))
        return losses

    def update_critics(self, batch: Batch) -> Metrics:
        """One step of the critics towards r + γ (1 − done) V(s′)."""
        targets = td_targets(batch, self.values(batch["next_obs"]), self.gamma)
        q_values, pull = self.q_values.vjp(batch["obs"], batch["actions"])
        losses, d = critic_loss.vjp(q_values, targets)
        self.critic_optimizer.step(pull(d.q_values))
        return losses

    def schedule(self, name: str, value: float) -> None:
        if name == "actor_learning_rate":
            self.actor_optimizer.learning_rate = value
        else:
            super().schedule(name, value)


IQLAlgorithm = IQL
