"""A policy with an auxiliary value head, and a value function beside it or on the same trunk (PPG)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rl_training.kernels import differentiable
from rl_training.kernels.differentiable import Pullback
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.encoder import Encoders
from rl_training.models.flat_mlp import MLPLayout, as_rows
from rl_training.models.heads import DiagonalGaussian, Distribution, MultiCategorical

ARCHITECTURES = ("shared", "dual")
HEAD_GAIN = 0.1  # the paper scales all heads to this


class AuxiliaryOutput(NamedTuple):
    """What the auxiliary phase trains, each with the batch's length."""

    distribution: Distribution
    values: Tensor
    auxiliary_values: Tensor


class AuxiliaryColumns(NamedTuple):
    """The same with the distribution's own numbers: logits (of an action in parts a row for each), or means and their
    log-standard deviations."""

    policy: Tensor
    log_std: Tensor | None
    values: Tensor
    auxiliary_values: Tensor


class MLPPPGModel(ActorCritic):
    """The policy network puts out the policy and, in its last column, the auxiliary values.

    `architecture="dual"` gives the value function a network of its own, as in the paper's main experiments. With
    `"shared"` it is a linear head that reads the policy network's last hidden layer: the policy phase takes that
    layer as given (the value gradient stops there), the auxiliary phase trains it. With `encoders` the shared trunk is
    the encoder that both have.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (64, 64),
        *,
        discrete: bool = True,
        nvec: Sequence[int] = (),
        architecture: str = "shared",
        activation: str = "tanh",
        log_std_init: float = 0.0,
        encoders: Encoders | None = None,
    ) -> None:
        if architecture not in ARCHITECTURES:
            raise ValueError(f"architecture {architecture!r} is none of {', '.join(ARCHITECTURES)}")
        reads, value_reads = (obs_dim, obs_dim) if encoders is None else encoders.features_dims
        on_hidden = architecture == "shared" and encoders is None
        policy = MLPLayout((reads, *hidden_sizes, action_dim + 1), activation=activation)
        value = MLPLayout((policy.sizes[-2], 1) if on_hidden else (value_reads, *hidden_sizes, 1), activation=activation)
        # the value function comes last, so that what the policy phase trains for each is one piece of the vector
        parts: dict[str, MLPLayout | int] = {"policy": policy, "log_std": 0 if discrete else action_dim, "value": value}
        super().__init__(parts, obs_dim=obs_dim, action_dim=action_dim, discrete=discrete, nvec=nvec, encoders=encoders)
        self.shared, self.on_hidden = architecture == "shared", on_hidden
        for name, net in (("policy", policy), ("value", value)):
            net.initialize(self.vector(name).data, gains=[math.sqrt(2)] * (len(net.sizes) - 2) + [HEAD_GAIN])
        self.vector("log_std").data.fill_(log_std_init)

    @property
    def num_policy_parameters(self) -> int:
        """How much of `flat`, from its beginning, belongs to the policy network; the value function's part follows."""
        return self.flat.numel() - self.value_net.num_parameters

    def policy_and_value_parts(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Tensors in the order of the parameters (these, or gradients), as those of the policy network and of the value
        function."""
        (policy, value), encoders = tensors[0].tensor_split([self.num_policy_parameters]), tensors[1:]
        own = 0 if self.encoders is None or self.shared else len(list(self.encoders.value.parameters()))
        where = len(encoders) - own
        return [policy, *encoders[:where]], [value, *encoders[where:]]

    @differentiable.method
    def value(self, obs: Tensor) -> Tensor:
        """As in the policy phase: differentiable in the value function's own parameters, never in the policy's."""
        return self.value_at(obs if self.encoders is None else self.encoders.value(obs))

    @value.with_vjp
    def _(self, obs: Tensor) -> tuple[Tensor, Pullback]:
        """The pullback goes to the value function's own parameters."""
        read, pull_encoder = obs, None
        if self.encoders is not None:
            read, pull_encoder = self.encoders.value.vjp(obs)
        values, pull_net = self.value_net.vjp(self.vector("value"), self._value_inputs(read))

        def pull(d_values: Tensor) -> list[Tensor]:
            own = [] if pull_encoder is None or self.shared else pull_encoder(pull_net.inputs(d_values))
            return [pull_net.parameters(d_values), *own]

        return values.squeeze(-1), pull

    def value_at(self, read: Tensor) -> Tensor:
        return self.value_net(self.vector("value"), self._value_inputs(read)).squeeze(-1)

    @differentiable.method
    def auxiliary(self, obs: Tensor, *, action_masks: Tensor | None = None) -> AuxiliaryOutput:
        """As in the auxiliary phase: everything is differentiable in all it depends on, a shared trunk included."""
        read, value_read = (obs, obs) if self.encoders is None else self.encoders(obs)
        policy = self.policy_net.layers(self.vector("policy"))
        outputs, hidden = self.policy_net.definition(policy, read)
        values = self.value_net(self.vector("value"), hidden if self.on_hidden else value_read).squeeze(-1)
        return AuxiliaryOutput(self.head(outputs, action_masks), values, outputs[..., self.action_dim])

    @auxiliary.with_vjp
    def _(self, obs: Tensor, *, action_masks: Tensor | None = None) -> tuple[AuxiliaryColumns, Pullback]:
        outputs, values, pull_networks = self._run(obs, value_reaches_trunk=True)
        head = self.head(outputs, action_masks)
        if isinstance(head, DiagonalGaussian):
            policy, log_std = head.mean, head.log_std.expand_as(head.mean)
        else:
            policy, log_std = head.logits, None

        def pull(d_policy: Tensor, d_log_std: Tensor | None, d_values: Tensor, d_auxiliary_values: Tensor) -> list[Tensor]:
            if isinstance(head, MultiCategorical):
                d_policy = head.at_outputs(d_policy)
            d_outputs = torch.cat([d_policy, d_auxiliary_values.unsqueeze(-1)], dim=-1)
            return pull_networks(d_outputs, None if d_log_std is None else d_log_std.sum(0), d_values)  # type: ignore[no-any-return]

        return AuxiliaryColumns(policy, log_std, values, outputs[..., self.action_dim]), pull

    def policy_and_value(self, obs: Tensor, action_masks: Tensor | None = None) -> tuple[Distribution, Tensor, Pullback]:
        outputs, values, pull_networks = self._run(obs, value_reaches_trunk=False)
        # the auxiliary head rests in the policy phase
        policy = self.head(outputs, action_masks)
        return policy, values, lambda d_outputs, *others: pull_networks(pad(d_outputs, (0, 1)), *others)

    def _run(self, obs: Tensor, *, value_reaches_trunk: bool) -> tuple[Tensor, Tensor, Pullback]:
        """The policy network's outputs and the values; the value gradient goes on into a shared trunk, or stops there."""
        (read, value_read), pull_encoders = self.encoded(obs)
        outputs, pull_policy = self.policy_net.vjp(self.vector("policy"), read)
        values, pull_value = self.value_net.vjp(self.vector("value"), pull_policy.features if self.on_hidden else value_read)

        def pull(d_outputs: Tensor, d_log_std: Tensor | None, d_values: Tensor) -> list[Tensor]:
            gradient = self.fresh_gradient()
            pull_value.parameters(d_values, into=self.slice_of(gradient, "value"))
            goes_on = value_reaches_trunk if self.shared else self.encoders is not None
            d_read = pull_value.inputs(d_values) if goes_on else None
            at_hidden = d_read if self.on_hidden else None
            pull_policy.parameters(d_outputs, d_features=at_hidden, into=self.policy_gradient(gradient, d_log_std))
            if self.encoders is None:
                return [gradient]
            return [gradient, *pull_encoders(pull_policy.inputs(d_outputs), d_read)]

        return outputs, values.squeeze(-1), pull

    @torch.no_grad()
    def _value_inputs(self, read: Tensor) -> Tensor:
        """What the value function's network reads: the trunk's last hidden layer, or what it was handed; a trunk that the
        policy has too is taken as given."""
        if not self.on_hidden:
            return read.detach() if self.shared else read
        features = self.policy_net.vjp(self.vector("policy"), as_rows(read))[1].features
        return features[0] if read.dim() == 1 else features
