"""Settings of MOPO (Yu et al., 2020, arXiv:2005.13239)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from rl_training.options._dynamics import DynamicsOptions
from rl_training.options._offline import OfflineOptions
from rl_training.options._sac import SACPolicyOptions
from rl_training.options._search import Real, SearchSpace, one_of
from rl_training.options.base import HiddenSizes, Problem, option

KEPT_REFRESHES = 5  # the authors keep the rollouts of five epochs


class MOPOConfig(OfflineOptions, DynamicsOptions, SACPolicyOptions):
    """Model-based offline policy optimisation: learn the dynamics from recorded data, then SAC in short imagined rollouts
    whose rewards are lowered where the model is unsure."""

    algo: ClassVar[str] = "mopo"
    summary: ClassVar[str] = "Model-based offline policy optimisation: SAC in imagined rollouts, penalised where unsure"
    paper: ClassVar[str] = "Yu et al., 2020, arXiv:2005.13239"
    discrete: ClassVar[bool] = False
    continuous: ClassVar[bool] = True
    default_num_threads: ClassVar[int] = 1
    only_to_learn: ClassVar[tuple[str, ...]] = ("termination_fn",)
    search_space: ClassVar[SearchSpace] = {
        **SACPolicyOptions.search_space,
        "policy_learning_rate": Real(1e-5, 1e-2, log=True),
        "model_learning_rate": Real(1e-4, 1e-2, log=True),
        "penalty_coef": Real(0.05, 10.0, log=True),
        "rollout_horizon": one_of(1, 3, 5, 10),
        "synthetic_batch_ratio": one_of(0.5, 0.8, 0.95),
    }

    num_ensembles: int = option(7, "Networks in the ensemble, evaluated as one batched network.", ge=1)
    num_elites: int | None = option(
        None,
        "Members with the lowest holdout error that predict; none means five in seven (all without holdout).",
        ge=1,
    )
    model_hidden_sizes: HiddenSizes = option((200, 200, 200, 200), "Width of each hidden layer of the dynamics networks.")
    model_batch_size: int = option(256, "Transitions per gradient step of the model, drawn for each member apart.", ge=1)
    model_updates: int = option(
        100_000,
        "Gradient steps the model is fitted for at most, before the policy's first; model_patience may end it sooner.",
        ge=1,
    )
    model_holdout_ratio: float = option(
        0.2, "Share of the data that is kept from fitting, to stop early and choose elites.", ge=0, lt=1
    )
    model_patience: int | None = option(
        5, "Epochs without a gain of 1 % on held-out data after which the fit ends with each member's best weights.", ge=1
    )
    policy_learning_rate: float = option(3e-4, "Adam's step size for actor, critics and an automatic alpha.", gt=0)
    penalty: Literal["max_std", "disagreement"] = option(
        "max_std", "What lowers imagined rewards: the members' largest deviation, or how far their means lie apart."
    )
    penalty_coef: float = option(1.0, "Weight of the penalty.", ge=0)
    rollout_horizon: int = option(5, "Steps of every imagined rollout.", ge=1)
    rollout_batch_size: int = option(50_000, "Recorded states that rollouts start from at each refresh.", ge=1)
    rollout_refresh_interval: int = option(1_000, "Policy updates between two refreshes of the imagined data.", ge=1)
    clip_rollouts: bool = option(False, "Keep imagined observations within the range of the recorded ones; the paper does not.")
    synthetic_buffer_capacity: int | None = option(
        None, f"Imagined transitions kept, the newest; none means those of the last {KEPT_REFRESHES} refreshes.", ge=1
    )
    synthetic_batch_ratio: float = option(0.95, "Share of imagined transitions in every batch of the policy.", ge=0, le=1)

    def contradictions(self) -> Iterator[Problem]:
        """A penalty that is always 0 is none."""
        yield from super().contradictions()
        if self.penalty_coef and self.penalty == "max_std" and self.deterministic_model:
            text = "deterministic networks have no deviation to be penalised; give penalty: disagreement, or penalty_coef: 0"
            yield Problem(("penalty", "deterministic_model"), text)
        if self.penalty_coef and self.penalty == "disagreement" and self.num_ensembles == 1:
            text = "one network agrees with itself everywhere; give at least 2 num_ensembles, or penalty: max_std"
            yield Problem(("penalty", "num_ensembles"), text)

    def predicting_members(self) -> int:
        """How many members are elites; without held-out data nobody could say which."""
        if self.num_elites is not None:
            return self.num_elites
        return -(-5 * self.num_ensembles // 7) if self.model_holdout_ratio else self.num_ensembles

    def synthetic_capacity(self) -> int:
        """Rows of the synthetic buffer."""
        return self.synthetic_buffer_capacity or KEPT_REFRESHES * self.rollout_batch_size * self.rollout_horizon

    def dataset_rows_per_batch(self) -> int:
        return max(1, round(self.batch_size * (1 - self.synthetic_batch_ratio)))

    def scheduled_values(self, step: int, total_steps: int) -> dict[str, float]:
        """The common schedule and warm-up move the policy's learning rate: the model is fitted before step 1."""
        return super().scheduled_values(step, total_steps) | self.scheduled_rate("policy_learning_rate", step, total_steps)
