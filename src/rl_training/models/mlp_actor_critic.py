"""A policy and a value function that share nothing but their vector of parameters (PPO)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from rl_training.models.actor_critic import ActorCritic
from rl_training.models.flat_mlp import MLPLayout, Tape
from rl_training.models.heads import Categorical, DiagonalGaussian


class ActorCriticPass(NamedTuple):
    """One explicit forward pass, and what its backward pass needs."""

    distribution: Categorical | DiagonalGaussian
    values: Tensor
    policy_tape: Tape
    value_tape: Tape


class MLPActorCritic(ActorCritic):
    """Categorical or diagonal-Gaussian policy beside a value network; orthogonal initialisation √2 / 0.01 / 1.

    What `infer_*`, `run` and `backward` compute with lies outside of autograd; they need not switch it off.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (64, 64),
        *,
        discrete: bool = True,
        activation: str = "tanh",
        log_std_init: float = 0.0,
    ) -> None:
        policy = MLPLayout((obs_dim, *hidden_sizes, action_dim), activation=activation)
        value = MLPLayout((obs_dim, *hidden_sizes, 1), activation=activation)
        parts: dict[str, MLPLayout | int] = {"policy": policy, "value": value, "log_std": 0 if discrete else action_dim}
        super().__init__(parts, obs_dim=obs_dim, action_dim=action_dim, discrete=discrete)
        hidden_gains = [math.sqrt(2)] * len(hidden_sizes)
        policy.initialize(self.vector("policy").data, gains=[*hidden_gains, 0.01])
        value.initialize(self.vector("value").data, gains=[*hidden_gains, 1.0])
        self.vector("log_std").data.fill_(log_std_init)

    def distribution(self, obs: Tensor) -> Categorical | DiagonalGaussian:
        """The policy at `obs`, differentiable."""
        return self._head(self.policy_net.forward(self.policy_net.layers(self.vector("policy")), obs))

    def value(self, obs: Tensor) -> Tensor:
        return self.value_net.forward(self.value_net.layers(self.vector("value")), obs).squeeze(-1)

    def infer_policy(self, obs: Tensor) -> Categorical | DiagonalGaussian:
        """The policy at `obs`, with nothing kept for a gradient."""
        outputs = self.policy_net.infer(self.layers("policy"), obs)
        return Categorical(outputs) if self.discrete else DiagonalGaussian(outputs, self.vector("log_std").detach())

    def infer_value(self, obs: Tensor) -> Tensor:
        return self.value_net.infer(self.layers("value"), obs).squeeze(-1)

    def run(self, obs: Tensor) -> ActorCriticPass:
        """Policy and values, with the tapes for `backward`."""
        outputs, policy_tape = self.policy_net.run(self.layers("policy"), obs)
        values, value_tape = self.value_net.run(self.layers("value"), obs)
        head = self._head(outputs, self.vector("log_std").detach())
        return ActorCriticPass(head, values.squeeze(-1), policy_tape, value_tape)

    def backward(
        self, done: ActorCriticPass, actions: Tensor, *, d_logprobs: Tensor, d_entropy: Tensor | None, d_values: Tensor
    ) -> None:
        """Fill `gradient` from the gradients at log-probabilities, entropies and values."""
        d_outputs = self._through_head(done.distribution.output_gradient(actions, d_logprobs, d_entropy))
        self.policy_net.backward(self.layers("policy"), self.gradient_layers("policy"), done.policy_tape, d_outputs)
        self.value_net.backward(self.layers("value"), self.gradient_layers("value"), done.value_tape, d_values.unsqueeze(-1))
