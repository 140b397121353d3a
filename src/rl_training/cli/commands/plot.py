"""Draw the learning curves of runs.

The return of evaluations (mean, with a band of one standard deviation) and, thinner, that of training episodes, over
environment steps. Several runs go into one picture; a folder stands for all runs in it. The ending of --out decides the
format: png, svg or pdf. A run that is still going can be drawn too.
"""

from __future__ import annotations

import argparse

from rl_training.cli.parser import Parser
from rl_training.cli.tables import say

USAGE = "rl-training plot RUN [RUN ...] --out FILE"
EXAMPLES = """\
  rl-training plot runs/ppo__CartPole-v1__seed1__20260101-120000 --out curve.png
  rl-training plot runs --out all.svg"""


def add_arguments(parser: Parser) -> None:
    """Which runs and where to."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run directory, or a folder that holds some")
    parser.add_argument("--out", required=True, metavar="FILE", help="the picture: .png, .svg or .pdf")


def run(args: argparse.Namespace) -> int:
    """Draw and say where it is."""
    from rl_training.cli.curves import draw_curves, find_runs

    say(f"curve={draw_curves(find_runs(args.runs), args.out)}")
    return 0
