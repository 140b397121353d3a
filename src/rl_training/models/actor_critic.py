"""What the networks of PPO and PPG have in common: a policy and a value function in one vector of parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from rl_training.kernels import differentiable
from rl_training.kernels.differentiable import Pullback
from rl_training.models.encoded_policy import EncodedPolicy, StandalonePolicy
from rl_training.models.encoder import Encoders
from rl_training.models.flat_mlp import FlatModule, MLPLayout, as_rows
from rl_training.models.heads import DiagonalGaussian, Distribution, PolicyOutput, choices
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import EnvSpec


class ActorCritic(FlatModule, ABC):
    """Acts and evaluates actions. Gaussian actions are unbounded: whoever steps the environment clips them.

    With `encoders` its networks read features in place of observations. `nvec` are the choices in each part of a MultiDiscrete
    action, which sum to `action_dim`. `action_masks` (batch, action_dim) say of each choice whether it is allowed, where that
    is known.
    """

    def __init__(
        self,
        parts: dict[str, MLPLayout | int],
        *,
        obs_dim: int,
        action_dim: int,
        discrete: bool,
        nvec: Sequence[int] = (),
        encoders: Encoders | None = None,
    ) -> None:
        super().__init__(parts)
        self.obs_dim, self.action_dim, self.discrete, self.nvec = obs_dim, action_dim, discrete, tuple(nvec)
        if nvec and not (discrete and sum(nvec) == action_dim):
            raise ValueError(f"nvec={self.nvec} is for discrete actions with action_dim={sum(nvec)}; got {action_dim}")
        self.encoders, self.reads_bytes = encoders, encoders is not None and encoders.reads_bytes
        self.policy_net, self.value_net = (cast("MLPLayout", parts[name]) for name in ("policy", "value"))

    @abstractmethod
    def value_at(self, read: Tensor) -> Tensor:
        """Values of what the value function reads: features, or observations where there are no encoders; differentiable."""

    @abstractmethod
    def policy_and_value(self, obs: Tensor, action_masks: Tensor | None = None) -> tuple[Distribution, Tensor, Pullback]:
        """The policy and the values at `obs`; the pullback from gradients at the head's outputs, (d_outputs, d_log_std), and at
        the values to those at the parameters, `flat` first."""

    def value(self, obs: Tensor) -> Tensor:
        """Values at `obs`, differentiable."""
        return self.value_at(obs if self.encoders is None else self.encoders.value(obs))

    def distribution(self, obs: Tensor, *, action_masks: Tensor | None = None) -> Distribution:
        """The policy at `obs`, differentiable."""
        return self.policy_at(obs if self.encoders is None else self.encoders.policy(obs), action_masks)

    def policy_at(self, read: Tensor, action_masks: Tensor | None = None) -> Distribution:
        """The policy at what it reads of an observation."""
        return self.head(self.policy_net(self.vector("policy"), read), action_masks)

    def both(self, obs: Tensor, action_masks: Tensor | None = None) -> tuple[Distribution, Tensor]:
        """`distribution` and `value`, where an encoder that they share runs once."""
        read, value_read = (obs, obs) if self.encoders is None else self.encoders(obs)
        return self.policy_at(read, action_masks), self.value_at(value_read)

    def actions(self, obs: Tensor, *, deterministic: bool = False, action_masks: Tensor | None = None) -> Tensor:
        """Actions for a batch and nothing else."""
        policy = self.distribution(obs, action_masks=action_masks)
        return policy.mode() if deterministic else policy.sample()

    def act(self, obs: Tensor, *, deterministic: bool = False, action_masks: Tensor | None = None) -> PolicyOutput:
        """Actions for a batch, or for a single observation, with all that is said of them."""
        single, obs = obs.dim() == 1, as_rows(obs)
        policy, values = self.both(obs, action_masks)
        actions = policy.mode() if deterministic else policy.sample()
        output = PolicyOutput(actions, policy.log_prob(actions), values, policy.entropy())
        return PolicyOutput(*(column[0] for column in output)) if single else output

    @differentiable.method
    def evaluate_actions(self, obs: Tensor, actions: Tensor, *, action_masks: Tensor | None = None) -> PolicyOutput:
        """What the policy now says of actions taken before."""
        policy, values = self.both(obs, action_masks)
        return PolicyOutput(actions, policy.log_prob(actions), values, policy.entropy())

    @evaluate_actions.with_vjp
    def _(self, obs: Tensor, actions: Tensor, *, action_masks: Tensor | None = None) -> tuple[PolicyOutput, Pullback]:
        policy, values, pull_networks = self.policy_and_value(obs, action_masks)

        def pull(_: None, d_logprobs: Tensor, d_values: Tensor, d_entropy: Tensor | None) -> list[Tensor]:
            gradients: list[Tensor] = pull_networks(*policy.output_gradient(actions, d_logprobs, d_entropy), d_values)
            return gradients

        return PolicyOutput(actions, policy.log_prob(actions), values, policy.entropy()), pull

    def encoded(self, obs: Tensor) -> tuple[tuple[Tensor, Tensor], Pullback]:
        """What both networks read, and the pullback from gradients there to those at the encoders' parameters."""
        if self.encoders is None:
            return (obs, obs), lambda *_: []
        return self.encoders.vjp(obs)

    def policy_network(self, env: EnvSpec, *, normalizer: ObservationNormalizer | None = None) -> StandalonePolicy:
        """The mode; an auxiliary value head stays behind."""
        layers, activation = [(layer.weight, layer.bias) for layer in self.layers("policy")], self.policy_net.activation
        if self.encoders is None:
            return PolicyNetwork.from_layers(layers, env, activation=activation, normalizer=normalizer)
        head = PolicyNetwork.from_layers(layers, env, activation=activation)
        return EncodedPolicy(self.encoders.policy, head, normalizer=normalizer)

    def head(self, outputs: Tensor, action_masks: Tensor | None = None) -> Distribution:
        """The distribution that the policy network's outputs stand for."""
        outputs = outputs[..., : self.action_dim]
        if self.discrete:
            return choices(outputs, self.nvec, action_masks)
        if action_masks is not None:
            raise ValueError("continuous actions have no masks: there are no choices that could be forbidden")
        return DiagonalGaussian(outputs, self.vector("log_std"))

    def policy_gradient(self, gradient: Tensor, d_log_std: Tensor | None) -> Tensor:
        """Write a Gaussian's `log_std` into its slice of the gradient; gives the policy network's own."""
        if d_log_std is not None:
            self.slice_of(gradient, "log_std").copy_(d_log_std)
        return self.slice_of(gradient, "policy")

    def fresh_gradient(self) -> Tensor:
        """Memory for a gradient in the order of `flat`."""
        return torch.empty_like(self.flat)
