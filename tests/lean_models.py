"""What the tests of the lean passes have in common."""

from __future__ import annotations

from typing import TypeVar

import torch

from rl_training.models.actor_critic import ActorCritic

ROWS = 17

Model = TypeVar("Model", bound=ActorCritic)


def shaken(model: Model) -> Model:
    """The model with biases that are not zero."""
    model.flat.data.add_(0.1 * torch.randn_like(model.flat))
    return model


def actions_for(model: ActorCritic) -> torch.Tensor:
    return torch.randint(3, (ROWS,)) if model.discrete else torch.randn(ROWS, 3)
