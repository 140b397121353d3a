"""What is in a dataset: sizes, returns, how much of the spaces it covers, and what one should know before using it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rl_training.data.recorded_data import RecordedData
from rl_training.types import EnvSpec

BINS = 20


@dataclass(frozen=True)
class Column:
    """One number of the observations or actions, over all rows."""

    name: str
    low: float
    high: float
    mean: float
    std: float
    counts: np.ndarray  # rows in each of `BINS` equal bins between the bounds that were given, else between the extremes
    covered: float  # share of these bins that hold at least one row in a thousand


@dataclass(frozen=True)
class DatasetReport:
    """The numbers behind `rl-training dataset inspect`."""

    rows: int
    returns: np.ndarray  # of the finished episodes
    lengths: np.ndarray
    unfinished: int  # rows after the last end of an episode's own
    terminations: int
    truncations: int
    rewards: Column
    observations: list[Column]
    actions: list[Column]
    duplicates: int  # rows that another row repeats
    warnings: list[str]


def inspect_data(data: RecordedData, spec: EnvSpec | None = None) -> DatasetReport:
    """Everything about `data`; with the environment's `spec` its actions are judged against their bounds."""
    episodes = data.episodes()
    whole = bool(data.cuts[-1]) and not data.unfinished
    finished = episodes if whole else episodes[:-1]
    actions = data.actions.reshape(len(data), -1)
    report = DatasetReport(
        rows=len(data),
        returns=np.array([data.rewards[rows].sum(dtype=np.float64) for rows in finished]),
        lengths=np.array([rows.stop - rows.start for rows in finished]),
        unfinished=0 if whole else episodes[-1].stop - episodes[-1].start,
        terminations=int(data.terminations.sum()),
        truncations=int(data.truncations.sum()),
        rewards=_column("rewards", data.rewards),
        observations=[_column(f"obs {i}", column) for i, column in enumerate(data.obs.T)],
        actions=_action_columns(actions, spec),
        duplicates=len(data) - len(np.unique(np.concatenate([data.obs, actions, data.next_obs], axis=1), axis=0)),
        warnings=[],
    )
    report.warnings.extend(_warnings(data, report, spec))
    return report


def _action_columns(actions: np.ndarray, spec: EnvSpec | None) -> list[Column]:
    if spec is None or len(spec.low) != actions.shape[1]:
        return [_column(f"action {i}", column) for i, column in enumerate(actions.T)]
    return [
        _column(f"action {i}", column, *bounds)
        for i, (column, *bounds) in enumerate(zip(actions.T, spec.low, spec.high, strict=True))
    ]


def _column(name: str, values: np.ndarray, low: float | None = None, high: float | None = None) -> Column:
    least, most = float(values.min()), float(values.max())
    bounds = (least if low is None else low, most if high is None else high)
    # a column of one value still has a bin to stand in
    counts, _ = np.histogram(values.astype(np.float64), bins=BINS, range=bounds if bounds[0] < bounds[1] else None)
    covered = float((counts >= max(1, len(values) / 1000)).mean())
    return Column(name, least, most, float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64)), counts, covered)


def _warnings(data: RecordedData, report: DatasetReport, spec: EnvSpec | None) -> Iterator[str]:
    constant = [column.name for column in report.observations if column.std == 0]
    if constant:
        yield f"never change: {', '.join(constant)}"
    if report.rewards.std == 0:
        yield f"every reward is {report.rewards.mean:g}: nothing tells good from bad"
    if not len(report.returns):
        yield "no episode ends: returns are unknown, and every value is bootstrapped"
    if report.duplicates:
        yield f"{report.duplicates:,} rows ({report.duplicates / report.rows:.1%}) repeat others"
    inner = ~data.cuts[:-1]
    broken = int(((data.obs[1:] != data.next_obs[:-1]).any(axis=1) & inner).sum())
    if broken:
        yield f"{broken:,} rows do not go on where the row before led to: episodes are not in order, their returns mean little"
    if missing := int(data.stand_ins.sum()):
        yield f"{missing:,} of {report.terminations:,} terminations do not show what they led to: no model is fitted to them"
    if spec is not None:
        yield from _action_warnings(data, spec)


def _action_warnings(data: RecordedData, spec: EnvSpec) -> Iterator[str]:
    if data.obs.shape[1] != spec.obs_dim:
        yield f"it is of another environment: {spec.env_id} observes {spec.obs_dim} numbers, this has {data.obs.shape[1]}"
        return
    if spec.discrete:
        return
    scaled = np.abs(spec.from_env(data.actions.reshape(len(data), -1)))
    outside = float((scaled > 1 + 1e-4).any(axis=1).mean())
    if outside:
        yield f"{outside:.1%} of the rows have an action outside the space: dataset_clip_actions: true would clip them"
    at_bound = float((scaled > 0.999).any(axis=1).mean())
    if at_bound > 0.5:
        yield f"{at_bound:.0%} of the rows have an action on a bound: the behaviour switches between extremes"
