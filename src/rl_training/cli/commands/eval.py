"""Evaluate a trained policy: mean and spread of its returns.

The deterministic policy plays episodes of the evaluation stream, the same ones every time, so two evaluations of one
checkpoint agree. The last line, metrics=, is JSON for scripts.
"""

from __future__ import annotations

import argparse

from rl_training.cli.parser import Parser
from rl_training.cli.settings import add_checkpoint_argument, given_checkpoint
from rl_training.cli.tables import facts, say

USAGE = "rl-training eval --checkpoint PATH [options]"
EXAMPLES = """\
  rl-training eval --checkpoint runs/ppo__CartPole-v1__seed1__20260101-120000
  rl-training eval --checkpoint runs/RUN/checkpoints/best.safetensors --num-episodes 100"""


def add_arguments(parser: Parser) -> None:
    """Which policy, how long, where."""
    add_checkpoint_argument(parser, "the policy")
    parser.add_argument("--num-episodes", type=int, metavar="N", help="episodes to play (default: the run's eval_episodes)")
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto (default), cpu, cuda or cuda:N")


def run(args: argparse.Namespace) -> int:
    """Play and print."""
    from rl_training.cli.results import metrics_json, number, spread
    from rl_training.errors import ConfigError

    if args.num_episodes is not None and args.num_episodes < 1:
        raise ConfigError(f"--num-episodes: given {args.num_episodes}; possible: at least 1")
    path = given_checkpoint(args)
    from rl_training.runtime.workflows import evaluate_checkpoint

    metrics = evaluate_checkpoint(path, num_episodes=args.num_episodes, device=args.device)
    rows = [("return", spread(metrics))]
    if "eval_return_min" in metrics:
        rows.append(("range", f"{number(metrics['eval_return_min'])} to {number(metrics['eval_return_max'])}"))
        rows.append(("length", f"{number(metrics['eval_length_mean'])} steps on average"))
    facts([*rows, ("checkpoint", path)])
    say(f"metrics={metrics_json(metrics)}")
    return 0
