"""Settings of TQC (Kuznetsov et al., 2020, arXiv:2005.04269)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rl_training.options._search import SearchSpace, Whole, one_of
from rl_training.options.base import HiddenSizes, Problem, option
from rl_training.options.sac import SACConfig


class TQCConfig(SACConfig):
    """Truncated quantile critics: SAC whose critics know the return's distribution, and whose targets leave its top out."""

    algo: ClassVar[str] = "tqc"
    summary: ClassVar[str] = "Truncated quantile critics: SAC on the return's distribution, the highest quantiles left out"
    paper: ClassVar[str] = "Kuznetsov et al., 2020, arXiv:2005.04269"
    discrete: ClassVar[bool] = False
    continuous: ClassVar[bool] = True
    default_num_threads: ClassVar[int] = 1
    search_space: ClassVar[SearchSpace] = {
        **SACConfig.search_space,
        "num_critics": one_of(2, 3, 5),
        "num_dropped_quantiles": Whole(0, 5),
    }

    num_quantiles: int = option(25, "Quantiles of the return that each critic knows.", ge=1)
    num_dropped_quantiles: int = option(
        2, "Quantiles left out of each target, so many for each critic: more of them, less overestimation.", ge=0
    )
    num_critics: int = option(5, "Critics in the ensemble, evaluated as one batched network.", ge=1)
    critic_hidden_sizes: HiddenSizes | None = option(None, "Width of the critics' hidden layers; none means hidden_sizes.")

    def contradictions(self) -> Iterator[Problem]:
        """Something must be left of the mixture, and every critic is part of it."""
        yield from super().contradictions()
        if self.num_dropped_quantiles >= self.num_quantiles:
            text = f"of {self.num_quantiles} quantiles at most {self.num_quantiles - 1} can be left out"
            yield Problem(("num_dropped_quantiles", "num_quantiles"), text)
        if self.critic_subset_size is not None:
            yield Problem(("critic_subset_size",), "targets are made of all critics' quantiles; leave it out")
