"""Settings of SAC (Haarnoja et al., 2018, arXiv:1801.01290 and arXiv:1812.05905)."""

from __future__ import annotations

from typing import ClassVar

from rl_training.options._sac import SACLearnerOptions
from rl_training.options._search import SearchSpace, one_of
from rl_training.options.base import OffPolicyOptions


class SACConfig(SACLearnerOptions, OffPolicyOptions):
    """Soft actor-critic: learn from replay, and prefer actions that keep the policy uncertain."""

    algo: ClassVar[str] = "sac"
    summary: ClassVar[str] = "Soft actor-critic: sample-efficient off-policy learning for continuous actions"
    paper: ClassVar[str] = "Haarnoja et al., 2018, arXiv:1812.05905"
    discrete: ClassVar[bool] = False
    continuous: ClassVar[bool] = True
    images: ClassVar[bool] = True
    default_num_threads: ClassVar[int] = 1
    search_space: ClassVar[SearchSpace] = {
        **SACLearnerOptions.search_space,
        "learning_starts": one_of(100, 500, 1_000, 5_000),
        "gradient_updates_per_step": one_of(1, 2, 4),
    }
