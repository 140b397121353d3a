"""Soft Actor-Critic (Haarnoja et al., 2018, arXiv:1812.05905)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Algorithm, detached
from rl_training.algorithms.entry import column_of, flat_columns, of_any_obs, plain, type_of, values_by
from rl_training.algorithms.lean_losses import bellman_targets, lowest_shares, squared_errors
from rl_training.algorithms.optim import Adam, polyak_update
from rl_training.models.flat_mlp import FlatMLP
from rl_training.models.mlp_sac import MLPSACModel, SACSample
from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import Batch, EnvSpec, Metrics, State, UpdateResult


def critic_loss(q_values: Tensor, target: Tensor) -> Metrics:
    """Squared error of each critic (critics, batch), averaged over the batch and summed over the critics."""
    loss, target_mean = squared_errors(q_values, target)
    return {"critic_loss": loss, "target_q_mean": target_mean}


def critic_loss_gradient(q_values: Tensor, target: Tensor) -> Tensor:
    """d critic_loss / d q_values."""
    return (q_values - target) * (2.0 / q_values.shape[-1])


def fill_critic_gradient(critics: FlatMLP, batch: Batch, target: Tensor, *, measures: bool = True) -> Metrics:
    """The critics' losses, if they are asked for, and in `critics.gradient` what autograd would make of them."""
    obs, actions = batch["obs"], batch["actions"]
    native = critics.native_net("net")
    if native is not None and native.fits(obs, actions, target):
        q_values = native.fit_values(obs, actions, target)
    else:
        q_values = critics.regress(torch.cat([obs, actions], dim=-1), target.unsqueeze(-1)).squeeze(-1)
    return critic_loss(q_values, target) if measures else {}


def actor_loss(q_values: Tensor, logprobs: Tensor, alpha: float | Tensor, *, pessimistic: bool = True) -> Metrics:
    """Entropy-regularised value of the sampled actions: by the lowest critic, or by their mean."""
    q = q_values.amin(dim=0) if pessimistic else q_values.mean(dim=0)
    entropy_term = (alpha * logprobs).mean()
    return {"actor_loss": entropy_term - q.mean(), "entropy_term": entropy_term}


def actor_loss_gradient(
    q_values: Tensor, logprobs: Tensor, alpha: float | Tensor, *, pessimistic: bool = True
) -> tuple[Tensor, Tensor]:
    """d actor_loss / d q_values and / d logprobs."""
    rows = q_values.shape[-1]
    share = -1.0 / rows
    d_q = lowest_shares(q_values, share) if pessimistic else torch.full_like(q_values, share / len(q_values))
    return d_q, torch.ones_like(logprobs) * (alpha / rows)


def sac_loss(batch: Mapping[str, Any], *, alpha: float | Tensor | None = None) -> Metrics:
    """Both losses of twin-critic SAC, from `q1_values, q2_values, target_q_values, sampled_logprobs, sampled_q1,
    sampled_q2, alpha`."""
    return twin_losses(batch, alpha=alpha, pessimistic=True)


def twin_losses(batch: Mapping[str, Any], *, alpha: float | Tensor | None, pessimistic: bool) -> Metrics:
    """`sac_loss`, with an actor that is judged by the lower critic or by their mean."""
    weight = batch["alpha"] if alpha is None else alpha
    q1, q2, target = flat_columns(batch, "q1_values", "q2_values", "target_q_values")
    sampled_q1, sampled_q2, logprobs = flat_columns(batch, "sampled_q1", "sampled_q2", "sampled_logprobs")
    actor = actor_loss(torch.stack([sampled_q1, sampled_q2]), logprobs, weight, pessimistic=pessimistic)
    return critic_loss(torch.stack([q1, q2]), target) | actor


class SAC(Algorithm):
    """Learns from batches of `obs, actions, rewards, next_obs, dones`; `alpha` is a number, or "auto" to tune it.

    `model` is an `MLPSACModel`, or any module with submodules `actor` and `critics`, `sample_actions(obs,
    deterministic=)` and `q_values(obs, actions)`, of shape (critics, batch) or one of (batch,) for each critic; the latter is
    differentiated by autograd.
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
        self.model = cast("Any", model)  # either of two kinds; `explicit` says which
        self.explicit = isinstance(model, MLPSACModel)
        self.learning_rate, self.gamma, self.tau = learning_rate, gamma, tau
        self.critic_subset_size, self.pessimistic_actor = critic_subset_size, pessimistic_actor
        self.backup_entropy = backup_entropy
        self.actor_parameters = list(self.model.actor.parameters())
        self.critic_parameters = list(self.model.critics.parameters())
        self.dtype = type_of(self.actor_parameters)
        self.actor_optimizer = Adam(self.actor_parameters, learning_rate=actor_learning_rate or learning_rate)
        self.critic_optimizer = Adam(self.critic_parameters, learning_rate=learning_rate)
        # only the critics are evaluated in the copy: the next action comes from the current actor
        self.target = cast("Any", copy.deepcopy(self.model.critics if self.explicit else model).requires_grad_(False))
        self.target_parameters = list((self.target if self.explicit else self.target.critics).parameters())

        device = self.actor_parameters[0].device
        self.tunes_alpha = alpha == "auto"
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
        if self.explicit:
            actions: Tensor = self.model.infer_actions(obs, deterministic=deterministic)
        else:
            actions = self.model.sample_actions(obs, deterministic=deterministic).actions
        return actions

    def policy_network(self, env: EnvSpec) -> PolicyNetwork | None:
        """The squashed mean; the columns of the standard deviations stay behind."""
        return self.model.actor.policy_network(env, squash=True) if self.explicit else None

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (SAC needs no clock)
        batch = plain(batch, self.dtype)
        critic = self.update_critics(batch)
        actor = self.update_actor(batch)
        return UpdateResult(detached(critic | actor))

    def update_critics(self, batch: Batch, *, next_sample: SACSample | None = None) -> Metrics:
        """One step of the critics towards the soft Bellman target, and of the target critics after them; `next_sample` is
        the actor's answer to `next_obs`, where it was asked before."""
        target = self.targets(batch, next_sample)
        if self.explicit:
            losses = fill_critic_gradient(self.model.critics, batch, target, measures=self.measures)
            self.critic_optimizer.step([self.model.critics.gradient])
        else:
            losses = critic_loss(values_by(self.model, batch["obs"], batch["actions"]), target)
            self.critic_optimizer.descend(losses["critic_loss"], self.critic_parameters)
        polyak_update(self.critic_parameters, self.target_parameters, self.tau)
        return losses

    @torch.no_grad()
    def sample(self, obs: Tensor) -> SACSample:
        """Actions of the current actor with their log-probabilities, to learn from."""
        sample: SACSample = self.model.run_actor(obs).sample if self.explicit else self._autograd_sample(obs)
        return sample

    def _autograd_sample(self, obs: Tensor) -> SACSample:
        sample = self.model.sample_actions(obs)
        return SACSample(sample.actions, column_of(sample.logprobs, len(obs), name="logprobs"))

    @torch.no_grad()
    def targets(self, batch: Batch, next_sample: SACSample | None = None) -> Tensor:
        """r + γ (1 − done) (min Q̄(s′, a′) − α log π(a′|s′)), with a′ from the current actor unless it is given.

        The minimum goes over a random subset of the critics where one is asked for, the entropy is left out where it
        is not to be backed up.
        """
        next_obs = batch["next_obs"]
        sample = self.sample(next_obs) if next_sample is None else next_sample
        if self.explicit:
            members = self._subset(self.model.num_critics)
            next_q = self.target.infer(torch.cat([next_obs, sample.actions], dim=-1), members=members).squeeze(-1)
        else:
            next_q = values_by(self.target, next_obs, sample.actions)
            members = self._subset(len(next_q))
            next_q = next_q if members is None else next_q[members]
        entropy_term = self.alpha * sample.logprobs if self.backup_entropy else None
        return bellman_targets(batch, next_q, gamma=self.gamma, entropy_term=entropy_term)

    def _subset(self, num_critics: int) -> Tensor | None:
        """The critics of the next target; None for all."""
        if self.critic_subset_size is None or self.critic_subset_size >= num_critics:
            return None
        return torch.randperm(num_critics)[: self.critic_subset_size]

    def update_actor(self, batch: Batch) -> Metrics:
        """One step of the actor, and of the temperature where it is tuned."""
        obs, alpha = batch["obs"], self.alpha
        if self.explicit:
            losses, logprobs = self._fill_actor_gradient(obs, alpha)
            self.actor_optimizer.step([self.model.actor.gradient])
        else:
            sample = self._autograd_sample(obs)
            logprobs = sample.logprobs.detach()
            q_values = values_by(self.model, obs, sample.actions)
            losses = actor_loss(q_values, sample.logprobs, alpha, pessimistic=self.pessimistic_actor)
            self.actor_optimizer.descend(losses["actor_loss"], self.actor_parameters)
        return losses | {"alpha": alpha.clone()} | self._update_alpha(logprobs)

    def _fill_actor_gradient(self, obs: Tensor, alpha: Tensor) -> tuple[Metrics, Tensor]:
        """The actor's losses and the log-probabilities they are of; in `actor.gradient` what autograd would make of them."""
        done, critics, lowest = self.model.run_actor(obs), self.model.critics, self.pessimistic_actor
        logprobs = done.sample.logprobs
        outputs, tape = critics.run(torch.cat([obs, done.sample.actions], dim=-1))
        q_values = outputs.squeeze(-1)
        losses = actor_loss(q_values, logprobs, alpha, pessimistic=lowest)
        d_q, d_logprobs = actor_loss_gradient(q_values, logprobs, alpha, pessimistic=lowest)
        d_actions = critics.input_gradient(tape, d_q.unsqueeze(-1), start=obs.shape[-1], summed=True)
        self.model.backward_actor(done, d_actions=d_actions, d_logprobs=d_logprobs)
        return losses, logprobs

    @torch.no_grad()
    def _update_alpha(self, logprobs: Tensor) -> Metrics:
        if not self.tunes_alpha:
            return {}
        # the loss is -log α · (log π + target entropy), whose derivative in log α this is
        gradient = logprobs.mean().add_(self.target_entropy).neg_()
        loss = self.temperature.log_alpha * gradient
        self.alpha_optimizer.step([gradient])
        return {"alpha_loss": loss}


class Temperature:
    """α, kept as its logarithm so that it stays positive; 0 is allowed when it is fixed."""

    def __init__(self, alpha: float, *, device: torch.device) -> None:
        self.log_alpha = torch.tensor(alpha, dtype=torch.float32, device=device).log()

    @property
    def alpha(self) -> Tensor:
        return self.log_alpha.exp()

    def set(self, alpha: float) -> None:
        self.log_alpha.copy_(torch.tensor(alpha, dtype=torch.float32).log())

    def state_dict(self) -> State:
        return {"log_alpha": self.log_alpha}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.log_alpha.copy_(state["log_alpha"])


SACAlgorithm = SAC
