"""OpenAI Evolution Strategies (Salimans et al., 2017, arXiv:1703.03864)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.evolution import EvolutionAlgorithm, search_metrics
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.models.optim import Adam
from rl_training.types import Batch, Metrics, UpdateResult


def centered_ranks(returns: Tensor) -> Tensor:
    """Ranks spread evenly over [-0.5, 0.5]; equal returns share the mean of theirs, so that order cannot matter."""
    if len(returns) < 2:
        return torch.zeros_like(returns)
    # by numpy: between two generations, when torch's code is in no cache, its sorting takes five times as long
    numbers = returns.cpu().numpy()
    ordered = np.sort(numbers)
    below, up_to = ordered.searchsorted(numbers), ordered.searchsorted(numbers, side="right")
    mean_ranks = (below + up_to - 1).astype(numbers.dtype) / 2
    return torch.from_numpy(mean_ranks / (len(numbers) - 1) - 0.5).to(returns.device)


def standardized_returns(returns: Tensor) -> Tensor:
    """Returns with mean 0 and standard deviation 1, where an outlier has its say; zeros if all are equal."""
    standardized = (returns - returns.mean()) / returns.std(correction=0)
    # a mean that is off by its last bit must not make something out of nothing
    return torch.where(returns.max() > returns.min(), standardized, torch.zeros_like(returns))


def es_gradient(perturbations: Tensor, positive_utilities: Tensor, negative_utilities: Tensor) -> Tensor:
    """Σ (u⁺ − u⁻) ε / 2n: the way up. Not divided by noise_std, which Adam would undo anyway."""
    weights = (positive_utilities - negative_utilities).to(perturbations.dtype)
    return weights @ perturbations / (2 * len(perturbations))


def openai_es_loss(batch: Mapping[str, Any]) -> Metrics:
    """The metrics of one update, from `positive_returns, negative_returns, utilities, reward_std, update, parameters`."""
    return search_metrics(batch)


class OpenAIES(EvolutionAlgorithm):
    """Ranks all returns of a generation together (or standardises them), and lets Adam (or plain SGD) climb by the ranks.

    It descends along −g + weight_decay · θ, so the decay passes through Adam's scaling, as in the paper.
    """

    def __init__(
        self,
        model: MLPARSModel,
        *,
        step_size: float,
        noise_std: float,
        weight_decay: float = 0.0,
        optimizer: Literal["adam", "sgd"] = "adam",
        fitness_shaping: Literal["centered_ranks", "standardized"] = "centered_ranks",
        observation_normalizer: ObservationNormalizer | None = None,
    ) -> None:
        super().__init__(model, step_size=step_size, noise_std=noise_std, observation_normalizer=observation_normalizer)
        self.weight_decay, self.fitness_shaping = weight_decay, fitness_shaping
        self.parameters = model.flat_parameters()
        self.optimizer: Adam | None = None
        if optimizer == "adam":
            self.optimizer = Adam([self.parameters], learning_rate=step_size, weight_decay=weight_decay)

    @torch.no_grad()
    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (a generation needs no clock)
        perturbations, positive, negative = self.generation(batch)
        returns = torch.cat([positive, negative])
        utilities = centered_ranks(returns) if self.fitness_shaping == "centered_ranks" else standardized_returns(returns)
        gradient = es_gradient(perturbations, *utilities.chunk(2))
        before = self.model.flat_parameters()
        self.model.set_flat_parameters(self._climbed(before, gradient))
        after = self.model.flat_parameters()
        told = {"utilities": utilities, "reward_std": returns.std(correction=0), "update": after - before, "parameters": after}
        return UpdateResult(openai_es_loss({**batch, **told}))

    def _climbed(self, parameters: Tensor, gradient: Tensor) -> Tensor:
        if self.optimizer is None:
            return parameters + self.step_size * (gradient - self.weight_decay * parameters)
        # the model may have been given other parameters since the last time
        self.parameters.copy_(parameters)
        self.optimizer.learning_rate = self.step_size
        self.optimizer.step([-gradient])
        return self.parameters


OpenAIESAlgorithm = OpenAIES
