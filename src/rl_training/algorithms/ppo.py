"""Proximal Policy Optimisation (Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.base import OnPolicyAlgorithm
from rl_training.kernels.losses import clipped_objective
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.adapters import choose_actions, column_of, evaluations_of, exported, under
from rl_training.models.encoded_policy import StandalonePolicy
from rl_training.models.entry import of_any_obs, plain, type_of
from rl_training.models.normalizer import ObservationNormalizer, RewardNormalizer
from rl_training.models.optim import Adam, clip_gradients
from rl_training.types import Batch, EnvSpec, Metrics, UpdateResult

ppo_loss = clipped_objective


def normalized(advantages: Tensor) -> Tensor:
    """Mean 0, standard deviation 1; a single row has no spread and is only centred."""
    if len(advantages) < 2:
        return advantages - advantages.mean()
    std, mean = torch.std_mean(advantages)
    return (advantages - mean) / (std + 1e-8)


class PPO(OnPolicyAlgorithm):
    """Learns from minibatches of `obs, actions, logprobs, advantages, returns`, and `action_masks` where actions had them.

    `policy` is an `ActorCritic`, or any module with `act(obs, deterministic=)`, `evaluate_actions(obs, actions)`
    and `value(obs)`. The first two are given `action_masks=` as well where a batch or an environment has them.
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
        self.reads_bytes = getattr(policy, "reads_bytes", False)
        self.optimizer = Adam(self.parameters, learning_rate=learning_rate, eps=adam_eps)
        self.evaluate_actions = evaluations_of(policy)
        if observation_normalizer is not None:
            self.observation_normalizer = observation_normalizer
        if reward_normalizer is not None:
            self.reward_normalizer = reward_normalizer

    @of_any_obs
    @torch.no_grad()
    def act(self, obs: Tensor, *, deterministic: bool = False, action_masks: Tensor | None = None) -> Tensor:
        return choose_actions(self.policy, self.normalize(obs), deterministic=deterministic, action_masks=action_masks)

    def policy_network(self, env: EnvSpec) -> StandalonePolicy | None:
        return exported(self.policy, env, normalizer=self.observation_normalizer)

    @of_any_obs
    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        return column_of(self.policy.value(obs), len(obs), name="values")

    @of_any_obs
    @torch.no_grad()
    def log_prob(self, obs: Tensor, actions: Tensor, *, action_masks: Tensor | None = None) -> Tensor:
        logprobs: Tensor = self.evaluate_actions(obs, actions, **under(action_masks)).logprobs
        return logprobs

    @torch.no_grad()
    def judge(self, obs: Tensor, actions: Tensor, **allowed: Tensor) -> tuple[Tensor, Tensor]:
        rows = plain({"obs": obs}, self.dtype, reads_bytes=self.reads_bytes)["obs"]
        said = self.evaluate_actions(rows, actions, **allowed)
        return column_of(said.values, len(rows), name="values"), said.logprobs

    @torch.no_grad()
    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (PPO needs no clock)
        """One gradient step."""
        losses, gradients = self.losses_and_gradients(batch)
        self.optimizer.step(gradients)
        return UpdateResult(losses)

    def losses_and_gradients(self, batch: Batch) -> tuple[Metrics, Sequence[Tensor | None]]:
        """The losses of a minibatch, and their gradient at each parameter, clipped."""
        batch = plain(batch, self.dtype, reads_bytes=self.reads_bytes)
        if self.normalize_advantages:
            batch = batch | {"advantages": normalized(batch["advantages"])}
        allowed = under(batch.get("action_masks"))
        (_, logprobs, values, entropy), pull = self.evaluate_actions.vjp(batch["obs"], batch["actions"], **allowed)
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
