"""Results as Markdown: the table of a suite, and the rows that the README and the docs are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from rl_training.reports.statistics import interquartile_mean, same_draws, summarize

HEADER = ("algorithm", "task", "last policy: IQM [95 % interval]", "worst", "seeds", "steps", "minutes per run", "reference")


def to_markdown(results: Mapping[str, Any]) -> str:
    """Everything that results.json says in words and tables."""
    parts = [
        f"# {results['suite']}",
        suite_table(results) if results["entries"] else "No run has finished yet.",
        f"Interquartile mean over seeds of the mean return of the last policy on {results['eval_episodes']} episodes, with a "
        "stratified bootstrap interval; the worst is a single seed's. The best policy is the one of each run that did best in "
        "an evaluation on the way, evaluated again. Minutes are the median wall-clock of one run, its evaluations included. "
        "Steps (with a 95 % interval) and seconds to the threshold are interquartile means over the seeds whose evaluations "
        "reach it.",
    ]
    if published := published_table(results):
        parts += ["## Beside published curves", published]
    if results["comparisons"]:
        parts += ["## Probability of improvement", comparison_table(results)]
    if results["missing"]:
        lines = [f"- {missed['entry']} seed {missed['seed']}: {missed['reason']}" for missed in results["missing"]]
        parts += ["## Without a result", "\n".join(lines)]
    return "\n\n".join([*parts, "\n".join(f"- {line}" for line in provenance(results))]) + "\n"


def suite_table(results: Mapping[str, Any]) -> str:
    """One row per entry, with how soon it reached its threshold."""
    header = ("entry", *HEADER[1:-1], "mean ± std", "best policy", "steps to threshold", "seconds to threshold", HEADER[-1])
    return markdown_table(header, [_suite_row(entry) for entry in results["entries"]])


def published_table(results: Mapping[str, Any]) -> str:
    """One row per published figure, with the evaluations of our runs at those steps; empty without any."""
    rows = [row for entry in results["entries"] for row in _published_rows(entry)]
    header = ("entry", "task", "steps", "here, on the way: IQM [95 % interval]", "published", "by")
    return markdown_table(header, rows) if rows else ""


def comparison_table(results: Mapping[str, Any]) -> str:
    """How likely a run of one entry ends better than one of another, for all pairs on a task."""
    rows = [comparison_row(comparison) for comparison in results["comparisons"]]
    return markdown_table(("task", "A", "B", "P(A > B) [95 % interval]"), rows)


def provenance(results: Mapping[str, Any]) -> list[str]:
    """Which command made the results, when, with what and on what."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items() if version)
    where = f"{machine.get('cpu') or 'unknown processor'}, {machine.get('cores') or '?'} cores"
    commits = dict.fromkeys(run.get("commit") for entry in results["entries"] for run in entry["runs"])
    code = [f"commit {', '.join(known)}" for known in [[commit for commit in commits if commit]] if known]
    return [f"`{results['command']}`", f"{results['date']}, {where}", versions, *code, *results["notes"]]


def result_row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells under `HEADER`."""
    return (
        entry["algo"],
        entry["task"],
        _score(entry["summary"]),
        score(min(run["return_mean"] for run in entry["runs"])),
        str(entry["summary"]["n"]),
        f"{entry['total_timesteps']:,}",
        _minutes(entry["seconds"]),
        _reference(entry["reference"]),
    )


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def score(value: float) -> str:
    """One decimal for small returns, none for those in the thousands."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"


def _suite_row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    _, *cells, reference = result_row(entry)
    summary = entry["summary"]
    spread = f"{score(summary['mean'])} ± {score(summary['std'])}"
    return entry["name"], *cells, spread, _best(entry), *_threshold(entry["threshold"]), reference


def _best(entry: Mapping[str, Any]) -> str:
    best = [run.get("best_mean") for run in entry["runs"]]  # results of the first version have none
    known = [value for value in best if value is not None]
    return score(interquartile_mean(known)) if known else ""


def _published_rows(entry: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (entry["name"], entry["task"], f"{steps:,}", _at(entry, steps), score(point["value"]), point["source"])
        for point in entry.get("published", ())  # results of the first version have none
        for steps in [point["steps"]]
    ]


def _at(entry: Mapping[str, Any], step: int) -> str:
    """Our curves at a step, each interpolated between its evaluations; nothing where one of them does not reach it."""
    curves = [run["curve"] for run in entry["runs"]]
    if not all(curve["steps"] and curve["steps"][0] <= step <= curve["steps"][-1] for curve in curves):
        return ""
    values = [float(np.interp(step, curve["steps"], curve["returns"])) for curve in curves]
    return _score(asdict(summarize(values, rng=same_draws())))


def _score(summary: Mapping[str, Any]) -> str:
    return f"{score(summary['iqm'])} [{score(summary['low'])}, {score(summary['high'])}]"


def _threshold(threshold: Mapping[str, Any] | None) -> tuple[str, str]:
    if threshold is None:
        return "", ""
    share = f"({threshold['reached']} of {threshold['n']} reach {score(threshold['value'])})"
    if not threshold["reached"]:
        return f"never {share}", ""
    interval = threshold.get("steps_interval")  # results of the first version have none
    within = f" [{interval[0]:,}, {interval[1]:,}]" if interval else ""
    return f"{threshold['steps_iqm']:,}{within} {share}", f"{threshold['seconds_iqm']:.1f}"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f}" if seconds < 600 else f"{seconds / 60:.0f}"


def _reference(reference: Mapping[str, Any] | None) -> str:
    if reference is None:
        return ""
    at = f" @ {reference['steps']:,}" if reference["steps"] else ""
    return f"{reference['value']:g} ({reference['source']}{at})"


def comparison_row(comparison: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Task, A, B and how likely A is better."""
    shown = f"{comparison['probability']:.2f} [{comparison['low']:.2f}, {comparison['high']:.2f}]"
    return comparison["task"], comparison["a"], comparison["b"], shown
