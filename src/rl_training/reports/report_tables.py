"""The report in words and numbers: results, comparisons, settings, versions, runs and recordings as pieces of HTML."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rl_training.experiment.metadata import commit_words
from rl_training.options._words import counted
from rl_training.reports.markup import Markup, breakable, element, table
from rl_training.reports.recorded_runs import VIDEO_TYPES, RecordedRun
from rl_training.reports.result_tables import comparison_row, result_row, score
from rl_training.reports.run_groups import RunGroup, comparisons, differing_settings, setting_text, settings_but_seed

MAX_VIDEO_BYTES = 12_000_000  # in one report; a phone has to open it
MAX_SETTINGS_COLUMNS = 6
MAX_UNBROKEN = 20  # letters of a value that stay in one line
NONE = "–"
INTERVAL = (
    "Interquartile mean (IQM) over runs of the last policy's mean return, with a 95 % stratified bootstrap interval. "
    "With five runs such an interval covers the truth in about nine cases of ten, with three in about three of four; "
    "one run has none."
)


def report_sections(groups: Sequence[RunGroup]) -> dict[str, Markup]:
    """By the id of the section on the page; one with nothing to say is empty."""
    return {
        "summary": _summary(groups),
        "results": _results(groups),
        "recordings": _recordings(groups),
        "settings": _settings(groups),
        "every-run": _runs(groups),
        "software": _software(groups),
    }


def key_mark(groups: Sequence[RunGroup], label: str) -> Markup:
    """The colour that the curves of a label have."""
    number = list(dict.fromkeys(group.label for group in groups)).index(label)
    return element("span", class_=f"key c{number % 8} d{min(2, number // 8)}")


def _summary(groups: Sequence[RunGroup]) -> Markup:
    runs = [run for group in groups for run in group.runs]
    tasks, going = {group.task for group in groups}, sum(run.state == "running" for run in runs)
    words = [counted(len(runs), "run"), f"{counted(len(groups), 'group')} of equal settings", counted(len(tasks), "task")]
    words += [f"{going} still running"] * (going > 0)
    return Markup(element("span", " · ".join(words) if runs else "no run yet"))


def _results(groups: Sequence[RunGroup]) -> Markup:
    entries = [(group, entry) for group in groups if (entry := group.entry()) is not None]
    if not entries:
        return Markup("")
    header = ("algorithm", "task", "IQM [95 %]", "each run", "mean ± std", "runs", "steps", "minutes per run", "steps/s")
    shown = table(
        header, [_result_cells(groups, group, entry, entries) for group, entry in entries], numbers=(5, 6, 7, 8), wrapped=(0,)
    )
    parts = [element("h2", "Results"), element("p", INTERVAL, class_="soft"), shown, *_waiting(groups)]
    pairs = comparisons(groups)
    if pairs:
        parts += [
            element("h3", "Probability of improvement"),
            element("p", "How likely a run of A ends better than a run of B; a tie counts half.", class_="soft"),
            table(("task", "A", "B", "P(A > B) [95 %]"), [comparison_row(pair) for pair in pairs], wrapped=(1, 2)),
        ]
    return Markup("".join(parts))


def _result_cells(
    groups: Sequence[RunGroup], group: RunGroup, entry: Mapping[str, Any], entries: Sequence[tuple[RunGroup, Mapping[str, Any]]]
) -> list[str]:
    _, task, interval, _, seeds, steps, minutes, _ = result_row(entry)
    summary, speeds = entry["summary"], [run.steps_per_second for run in group.counted]
    known = [speed for speed in speeds if speed is not None]
    alone = summary["n"] == 1
    return [
        Markup(f"{key_mark(groups, group.label)} {element('span', breakable(group.label))}"),
        task,
        element("strong", score(summary["iqm"]) if alone else interval),
        _dots(entry, [other for _, other in entries if other["task"] == entry["task"]], key_mark(groups, group.label)),
        NONE if alone else f"{score(summary['mean'])} ± {score(summary['std'])}",
        seeds if summary["n"] == len(group.runs) else f"{seeds} of {len(group.runs)}",
        steps,
        minutes,
        f"{median(known):,.0f}" if known else NONE,
    ]


def _dots(entry: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]], mark: str) -> Markup:
    """Every run a dot, the interval a line, on the common scale of the task."""
    values = [run["return_mean"] for rival in rivals for run in rival["runs"]]
    low, high = min(values), max(values)
    place = {value: round(6 + 138 * ((value - low) / (high - low) if high > low else 0.5), 1) for value in values}
    summary = entry["summary"]
    ends = [6 + 138 * ((summary[name] - low) / (high - low) if high > low else 0.5) for name in ("low", "high", "iqm")]
    seeds = [element("circle", class_="seed", cx=place[run["return_mean"]], cy=10, r=3.5) for run in entry["runs"]]
    line = element("line", class_="range", x1=round(ends[0], 1), x2=round(ends[1], 1), y1=10, y2=10)
    middle = element("line", class_="range", x1=round(ends[2], 1), x2=round(ends[2], 1), y1=5, y2=15)
    colour = mark.split('"')[1].split()[1]
    words = f"runs from {score(low)} to {score(high)} on this task"
    return element("svg", seeds, line, middle, viewBox="0 0 150 20", class_=colour, role="img", aria_label=words)


def _waiting(groups: Sequence[RunGroup]) -> list[Markup]:
    names = [f"{group.label} on {group.task}" for group in groups if not group.counted]
    return [element("p", f"Not evaluated yet: {', '.join(names)}.", class_="soft")] if names else []


def _settings(groups: Sequence[RunGroup]) -> Markup:
    if not groups:
        return Markup("")
    names = [name for name in differing_settings(groups) if name not in ("algo", "env_id")]
    values = [[setting_text(settings_but_seed(g.runs[0]).get(n, NONE)) for n in names] for g in groups]
    titles = [f"{group.label} · {group.task}" for group in groups]
    short = [name.removeprefix("algo_kwargs.") for name in names]
    if not names:
        shown: Markup = element(
            "p", "The groups have the same settings." if len(groups) > 1 else "There is one group of runs.", class_="soft"
        )
    elif len(groups) <= MAX_SETTINGS_COLUMNS:
        rows = [[name, *(row[i] for row in values)] for i, name in enumerate(short)]
        shown = table(("setting", *titles), rows, wrapped=range(1, len(titles) + 1))
    else:
        rows = [[title, *row] for title, row in zip(titles, values, strict=True)]
        long = [i for i in range(1, len(short) + 1) if max(len(row[i]) for row in rows) > MAX_UNBROKEN]
        shown = table(("group", *short), rows, wrapped=(0, *long))
    whole = [_all_settings(title, group.runs[0]) for title, group in zip(titles, groups, strict=True)]
    return Markup(
        element("h2", "Settings that differ")
        + element(
            "p",
            "Between groups; what only one algorithm has is left out. Runs of a group differ in their seed alone.",
            class_="soft",
        )
        + shown
        + element("details", element("summary", "All settings of every group"), whole)
    )


def _all_settings(title: str, run: RecordedRun) -> Markup:
    rows = [(element("code", name), element("code", setting_text(value))) for name, value in settings_but_seed(run).items()]
    return element("details", element("summary", title), table(("setting", "value"), rows, wrapped=(1,)))


def _runs(groups: Sequence[RunGroup]) -> Markup:
    if not groups:
        return Markup("")
    header: Sequence[str] = ("run", "state", "steps", "last return", "best return", "minutes", "steps/s", "tags")
    rows = [_run_cells(groups, group, run) for group in groups for run in group.runs]
    if not any(row[-1] for row in rows):  # no tags
        header, rows = header[:-1], [row[:-1] for row in rows]
    shown = table(header, rows, numbers=(2, 3, 4, 5, 6), wrapped=(0,))
    return Markup(element("h2", "Every run") + shown)


def _run_cells(groups: Sequence[RunGroup], group: RunGroup, run: RecordedRun) -> list[str]:
    state = element("span", run.state, class_=f"state {'early' if run.state == 'ended early' else run.state}")
    speed = run.steps_per_second
    steps = f"{run.last_step:,}" + (f" of {run.budget:,}" if run.budget is not None and run.budget > run.last_step else "")
    returns = [NONE if value is None else score(value) for value in (run.final_return, run.best_return)]
    speed_text = f"{speed:,.0f}" if speed else NONE
    mark = key_mark(groups, group.label)
    minutes = f"{run.seconds / 60:.1f}"
    return [
        Markup(f"{mark} {element('code', breakable(run.name))}"),
        state,
        steps,
        *returns,
        minutes,
        speed_text,
        ", ".join(run.tags),
    ]


def _software(groups: Sequence[RunGroup]) -> Markup:
    """What all runs were made with, and what only some were: a column for each combination."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for run in (run for group in groups for run in group.runs):
        found.setdefault(tuple(_made_with(run.metadata).items()), []).append(run.name)
    if not found:
        return Markup("")
    columns = [dict(facts) for facts in found]
    names = list(dict.fromkeys(name for facts in columns for name in facts))
    common = [name for name in names if len({facts.get(name) for facts in columns}) == 1]
    parts = [element("h2", "Versions and machines"), table(("", "all runs"), [(name, columns[0][name]) for name in common])]
    if len(common) < len(names):
        titles = [f"{len(runs)} runs" if len(runs) > 1 else breakable(runs[0]) for runs in found.values()]
        rows = [[name, *(facts.get(name, NONE) for facts in columns)] for name in names if name not in common]
        parts.append(table(("", *titles), rows))
    return Markup("".join(parts if common else [parts[0], *parts[2:]]))


def _made_with(metadata: Mapping[str, Any]) -> dict[str, str]:
    versions, git = metadata.get("versions"), metadata.get("git")
    facts = {str(name): str(value) for name, value in versions.items() if value} if isinstance(versions, dict) else {}
    named = {"processor": "cpu_model", "cores": "cpu_count", "torch threads": "torch_threads", "platform": "platform"}
    facts |= {words: str(metadata[name]) for words, name in named.items() if metadata.get(name) is not None}
    if commit := commit_words(git):
        facts["commit"] = commit
    if metadata.get("exact") is False:
        facts["exact resume"] = "no"
    return facts


def _recordings(groups: Sequence[RunGroup]) -> Markup:
    """Films inside the page as far as they fit; the names of the others."""
    figures, left_out, room = [], [], MAX_VIDEO_BYTES
    for run in (run for group in groups for run in group.runs):
        for path in run.videos:
            try:
                data = path.read_bytes() if path.stat().st_size <= room else b""
            except OSError:  # it is being written anew
                continue
            if not data:
                left_out.append(f"{run.name}/{path.name}")
                continue
            room -= len(data)
            source = f"data:{VIDEO_TYPES[path.suffix.lower()]};base64,{base64.b64encode(data).decode()}"
            film = (
                element("img", src=source, alt=f"recording of {run.name}")
                if path.suffix.lower() == ".gif"
                else element("video", src=source, controls="", loop="", muted="", playsinline="", preload="auto")
            )
            figures.append(element("figure", film, element("figcaption", f"{run.name}: {path.name}")))
    if not figures and not left_out:
        return Markup("")
    note = f"Too large to stand here ({MAX_VIDEO_BYTES // 10**6} MB in all): {', '.join(left_out)}."
    notes = [element("p", note, class_="soft")] if left_out else []
    return Markup("".join([element("h2", "Recordings"), element("div", figures, class_="videos"), *notes]))
