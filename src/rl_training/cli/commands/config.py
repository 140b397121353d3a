"""Resolve a configuration and print it as YAML.

Applies key=value and options to a preset or file exactly as `train` does, with the same checks, and prints what results;
nothing is run. The output is a file that `train --config` takes.
"""

from __future__ import annotations

import argparse

from rl_training.cli.parser import Parser
from rl_training.cli.settings import FLAGS, add_config_arguments, add_flags, resolve_config
from rl_training.cli.tables import say

USAGE = "rl-training config (PRESET | --config PATH) [key=value ...] [options]"
RESULT_IS_PRINTED = True
EXAMPLES = """\
  rl-training config ppo/cartpole gamma=0.99 > my_run.yaml
  rl-training config --config my_run.yaml --full"""


def add_arguments(parser: Parser) -> None:
    """Those of `train` that are settings."""
    add_config_arguments(parser)
    add_flags(parser, *FLAGS)
    parser.add_argument("--full", action="store_true", help="every default filled in")


def run(args: argparse.Namespace) -> int:
    """Print it."""
    config = resolve_config(args)
    from rl_training.experiment.yaml_loader import dump_yaml

    shown = config.resolved() if args.full else config
    values = {name: value for name, value in shown.to_dict().items() if args.full or name in config.model_fields_set}
    say(dump_yaml(values).rstrip())
    return 0
