"""Make one HTML page about runs: curves, results, settings, recordings.

The file needs no network and opens anywhere. Runs that differ in their seed alone are one curve, with the interquartile
mean and its 95 % interval; a folder stands for all runs in it. Runs may still be going, or have been cut off. Recordings
(.mp4, .webm, .gif) in a run directory or its folder `videos` are put into the page.
With --watch the page is served on this machine, to this machine alone, and follows the training until Ctrl-C.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rl_training.cli.parser import Parser
from rl_training.cli.tables import facts, say
from rl_training.errors import ConfigError

DEFAULT_PORT = 8265
DEFAULT_SECONDS = 2.0
USAGE = "rl-training report RUN [RUN ...] (--out FILE.html | --watch) [options]"
EXAMPLES = """\
  rl-training report runs --out report.html
  rl-training report runs/ppo__CartPole-v1__seed1__* --out ppo.html --title "PPO on CartPole"
  rl-training report runs --watch"""


def add_arguments(parser: Parser) -> None:
    """Which runs, where to, and how they are put together."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run directory, or a folder that holds some")
    parser.add_argument("--out", metavar="FILE", help="the page; with --watch it is written when watching ends")
    parser.add_argument("--title", metavar="TEXT", help="the page's heading (default: algorithms and tasks)")
    parser.add_argument(
        "--group-by",
        default="settings",
        choices=("settings", "algorithm", "run"),
        help="runs are one curve when they share all settings but the seed (default), or algorithm and task, or never",
    )
    parser.add_argument("--watch", action="store_true", help="serve the page on localhost and follow the training")
    parser.add_argument("--port", type=int, metavar="N", help=f"with --watch (default {DEFAULT_PORT}; 0: any that is free)")
    parser.add_argument(
        "--refresh", type=float, metavar="SECONDS", help=f"with --watch, time between two looks (default {DEFAULT_SECONDS:g})"
    )


def run(args: argparse.Namespace) -> int:
    """Write the page, or serve it."""
    _check(args)
    if args.watch:
        _watch(args)
    if args.out is not None:
        say(f"report={_write(args)}")
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.out is None and not args.watch:
        raise ConfigError("report: say where to: --out report.html, or --watch to see it in a browser while training goes on")
    if args.out is not None and Path(args.out).suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out: given {args.out!r}; possible endings: .html, .htm")
    for name, value in (("--port", args.port), ("--refresh", args.refresh)):
        if value is not None and not args.watch:
            raise ConfigError(f"{name}: belongs to --watch")
    if args.refresh is not None and not 0.2 <= args.refresh <= 3600:
        raise ConfigError(f"--refresh: given {args.refresh:g}; possible: 0.2 to 3600 seconds")


def _write(args: argparse.Namespace) -> Path:
    from rl_training.experiment.files import reason, write_text
    from rl_training.reports.recorded_runs import find_runs, read_run
    from rl_training.reports.report_page import default_title, report_html
    from rl_training.reports.run_groups import group_runs

    groups = group_runs([read_run(directory) for directory in find_runs(args.runs)], args.group_by)
    path = Path(args.out)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, report_html(groups, title=args.title or default_title(groups)))
    except OSError as error:
        raise ConfigError(f"--out: {path} cannot be written: {reason(error)}") from error
    return path


def _watch(args: argparse.Namespace) -> None:
    from rl_training.cli.report_server import ReportServer, ReportSource, serve

    for given in args.runs:
        if not Path(given).is_dir():
            raise ConfigError(f"{given}: there is no such folder; give a run directory, or the folder that runs are made in")
    port = DEFAULT_PORT if args.port is None else args.port
    seconds = DEFAULT_SECONDS if args.refresh is None else args.refresh
    # the runs may be still to come: until then the page is called by their folder
    title = args.title or ", ".join(Path(given).resolve().name for given in args.runs)
    server = ReportServer(ReportSource(args.runs, by=args.group_by), port=port, title=title, seconds=seconds)
    serve(server, lambda: facts([("report", server.url), ("stop", "Ctrl-C")]))
