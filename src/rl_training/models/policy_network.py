"""A deterministic policy as plain layers: what leaves the library when a policy is exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Optional, TypeAlias

import torch
from torch import Tensor, nn

from rl_training.models.normalizer import ObservationNormalizer
from rl_training.types import EnvSpec

LayerTensors: TypeAlias = "tuple[Tensor, Tensor | None]"
"""A weight (in, out) and a bias (out,)."""

ACTIVATIONS = ("relu", "tanh")


class PolicyNetwork(nn.Module):
    """From raw observations (batch, obs_dim) to what the environment takes: the normaliser, the network and the scaling
    of actions in one module. It knows nothing of how it was trained, and TorchScript understands it.

    Continuous actions come out as (batch, action_dim) within their bounds, discrete ones as (batch,) integers, those in parts
    as (batch, parts). Where a policy was trained under masks, `action_masks` (batch, action_dim) say what is allowed.
    """

    if TYPE_CHECKING:  # TorchScript does not understand annotations that are texts
        obs_shift: Tensor
        obs_scale: Tensor
        action_low: Tensor
        action_high: Tensor

    def __init__(
        self, sizes: Sequence[int], env: EnvSpec, *, activation: str, squash: bool = False, clip_obs: float | None = None
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation {activation!r} is none of {', '.join(ACTIVATIONS)}")
        self.activation, self.squash, self.discrete = activation, squash, env.discrete
        self.normalizes = clip_obs is not None
        self.clip_obs = float("inf") if clip_obs is None else clip_obs
        self.choices, self.starts = list(env.choices), list(env.starts)
        self.in_parts, self.masked = bool(env.nvec), bool(env.masked)
        self.register_buffer("obs_shift", torch.zeros(sizes[0], dtype=torch.float32))
        self.register_buffer("obs_scale", torch.ones(sizes[0], dtype=torch.float32))
        self.register_buffer("action_low", torch.tensor(env.low, dtype=torch.float32))
        self.register_buffer("action_high", torch.tensor(env.high, dtype=torch.float32))
        self.layers = nn.ModuleList(nn.Linear(*shape, dtype=torch.float32) for shape in pairwise(sizes))

    @classmethod
    @torch.no_grad()
    def from_layers(
        cls,
        layers: Sequence[LayerTensors],
        env: EnvSpec,
        *,
        activation: str,
        squash: bool = False,
        normalizer: ObservationNormalizer | None = None,
    ) -> PolicyNetwork:
        """A copy of layers; of the last one, only the columns that are actions."""
        weights = [weight for weight, _ in layers[:-1]] + [layers[-1][0][:, : env.action_dim]]
        sizes = [weights[0].shape[0], *(weight.shape[1] for weight in weights)]
        statistics = None if normalizer is None else normalizer.shift_and_scale
        clip = None if normalizer is None or statistics is None else normalizer.clip
        network = cls(sizes, env, activation=activation, squash=squash, clip_obs=clip)
        if statistics is not None:
            network.get_buffer("obs_shift").copy_(statistics[0])
            network.get_buffer("obs_scale").copy_(statistics[1])
        for linear, weight, (_, bias) in zip(network.linears(), weights, layers, strict=True):
            linear.weight.copy_(weight.mT)
            linear.bias.zero_() if bias is None else linear.bias.copy_(bias[: weight.shape[1]])
        return network.eval().requires_grad_(False)

    def linears(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    def outputs(self, obs: Tensor) -> Tensor:
        """What the last layer says of raw observations, before it becomes an action."""
        h = obs
        if self.normalizes:
            h = ((h - self.obs_shift) * self.obs_scale).clamp(-self.clip_obs, self.clip_obs)
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            h = layer(h)
            if i < last:
                h = h.relu() if self.activation == "relu" else h.tanh()
        return h

    def forward(self, obs: Tensor, action_masks: Optional[Tensor] = None) -> Tensor:  # noqa: UP045 (as TorchScript has it)
        h = self.outputs(obs)
        if self.discrete:
            if action_masks is not None:
                h = h.masked_fill(action_masks.logical_not(), float("-inf"))
            chosen = [part.argmax(dim=-1) + start for part, start in zip(h.split_with_sizes(self.choices, -1), self.starts)]  # noqa: B905
            return torch.stack(chosen, dim=-1) if self.in_parts else chosen[0]
        if self.squash:
            h = h.tanh()
        middle, half = (self.action_low + self.action_high) * 0.5, (self.action_high - self.action_low) * 0.5
        return (middle + h * half).clamp(self.action_low, self.action_high)

    def in_words(self) -> str:
        """The network in one line."""
        linears = self.linears()
        sizes = [linears[0].in_features, *(linear.out_features for linear in linears)]
        return f"{' → '.join(map(str, sizes))}, {self.activation}" if len(linears) > 1 else " → ".join(map(str, sizes))

    def description(self) -> dict[str, Any]:
        """What beside its tensors is needed to make it again, in JSON's types."""
        linears = self.linears()
        return {
            "sizes": [linears[0].in_features, *(linear.out_features for linear in linears)],
            "activation": self.activation,
            "squash": self.squash,
            "discrete": self.discrete,
            "action_start": self.starts if self.in_parts else self.starts[0],
            "nvec": self.choices if self.in_parts else [],
            "masked": self.masked,
            "clip_obs": None if not self.normalizes or self.clip_obs == float("inf") else self.clip_obs,
            "normalizes": self.normalizes,
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> PolicyNetwork:
        """The inverse of `description` and `state_dict`."""
        sizes, discrete = description["sizes"], description["discrete"]
        low, high = (tuple(tensors[name].tolist()) for name in ("action_low", "action_high"))
        start = description["action_start"]
        more = {name: description[name] for name in ("nvec", "masked") if name in description}  # later than the first files
        known = {"discrete": discrete, "low": low, "high": high, "action_start": start, **more}
        env = EnvSpec.from_dict({"env_id": "", "obs_dim": sizes[0], "action_dim": sizes[-1], **known})
        clip = description["clip_obs"] if description["clip_obs"] is not None else float("inf")
        network = cls(
            sizes,
            env,
            activation=description["activation"],
            squash=description["squash"],
            clip_obs=clip if description["normalizes"] else None,
        )
        network.load_state_dict(dict(tensors))
        return network.eval().requires_grad_(False)
