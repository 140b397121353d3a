"""From rows of observations to features: what stands between an observation space and our heads.

A torso is an `nn.Module` from a batch of observations to (batch, `features_dim`), ours or a user's. It sees what its space
declares: images as floats in [0, 1] with channels first, choices one-hot, Dict as a dict, Tuple as a tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.kernels.differentiable import ByAutograd, Pullback
from rl_training.rows import RowLayout, channels_first
from rl_training.types import ObsPart

CHUNK = 256  # rows at a time where nothing is learnt: a rollout's images would take gigabytes between two layers


class Encoder(nn.Module):
    """A torso that reads rows; `name` is what messages call it."""

    def __init__(self, torso: nn.Module, layout: RowLayout, *, name: str) -> None:
        super().__init__()
        self.torso, self.layout, self.name = torso, layout, name
        self.features_dim = int(torso.features_dim)  # type: ignore[arg-type]
        self.reads_bytes = bool(layout.num_bytes)
        memory = torch.channels_last if getattr(torso, "channels_last", False) else torch.contiguous_format
        self.cut = RowCutter(layout, memory_format=memory)

    def forward(self, rows: Tensor) -> Tensor:
        """Features of rows (batch, width), or of a single row (width,)."""
        if rows.dim() == 1:
            alone: Tensor = self(rows.unsqueeze(0))
            return alone.squeeze(0)
        if not torch.is_grad_enabled() and len(rows) > CHUNK:
            return torch.cat([self._features(part) for part in torch.split(rows, CHUNK)])
        return self._features(rows)

    def _features(self, rows: Tensor) -> Tensor:
        # dropout and the like are for what is differentiated: nobody acts, judges or evaluates by them
        if self.torso.training is not torch.is_grad_enabled():
            self.torso.train(torch.is_grad_enabled())
        features = self.torso(self.cut(rows))
        if not isinstance(features, Tensor) or features.shape != (len(rows), self.features_dim):
            given = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else f"a {type(features).__name__}"
            wanted = (len(rows), self.features_dim)
            raise ValueError(
                f"network {self.name!r} gives {given} for {len(rows)} observations; its features_dim wants {wanted}"
            )
        return features

    def vjp(self, rows: Tensor) -> tuple[Tensor, Pullback]:
        """The features, and the pullback from a gradient at them to one for each parameter of the torso."""
        features, pull = _by_autograd(self, rows)
        return features, pull


class Encoders(nn.Module):
    """What a policy and a value function read: one encoder for both, or one each."""

    def __init__(self, policy: Encoder, value: Encoder | None = None) -> None:
        super().__init__()
        self.policy, self.own_value = policy, value

    @property
    def value(self) -> Encoder:
        return self.policy if self.own_value is None else self.own_value

    @property
    def reads_bytes(self) -> bool:
        """Whether rows are of bytes."""
        return self.policy.reads_bytes

    @property
    def features_dims(self) -> tuple[int, int]:
        """How much the policy reads, and the value function."""
        return self.policy.features_dim, self.value.features_dim

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What the policy reads, and what the value function does."""
        features = self.policy(rows)
        return features, features if self.own_value is None else self.own_value(rows)

    def vjp(self, rows: Tensor) -> tuple[tuple[Tensor, Tensor], Pullback]:
        """Both, and the pullback from gradients at them to one for each parameter."""
        features, pull = _by_autograd(self, rows)
        return features, pull


def _by_autograd(module: nn.Module, rows: Tensor) -> tuple[Any, Pullback]:
    return ByAutograd(module, "forward", list(module.parameters()), _as_it_is).vjp(rows)


def _as_it_is(answer: Any, _: Tensor) -> Any:
    return answer


class RowCutter:
    """From rows to what a torso reads."""

    def __init__(self, layout: RowLayout, *, memory_format: torch.memory_format = torch.contiguous_format) -> None:
        self.layout, self.memory_format = layout, memory_format
        self.is_vector = layout.is_vector

    def __call__(self, rows: Tensor) -> Any:
        if self.is_vector:
            return rows
        floats = float_columns(rows, self.layout)
        columns = [(rows if part.in_bytes else floats)[:, start:end] for part, start, end in self.layout.pieces]
        return self.assembled(
            [self.as_declared(piece.part, part) for piece, part in zip(self.layout.pieces, columns, strict=True)]
        )

    def assembled(self, parts: Sequence[Tensor]) -> Any:
        """The parts as the space has them: one tensor, a dict or a tuple."""
        return tree([piece.part.path for piece in self.layout.pieces], parts)

    def as_declared(self, part: ObsPart, columns: Tensor) -> Tensor:
        """Columns (batch, n) of one part in its own shape, images as floats in [0, 1] with channels first."""
        if part.image:
            return self.image(part, torch.unflatten(columns, 1, part.shape))
        return columns if part.choices or len(part.shape) < 2 else torch.unflatten(columns, 1, part.shape)

    def image(self, part: ObsPart, frames: Tensor) -> Tensor:
        """(batch, channels, height, width); what is stored with channels last is not moved for channels-last memory."""
        if len(part.shape) == 2:
            frames = frames.unsqueeze(1)
        elif not channels_first(part):
            frames = frames.permute(0, 3, 1, 2) if frames.dim() == 4 else frames.permute(0, 1, 4, 2, 3)
        if len(part.shape) == 4:
            frames = frames.flatten(1, 2)
        image = frames.to(torch.float32, memory_format=self.memory_format)
        return image / part.high if part.in_bytes else image


def float_columns(rows: Tensor, layout: RowLayout) -> Tensor:
    """The columns of rows that are floats, as a view."""
    return rows[..., : layout.first_byte].view(torch.float32) if layout.num_bytes else rows


def tree(paths: Sequence[tuple[str | int, ...]], leaves: Sequence[Any]) -> Any:
    """Leaves by their paths as nested dicts, or tuples where keys are numbers; the only one without a path as it is."""
    if not paths[0]:
        return leaves[0]
    places: dict[str | int, list[int]] = {}
    for i, path in enumerate(paths):
        places.setdefault(path[0], []).append(i)
    children = {key: tree([paths[i][1:] for i in where], [leaves[i] for i in where]) for key, where in places.items()}
    return children if isinstance(paths[0][0], str) else tuple(children.values())
