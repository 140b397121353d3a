"""Torsos as users write them, for everybody's tests: named in configurations as `my_nets:Torso`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rl_training.models import FlatMLP


class Torso(nn.Module):
    """Two layers over a vector."""

    def __init__(self, observation_space: Any, *, width: int = 16) -> None:
        super().__init__()
        self.features_dim = width
        (inputs,) = observation_space.shape
        self.layers = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())

    def forward(self, obs: Tensor) -> Tensor:
        return self.layers(obs)  # type: ignore[no-any-return]


class OfOurLayers(nn.Module):
    """The same of this library's own network."""

    def __init__(self, observation_space: Any, *, width: int = 16) -> None:
        super().__init__()
        self.features_dim = width
        self.net = FlatMLP((observation_space.shape[0], width, width))

    def forward(self, obs: Tensor) -> Tensor:
        return self.net(obs).tanh()


class OfNumbers(nn.Module):
    """Reads a Dict of numbers and choices, part by part."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__()
        self.features_dim = 12
        self.clue, self.rest = nn.Linear(observation_space["clue"].n, 8), nn.Linear(2 + 2 + 5, 4)

    def forward(self, obs: dict[str, Any]) -> Tensor:
        rest = [obs["position"], obs["inner"]["buttons"], obs["inner"]["knobs"]]
        return torch.cat([self.clue(obs["clue"]), self.rest(torch.cat(rest, dim=-1))], dim=-1).tanh()


class Moody(Torso):
    """Does something else while it learns than afterwards: dropout, and with `norm` batch norm."""

    def __init__(self, observation_space: Any, *, norm: bool = False) -> None:
        super().__init__(observation_space)
        self.layers.append(nn.Dropout(0.5))
        if norm:
            self.layers.insert(1, nn.BatchNorm1d(16))


class WrongWidth(Torso):
    """Says one width, gives another."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space, width=16)
        self.features_dim = 17


class NoWidth(nn.Module):
    """Does not say how wide it is."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__()


class Fails(Torso):
    """Cannot read what it is given."""

    def forward(self, obs: Tensor) -> Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


class BaseFeaturesExtractor(nn.Module):
    """As Stable-Baselines3 has it: the width is a property that reads a private attribute."""

    def __init__(self, observation_space: Any, features_dim: int = 0) -> None:
        super().__init__()
        assert features_dim > 0
        self._observation_space = observation_space
        self._features_dim = features_dim

    @property
    def features_dim(self) -> int:
        return self._features_dim


class CustomCNN(BaseFeaturesExtractor):
    """The example that its documentation gives users to start from, in substance: it finds out its width by a sample."""

    def __init__(self, observation_space: Any, features_dim: int = 32) -> None:
        super().__init__(observation_space, features_dim)
        channels = observation_space.shape[0]
        self.cnn = nn.Sequential(nn.Conv2d(channels, 8, kernel_size=3), nn.ReLU(), nn.Flatten())
        with torch.no_grad():
            width = self.cnn(torch.as_tensor(observation_space.sample()[None]).float()).shape[1]
        self.linear = nn.Sequential(nn.Linear(width, features_dim), nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        return self.linear(self.cnn(observations))  # type: ignore[no-any-return]


not_a_class = 3
