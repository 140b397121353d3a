"""What learners that search in parameter space have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm
from rl_training.models.entry import of_any_obs, type_of
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import Batch, EnvSpec, Metrics


class EvolutionAlgorithm(Algorithm):
    """A deterministic policy that is moved along perturbations; `update` takes `perturbations` [K, P] and the returns
    `positive_returns` and `negative_returns` [K] of adding and subtracting each of them, `noise_std` times.

    `model` needs `actor(obs)`, `flat_parameters()` and `set_flat_parameters(vector)`. The statistics of observations are
    the learner's own and only change in `observe`.
    """

    observation_normalizer: ObservationNormalizer | None = None

    def __init__(
        self,
        model: MLPARSModel,
        *,
        step_size: float,
        noise_std: float,
        observation_normalizer: ObservationNormalizer | None = None,
    ) -> None:
        self.model = model
        self.dtype = type_of([model.flat_parameters()])
        self.step_size, self.noise_std = step_size, noise_std
        if observation_normalizer is not None:
            self.observation_normalizer = observation_normalizer

    @of_any_obs
    @torch.no_grad()
    def act(self, obs: Tensor, *, deterministic: bool = False) -> Tensor:  # noqa: ARG002 (it always is)
        return self.model.actor(obs if self.observation_normalizer is None else self.observation_normalizer(obs))

    def schedule(self, name: str, value: float) -> None:
        """`step_size` is the learning rate here."""
        super().schedule("step_size" if name == "learning_rate" else name, value)

    def policy_network(self, env: EnvSpec) -> PolicyNetwork | None:
        layers = self.model.shape.layers(self.model.flat)
        return PolicyNetwork.from_layers(layers, env, activation="tanh", normalizer=self.observation_normalizer)

    def generation(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The perturbations (K, P), of the parameters' type, and both returns (K,), whose own precision may be higher."""
        perturbations = batch["perturbations"].detach().to(self.dtype)
        return perturbations, numbers(batch["positive_returns"]), numbers(batch["negative_returns"])

    def observe(self, *, mean: Tensor, var: Tensor, count: int) -> None:
        """Let the observations of a whole generation, given by their moments, move the statistics."""
        if self.observation_normalizer is not None:
            self.observation_normalizer.take_in(mean=mean, var=var, count=count)


def numbers(given: Any) -> Tensor:
    """A tensor of at least single precision outside of autograd, from one of any type, an array or a plain number; whole
    numbers in double precision, where no two of them become equal."""
    tensor = torch.as_tensor(given).detach()
    least = torch.float32 if tensor.is_floating_point() else torch.float64
    return tensor.to(torch.promote_types(tensor.dtype, least))


def search_metrics(batch: Mapping[str, Any]) -> Metrics:
    """What to tell of one update, from `positive_returns, negative_returns, utilities, reward_std, update, parameters`."""
    return {
        "reward_std": numbers(batch["reward_std"]).mean(),
        "utility_mean": numbers(batch["utilities"]).mean(),
        "update_norm": numbers(batch["update"]).norm(),
        "parameter_norm": numbers(batch["parameters"]).norm(),
        "positive_return_mean": numbers(batch["positive_returns"]).mean(),
        "negative_return_mean": numbers(batch["negative_returns"]).mean(),
    }
