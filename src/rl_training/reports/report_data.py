"""What the report's page draws, as one JSON value small enough to open on a phone with two hundred runs in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rl_training.reports.recorded_runs import RETURN, RecordedRun
from rl_training.reports.run_groups import RunGroup, thinned

MAX_NUMBERS = 400_000  # in all single curves together, about 3 MB
POINTS_PER_CURVE = (30, 400)  # the fewest a curve is thinned to, and the most a screen can show
BAND_POINTS = 200
# intervals of losses need no third digit, and two hundred runs have many of them
NUM_RESAMPLES = {RETURN: 2000, "episode_return": 2000}
OTHER_RESAMPLES = 400
SPREAD = "eval_return_std"
MAX_METRICS = 60

METRIC_LABELS = {
    RETURN: "evaluation return",
    "episode_return": "training return (last 100 episodes)",
    "episode_length": "training episode length",
    "eval_length_mean": "evaluation episode length",
    "eval_return_std": "evaluation return: std over episodes",
    "eval_return_min": "evaluation return: lowest episode",
    "eval_return_max": "evaluation return: highest episode",
    "time/steps_per_second": "environment steps per second",
    "time/updates_per_second": "updates per second",
}


def report_data(groups: Sequence[RunGroup]) -> dict[str, Any]:
    """Metrics, tasks, groups with their bands, runs with their curves; indices refer from one list to another."""
    runs = [run for group in groups for run in group.runs]
    metrics = metric_names(runs)
    tasks = list(dict.fromkeys(group.task for group in groups))
    labels = list(dict.fromkeys(group.label for group in groups))
    curves = sum(len(run.curves) for run in runs)
    points = int(np.clip(MAX_NUMBERS // (2 * max(curves, 1)), *POINTS_PER_CURVE))
    return {
        "metrics": [{"key": name, "label": metric_label(name)} for name in metrics],
        "tasks": tasks,
        "groups": [
            {
                "label": group.label,
                "task": tasks.index(group.task),
                "color": labels.index(group.label),  # one algorithm has one colour on all tasks
                "size": len(group.runs),
                "bands": _bands(group, metrics),
            }
            for group in groups
        ],
        "runs": [_run(run, number, metrics, points) for number, group in enumerate(groups) for run in group.runs],
    }


def metric_names(runs: Iterable[RecordedRun]) -> list[str]:
    """Returns first, then what is known by name, then the rest by alphabet."""
    found = {name for run in runs for name in run.curves}
    known = [name for name in METRIC_LABELS if name in found]
    return [*known, *sorted(found - set(known))][:MAX_METRICS]


def metric_label(name: str) -> str:
    """In words where there are some; else the name itself."""
    return METRIC_LABELS.get(name, name)


def to_json(value: Any) -> str:
    """JSON that can stand inside a script element: nothing in it can end that element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # half of a surrogate pair has no bytes in UTF-8
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _bands(group: RunGroup, metrics: Sequence[str]) -> dict[str, Any]:
    bands = {}
    for metric in metrics:
        resamples = NUM_RESAMPLES.get(metric, OTHER_RESAMPLES)
        band = group.band(metric, max_points=BAND_POINTS, num_resamples=resamples)
        if band is not None:
            columns = (band.iqm, band.low, band.high) if band.num_runs > 1 else (band.iqm,)
            bands[metric] = {"n": band.num_runs, "x": _short(band.steps, 9), "y": [_short(column) for column in columns]}
    return bands


def _run(run: RecordedRun, group: int, metrics: Sequence[str], points: int) -> dict[str, Any]:
    axes: list[list[float | int]] = []  # most metrics are logged at the same steps: those are written once
    curves = {}
    for metric in metrics:
        if metric not in run.curves:
            continue
        curve = run.curves[metric]
        kept = thinned(np.asarray(curve.returns), points)
        steps = _short(np.asarray(curve.steps)[kept], 9)
        if steps not in axes:
            axes.append(steps)
        curves[metric] = [axes.index(steps), _short(np.asarray(curve.returns)[kept])]
    values = {"name": run.name, "seed": run.seed, "state": run.state, "group": group, "axes": axes, "curves": curves}
    return values | ({"spread": _spread(run, points)} if RETURN in run.curves else {})


def _spread(run: RecordedRun, points: int) -> list[float | int]:
    """The standard deviation over episodes at each point drawn of the evaluations; 0 where it was not measured."""
    curve, spreads = run.curves[RETURN], run.curves.get(SPREAD)
    by_step = {} if spreads is None else dict(zip(spreads.steps, spreads.returns, strict=True))
    kept = thinned(np.asarray(curve.returns), points)
    return _short(np.asarray([by_step.get(curve.steps[index], 0.0) for index in kept.tolist()]))


def _short(values: Any, digits: int = 5) -> list[float | int]:
    """Numbers with as many digits as a picture shows."""
    numbers = (float(f"{value:.{digits}g}") for value in np.asarray(values, dtype=np.float64).tolist())
    return [int(number) if number.is_integer() and abs(number) < 1e15 else number for number in numbers]
