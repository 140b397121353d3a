"""What the networks of PPO and PPG have in common: a policy and a value function in one vector of parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from rl_training.models.flat_mlp import FlatModule, MLPLayout, as_rows
from rl_training.models.heads import Categorical, DiagonalGaussian, PolicyOutput
from rl_training.models.lean_actor_critic import LeanActorCritic
from rl_training.models.lean_mlp import LeanMLP


class ActorCritic(FlatModule, ABC):
    """Acts and evaluates actions under autograd; `run` and `backward` are the same without it.

    Gaussian actions are unbounded; whoever steps the environment clips them (`EnvSpec.to_env`).
    """

    lean_class: ClassVar[type[LeanActorCritic]] = LeanActorCritic

    shared = False  # whether the value function reads the policy network's last hidden layer

    def __init__(self, parts: dict[str, MLPLayout | int], *, obs_dim: int, action_dim: int, discrete: bool) -> None:
        super().__init__(parts)
        self.obs_dim, self.action_dim, self.discrete = obs_dim, action_dim, discrete
        self.policy_net, self.value_net = (cast("MLPLayout", parts[name]) for name in ("policy", "value"))
        self._lean: tuple[int, LeanActorCritic | None] | None = None

    @property
    def lean(self) -> LeanActorCritic | None:
        """The same networks with less ado, where they are on the CPU, of float32 and plain."""
        flat = self.flat
        pointer = flat.data_ptr()
        if self._lean is None or self._lean[0] != pointer:
            serves = flat.is_cpu and flat.dtype == torch.float32 and LeanMLP.serves(self.policy_net)
            self._lean = (pointer, self.lean_class(self) if serves else None)
        return self._lean[1]

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_lean": None}

    @abstractmethod
    def distribution(self, obs: Tensor) -> Categorical | DiagonalGaussian:
        """The policy at `obs`, differentiable."""

    @abstractmethod
    def value(self, obs: Tensor) -> Tensor:
        """Values at `obs`, differentiable."""

    @abstractmethod
    def infer_policy(self, obs: Tensor) -> Categorical | DiagonalGaussian:
        """The policy at `obs`, with nothing kept for a gradient."""

    @abstractmethod
    def infer_value(self, obs: Tensor) -> Tensor:
        """Values at `obs`, with nothing kept for a gradient."""

    @abstractmethod
    def run(self, obs: Tensor) -> Any:
        """A pass with at least `distribution` and `values`, and what `backward` needs of it."""

    @abstractmethod
    def backward(self, done: Any, actions: Tensor, *, d_logprobs: Tensor, d_entropy: Tensor | None, d_values: Tensor) -> None:
        """Fill `gradient` from the gradients at log-probabilities, entropies and values."""

    def act(self, obs: Tensor, *, deterministic: bool = False) -> PolicyOutput:
        """Actions for a batch, or for a single observation."""
        single, obs = obs.dim() == 1, as_rows(obs)
        policy = self.distribution(obs)
        actions = policy.mode() if deterministic else policy.sample()
        output = PolicyOutput(actions, policy.log_prob(actions), self.value(obs), policy.entropy())
        return PolicyOutput(*(column[0] for column in output)) if single else output

    def evaluate_actions(self, obs: Tensor, actions: Tensor) -> PolicyOutput:
        """What the policy now says of actions taken before."""
        policy = self.distribution(obs)
        return PolicyOutput(actions, policy.log_prob(actions), self.value(obs), policy.entropy())

    def _head(self, outputs: Tensor, log_std: Tensor | None = None) -> Categorical | DiagonalGaussian:
        if self.discrete:
            return Categorical(outputs)
        return DiagonalGaussian(outputs, self.vector("log_std") if log_std is None else log_std)

    def _through_head(self, gradient: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        """The gradient at the policy network's outputs; that of a Gaussian's `log_std` is written where it belongs."""
        if isinstance(gradient, tuple):
            gradient, d_log_std = gradient
            self.gradient_vector("log_std").copy_(d_log_std)
        return gradient
