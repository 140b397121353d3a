"""Train from a preset or a YAML file.

Every setting can be changed by key=value, where key is the name that `rl-training show` gives: the full one
(algo_kwargs.learning_rate) or the short one (learning_rate). All of them are checked before a file is made.
Ctrl-C ends the turn, saves, and says how to resume. At the end stand three lines for scripts: run_dir=,
checkpoint_path= and metrics= (JSON).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rl_training.cli.parser import Parser
from rl_training.cli.settings import FLAGS, add_config_arguments, add_flags, resolve_config
from rl_training.cli.tables import say_error
from rl_training.errors import ConfigError, TrainingInterrupted

if TYPE_CHECKING:
    from rl_training.experiment.config import TrainConfig

USAGE = "rl-training train (PRESET | --config PATH) [key=value ...] [options]"
EXAMPLES = """\
  rl-training train ppo/cartpole
  rl-training train sac/pendulum --total-timesteps 20_000 --seeds 1,2,3
  rl-training train ppo/cartpole learning_rate=5e-4 hidden_sizes='[128, 128]' ent_coef_schedule.end=0
  rl-training train ppo/cartpole env_id=Acrobot-v1 env_kwargs.max_episode_steps=200
  rl-training train --config my_run.yaml --output-dir /tmp/runs --quiet"""


def add_arguments(parser: Parser) -> None:
    """Options for the most used fields of TrainConfig; all others go by key=value."""
    add_config_arguments(parser)
    add_flags(parser, *FLAGS)
    parser.add_argument("--seeds", metavar="N,N,...", help="several runs, one after another, that differ in the seed alone")
    parser.add_argument("--run-suffix", metavar="TEXT", help="last part of the run directory's name, in place of the time")
    parser.add_argument("--quiet", action="store_true", help="no progress and no summary, only the three closing lines")


def run(args: argparse.Namespace) -> int:
    """Check the configurations of all seeds first, then train one after another."""
    waiting = _per_seed(resolve_config(args), args)
    while waiting:
        _train(waiting.pop(0), waiting, args)
    return 0


def _train(config: TrainConfig, waiting: list[TrainConfig], args: argparse.Namespace) -> None:
    from rl_training.cli.training import train_and_report

    try:
        train_and_report(config, run_suffix=args.run_suffix, quiet=args.quiet)
    except TrainingInterrupted:
        if waiting:
            say_error(f"not begun: seed {', '.join(str(other.seed) for other in waiting)}", label="")
        raise


def _per_seed(config: TrainConfig, args: argparse.Namespace) -> list[TrainConfig]:
    if args.seeds is None:
        return [config]
    if args.seed is not None:
        raise ConfigError("give either --seed or --seeds")
    from rl_training.experiment.yaml_loader import parse_yaml

    seeds = [parse_yaml(text, source="--seeds") for text in args.seeds.split(",")]
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"--seeds: given {args.seeds}; each seed once, or two runs would be the same")
    return [config.replace(seed=seed) for seed in seeds]
