"""Statistics over runs: what a handful of seeds allows one to say (Agarwal et al., 2021, arXiv:2108.13264).

Scores come as one flat sample (the seeds of one task) or as tasks × seeds; tasks may have different numbers of seeds.
Every resampling takes a generator, so equal generators give equal intervals. A percentile interval over few seeds is
too narrow: of normal scores a nominal 95 % covers about 74 % with three seeds, 89 % with five, 93 % with ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from rl_training.errors import ConfigError, NumericsError

FloatArray: TypeAlias = npt.NDArray[np.float64]
Scores: TypeAlias = "npt.NDArray[Any] | Sequence[float] | Sequence[Sequence[float]] | Sequence[npt.NDArray[Any]]"
Curve: TypeAlias = "tuple[npt.ArrayLike, npt.ArrayLike]"
"""The steps at which a run was evaluated, strictly increasing, and its return at each."""

_MAX_DRAWN = 2_000_000  # numbers held at once while curves are resampled


class Interval(NamedTuple):
    """Lower and upper end of a confidence interval."""

    low: float
    high: float


class Statistic(Protocol):
    """Reduces one axis of an array, as `numpy.mean`, `numpy.median` and `interquartile_mean` do."""

    def __call__(self, scores: FloatArray, /, *, axis: int) -> Any: ...


@dataclass(frozen=True, slots=True)
class Summary:
    """A sample in seven numbers; `low` and `high` bound the interquartile mean, `std` is that of a sample (n − 1)."""

    n: int
    mean: float
    std: float
    median: float
    iqm: float
    low: float
    high: float

    def format(self, decimals: int = 1) -> str:
        """The interquartile mean and its interval, like `-148.2 [-153.0, -144.1]`."""
        return f"{self.iqm:.{decimals}f} [{self.low:.{decimals}f}, {self.high:.{decimals}f}]"


@dataclass(frozen=True, slots=True)
class CurveBand:
    """Many runs as one curve: for each of `steps` the interquartile mean over runs and its pointwise interval."""

    steps: FloatArray
    iqm: FloatArray
    low: FloatArray
    high: FloatArray
    num_runs: int


def same_draws() -> np.random.Generator:
    """The same for every sample, so that equal runs give equal intervals and no interval depends on its neighbours."""
    return np.random.default_rng(0)


@overload
def interquartile_mean(scores: Scores, *, axis: None = None) -> float: ...
@overload
def interquartile_mean(scores: Scores, *, axis: int) -> FloatArray: ...
def interquartile_mean(scores: Scores, *, axis: int | None = None) -> float | FloatArray:
    """Mean of what is left when ⌊n/4⌋ scores are cut off each end; over the flat sample unless an axis is given.

    Whole scores are cut, never fractions of one: that is scipy's `trim_mean(scores, 0.25)` and hence the figure in
    published tables. Up to three scores it is therefore the plain mean, and an outlier among three is not cut.
    """
    values = np.concatenate(_tasks(scores)) if axis is None else np.moveaxis(_finite(scores), axis, -1)
    # sorted, not merely partitioned: the sum, and so the last bit, must not depend on the order of the seeds
    ordered = np.sort(values, axis=-1)
    cut = ordered.shape[-1] // 4
    means = ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)
    return float(means) if axis is None else np.asarray(means)


def stratified_bootstrap_interval(
    scores: Scores,
    statistic: Statistic = interquartile_mean,
    *,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    rng: np.random.Generator,
) -> Interval:
    """Percentile interval of a statistic of the pooled scores, seeds resampled within each task.

    Tasks are kept as they are: the interval tells how other seeds would have come out, not other tasks.
    One seed per task leaves nothing to resample, and the interval collapses to the statistic.
    """
    _check_resampling(confidence, num_resamples)
    resamples = [task[rng.integers(task.size, size=(num_resamples, task.size))] for task in _tasks(scores)]
    return _percentiles(statistic(np.concatenate(resamples, axis=1), axis=-1), confidence, num_resamples)


def probability_of_improvement(x: Scores, y: Scores) -> float:
    """How likely a run of `x` beats a run of `y`, a tie counting half (Mann–Whitney's U / nm), averaged over tasks."""
    return float(np.mean([wins.mean() for wins in _wins(x, y)]))


def probability_of_improvement_interval(
    x: Scores, y: Scores, *, confidence: float = 0.95, num_resamples: int = 2000, rng: np.random.Generator
) -> Interval:
    """Percentile interval of `probability_of_improvement`, the seeds of both sides resampled within each task."""
    _check_resampling(confidence, num_resamples)
    per_task = []
    for wins in _wins(x, y):
        # how often each seed is drawn is all that matters, so a resample is two rows of counts around one matrix
        x_counts, y_counts = (rng.multinomial(n, np.full(n, 1.0 / n), size=num_resamples) for n in wins.shape)
        per_task.append(((x_counts @ wins) * y_counts).sum(axis=1) / wins.size)
    return _percentiles(np.mean(per_task, axis=0), confidence, num_resamples)


def steps_to_threshold(steps: npt.ArrayLike, returns: npt.ArrayLike, threshold: float, *, window: int = 1) -> float | None:
    """First step at which the mean of the last `window` returns is at least the threshold; None if it never is.

    The curve may fall again afterwards; a wider window asks it to hold. Seconds serve as well as steps.
    """
    if window < 1:
        raise ConfigError(f"window must be at least 1; given {window}")
    at, values = _curve(steps, returns)
    if values.size < window:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(values, window)
    # rounding could put the mean of equal returns below each of them, and a solved task would not count as solved
    means = np.clip(windows.mean(axis=-1), windows.min(axis=-1), windows.max(axis=-1))
    reached = np.flatnonzero(means >= threshold)
    return None if reached.size == 0 else at[reached[0] + window - 1].item()


def aggregate_curves(
    curves: Sequence[Curve],
    *,
    grid: npt.ArrayLike | None = None,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    rng: np.random.Generator,
) -> CurveBand:
    """Interquartile mean and interval over runs of one task, at common steps.

    Between its evaluations a run is interpolated linearly; beyond them it is not continued, so the band covers the
    steps all runs share. Unless a grid is given, it is that range's ends and, between them, the evaluation steps of the
    run with the fewest: runs evaluated at equal steps keep their steps and their numbers.
    """
    _check_resampling(confidence, num_resamples)
    if not curves:
        raise ConfigError("no curves to aggregate; give at least one run's (steps, returns)")
    checked = [_curve(*curve) for curve in curves]
    points = common_grid([steps for steps, _ in checked], grid)
    values = np.stack([np.interp(points, steps, returns) for steps, returns in checked])
    # one draw of runs for all points: a resample is a set of whole curves
    drawn = rng.integers(len(checked), size=(num_resamples, len(checked)))
    tail = 50.0 * (1.0 - confidence)
    at_once = max(1, _MAX_DRAWN // drawn.size)  # many points in one go, but not more than memory likes
    parts = [
        np.percentile(interquartile_mean(values.T[first : first + at_once, drawn], axis=-1), [tail, 100.0 - tail], axis=-1)
        for first in range(0, len(points), at_once)
    ]
    low, high = np.concatenate(parts, axis=1)
    return CurveBand(points, interquartile_mean(values, axis=0), low, high, num_runs=len(checked))


def summarize(scores: Scores, *, confidence: float = 0.95, num_resamples: int = 2000, rng: np.random.Generator) -> Summary:
    """The pooled scores in seven numbers, the interval being the stratified bootstrap's for the interquartile mean."""
    pooled = np.sort(np.concatenate(_tasks(scores)))
    low, high = stratified_bootstrap_interval(scores, confidence=confidence, num_resamples=num_resamples, rng=rng)
    return Summary(
        n=pooled.size,
        mean=float(pooled.mean()),
        std=float(pooled.std(ddof=1)) if pooled.size > 1 else 0.0,
        median=float(np.median(pooled)),
        iqm=interquartile_mean(pooled),
        low=low,
        high=high,
    )


def _finite(values: Any) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise ConfigError("no scores given; statistics need at least one per task")
    if not np.isfinite(array).all():
        # leaving out the runs that diverged would flatter the rest
        where = np.flatnonzero(~np.isfinite(array.ravel()))[0]
        raise NumericsError(f"score {where} is {array.ravel()[where]}; decide what a failed run scores before summarising")
    return array


def _tasks(scores: Scores) -> list[FloatArray]:
    """One array of seeds per task; a flat sample is one task."""
    rows = list(scores)
    if rows and all(np.ndim(row) == 1 for row in rows):
        return [_finite(row) for row in rows]
    if any(np.ndim(row) != 0 for row in rows):
        raise ConfigError(f"scores are a flat sample or tasks × seeds; given rows of {sorted({np.ndim(r) for r in rows})} axes")
    return [_finite(rows)]


def _wins(x: Scores, y: Scores) -> list[FloatArray]:
    """Per task a matrix of 1 where x's seed beats y's, 0.5 where they tie, 0 where it loses."""
    x_tasks, y_tasks = _tasks(x), _tasks(y)
    if len(x_tasks) != len(y_tasks):
        raise ConfigError(f"the two sides must be the same tasks; given {len(x_tasks)} and {len(y_tasks)}")
    pairs = zip(x_tasks, y_tasks, strict=True)
    return [0.5 + 0.5 * np.sign(x_seeds[:, None] - y_seeds[None, :]) for x_seeds, y_seeds in pairs]


def _curve(steps: npt.ArrayLike, returns: npt.ArrayLike) -> tuple[npt.NDArray[Any], FloatArray]:
    at, values = np.asarray(steps), _finite(returns)
    if at.ndim != 1 or at.shape != values.shape:
        raise ConfigError(f"a curve is two rows of equal length; given steps {at.shape} and returns {values.shape}")
    if not (np.diff(at) > 0).all():
        raise ConfigError("the steps of a curve must increase strictly")
    return at, values


def common_grid(all_steps: Sequence[npt.NDArray[Any]], grid: npt.ArrayLike | None = None) -> FloatArray:
    """The steps at which `aggregate_curves` compares runs that were evaluated at `all_steps`."""
    first, last = max(steps[0] for steps in all_steps), min(steps[-1] for steps in all_steps)
    if first > last:
        raise ConfigError(f"the runs share no steps: one begins at {first}, another ends at {last}")
    if grid is not None:
        points = _finite(grid)
        if points.min() < first or points.max() > last:
            raise ConfigError(
                f"all runs were evaluated from {first} to {last}; the grid asks for {points.min()} to {points.max()}"
            )
        return points
    inside = [steps[(steps > first) & (steps < last)] for steps in all_steps]
    fewest = min(inside, key=lambda steps: (steps.size, steps.tolist()))  # the list settles ties, whatever the runs' order
    return np.unique(np.concatenate([[first, last], fewest]).astype(np.float64))


def _check_resampling(confidence: float, num_resamples: int) -> None:
    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"confidence must lie between 0 and 1; given {confidence} (for 95 % give 0.95)")
    if num_resamples < 1:
        raise ConfigError(f"num_resamples must be at least 1; given {num_resamples}")


def _percentiles(estimates: Any, confidence: float, num_resamples: int) -> Interval:
    if np.shape(estimates) != (num_resamples,):
        raise ConfigError(f"a statistic gives one number per resample along `axis`; this one gave shape {np.shape(estimates)}")
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(estimates, [tail, 100.0 - tail])
    return Interval(float(low), float(high))
