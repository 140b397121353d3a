"""Proximal Policy Optimisation (Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.base import OnPolicyAlgorithm, detached
from rl_training.algorithms.entry import column_of, of_any_obs, plain, type_of
from rl_training.algorithms.optim import Adam, clip_gradients
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.lean_actor_critic import LeanActorCritic, LeanRows
from rl_training.models.normalizer import ObservationNormalizer, RewardNormalizer
from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import Batch, EnvSpec, Metrics, UpdateResult

LOSS_COLUMNS = ("logprobs", "advantages", "returns", "values")


def ppo_loss(
    minibatch: Mapping[str, Any], *, clip_coef: float, ent_coef: float, vf_coef: float, clip_value: bool = False
) -> dict[str, Any]:
    """Clipped surrogate, value regression and entropy bonus, from `logprobs, new_logprobs, advantages, returns,
    new_values, entropy` (and the old `values` where the value loss is clipped too); of tensors, or of numpy's arrays."""
    advantages, returns, values = minibatch["advantages"], minibatch["returns"], minibatch["new_values"]
    operations: Any = np if isinstance(advantages, np.ndarray) else torch
    log_ratio = minibatch["new_logprobs"] - minibatch["logprobs"]
    ratio = operations.exp(log_ratio)
    clipped = operations.clip(ratio, 1 - clip_coef, 1 + clip_coef)
    policy_loss = -operations.minimum(ratio * advantages, clipped * advantages).mean()
    squared = operations.square(values - returns)
    if clip_value:
        old = minibatch["values"]
        moved = old + operations.clip(values - old, -clip_coef, clip_coef)
        squared = operations.maximum(squared, operations.square(moved - returns))
    value_loss, entropy = squared.mean(), minibatch["entropy"].mean()
    return {
        "loss": policy_loss + vf_coef * value_loss - ent_coef * entropy,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy_loss": entropy,
        "approx_kl": ((ratio - 1) - log_ratio).mean(),
        "clip_fraction": operations.where(abs(ratio - 1) > clip_coef, 1.0, 0.0).mean(),
    }


class LossGradients(TypedDict):
    """What reaches each of the model's outputs, per row."""

    d_logprobs: Any
    d_entropy: Any
    d_values: Any


def ppo_loss_gradients(
    minibatch: Mapping[str, Any], *, clip_coef: float, ent_coef: float, vf_coef: float, clip_value: bool = False
) -> LossGradients:
    """The gradients of `ppo_loss` at `new_logprobs`, `entropy` (none without a bonus) and `new_values`, written down; for
    tensors, or for numpy's arrays."""
    advantages, returns, values = minibatch["advantages"], minibatch["returns"], minibatch["new_values"]
    rows = len(advantages)
    in_numpy = isinstance(advantages, np.ndarray)
    exp, full_like, clip = (np.exp, np.full_like, _clip) if in_numpy else (torch.exp, torch.full_like, torch.clip)
    ratio: Any = exp(minibatch["new_logprobs"] - minibatch["logprobs"])
    weighted = ratio * advantages
    # the clipped branch has no gradient, and it is the active one only where it is the smaller
    live = weighted <= clip(ratio, 1 - clip_coef, 1 + clip_coef) * advantages
    d_values = (values - returns) * (2 * vf_coef / rows)
    if clip_value:
        old = minibatch["values"]
        clipped = old + clip(values - old, -clip_coef, clip_coef)
        moves = ((values - returns) ** 2 >= (clipped - returns) ** 2) | (abs(values - old) <= clip_coef)
        d_values = d_values * moves
    return {
        "d_logprobs": weighted * live * (-1.0 / rows),
        "d_entropy": full_like(ratio, -ent_coef / rows) if ent_coef else None,
        "d_values": d_values,
    }


def _clip(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """np.clip in a third of its time."""
    clipped: np.ndarray = np.minimum(np.maximum(x, low), high)
    return clipped


def normalized(advantages: Tensor) -> Tensor:
    """Mean 0, standard deviation 1; a single row has no spread and is only centred."""
    if len(advantages) < 2:
        return advantages - advantages.mean()
    std, mean = torch.std_mean(advantages)
    return (advantages - mean) / (std + 1e-8)


class Prepared(NamedTuple):
    """A batch as the lean networks and their loss take it, and what it was made of."""

    made_of: tuple[Any, ...]
    rows: LeanRows
    columns: dict[str, np.ndarray]


class PPO(OnPolicyAlgorithm):
    """Learns from minibatches of `obs, actions, logprobs, advantages, returns`.

    `policy` is an `ActorCritic`, or any module with `act(obs, deterministic=)`, `evaluate_actions(obs, actions)`
    and `value(obs)`; the latter is differentiated by autograd.
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
        self.explicit = isinstance(policy, ActorCritic)
        self._keeps_prepared = False
        self._last_prepared: Prepared | None = None
        if observation_normalizer is not None:
            self.observation_normalizer = observation_normalizer
        if reward_normalizer is not None:
            self.reward_normalizer = reward_normalizer

    @property
    def lean(self) -> LeanActorCritic | None:
        """The networks with less ado, where there is such a way; what is learnt from and acted in training goes through it."""
        return self.policy.lean if self.explicit else None

    @of_any_obs
    def explore(self, obs: Tensor) -> Tensor:
        lean = self.lean
        return self.act(obs) if lean is None else lean.explore(self.normalize(obs))

    @of_any_obs
    @torch.no_grad()
    def act(self, obs: Tensor, *, deterministic: bool = False) -> Tensor:
        obs = self.normalize(obs)
        if self.explicit:
            policy = self.policy.infer_policy(obs)
            actions: Tensor = policy.mode() if deterministic else policy.sample()
        else:
            actions = self.policy.act(obs, deterministic=deterministic).actions
        return actions

    def policy_network(self, env: EnvSpec) -> PolicyNetwork | None:
        """The mode; an auxiliary value head stays behind."""
        if not self.explicit:
            return None
        layers = [(layer.weight, layer.bias) for layer in self.policy.layers("policy")]
        activation = self.policy.policy_net.activation
        return PolicyNetwork.from_layers(layers, env, activation=activation, normalizer=self.observation_normalizer)

    @of_any_obs
    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        if (lean := self.lean) is not None:
            return lean.values(obs)
        if self.explicit:
            values: Tensor = self.policy.infer_value(obs)
        else:
            values = column_of(self.policy.value(obs), len(obs), name="values")
        return values

    @of_any_obs
    @torch.no_grad()
    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        if (lean := self.lean) is not None:
            return lean.log_prob(obs, actions)
        if self.explicit:
            logprobs: Tensor = self.policy.infer_policy(obs).log_prob(actions)
        else:
            logprobs = column_of(self.policy.evaluate_actions(obs, actions).logprobs, len(obs), name="logprobs")
        return logprobs

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (PPO needs no clock)
        """One gradient step."""
        batch = plain(batch, self.dtype)
        return UpdateResult(self._explicit_step(batch) if self.explicit else detached(self._autograd_step(batch)))

    def _normalized(self, batch: Batch) -> Batch:
        return batch | {"advantages": normalized(batch["advantages"])} if self.normalize_advantages else batch

    @contextmanager
    def unchanging_batches(self) -> Iterator[None]:
        """A rollout that is one minibatch in every pass is prepared once."""
        self._keeps_prepared = True
        try:
            yield
        finally:
            self._keeps_prepared, self._last_prepared = False, None

    def _prepared(self, lean: LeanActorCritic, batch: Batch) -> Prepared:
        made_of, last = (lean, *batch, *batch.values()), self._last_prepared
        if last is not None and len(made_of) == len(last.made_of) and all(map(operator.is_, made_of, last.made_of)):
            return last
        minibatch = self._normalized(batch)
        columns = {name: minibatch[name].detach().numpy() for name in LOSS_COLUMNS if name in minibatch}
        prepared = Prepared(made_of, lean.rows(batch["obs"], batch["actions"]), columns)
        if self._keeps_prepared:
            self._last_prepared = prepared
        return prepared

    def _coefficients(self) -> dict[str, Any]:
        return {
            "clip_coef": self.clip_coef,
            "ent_coef": self.ent_coef,
            "vf_coef": self.vf_coef,
            "clip_value": self.clip_value_loss,
        }

    @torch.no_grad()  # columns that a user made with autograd are read as they are
    def _explicit_step(self, minibatch: Batch) -> Metrics:
        losses = self._fill_gradient(minibatch)
        self.optimizer.step([self.policy.gradient])
        return losses

    def _fill_gradient(self, batch: Batch) -> Metrics:
        """The losses (none where nobody asks) and the gradient's norm; the gradient is left in `policy.gradient`, clipped."""
        if (lean := self.lean) is not None:
            return self._fill_lean_gradient(lean, self._prepared(lean, batch))
        minibatch = self._normalized(batch)
        done = self.policy.run(minibatch["obs"])
        minibatch = minibatch | {"new_logprobs": done.distribution.log_prob(minibatch["actions"]), "new_values": done.values}
        losses: Metrics = {}
        if self.measures:
            losses = ppo_loss(minibatch | {"entropy": done.distribution.entropy()}, **self._coefficients())
        self.policy.backward(done, minibatch["actions"], **ppo_loss_gradients(minibatch, **self._coefficients()))
        return losses | {"gradient_norm": clip_gradients([self.policy.gradient], self.max_grad_norm)}

    def _fill_lean_gradient(self, lean: LeanActorCritic, prepared: Prepared) -> Metrics:
        done = lean.run(prepared.rows)
        columns = prepared.columns | {"new_logprobs": done.logprobs, "new_values": done.values}
        losses: Metrics = {}
        if self.measures:
            numbers = ppo_loss(columns | {"entropy": done.head.entropy()}, **self._coefficients())
            losses = {name: torch.tensor(number, dtype=torch.float32) for name, number in numbers.items()}
        done.backward(**ppo_loss_gradients(columns, **self._coefficients()))
        return losses | {"gradient_norm": lean.clip_gradient(self.max_grad_norm)}

    def _autograd_step(self, batch: Batch) -> Metrics:
        minibatch = self._normalized(batch)
        output = self.policy.evaluate_actions(minibatch["obs"], minibatch["actions"])
        names = {"new_logprobs": "logprobs", "new_values": "values", "entropy": "entropy"}
        rows = len(minibatch["obs"])
        fresh = {column: column_of(getattr(output, name), rows, name=name) for column, name in names.items()}
        losses = ppo_loss(minibatch | fresh, **self._coefficients())
        norm = self.optimizer.descend(losses["loss"], self.parameters, max_grad_norm=self.max_grad_norm)
        return losses | {"gradient_norm": norm}


PPOAlgorithm = PPO
