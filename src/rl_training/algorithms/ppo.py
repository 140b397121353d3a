"""Proximal Policy Optimisation (Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.base import OnPolicyAlgorithm
from rl_training.kernels.differentiable import loss
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.adapters import choose_actions, column_of, evaluations_of, exported
from rl_training.models.entry import of_any_obs, plain, type_of
from rl_training.models.normalizer import ObservationNormalizer, RewardNormalizer
from rl_training.models.optim import Adam, clip_gradients
from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import Batch, EnvSpec, Metrics, UpdateResult


@loss("loss", wrt=("new_logprobs", "new_values", "entropy"))
def ppo_loss(
    minibatch: Mapping[str, Tensor], *, clip_coef: float, ent_coef: float, vf_coef: float, clip_value: bool = False
) -> Metrics:
    """Clipped surrogate, value regression and entropy bonus, from `logprobs, new_logprobs, advantages, returns,
    new_values, entropy` (and the old `values` where the value loss is clipped too)."""
    advantages, returns, values = minibatch["advantages"], minibatch["returns"], minibatch["new_values"]
    log_ratio = minibatch["new_logprobs"] - minibatch["logprobs"]
    ratio = log_ratio.exp()
    policy_loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - clip_coef, 1 + clip_coef) * advantages).mean()
    squared = (values - returns).square()
    if clip_value:
        old = minibatch["values"]
        squared = torch.maximum(squared, (old + (values - old).clamp(-clip_coef, clip_coef) - returns).square())
    value_loss, entropy = squared.mean(), minibatch["entropy"].mean()
    return {
        "loss": policy_loss + vf_coef * value_loss - ent_coef * entropy,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy_loss": entropy,
        "approx_kl": ((ratio - 1) - log_ratio).mean(),
        "clip_fraction": ((ratio - 1).abs() > clip_coef).to(ratio.dtype).mean(),
    }


@ppo_loss.gradient
def _(
    minibatch: Mapping[str, Tensor], *, clip_coef: float, ent_coef: float, vf_coef: float, clip_value: bool = False
) -> dict[str, Tensor | None]:
    advantages, returns, values = minibatch["advantages"], minibatch["returns"], minibatch["new_values"]
    rows, ratio = len(advantages), (minibatch["new_logprobs"] - minibatch["logprobs"]).exp()
    weighted = ratio * advantages
    # the clipped branch has no gradient, and it is the active one only where it is the smaller
    live = weighted <= ratio.clamp(1 - clip_coef, 1 + clip_coef) * advantages
    d_values = (values - returns) * (2 * vf_coef / rows)
    if clip_value:
        old = minibatch["values"]
        clipped = old + (values - old).clamp(-clip_coef, clip_coef)
        moves = ((values - returns).square() >= (clipped - returns).square()) | ((values - old).abs() <= clip_coef)
        d_values = d_values * moves
    return {
        "new_logprobs": weighted * live * (-1.0 / rows),
        "new_values": d_values,
        "entropy": torch.full_like(ratio, -ent_coef / rows) if ent_coef else None,
    }


def normalized(advantages: Tensor) -> Tensor:
    """Mean 0, standard deviation 1; a single row has no spread and is only centred."""
    if len(advantages) < 2:
        return advantages - advantages.mean()
    std, mean = torch.std_mean(advantages)
    return (advantages - mean) / (std + 1e-8)


class PPO(OnPolicyAlgorithm):
    """Learns from minibatches of `obs, actions, logprobs, advantages, returns`.

    `policy` is an `ActorCritic`, or any module with `act(obs, deterministic=)`, `evaluate_actions(obs, actions)`
    and `value(obs)`.
    """

    def __init__(
        self,
        policy: ActorCritic | torch.nn.Module,
        *,
        learning_rate: float,
        clip_coef: float = 0.2,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float | None = 0.5,
        normalize_advantages: bool = True,
        clip_value_loss: bool = False,
        adam_eps: float = 1e-5,
        observation_normalizer: ObservationNormalizer | None = None,
        reward_normalizer: RewardNormalizer | None = None,
    ) -> None:
        self.policy: Any = policy
        self.learning_rate = learning_rate
        self.clip_coef, self.ent_coef, self.vf_coef = clip_coef, ent_coef, vf_coef
        self.max_grad_norm, self.normalize_advantages, self.clip_value_loss = (
            max_grad_norm,
            normalize_advantages,
            clip_value_loss,
        )
        self.parameters = list(policy.parameters())
        self.dtype = type_of(self.parameters)
        self.optimizer = Adam(self.parameters, learning_rate=learning_rate, eps=adam_eps)
        self.evaluate_actions = evaluations_of(policy)
        if observation_normalizer is not None:
            self.observation_normalizer = observation_normalizer
        if reward_normalizer is not None:
            self.reward_normalizer = reward_normalizer

    @of_any_obs
    @torch.no_grad()
    def act(self, obs: Tensor, *, deterministic: bool = False) -> Tensor:
        return choose_actions(self.policy, self.normalize(obs), deterministic=deterministic)

    def policy_network(self, env: EnvSpec) -> PolicyNetwork | None:
        return exported(self.policy, env, normalizer=self.observation_normalizer)

    @of_any_obs
    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        return column_of(self.policy.value(obs), len(obs), name="values")

    @of_any_obs
    @torch.no_grad()
    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        logprobs: Tensor = self.evaluate_actions(obs, actions).logprobs
        return logprobs

    @torch.no_grad()
    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (PPO needs no clock)
        """One gradient step."""
        losses, gradients = self.losses_and_gradients(batch)
        self.optimizer.step(gradients)
        return UpdateResult(losses)

    def losses_and_gradients(self, batch: Batch) -> tuple[Metrics, Sequence[Tensor | None]]:
        """The losses of a minibatch, and their gradient at each parameter, clipped."""
        batch = plain(batch, self.dtype)
        if self.normalize_advantages:
            batch = batch | {"advantages": normalized(batch["advantages"])}
        (_, logprobs, values, entropy), pull = self.evaluate_actions.vjp(batch["obs"], batch["actions"])
        fresh = {"new_logprobs": logprobs, "new_values": values, "entropy": entropy}
        losses, d = ppo_loss.vjp(batch | fresh, **self.coefficients)
        gradients = pull(None, d.new_logprobs, d.new_values, d.entropy)
        return losses | {"gradient_norm": clip_gradients(gradients, self.max_grad_norm)}, gradients

    @property
    def coefficients(self) -> dict[str, Any]:
        """What `ppo_loss` is weighed by."""
        return {
            "clip_coef": self.clip_coef,
            "ent_coef": self.ent_coef,
            "vf_coef": self.vf_coef,
            "clip_value": self.clip_value_loss,
        }


PPOAlgorithm = PPO
