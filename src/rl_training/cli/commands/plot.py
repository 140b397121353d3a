"""Draw the learning curves of runs.

Runs that differ in their seed alone are one curve: the interquartile mean over them with its 95 % interval. A run that is
alone is drawn with the standard deviation over the episodes of each evaluation and, where nothing else is in the panel,
with the return of training episodes as a thin line. There is a panel for each task and metric; a folder stands for all
runs in it. The ending of --out decides the format: png, svg or pdf; without it, one RUN gets a learning_curve.png inside.
A run that is still going can be drawn too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rl_training.cli.parser import Parser
from rl_training.cli.tables import say
from rl_training.errors import ConfigError

USAGE = "rl-training plot RUN [RUN ...] [--out FILE] [options]"
EXAMPLES = """\
  rl-training plot runs/ppo__CartPole-v1__seed1__20260101-120000
  rl-training plot runs --out all.pdf --size 6x3.5 --smooth 0.2
  rl-training plot runs --metric eval_return_mean --metric approx_kl --single-runs --out kl.svg"""


def add_arguments(parser: Parser) -> None:
    """Which runs, what of them, how and where to."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run directory, or a folder that holds some")
    parser.add_argument("--out", metavar="FILE", help="the picture: .png, .svg or .pdf (default: RUN/learning_curve.png)")
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="a metric in metrics.jsonl (default: eval_return_mean); may be given several times",
    )
    parser.add_argument(
        "--group-by",
        default="settings",
        choices=("settings", "algorithm", "run"),
        help="runs are one curve when they share all settings but the seed (default), or algorithm and task, or never",
    )
    parser.add_argument("--smooth", type=float, default=0.0, metavar="S", help="0 (default) to 1: a tenth of the axis wide")
    parser.add_argument("--single-runs", action="store_true", help="draw every run too, thin")
    parser.add_argument("--log", action="store_true", help="a logarithmic scale of values")
    parser.add_argument("--log-steps", action="store_true", help="a logarithmic scale of steps")
    parser.add_argument("--title", metavar="TEXT", help="above the whole picture")
    parser.add_argument("--size", metavar="WxH", help="inches, such as 6.4x4.2 (default: by the number of panels)")
    parser.add_argument("--dpi", type=int, default=200, metavar="N", help="points per inch of a png (default 200)")


def run(args: argparse.Namespace) -> int:
    """Draw and say where it is."""
    size = _check(args)
    from rl_training.cli.curves import PlotStyle, draw_curves
    from rl_training.reports.recorded_runs import find_runs, read_run
    from rl_training.reports.run_groups import group_runs

    groups = group_runs([read_run(directory) for directory in find_runs(args.runs)], args.group_by)
    style = PlotStyle(args.smooth, args.single_runs, args.log, args.title, size, args.dpi, args.log_steps)
    out = args.out or Path(args.runs[0]) / "learning_curve.png"
    say(f"curve={draw_curves(groups, out, args.metric, style)}")
    return 0


def _check(args: argparse.Namespace) -> tuple[float, float] | None:
    if args.out is None and len(args.runs) > 1:
        raise ConfigError(f"--out: none is given for {len(args.runs)} runs in one picture; possible: a .png, .svg or .pdf file")
    if not 0 <= args.smooth <= 1:
        raise ConfigError(f"--smooth: given {args.smooth:g}; possible: 0 to 1")
    if not 20 <= args.dpi <= 2400:
        raise ConfigError(f"--dpi: given {args.dpi}; possible: 20 to 2400")
    if args.size is None:
        return None
    try:
        width, height = (float(side) for side in args.size.lower().split("x"))
    except ValueError:
        width = height = 0.0
    if not (1 <= width <= 100 and 1 <= height <= 100):
        raise ConfigError(f"--size: given {args.size!r}; possible: inches from 1 to 100, such as 6.4x4.2")
    return width, height
