"""Settings of CQL (Kumar et al., 2020, arXiv:2006.04779)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rl_training.options._offline import OfflineOptions
from rl_training.options._sac import SACLearnerOptions
from rl_training.options._search import Real, SearchSpace, one_of
from rl_training.options.base import Problem, Schedule, option


class CQLConfig(OfflineOptions, SACLearnerOptions):
    """Conservative Q-learning: SAC on recorded data, with critics that think little of actions nobody tried."""

    algo: ClassVar[str] = "cql"
    summary: ClassVar[str] = "Conservative Q-learning: offline SAC whose critics doubt actions that the data does not show"
    paper: ClassVar[str] = "Kumar et al., 2020, arXiv:2006.04779"
    discrete: ClassVar[bool] = False
    continuous: ClassVar[bool] = True
    default_num_threads: ClassVar[int] = 1
    search_space: ClassVar[SearchSpace] = {
        **SACLearnerOptions.search_space,
        "actor_learning_rate": Real(1e-5, 1e-3, log=True),
        "cql_alpha": Real(0.1, 20.0, log=True),
        "num_cql_samples": one_of(4, 10),
    }
    schedulable: ClassVar[tuple[str, ...]] = ("learning_rate", "alpha", "cql_alpha")

    actor_learning_rate: float | None = option(1e-4, "The actor's own step size; none means learning_rate.", gt=0)
    alpha_learning_rate: float | None = option(
        None, "The step size of an automatic alpha; none means the actor's, as the authors have it.", gt=0
    )
    cql_alpha: float = option(5.0, "Weight of the conservative penalty; with cql_target_gap, where that weight begins.", ge=0)
    cql_alpha_schedule: Schedule | None = option(None, "How a fixed cql_alpha changes; none means it does not.")
    num_cql_samples: int = option(10, "Actions drawn for the penalty from each of: uniform, policy, policy at next_obs.", ge=1)
    cql_target_gap: float | None = option(
        None, "Gap between the values of any and of recorded actions that the weight is tuned to (Lagrange); none means fixed."
    )
    backup_entropy: bool = option(False, "Whether targets value entropy; the authors' code leaves it out.")

    def scheduled_values(self, step: int, total_steps: int, *, reached: int | None = None) -> dict[str, float]:
        """A weight that is learnt is left alone."""
        values = super().scheduled_values(step, total_steps, reached=reached)
        return values if self.cql_target_gap is None else {name: values[name] for name in values if name != "cql_alpha"}

    def contradictions(self) -> Iterator[Problem]:
        """Only a fixed weight follows a schedule, and one that is learnt cannot begin at nothing."""
        yield from super().contradictions()
        if self.cql_target_gap is not None and self.cql_alpha_schedule is not None:
            yield Problem(("cql_target_gap", "cql_alpha_schedule"), "the weight is learnt, so it cannot follow a schedule")
        if self.cql_target_gap is not None and self.cql_alpha == 0:
            yield Problem(("cql_target_gap", "cql_alpha"), "a weight that begins at 0 stays there; begin above it")
