"""Settings of the soft actor-critic learner itself, wherever its batches come from (SAC, RLPD, CQL, MOPO)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rl_training.options._networks import NetworkOptions
from rl_training.options._search import Real, SearchSpace, one_of
from rl_training.options.base import CommonOptions, HiddenSizes, Problem, Schedule, option


class SACPolicyOptions(CommonOptions):
    """Networks and temperature. Step sizes are below: MOPO, which trains a model as well, has names of its own for them."""

    schedulable: ClassVar[tuple[str, ...]] = ("alpha",)
    search_space: ClassVar[SearchSpace] = {
        "gamma": one_of(0.9, 0.95, 0.98, 0.99, 0.995, 0.999),
        "tau": Real(1e-3, 5e-2, log=True),
        "batch_size": one_of(64, 128, 256, 512),
        "hidden_sizes": one_of([64, 64], [128, 128], [256, 256], [400, 300]),
    }

    hidden_sizes: HiddenSizes = option(
        (256, 256), "Width of each hidden layer of actor and critics; they follow another network than mlp."
    )
    activation: Literal["tanh", "relu"] = option("relu", "Nonlinearity of the hidden layers.")
    alpha: Annotated[float, Field(ge=0)] | Literal["auto"] = option("auto", "Weight of the entropy; auto learns it.")
    initial_alpha: float = option(1.0, "Where an automatic alpha begins.", gt=0)
    target_entropy: float | Literal["auto"] = option(
        "auto", "Entropy an automatic alpha aims at; auto means minus the number of action dimensions."
    )
    gamma: float = option(0.99, "Discount per step.", ge=0, le=1)
    tau: float = option(0.005, "Share of the critics that moves into their targets at each update.", gt=0, le=1)
    num_critics: int = option(2, "Critics in the ensemble.", ge=1)
    critic_subset_size: int | None = option(None, "Critics drawn for each target; none means all of them.", ge=1)
    layer_norm: bool = option(False, "Normalise the critics' hidden layers.")
    alpha_schedule: Schedule | None = option(None, "How a fixed alpha changes; none means it does not.")

    def contradictions(self) -> Iterator[Problem]:
        """A subset is no larger than the whole, and only a fixed alpha follows a schedule."""
        yield from super().contradictions()
        if self.critic_subset_size is not None and self.critic_subset_size > self.num_critics:
            keys = ("critic_subset_size", "num_critics")
            yield Problem(keys, f"a subset of {self.critic_subset_size} cannot be drawn from {self.num_critics} critics")
        if self.alpha == "auto" and self.alpha_schedule is not None:
            text = "alpha is auto, so it learns its own course; give a number for alpha to schedule it"
            yield Problem(("alpha", "alpha_schedule"), text)


class SACLearnerOptions(NetworkOptions, SACPolicyOptions):
    """The same with step sizes, and other networks than MLPs."""

    schedulable: ClassVar[tuple[str, ...]] = ("learning_rate", "alpha")
    search_space: ClassVar[SearchSpace] = {
        **SACPolicyOptions.search_space,
        "learning_rate": Real(1e-5, 1e-2, log=True),
        "initial_alpha": Real(0.01, 1.0, log=True),
    }

    learning_rate: float = option(3e-4, "Adam's step size, for the critics and whatever has no rate of its own.", gt=0)
    actor_learning_rate: float | None = option(None, "The actor's own step size; none means learning_rate.", gt=0)
    alpha_learning_rate: float | None = option(None, "The step size of an automatic alpha; none means learning_rate.", gt=0)
