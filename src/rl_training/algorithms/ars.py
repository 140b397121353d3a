"""Augmented Random Search (Mania et al., 2018, arXiv:1803.07055), V1 and V2, with all or the top directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.evolution import EvolutionAlgorithm, numbers, search_metrics
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.types import Batch, Metrics, UpdateResult


def top_directions(positive_returns: Tensor, negative_returns: Tensor, count: int | None) -> Tensor:
    """The `count` directions with the best max(r⁺, r⁻), best first; of equals, the one that came first."""
    best = torch.maximum(positive_returns, negative_returns)
    return best.argsort(descending=True, stable=True)[:count]


def ars_loss(batch: Mapping[str, Any]) -> Metrics:
    """The metrics of one update, from `positive_returns, negative_returns, reward_std, update, parameters`, the
    `selected_directions` (their indices, a mask over all of them, or how many they were) and, where there are any,
    `utilities`."""
    chosen = torch.as_tensor(batch["selected_directions"])
    utilities = batch["utilities"] if "utilities" in batch else _differences(batch)
    count = chosen.sum() if chosen.dtype == torch.bool else chosen.numel() if chosen.dim() else chosen
    return search_metrics({**batch, "utilities": utilities}) | {"selected_directions": numbers(count)}


def _differences(batch: Mapping[str, Any]) -> Tensor:
    return numbers(batch["positive_returns"]) - numbers(batch["negative_returns"])


class ARS(EvolutionAlgorithm):
    """θ ← θ + α / (b σ_R) Σ (r⁺ − r⁻) δ over the best b directions, σ_R the standard deviation of the 2b returns used.

    With an observation normaliser it is V2, without one V1; with `num_top_directions` below their number, "-t".
    """

    def __init__(
        self,
        model: MLPARSModel,
        *,
        step_size: float,
        noise_std: float,
        num_top_directions: int | None = None,
        observation_normalizer: ObservationNormalizer | None = None,
    ) -> None:
        super().__init__(model, step_size=step_size, noise_std=noise_std, observation_normalizer=observation_normalizer)
        self.num_top_directions = num_top_directions

    @torch.no_grad()
    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (a generation needs no clock)
        perturbations, positive, negative = self.generation(batch)
        chosen = top_directions(positive, negative, self.num_top_directions)
        perturbations, positive, negative = perturbations[chosen], positive[chosen], negative[chosen]
        reward_std = torch.cat([positive, negative]).std(correction=0)
        # without any spread all differences are 0, and so is the step
        utilities = (positive - negative) / reward_std.clamp_min(1e-12)
        update = (utilities.to(perturbations.dtype) @ perturbations) * (self.step_size / len(chosen))
        self.model.set_flat_parameters(self.model.flat_parameters() + update)
        parameters = self.model.flat_parameters()
        told = {"utilities": utilities, "reward_std": reward_std, "update": update, "parameters": parameters}
        return UpdateResult(ars_loss({**batch, **told, "selected_directions": chosen}))


ARSAlgorithm = ARS
