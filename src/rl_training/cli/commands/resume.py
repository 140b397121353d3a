"""Go on training from a checkpoint, exactly where it stopped.

Given a run directory, its newest good checkpoint is taken. The run continues in its own directory with one joined
history; --output-dir or --run-suffix begin a new directory and leave the old one as it is. Every later number is what
an uninterrupted run would have given, in the same software on the same machine.
"""

from __future__ import annotations

import argparse

from rl_training.cli.parser import Parser
from rl_training.cli.settings import FLAGS, add_checkpoint_argument, add_flags, given_checkpoint, given_flags

USAGE = "rl-training resume --checkpoint PATH [options]"
EXAMPLES = """\
  rl-training resume --checkpoint runs/ppo__CartPole-v1__seed1__20260101-120000
  rl-training resume --checkpoint runs/RUN --total-timesteps 120_000
  rl-training resume --checkpoint runs/RUN/checkpoints/step_000030000.safetensors --run-suffix from30k
  rl-training resume --checkpoint runs/RUN --sinks tensorboard,wandb"""
SINKS_HELP = (
    "where metrics go from here on, in place of the run's own choice: tensorboard, wandb, package.module:Class; or none"
)


def add_arguments(parser: Parser) -> None:
    """What may change between the parts of a run."""
    add_checkpoint_argument(parser, "where to go on from")
    add_flags(parser, "total_timesteps", "output_dir", "eval_episodes")
    parser.add_argument("--sinks", metavar=FLAGS["sinks"][0], help=SINKS_HELP)
    parser.add_argument("--dataset-path", metavar="FILE", help="where the dataset of the run lies now, if it was moved")
    parser.add_argument("--run-suffix", metavar="TEXT", help="go on in a new run directory whose name ends so")
    parser.add_argument("--quiet", action="store_true", help="no progress and no summary, only the three closing lines")


def run(args: argparse.Namespace) -> int:
    """Train on and report."""
    from rl_training.cli.training import resume_and_report

    changes = given_flags(args)
    if "sinks" in changes:
        changes["sink_names"] = changes.pop("sinks")
    changes["trust"] = args.trust
    if args.dataset_path is not None:
        changes["dataset_path"] = args.dataset_path
    resume_and_report(given_checkpoint(args), changes, run_suffix=args.run_suffix, quiet=args.quiet)
    return 0
