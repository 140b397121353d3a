"""Settings of Cal-QL (Nakamoto et al., 2023, arXiv:2303.05479)."""

from __future__ import annotations

from typing import ClassVar

from rl_training.options._offline import OnlineOptions
from rl_training.options.cql import CQLConfig


class CalQLConfig(OnlineOptions, CQLConfig):
    """CQL that doubts no action below what the data earned, so that what was learnt offline is of use online."""

    algo: ClassVar[str] = "cal_ql"
    summary: ClassVar[str] = "Calibrated Q-learning: CQL for going on online, which doubts no action below what the data earned"
    paper: ClassVar[str] = "Nakamoto et al., 2023, arXiv:2303.05479"
    discrete: ClassVar[bool] = False
    continuous: ClassVar[bool] = True
    default_num_threads: ClassVar[int] = 1
    hindsight: ClassVar[tuple[str, ...]] = ("returns",)
