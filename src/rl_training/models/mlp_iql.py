"""The networks of IQL: a Gaussian actor, critics, and a value function that knows no action."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_training.kernels import differentiable
from rl_training.kernels.differentiable import Pullback, by_autograd
from rl_training.kernels.mlp import MLPLayout
from rl_training.models.critics import Critics
from rl_training.models.flat_mlp import FlatMLP, FlatModule
from rl_training.models.heads import DiagonalGaussian
from rl_training.models.mlp_sac import SACSample
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import EnvSpec

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


class GaussianActor(FlatModule):
    """A Gaussian whose mean is squashed into [-1, 1] and whose `log_std` no state moves."""

    def __init__(self, sizes: Sequence[int], *, activation: str) -> None:
        self.net = MLPLayout(sizes, activation=activation)
        super().__init__({"mean": self.net, "log_std": self.net.sizes[-1]})
        self.net.initialize(self.vector("mean").data)

    def head(self, outputs: Tensor, log_std: Tensor) -> DiagonalGaussian:
        """The distribution that the network's outputs stand for."""
        return DiagonalGaussian(outputs.tanh(), log_std.clamp(LOG_STD_MIN, LOG_STD_MAX))

    def forward(self, obs: Tensor) -> DiagonalGaussian:
        return self.head(self.net(self.vector("mean"), obs), self.vector("log_std"))

    def policy_network(self, env: EnvSpec, *, normalizer: ObservationNormalizer | None = None) -> PolicyNetwork:
        """The squashed mean."""
        layers = [(layer.weight, layer.bias) for layer in self.layers("mean")]
        return PolicyNetwork.from_layers(layers, env, activation=self.net.activation, squash=True, normalizer=normalizer)


class MLPIQLModel(nn.Module):
    """Actor, critics side by side in one batched network, and value function."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        num_critics: int = 2,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim, self.num_critics = obs_dim, action_dim, num_critics
        self.actor = GaussianActor((obs_dim, *hidden_sizes, action_dim), activation=activation)
        self.critics = Critics(obs_dim, action_dim, hidden_sizes, num_critics=num_critics, activation=activation)
        self.value_net = FlatMLP((obs_dim, *hidden_sizes, 1), activation=activation)

    def sample_actions(self, obs: Tensor, *, deterministic: bool = False) -> SACSample:
        """Actions in [-1, 1], drawn ones cut off there, and the log-probabilities of what was drawn."""
        policy = self.actor(obs)
        actions = policy.mode() if deterministic else policy.sample()
        return SACSample(actions.clamp(-1.0, 1.0), policy.log_prob(actions))

    @differentiable.method
    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Log-probabilities (batch,) of actions that somebody chose."""
        logprobs: Tensor = self.actor(obs).log_prob(actions)
        return logprobs

    @log_prob.with_vjp
    def _(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Pullback]:
        actor = self.actor
        outputs, pull_net = actor.net.vjp(actor.vector("mean"), obs)
        logprobs, pull_head = by_autograd(lambda *at: actor.head(*at).log_prob(actions), outputs, actor.vector("log_std"))

        def pull(d_logprobs: Tensor) -> list[Tensor]:
            d_outputs, d_log_std = pull_head(d_logprobs)
            return [torch.cat([pull_net.parameters(d_outputs), d_log_std])]

        return logprobs, pull

    @differentiable.method
    def values(self, obs: Tensor) -> Tensor:
        """What a state is worth: (batch,), or a number for a single observation."""
        values: Tensor = self.value_net(obs).squeeze(-1)
        return values

    @values.with_vjp
    def _(self, obs: Tensor) -> tuple[Tensor, Pullback]:
        outputs, pull = self.value_net.vjp(obs)
        return outputs.squeeze(-1), lambda d_values: [pull.parameters(d_values)]

    @property
    def q_values(self) -> differentiable.BoundMethod:
        """One row per critic: shape (num_critics, batch), or (num_critics,) for a single observation."""
        bound: differentiable.BoundMethod = self.critics.q_values
        return bound

    def policy_network(self, env: EnvSpec, *, normalizer: ObservationNormalizer | None = None) -> PolicyNetwork:
        return self.actor.policy_network(env, normalizer=normalizer)
