"""Runs that differ in nothing but their seed, as one: what they are called, how they came out, their common curve."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import numpy as np

from rl_training.errors import ConfigError
from rl_training.experiment.suite_jobs import WITHOUT_EFFECT
from rl_training.reports.recorded_runs import RETURN, RecordedRun
from rl_training.reports.results import compare, rounded
from rl_training.reports.statistics import CurveBand, aggregate_curves, common_grid, interquartile_mean, same_draws, summarize

GroupBy = Literal["settings", "algorithm", "run"]
GROUP_BY: tuple[GroupBy, ...] = ("settings", "algorithm", "run")
MAX_LABEL_SETTINGS = 3  # beyond these a label would be a list


@dataclass(frozen=True)
class RunGroup:
    """Runs of one algorithm on one task that belong together."""

    label: str
    algo: str
    task: str
    runs: tuple[RecordedRun, ...]

    @property
    def counted(self) -> list[RecordedRun]:
        """The runs whose results count: those that are over, or all while none is; a run never evaluated has no result."""
        evaluated = [run for run in self.runs if run.final_return is not None]
        return [run for run in evaluated if run.state != "running"] or evaluated

    def entry(self) -> dict[str, Any] | None:
        """The group in the form `bench` gives its entries; None before the first evaluation."""
        runs = self.counted
        if not runs:
            return None
        returns = [run.final_return for run in runs if run.final_return is not None]
        summary = summarize(returns, rng=same_draws())
        return {
            "name": self.label,
            "task": self.task,
            "algo": self.algo,
            "summary": {name: rounded(getattr(summary, name)) for name in summary.__slots__},
            "total_timesteps": max(run.last_step for run in runs),
            "seconds": rounded(median(run.seconds for run in runs), 1),
            "reference": None,
            "runs": [{"seed": run.seed, "return_mean": rounded(value)} for run, value in zip(runs, returns, strict=True)],
        }

    def band(self, metric: str = RETURN, *, max_points: int | None = None, num_resamples: int = 2000) -> CurveBand | None:
        """Interquartile mean and interval over the runs; None where they have no step in common.

        A run that came less than half as far as the farthest is left out: the others would be cut down to its length.
        The mean is made from whole curves; only then are at most `max_points` of its points chosen.
        """
        curves = [run.curves[metric] for run in self.runs if metric in run.curves]
        if not curves:
            return None
        far = max(curve.steps[-1] for curve in curves) / 2
        own = [(np.asarray(curve.steps), np.asarray(curve.returns)) for curve in curves if curve.steps[-1] >= far]
        try:
            grid = common_grid([steps for steps, _ in own])
        except ConfigError:
            return None
        if max_points is not None and len(grid) > max_points:
            values = np.stack([np.interp(grid, steps, returns) for steps, returns in own])
            grid = grid[thinned(interquartile_mean(values, axis=0), max_points)]
        # a single run leaves nothing to resample: one draw gives what two thousand would
        return aggregate_curves(own, grid=grid, num_resamples=1 if len(own) == 1 else num_resamples, rng=same_draws())


def group_runs(runs: Sequence[RecordedRun], by: GroupBy = "settings") -> list[RunGroup]:
    """Runs put together by all their settings but the seed, by algorithm and task alone, or not at all."""
    key = _KEYS[by]
    found: dict[str, list[RecordedRun]] = {}
    for run in sorted(runs, key=_order):
        found.setdefault(key(run), []).append(run)
    groups = list(found.values())
    labels = [run.name for run in sorted(runs, key=_order)] if by == "run" else _labels(groups)
    return [RunGroup(label, own[0].algo, own[0].task, tuple(own)) for label, own in zip(labels, groups, strict=True)]


def comparisons(groups: Sequence[RunGroup]) -> list[dict[str, Any]]:
    """For every two groups of one task: how likely a run of the first is better than one of the second."""
    return compare([entry for group in groups if (entry := group.entry()) is not None])


def differing_settings(groups: Sequence[RunGroup]) -> list[str]:
    """What sets groups apart: the settings that at least two of them have, with different values; the algorithm's last."""
    all_settings = [settings_but_seed(group.runs[0]) for group in groups]
    return sorted(_different(all_settings, everywhere=False), key=lambda name: "." in name)


def thinned(values: np.ndarray[Any, Any], max_points: int) -> np.ndarray[Any, Any]:
    """Indices of at most `max_points` values: the ends, and the lowest and highest of each stretch, so that no peak is lost."""
    if len(values) <= max_points:
        return np.arange(len(values))
    stretches = np.array_split(np.arange(1, len(values) - 1), max(1, (max_points - 2) // 2))
    extremes = [index[pick(values[index])] for index in stretches if len(index) for pick in (np.argmin, np.argmax)]
    return np.unique([0, *extremes, len(values) - 1])


def _labels(groups: Sequence[Sequence[RecordedRun]]) -> list[str]:
    """The algorithm's name, and where several groups share it on one task, what tells them apart."""
    rivals: dict[tuple[str, str], list[RecordedRun]] = {}
    for own in groups:
        rivals.setdefault((own[0].algo, own[0].task), []).append(own[0])
    return [_label(own[0], rivals[own[0].algo, own[0].task]) for own in groups]


def _label(run: RecordedRun, rivals: Sequence[RecordedRun]) -> str:
    if len(rivals) == 1:
        return run.algo
    names = _telling_apart([settings_but_seed(rival) for rival in rivals])
    if names is None:
        return f"{run.algo} #{rivals.index(run) + 1}"
    for digits in (4, 8, 17):  # numbers that a search has drawn are long; as much of them as tells all apart
        labels = [_with_settings(rival, names, digits) for rival in rivals]
        if len(set(labels)) == len(rivals):
            break
    return _with_settings(run, names, digits)


def _with_settings(run: RecordedRun, names: Sequence[str], digits: int) -> str:
    own = settings_but_seed(run)
    texts = {name: setting_text(own.get(name)) for name in names}
    for name, text in texts.items():
        if isinstance(own.get(name), float) and len(text) > digits + 3:
            texts[name] = f"{own[name]:.{digits}g}"
    pairs = [f"{name.removeprefix('algo_kwargs.')}={text}" for name, text in texts.items()]
    return f"{run.algo} {', '.join(pairs)}"


def _telling_apart(all_settings: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """Few settings that no two have alike: again and again the one that tells most apart; None when few do not do."""
    candidates = sorted(_different(all_settings), key=lambda name: "." not in name)  # the algorithm's own say more
    chosen: list[str] = []

    def kinds(names: Sequence[str]) -> int:
        return len({tuple(setting_text(settings.get(name)) for name in names) for settings in all_settings})

    for _ in candidates[:MAX_LABEL_SETTINGS]:
        chosen.append(max(candidates, key=lambda name: kinds([*chosen, name])))
        if kinds(chosen) == len(all_settings):
            return chosen
    return None


def _different(all_settings: Sequence[Mapping[str, Any]], *, everywhere: bool = True) -> list[str]:
    """Settings with several values; `everywhere` counts the want of a setting as a value too."""
    values: dict[str, set[str]] = {}
    for name in dict.fromkeys(name for settings in all_settings for name in settings):
        having = [settings for settings in all_settings if everywhere or name in settings]
        values[name] = {setting_text(settings.get(name)) for settings in having}
    return [name for name, found in values.items() if len(found) > 1]


def setting_text(value: Any) -> str:
    """A value as people write it in a config."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def settings_but_seed(run: RecordedRun) -> Mapping[str, Any]:
    """What decides a run's numbers, but for chance."""
    return {name: value for name, value in run.settings.items() if name != "seed" and name not in WITHOUT_EFFECT}


def _settings_key(run: RecordedRun) -> str:
    return json.dumps(settings_but_seed(run), sort_keys=True, default=str)


def _order(run: RecordedRun) -> tuple[Any, ...]:
    seed = run.seed
    return run.task, run.algo, int(seed) if seed.isdecimal() else -1, run.name, str(run.directory)


_KEYS: dict[GroupBy, Callable[[RecordedRun], str]] = {
    "settings": _settings_key,
    "algorithm": lambda run: json.dumps([run.algo, run.task]),
    "run": lambda run: str(run.directory),
}
