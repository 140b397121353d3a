"""A policy with an auxiliary value head, and a value function beside it or on the same trunk (PPG)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rl_training.models.actor_critic import ActorCritic
from rl_training.models.flat_mlp import Layer, MLPLayout, Tape, as_rows
from rl_training.models.heads import Categorical, DiagonalGaussian
from rl_training.models.lean_ppg import LeanPPG

ARCHITECTURES = ("shared", "dual")
HEAD_GAIN = 0.1  # the paper scales all heads to this


class AuxiliaryOutput(NamedTuple):
    """What the auxiliary phase trains, each with the batch's length."""

    distribution: Categorical | DiagonalGaussian
    values: Tensor
    auxiliary_values: Tensor


class PPGPass(NamedTuple):
    """One explicit forward pass, and what its backward passes need."""

    distribution: Categorical | DiagonalGaussian
    values: Tensor
    auxiliary_values: Tensor
    policy_tape: Tape
    value_tape: Tape


class MLPPPGModel(ActorCritic):
    """The policy network puts out the policy and, in its last column, the auxiliary values.

    `architecture="dual"` gives the value function a network of its own, as in the paper's main experiments. With
    `"shared"` it is a linear head that reads the policy network's last hidden layer: the policy phase takes that
    layer as given (the value gradient stops there), the auxiliary phase trains it.
    """

    lean_class: ClassVar[type[LeanPPG]] = LeanPPG

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (64, 64),
        *,
        discrete: bool = True,
        architecture: str = "shared",
        activation: str = "tanh",
        log_std_init: float = 0.0,
    ) -> None:
        if architecture not in ARCHITECTURES:
            raise ValueError(f"architecture {architecture!r} is none of {', '.join(ARCHITECTURES)}")
        sizes = (obs_dim, *hidden_sizes)
        policy = MLPLayout((*sizes, action_dim + 1), activation=activation)
        value = MLPLayout((sizes[-1], 1) if architecture == "shared" else (*sizes, 1), activation=activation)
        # the value function comes last, so that what the policy phase trains for each is one piece of the vector
        parts: dict[str, MLPLayout | int] = {"policy": policy, "log_std": 0 if discrete else action_dim, "value": value}
        super().__init__(parts, obs_dim=obs_dim, action_dim=action_dim, discrete=discrete)
        self.shared = architecture == "shared"
        for name, net in (("policy", policy), ("value", value)):
            net.initialize(self.vector(name).data, gains=[math.sqrt(2)] * (len(net.sizes) - 2) + [HEAD_GAIN])
        self.vector("log_std").data.fill_(log_std_init)

    @property
    def num_policy_parameters(self) -> int:
        """How much of `flat`, from its beginning, belongs to the policy network; the value function's part follows."""
        return self.flat.numel() - self.value_net.num_parameters

    def distribution(self, obs: Tensor) -> Categorical | DiagonalGaussian:
        outputs = self.policy_net.forward(self.policy_net.layers(self.vector("policy")), obs)
        return self._head(outputs[..., : self.action_dim])

    def value(self, obs: Tensor) -> Tensor:
        """As in the policy phase: differentiable in the value function's own parameters, never in the policy's."""
        return self.value_net.forward(self.value_net.layers(self.vector("value")), self._value_inputs(obs)).squeeze(-1)

    def auxiliary(self, obs: Tensor) -> AuxiliaryOutput:
        """As in the auxiliary phase: everything is differentiable in all it depends on, a shared trunk included."""
        policy = self.policy_net.layers(self.vector("policy"))
        value = self.value_net.layers(self.vector("value"))
        if self.shared:
            weight, bias = torch.cat([policy[-1].weight, value[0].weight], -1), torch.cat([policy[-1].bias, value[0].bias])
            outputs = self.policy_net.forward([*policy[:-1], Layer(weight, bias, None, None)], obs)
            values = outputs[..., -1]
        else:
            outputs = self.policy_net.forward(policy, obs)
            values = self.value_net.forward(value, obs).squeeze(-1)
        return AuxiliaryOutput(self._head(outputs[..., : self.action_dim]), values, outputs[..., self.action_dim])

    @torch.no_grad()
    def infer_policy(self, obs: Tensor) -> Categorical | DiagonalGaussian:
        outputs = self.policy_net.infer(self.layers("policy"), obs)
        return self._head(outputs[..., : self.action_dim], self.vector("log_std").detach())

    @torch.no_grad()
    def infer_value(self, obs: Tensor) -> Tensor:
        return self.value_net.infer(self.layers("value"), self._value_inputs(obs)).squeeze(-1)

    @torch.no_grad()
    def run(self, obs: Tensor) -> PPGPass:
        """Everything at `obs`, with the tapes for `backward` and `backward_auxiliary`."""
        outputs, policy_tape = self.policy_net.run(self.layers("policy"), obs)
        features = policy_tape[-1].inputs if self.shared else obs
        values, value_tape = self.value_net.run(self.layers("value"), features)
        head = self._head(outputs[..., : self.action_dim], self.vector("log_std").detach())
        return PPGPass(head, values.squeeze(-1), outputs[..., self.action_dim], policy_tape, value_tape)

    @torch.no_grad()
    def backward(
        self, done: PPGPass, actions: Tensor, *, d_logprobs: Tensor, d_entropy: Tensor | None, d_values: Tensor
    ) -> None:
        """The policy phase's gradient: the auxiliary head rests, and the value gradient stops at a shared trunk."""
        d_policy = self._through_head(done.distribution.output_gradient(actions, d_logprobs, d_entropy))
        d_outputs = pad(d_policy, (0, 1))
        self.policy_net.backward(self.layers("policy"), self.gradient_layers("policy"), done.policy_tape, d_outputs)
        self.backward_value(done.value_tape, d_values)

    @torch.no_grad()
    def backward_auxiliary(
        self, done: PPGPass, *, d_policy: Tensor | tuple[Tensor, Tensor], d_values: Tensor, d_auxiliary_values: Tensor
    ) -> None:
        """The auxiliary phase's gradient, from those at the policy's outputs and at both values: it reaches everything."""
        d_outputs = torch.cat([self._through_head(d_policy), d_auxiliary_values.unsqueeze(-1)], dim=-1)
        self.backward_value(done.value_tape, d_values)
        at_trunk = None
        if self.shared:
            at_trunk = self.value_net.input_gradient(self.layers("value"), done.value_tape, d_values.unsqueeze(-1))
        self.policy_net.backward(
            self.layers("policy"), self.gradient_layers("policy"), done.policy_tape, d_outputs, extra=at_trunk
        )

    @torch.no_grad()
    def run_lean_auxiliary(self, lean: LeanPPG, obs: Tensor) -> AuxiliaryOutput:
        """What the auxiliary phase trains, through `lean`; its memory is filled again by the next pass."""
        outputs, values, auxiliary_values = lean.run_auxiliary(obs)
        return AuxiliaryOutput(self._head(outputs, self.vector("log_std").detach()), values, auxiliary_values)

    @torch.no_grad()
    def backward_lean_auxiliary(
        self, lean: LeanPPG, *, d_policy: Tensor | tuple[Tensor, Tensor], d_values: Tensor, d_auxiliary_values: Tensor
    ) -> None:
        """`backward_auxiliary` of the last `run_lean_auxiliary`."""
        lean.backward_auxiliary(d_policy=self._through_head(d_policy), d_values=d_values, d_auxiliary_values=d_auxiliary_values)

    @torch.no_grad()
    def run_value(self, obs: Tensor) -> tuple[Tensor, Tape]:
        """Values alone, with the tape for `backward_value`."""
        values, tape = self.value_net.run(self.layers("value"), self._value_inputs(obs))
        return values.squeeze(-1), tape

    @torch.no_grad()
    def backward_value(self, tape: Tape, d_values: Tensor) -> Tensor:
        """Fill and give the value function's own piece of `gradient`."""
        self.value_net.backward(self.layers("value"), self.gradient_layers("value"), tape, d_values.unsqueeze(-1))
        return self.gradient_vector("value")

    def _value_inputs(self, obs: Tensor) -> Tensor:
        """What the value function reads: the trunk's last hidden layer outside of autograd, or the observation."""
        if not self.shared:
            return obs
        inputs = self.policy_net.run(self.layers("policy"), as_rows(obs))[1][-1].inputs
        return inputs[0] if obs.dim() == 1 else inputs
