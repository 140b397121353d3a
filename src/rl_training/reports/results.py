"""What a suite's runs amount to: from histories and evaluations to one small JSON file.

Everything here is a function of its arguments: equal runs give equal results, to the byte but for the date.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rl_training.errors import NumericsError
from rl_training.experiment.files import read_plain
from rl_training.experiment.suite import Entry, Suite
from rl_training.experiment.suite_jobs import Job, fingerprint
from rl_training.reports.statistics import (
    interquartile_mean,
    probability_of_improvement,
    probability_of_improvement_interval,
    steps_to_threshold,
    stratified_bootstrap_interval,
    summarize,
)

MAX_POINTS = 50  # of a curve in results.json; the runs themselves keep all
History = list[tuple[int, dict[str, Any]]]


class Curve(NamedTuple):
    """The evaluations of one run: at which steps, with which returns, and after how many seconds of training."""

    steps: list[int]
    returns: list[float]
    seconds: list[float]


class Missing(NamedTuple):
    """A run that has no result."""

    entry: str
    seed: int
    reason: str


# --- one run


def read_history(path: Path) -> History:
    """The whole lines of a metrics.jsonl; a torn one, of a run that was killed or is being written, is left out."""
    try:
        lines = read_plain(path).decode(errors="replace").splitlines()
    except OSError:
        return []
    return [record for line in lines if (record := parse_record(line)) is not None]


def parse_record(line: str) -> tuple[int, dict[str, Any]] | None:
    """Step and metrics; None for a line that is not whole."""
    try:
        record = json.loads(line)
        return int(record["step"]), dict(record["metrics"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def elapsed_seconds(history: History) -> list[float]:
    """Seconds of training, its evaluations included, at each line: steps since the line before, divided by their speed.

    The history of a run that was killed and went on is one, so what was made twice counts once and pauses do not count.
    """
    seconds, total, last_step, last_update = [], 0.0, 0, 0
    for step, metrics in history:
        steps, updates = step - last_step, int(metrics.get("updates") or 0) - last_update
        speed, update_speed = metrics.get("time/steps_per_second"), metrics.get("time/updates_per_second")
        if steps > 0 and speed:
            total += steps / speed
        elif updates > 0 and update_speed:  # learning from a dataset makes no steps
            total += updates / update_speed
        seconds.append(total)
        last_step, last_update = step, last_update + updates
    return seconds


def evaluation_curve(history: History) -> Curve:
    """The evaluations in a history; of two at one step (a run that was resumed at its end) the later counts."""
    points = {
        step: (float(metrics["eval_return_mean"]), seconds)
        for (step, metrics), seconds in zip(history, elapsed_seconds(history), strict=True)
        if metrics.get("eval_return_mean") is not None
    }
    return curve_of(points)


def curve_of(points: Mapping[int, tuple[float, float]]) -> Curve:
    """From value and seconds by step."""
    steps = sorted(points)
    return Curve(steps, [points[step][0] for step in steps], [points[step][1] for step in steps])


def run_result(
    job: Job, *, history: History, returns: Sequence[float], environment: Mapping[str, Any], cores: int | None
) -> dict[str, Any]:
    """What one finished run leaves in its result.json."""
    values = np.asarray(returns, dtype=np.float64)
    if not np.isfinite(values).all():
        raise NumericsError(f"{job.name}: the last policy's returns are not finite: {values.tolist()}")
    curve, seconds = evaluation_curve(history), elapsed_seconds(history)
    last = history[-1][1] if history else {}
    told = {name: rounded(getattr(values, name)()) if len(values) else None for name in ("mean", "std", "min", "max")}
    return {
        "entry": job.entry,
        "seed": job.seed,
        "fingerprint": fingerprint(job.config),
        "eval_episodes": len(values),
        **{f"return_{name}": value for name, value in told.items()},
        "returns": [rounded(value) for value in values],
        "steps": history[-1][0] if history else 0,
        "updates": int(last.get("updates") or 0),
        "seconds": rounded(seconds[-1] if seconds else 0.0, 1),
        "threads": job.config.threads,
        "curve": {
            "steps": curve.steps,
            "returns": [rounded(value) for value in curve.returns],
            "seconds": [rounded(value, 1) for value in curve.seconds],
        },
        "versions": environment.get("versions", {}),
        "machine": {"cpu": environment.get("cpu_model"), "cores": cores},
    }


# --- a suite


def build_results(
    suite: Suite,
    runs: Sequence[tuple[Job, Mapping[str, Any]]],
    *,
    missing: Sequence[Missing] = (),
    command: str,
    date: str,
) -> dict[str, Any]:
    """Everything the tables and pictures are made of. `runs` are jobs with their results."""
    by_entry: dict[str, list[tuple[Job, Mapping[str, Any]]]] = {}
    for job, result in runs:
        by_entry.setdefault(job.entry, []).append((job, result))
    entries = [_entry_result(suite.entry(name), own) for name, own in by_entry.items()]
    versions, machines = _distinct(result["versions"] for _, result in runs), _distinct(result["machine"] for _, result in runs)
    notes = [f"the runs were made with {len(versions)} different sets of versions; the first is given"] * (len(versions) > 1)
    notes += _taken(result for _, result in runs)
    notes += [f"the runs were made on {len(machines)} different machines; the first is given"] * (len(machines) > 1)
    return {
        "suite": suite.name,
        "listed": suite.listed,
        "command": command,
        "date": date,
        "versions": versions[0] if versions else {},
        "machine": machines[0] if machines else {},
        "eval_episodes": suite.eval_episodes,
        "notes": notes,
        "entries": entries,
        "comparisons": compare(entries),
        "missing": [missed._asdict() for missed in missing],
    }


def _taken(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    dates = Counter(run["taken_from"] for run in runs if "taken_from" in run)
    return [f"runs taken from results of {date}: {count}" for date, count in sorted(dates.items())]


def _entry_result(entry: Entry, runs: Sequence[tuple[Job, Mapping[str, Any]]]) -> dict[str, Any]:
    config, results = runs[0][0].config, [result for _, result in runs]
    summary = summarize([result["return_mean"] for result in results], rng=_rng())
    return {
        "name": entry.label,
        "task": entry.task or config.env_id,
        "algo": config.algo,
        "env_id": config.env_id,
        "preset": entry.preset,
        "overrides": dict(entry.overrides),
        "fingerprint": fingerprint(config.replace(seed=0)),
        "total_timesteps": config.total_timesteps,
        "threads": config.threads,
        "summary": {name: rounded(getattr(summary, name)) for name in summary.__slots__},
        "seconds": rounded(float(np.median([result["seconds"] for result in results])), 1),
        "threshold": None if entry.threshold is None else time_to_threshold(results, entry.threshold),
        "reference": None if entry.reference is None else entry.reference.to_dict(),
        "runs": [_small(result) for result in results],
    }


def time_to_threshold(results: Sequence[Mapping[str, Any]], threshold: float) -> dict[str, Any]:
    """Steps and seconds of each seed until an evaluation reaches the threshold, null for one that never does.

    The interquartile means (of steps with a 95 % interval) are over the seeds that reach it: they say nothing without
    `reached` of `n`.
    """
    steps, seconds = ([_first_at(result["curve"], unit, threshold) for result in results] for unit in ("steps", "seconds"))
    known = [value for value in steps if value is not None], [value for value in seconds if value is not None]
    return {
        "value": threshold,
        "reached": len(known[0]),
        "n": len(steps),
        "steps": steps,
        "seconds": seconds,
        "steps_iqm": round(interquartile_mean(known[0])) if known[0] else None,
        "steps_interval": [round(end) for end in stratified_bootstrap_interval(known[0], rng=_rng())] if known[0] else None,
        "seconds_iqm": rounded(interquartile_mean(known[1]), 1) if known[1] else None,
    }


def _first_at(curve: Mapping[str, Any], unit: str, threshold: float) -> float | None:
    if not curve["steps"]:
        return None
    step = steps_to_threshold(curve["steps"], curve["returns"], threshold)
    return None if step is None else curve[unit][curve["steps"].index(step)]


def compare(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For every two entries of one task: how likely a run of the first is better than one of the second."""
    pairs = [(a, b) for a, b in combinations(entries, 2) if a["task"] == b["task"]]
    return [_comparison(a, b) for a, b in pairs]


def _comparison(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    first, second = ([run["return_mean"] for run in entry["runs"]] for entry in (a, b))
    low, high = probability_of_improvement_interval(first, second, rng=_rng())
    probability = rounded(probability_of_improvement(first, second))
    return {
        "task": a["task"],
        "a": a["name"],
        "b": b["name"],
        "probability": probability,
        "low": rounded(low),
        "high": rounded(high),
    }


def _small(result: Mapping[str, Any]) -> dict[str, Any]:
    """A run's result without what the entry or the suite says already, its curve thinned, single returns to five digits."""
    left_out = ("entry", "fingerprint", "eval_episodes", "versions", "machine", "threads", "curve", "taken_from")
    kept = {name: value for name, value in result.items() if name not in left_out}
    count = len(result["curve"]["steps"])
    index = np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).round().astype(int)).tolist() if count else []
    curve = {unit: [values[i] for i in index] for unit, values in result["curve"].items()}
    curve["returns"] = [_five_digits(value) for value in curve["returns"]]
    return kept | {"returns": [_five_digits(value) for value in result["returns"]], "curve": curve}


# --- on disk


def dump_results(results: Mapping[str, Any]) -> str:
    """JSON in which every run is one line, so that a change of one run is a change of one line."""
    return _layout(dict(results), 0) + "\n"


def _layout(value: Any, depth: int) -> str:
    """Opened up: the whole, the list of entries, each entry, its list of runs. All else stands on one line."""
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, dict) and (depth == 0 or (depth == 2 and "runs" in value)):
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {_layout(item, depth + 1)}" for key, item in value.items()]
        return "{" + inner + f",{inner}".join(parts) + outer + "}"
    if depth in (1, 3) and isinstance(value, list) and value and isinstance(value[0], dict):
        return "[" + inner + f",{inner}".join(_layout(item, depth + 1) for item in value) + outer + "]"
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def rounded(value: Any, digits: int = 3) -> float | int:
    """A number as short as it may be: 500 for 500.0."""
    number = round(float(value), digits)
    return int(number) if number.is_integer() else number


def _five_digits(value: float) -> float | int:
    return rounded(float(f"{value:.5g}"))


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)  # the same for every entry, so that an interval does not depend on its neighbours
