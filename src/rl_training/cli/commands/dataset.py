"""Look into a dataset before learning from it.

`inspect` tells sizes, episode returns, how much of the spaces is covered and how actions are spread, and what looks
wrong; --out draws returns and actions as a picture. A dataset is an .npz file, a packaged one (data/NAME.npz) or
minari:ID. Made by `collect`, it knows its environment; of others --env says it. Nothing that the data names is imported:
an environment that is not registered already is made only if --env names it.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rl_training.cli.parser import Parser
from rl_training.cli.tables import facts, heading, say, table

if TYPE_CHECKING:
    from rl_training.data.dataset_report import Column, DatasetReport
    from rl_training.data.recorded_data import RecordedData

USAGE = "rl-training dataset inspect (FILE.npz | minari:ID) [options]"
EXAMPLES = """\
  rl-training dataset inspect medium.npz
  rl-training dataset inspect medium.npz --env Pendulum-v1 --out medium.png
  rl-training dataset inspect minari:pendulum/medium-v0"""

MAX_COLUMNS = 30  # numbers of an observation that are listed
BARS = " ▁▂▃▄▅▆▇█"


def add_arguments(parser: Parser) -> None:
    """What to do, with which data."""
    parser.add_argument("task", choices=["inspect"], metavar="inspect", help="tell what is in it")
    parser.add_argument("data", metavar="FILE | minari:ID", help="the dataset")
    parser.add_argument("--env", metavar="ID", help="the environment it is of, to check its actions and to name its scores")
    parser.add_argument("--out", metavar="PICTURE", help="draw returns and actions: .png, .svg or .pdf")


def run(args: argparse.Namespace) -> int:
    """Read, tell, draw."""
    from rl_training.cli.dataset_picture import draw_dataset
    from rl_training.cli.pictures import new_figure
    from rl_training.data.dataset_report import inspect_data
    from rl_training.data.reference_scores import SCORES
    from rl_training.envs.source import EnvSource, is_registered

    if args.out is not None:
        new_figure(args.out)  # what cannot be drawn is said before anything is read
    data, named, scores = _read(args)
    env_id, spec = args.env, None
    if env_id is None and is_registered(named):
        env_id = named
    if env_id is not None:
        spec = EnvSource(env_id).spec()
    report = inspect_data(data, spec)
    _tell(report, data.origin, env_id or _unmade(named), scores or SCORES.get(env_id or ""))
    if args.out is not None:
        say(f"picture={draw_dataset(report, data, args.out)}")
    return 0


def _read(args: argparse.Namespace) -> tuple[RecordedData, str | None, tuple[float, float] | None]:
    """The data, the environment that it names, and the returns that count as 0 and 100 where it says them."""
    from rl_training.data.dataset_files import read_metadata, read_npz
    from rl_training.data.minari_files import environment_id, read_minari, reference_scores
    from rl_training.runtime.offline_data import data_path

    kind, _, name = args.data.partition(":")
    if kind == "minari":
        return read_minari(name), environment_id(name), reference_scores(name)
    path = data_path(args.data)
    named = read_metadata(path).get("env_id")
    return read_npz(path), named if isinstance(named, str) else None, None


def _unmade(named: str | None) -> str | None:
    """What is said of an environment that a stranger's data names and nobody has registered."""
    return None if named is None else f"{named[:100]!r}, says the data; it is not made unasked: --env says which to make"


def _tell(report: DatasetReport, origin: str, env_id: str | None, scores: tuple[float, float] | None) -> None:
    from rl_training.cli.results import number

    heading(origin)
    rows = [("environment", env_id or "unknown; --env says it"), ("rows", f"{report.rows:,}")]
    rows += [("ends", f"{report.terminations:,} terminations, {report.truncations:,} truncations")]
    if len(report.returns):
        low, middle, high = (number(value) for value in (report.returns.min(), report.returns.mean(), report.returns.max()))
        rows.append(("episodes", f"{len(report.returns):,}, {number(report.lengths.mean())} steps on average"))
        rows.append(("return", f"{middle} ± {number(report.returns.std())}, from {low} to {high}"))
        if scores is not None:
            from rl_training.data.reference_scores import normalized_score

            score = normalized_score(float(report.returns.mean()), scores)
            rows.append(("score", f"{number(score)}, where {number(scores[0])} is 0 and {number(scores[1])} is 100"))
    if report.unfinished:
        rows.append(("unfinished", f"the last {report.unfinished:,} rows: the recording ended first; no episode of the above"))
    facts(rows)
    say()
    columns = [report.rewards, *report.actions, *report.observations[:MAX_COLUMNS]]
    table(("column", "from", "to", "mean", "std", "covered", "histogram"), map(_row, columns))
    if len(report.observations) > MAX_COLUMNS:
        say(f"  and {len(report.observations) - MAX_COLUMNS} more numbers of the observation")
    say()
    for warning in report.warnings or ["nothing looks wrong"]:
        say(f"  {'!' if report.warnings else '✓'} {warning}")


def _row(column: Column) -> tuple[str, ...]:
    numbers = [f"{value:.4g}" for value in (column.low, column.high, column.mean, column.std)]
    most = max(1, int(column.counts.max()))
    bars = "".join(BARS[-(-int(count) * (len(BARS) - 1) // most)] for count in column.counts)
    return (column.name, *numbers, f"{column.covered:.0%}", f"|{bars}|")
