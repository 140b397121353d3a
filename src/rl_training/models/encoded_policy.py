"""A deterministic policy behind an encoder as a module that stands alone: what is exported of it."""

from __future__ import annotations

import copy
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.encoder import Encoder
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import ObsPart

StandalonePolicy: TypeAlias = "PolicyNetwork | EncodedPolicy"
"""What `policy_network` of a model gives: it needs nothing of the learner it comes from."""


class EncodedPolicy(nn.Module):
    """From raw observations to what the environment takes: a tensor comes in for each part of the observation space, as the
    environment gives it with a first axis for the batch, and a `PolicyNetwork` reads the features. Of a policy trained under
    masks `action_masks` come last."""

    def __init__(self, encoder: Encoder, head: PolicyNetwork, *, normalizer: ObservationNormalizer | None = None) -> None:
        super().__init__()
        self.encoder, self.head = copy.deepcopy(encoder).cpu().eval().requires_grad_(False), head
        self.layout = encoder.layout
        moments = None if normalizer is None else normalizer.shift_and_scale
        self.clip_obs = None if normalizer is None or moments is None else normalizer.clip
        shift, scale = moments or (torch.zeros(self.layout.num_numbers), torch.ones(self.layout.num_numbers))
        self.register_buffer("obs_shift", shift.clone().cpu())
        self.register_buffer("obs_scale", scale.clone().cpu())

    @property
    def parts(self) -> tuple[ObsPart, ...]:
        """What comes in, in this order."""
        return self.layout.parts

    @property
    def masked(self) -> bool:
        """Whether action masks come in after the observation."""
        return self.head.masked

    @property
    def choices(self) -> list[int]:
        """How many there are in each part of a discrete action."""
        return self.head.choices

    @property
    def normalizes(self) -> bool:
        """Whether numbers are normalised on their way to the network."""
        return self.clip_obs is not None

    def in_words(self) -> str:
        """The network in one line."""
        return f"{self.encoder.name}, then {self.head.in_words()}"

    def features(self, *obs: Tensor) -> Tensor:
        """What the head reads."""
        numbers = self._normalized(torch.cat([*self._numbers(obs)], dim=-1)) if self.layout.num_numbers else None
        cut, parts = self.encoder.cut, []
        for (part, start, end), given in zip(self.layout.pieces, obs, strict=True):
            if part.image or numbers is None:
                parts.append(cut.image(part, given))
            else:
                parts.append(cut.as_declared(part, numbers[:, start:end]))
        features: Tensor = self.encoder.torso(cut.assembled(parts))
        return features

    def _numbers(self, obs: tuple[Tensor, ...]) -> list[Tensor]:
        """Columns of the parts that are no images, in the order of a row."""
        given = {part: value for part, value in zip(self.parts, obs, strict=True) if not part.image}
        return [_columns(part, value) for part, value in given.items()]

    def _normalized(self, numbers: Tensor) -> Tensor:
        if self.clip_obs is None:
            return numbers
        shift, scale = self.get_buffer("obs_shift"), self.get_buffer("obs_scale")
        return ((numbers - shift) * scale).clamp(-self.clip_obs, self.clip_obs)

    def outputs(self, *obs: Tensor) -> Tensor:
        """What the last layer says, before it becomes an action."""
        return self.head.outputs(self.features(*obs))

    def forward(self, *inputs: Tensor) -> Tensor:
        count = len(self.parts)
        actions: Tensor = self.head(self.features(*inputs[:count]), *inputs[count:])
        return actions


def _columns(part: ObsPart, value: Tensor) -> Tensor:
    value = value.flatten(1) if value.dim() > 1 else value.unsqueeze(1)
    if not part.choices:
        return value.to(torch.float32)
    chosen = [
        F.one_hot(value[:, i].long() - start, n) for i, (n, start) in enumerate(zip(part.choices, part.start, strict=True))
    ]
    return torch.cat(chosen, dim=-1).to(torch.float32)
