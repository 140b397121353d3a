"""Settings of SAC (Haarnoja et al., 2018, arXiv:1801.01290 and arXiv:1812.05905)."""

from __future__ import annotations

from typing import ClassVar

from rl_training.options._sac import SACLearnerOptions
from rl_training.options.base import OffPolicyOptions


class SACConfig(SACLearnerOptions, OffPolicyOptions):
    """Soft actor-critic: learn from replay, and prefer actions that keep the policy uncertain."""

    algo: ClassVar[str] = "sac"
    summary: ClassVar[str] = "Soft actor-critic: sample-efficient off-policy learning for continuous actions"
    paper: ClassVar[str] = "Haarnoja et al., 2018, arXiv:1812.05905"
    discrete: ClassVar[bool] = False
    continuous: ClassVar[bool] = True
    default_num_threads: ClassVar[int] = 1
