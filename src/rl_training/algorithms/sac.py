"""Soft Actor-Critic (Haarnoja et al., 2018, arXiv:1812.05905)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.td import td_targets
from rl_training.algorithms.temperature import Temperature
from rl_training.kernels.losses import critic_loss, soft_actor_loss
from rl_training.models.adapters import exported, q_network, q_values_of, samples_of
from rl_training.models.encoded_policy import StandalonePolicy
from rl_training.models.entry import flat_columns, of_any_obs, plain, type_of
from rl_training.models.mlp_sac import MLPSACModel, SACSample
from rl_training.models.optim import Adam, polyak_update
from rl_training.types import Batch, EnvSpec, Metrics, UpdateResult


def sac_loss(batch: Mapping[str, Any], *, alpha: float | Tensor | None = None) -> Metrics:
    """Both losses of twin-critic SAC, from `q1_values, q2_values, target_q_values, sampled_logprobs, sampled_q1,
    sampled_q2, alpha`."""
    return twin_losses(batch, alpha=alpha, pessimistic=True)


def twin_losses(batch: Mapping[str, Any], *, alpha: float | Tensor | None, pessimistic: bool) -> Metrics:
    """`sac_loss`, with an actor that is judged by the lower critic or by their mean."""
    weight = batch["alpha"] if alpha is None else alpha
    q1, q2, target = flat_columns(batch, "q1_values", "q2_values", "target_q_values")
    sampled_q1, sampled_q2, logprobs = flat_columns(batch, "sampled_q1", "sampled_q2", "sampled_logprobs")
    actor = soft_actor_loss(torch.stack([sampled_q1, sampled_q2]), logprobs, weight, pessimistic=pessimistic)
    return critic_loss(torch.stack([q1, q2]), target) | actor


class SAC(Algorithm):
    """Learns from batches of `obs, actions, rewards, next_obs, dones`; `alpha` is a number, or "auto" to tune it.

    `model` is an `MLPSACModel`, or any module with submodules `actor` and `critics`, `sample_actions(obs,
    deterministic=)` and `q_values(obs, actions)`, of shape (critics, batch) or one of (batch,) for each critic.
    """

    def __init__(
        self,
        model: MLPSACModel | nn.Module,
        *,
        learning_rate: float,
        gamma: float = 0.99,
        alpha: float | str = "auto",
        tau: float = 0.005,
        actor_learning_rate: float | None = None,
        alpha_learning_rate: float | None = None,
        initial_alpha: float = 1.0,
        target_entropy: float | None = None,
        critic_subset_size: int | None = None,
        pessimistic_actor: bool = True,
        backup_entropy: bool = True,
    ) -> None:
        self.model = cast("Any", model)
        # of the model a copy values next states, but the next action comes from the current actor
        self.target: Any = copy.deepcopy(q_network(model)).requires_grad_(False)
        self.learning_rate, self.gamma, self.tau = learning_rate, gamma, tau
        self.critic_subset_size, self.pessimistic_actor = critic_subset_size, pessimistic_actor
        self.backup_entropy = backup_entropy
        self.sample_actions, self.q_values = samples_of(model), q_values_of(model)
        self.target_q_values = q_values_of(self.target)
        self.actor_parameters: list[Tensor] = list(self.model.actor.parameters())
        self.critic_parameters = list(self.model.critics.parameters())
        self.target_parameters = list(getattr(self.target, "critics", self.target).parameters())
        self.dtype = type_of(self.actor_parameters)
        self.reads_bytes = getattr(model, "reads_bytes", False)
        self.actor_optimizer = Adam(self.actor_parameters, learning_rate=actor_learning_rate or learning_rate)
        self.critic_optimizer = Adam(self.critic_parameters, learning_rate=learning_rate)
        self.tunes_alpha = alpha == "auto"
        device = self.actor_parameters[0].device
        self.temperature = Temperature(initial_alpha if self.tunes_alpha else float(alpha), device=device)
        if self.tunes_alpha:
            self.target_entropy = -float(self.model.action_dim) if target_entropy is None else target_entropy
            self.alpha_optimizer = Adam([self.temperature.log_alpha], learning_rate=alpha_learning_rate or learning_rate)

    @property
    def alpha(self) -> Tensor:
        """The weight of the entropy, as a scalar tensor."""
        return self.temperature.alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self.temperature.set(value)

    @of_any_obs
    @torch.no_grad()
    def act(self, obs: Tensor, *, deterministic: bool = False) -> Tensor:
        actions: Tensor = self.model.sample_actions(obs, deterministic=deterministic).actions
        return actions

    def policy_network(self, env: EnvSpec) -> StandalonePolicy | None:
        return exported(self.model, env)

    @torch.no_grad()
    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (SAC needs no clock)
        batch = plain(batch, self.dtype, reads_bytes=self.reads_bytes)
        return UpdateResult(self.update_critics(batch) | self.update_actor(batch))

    def update_critics(self, batch: Batch, *, next_sample: SACSample | None = None) -> Metrics:
        """One step of the critics towards the soft Bellman target, and of the target critics after them; `next_sample` is
        the actor's answer to `next_obs`, where it was asked before."""
        targets = self.targets(batch, next_sample)
        q_values, pull = self.q_values.vjp(batch["obs"], batch["actions"])
        losses, d = critic_loss.vjp(q_values, targets)
        self.critic_optimizer.step(pull(d.q_values))
        polyak_update(self.critic_parameters, self.target_parameters, self.tau)
        return losses

    def targets(self, batch: Batch, next_sample: SACSample | None = None) -> Tensor:
        """r + γ (1 − done) (min Q̄(s′, a′) − α log π(a′|s′)), with a′ from the current actor unless it is given.

        The minimum goes over a random subset of the critics where one is asked for, the entropy is left out where it
        is not to be backed up.
        """
        actions, logprobs = self.sample_actions(batch["next_obs"]) if next_sample is None else next_sample
        values = self.target_q_values(batch["next_obs"], actions, subset=self.critic_subset_size).amin(dim=0)
        return td_targets(batch, values - self.temperature.alpha * logprobs if self.backup_entropy else values, self.gamma)

    def update_actor(self, batch: Batch) -> Metrics:
        """One step of the actor, and of the temperature where it is tuned; the critics stay as they are."""
        alpha = self.temperature.alpha
        (actions, logprobs), pull_sample = self.sample_actions.vjp(batch["obs"])
        q_values, pull_q = self.q_values.vjp(batch["obs"], actions, wrt=1)
        losses, d = soft_actor_loss.vjp(q_values, logprobs, alpha, pessimistic=self.pessimistic_actor)
        self.actor_optimizer.step(pull_sample(pull_q(d.q_values), d.logprobs))
        losses["alpha"] = alpha
        if self.tunes_alpha:
            # the loss is -log α · (log π + target entropy), whose derivative in log α this is
            gradient = logprobs.mean().add_(self.target_entropy).neg_()
            losses["alpha_loss"] = self.temperature.log_alpha * gradient
            self.alpha_optimizer.step([gradient])
        return losses


SACAlgorithm = SAC
