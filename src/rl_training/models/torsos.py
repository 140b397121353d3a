"""The packaged torsos: from what a space declares to features, each with the initialisation it learns by.

Each is a class `Torso(observation_space, **network_kwargs)` with `features_dim`, as a user's own is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import getitem
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.flat_mlp import FlatMLP
from rl_training.rows import columns_of
from rl_training.types import ObsPart

RELU_GAIN = math.sqrt(2)


class Plain(nn.Module):
    """The numbers themselves: what an MLP reads beside another part's own network."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__()
        (self.features_dim,) = observation_space.shape

    def forward(self, obs: Tensor) -> Tensor:
        return obs


class ResidualMLP(nn.Module):
    """Residual blocks over vectors, each with a layer norm before it (Lee et al., 2024, arXiv:2410.09754)."""

    def __init__(self, observation_space: Any, *, width: int = 128, num_blocks: int = 2, expansion: int = 4) -> None:
        super().__init__()
        (inputs,) = observation_space.shape
        self.features_dim = width
        self.embedding = FlatMLP((inputs, width))
        self.blocks = nn.ModuleList(FlatMLP((width, expansion * width, width), activation="relu") for _ in range(num_blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(num_blocks + 1))
        self.embedding.layout.initialize(self.embedding.flat.data, gains=[1.0])
        for block in self.blocks:
            block.layout.initialize(block.flat.data, gains=[RELU_GAIN, 1.0])  # type: ignore[union-attr,operator]

    def forward(self, obs: Tensor) -> Tensor:
        h: Tensor = self.embedding(obs)
        for norm, block in zip(self.norms, self.blocks, strict=False):
            h = h + block(norm(h))
        features: Tensor = self.norms[-1](h)
        return features


class ConvolutionalTorso(nn.Module):
    """Convolutions, then one linear layer; ReLU throughout."""

    channels_last = True

    def __init__(self, observation_space: Any, convolutions: nn.Module, *, features_dim: int) -> None:
        super().__init__()
        self.features_dim, self.convolutions = features_dim, convolutions
        with torch.no_grad():
            outputs = convolutions(torch.zeros(1, *observation_space.shape, dtype=torch.float32)).numel()
        self.linear = nn.Linear(outputs, features_dim, dtype=torch.float32)
        orthogonal(self)

    def forward(self, obs: Tensor) -> Tensor:
        return F.relu(self.linear(self.convolutions(obs).flatten(1)))


class MinAtar(ConvolutionalTorso):
    """One layer of 3x3, as MinAtar's authors have it for its 10x10 images (Young and Tian, 2019, arXiv:1903.03176)."""

    def __init__(self, observation_space: Any, *, channels: int = 16, features_dim: int = 128) -> None:
        convolutions = strided(observation_space.shape, [(channels, 3, 1)])
        super().__init__(observation_space, convolutions, features_dim=features_dim)


class Nature(ConvolutionalTorso):
    """Three strided layers, as in DQN (Mnih et al., 2015), for images of some 84x84. Below 36 pixels, where these leave
    nothing, kernels are 3x3 and go pixel by pixel."""

    def __init__(self, observation_space: Any, *, channels: Sequence[int] = (32, 64, 64), features_dim: int = 512) -> None:
        (_, *sides), (a, b, c) = observation_space.shape, channels
        layers = [(a, 8, 4), (b, 4, 2), (c, 3, 1)] if min(sides) >= 36 else [(a, 3, 1), (b, 3, 1), (c, 3, 1)]
        super().__init__(observation_space, strided(observation_space.shape, layers), features_dim=features_dim)


class Impala(ConvolutionalTorso):
    """Stages of a convolution, a pooling that halves the image and two residual blocks (Espeholt et al., 2018,
    arXiv:1802.01561); `width` multiplies the channels."""

    def __init__(
        self, observation_space: Any, *, channels: Sequence[int] = (16, 32, 32), width: float = 1, features_dim: int = 256
    ) -> None:
        stages: list[nn.Module] = []
        inputs = observation_space.shape[0]
        for outputs in (max(1, round(width * count)) for count in channels):
            stages += [convolution(inputs, outputs, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
            stages += [ResidualBlock(outputs), ResidualBlock(outputs)]
            inputs = outputs
        super().__init__(observation_space, nn.Sequential(*stages, nn.ReLU()), features_dim=features_dim)
        blocks = [module for module in self.modules() if isinstance(module, ResidualBlock)]
        for block in blocks:  # so that what all blocks add together is of the size of what goes past them
            nn.init.orthogonal_(block.second.weight, RELU_GAIN / math.sqrt(len(blocks)))


class Combined(nn.Module):
    """Dict and Tuple with images in them: images by a network for images each, vectors by a layer each, choices one-hot; what
    comes of them is joined and read by one layer."""

    channels_last = True

    def __init__(
        self, parts: Sequence[ObsPart], images: Sequence[nn.Module], *, vector_width: int = 64, features_dim: int = 256
    ) -> None:
        super().__init__()
        self.parts, self.features_dim = tuple(parts), features_dim
        self.images = nn.ModuleList(images)
        vectors = [part for part in parts if not part.image and not part.choices]
        self.vectors = nn.ModuleList(nn.Linear(columns_of(part), vector_width, dtype=torch.float32) for part in vectors)
        widths = [int(image.features_dim) for image in images] + [vector_width] * len(vectors)  # type: ignore[arg-type]
        widths += [columns_of(part) for part in parts if part.choices]
        self.joined = nn.Linear(sum(widths), features_dim, dtype=torch.float32)
        for layer in (*self.vectors, self.joined):
            orthogonal(layer)

    def forward(self, obs: Any) -> Tensor:
        given = [(part, reduce(getitem, part.path, obs)) for part in self.parts]
        images = (value for part, value in given if part.image)
        vectors = (value.flatten(1) for part, value in given if not part.image and not part.choices)
        features = [image(value) for image, value in zip(self.images, images, strict=True)]
        features += [layer(value).tanh() for layer, value in zip(self.vectors, vectors, strict=True)]
        features += [value for part, value in given if part.choices]
        return F.relu(self.joined(torch.cat(features, dim=-1)))


class ResidualBlock(nn.Module):
    """Adds two convolutions of its input to it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (convolution(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.second(F.relu(self.first(F.relu(x))))
        return x + added


def convolution(inputs: int, outputs: int, kernel: int | tuple[int, int], **settings: Any) -> nn.Conv2d:
    """In float32, whatever torch's default type is."""
    return nn.Conv2d(inputs, outputs, kernel, dtype=torch.float32, **settings)


def strided(shape: Sequence[int], layers: Sequence[tuple[int, int, int]]) -> nn.Sequential:
    """Layers of (channels, kernel, stride) with ReLU for images (channels, height, width); a kernel is no larger than what
    is left of the image."""
    inputs, height, width = shape
    modules: list[nn.Module] = []
    for outputs, kernel, stride in layers:
        size = min(kernel, height), min(kernel, width)
        modules += [convolution(inputs, outputs, size, stride=stride), nn.ReLU()]
        inputs, height, width = outputs, (height - size[0]) // stride + 1, (width - size[1]) // stride + 1
    return nn.Sequential(*modules)


def orthogonal(module: nn.Module, *, gain: float = RELU_GAIN) -> None:
    """Orthogonal weights and zero biases in every layer: torch's own shrink a signal so far that PPO learns little of it."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(layer.weight, gain)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


TORSOS: dict[str, type[nn.Module]] = {
    "mlp": Plain,
    "residual_mlp": ResidualMLP,
    "nature": Nature,
    "impala": Impala,
    "minatar": MinAtar,
}
