"""Train from a preset or a YAML file.

Every setting can be changed by key=value, where key is the name that `rl-training show` gives: the full one
(algo_kwargs.learning_rate) or the short one (learning_rate). All of them are checked before a file is made.
Ctrl-C ends the turn, saves, and says how to resume. At the end stand three lines for scripts: run_dir=,
checkpoint_path= and metrics= (JSON). Several seeds are trained one after another; with --jobs side by side in processes of
their own; with --execution-backend ray all over a cluster whose machines share the output folder.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rl_training.cli.parser import Parser
from rl_training.cli.results import closing_lines
from rl_training.cli.settings import FLAGS, add_config_arguments, add_flags, resolve_config
from rl_training.cli.tables import say_error
from rl_training.errors import ConfigError, TrainingInterrupted

if TYPE_CHECKING:
    from rl_training.experiment.config import TrainConfig
    from rl_training.types import TrainResult

USAGE = "rl-training train (PRESET | --config PATH) [key=value ...] [options]"
EXAMPLES = """\
  rl-training train ppo/cartpole
  rl-training train sac/pendulum --total-timesteps 20_000 --seeds 1,2,3
  rl-training train ppo/cartpole learning_rate=5e-4 hidden_sizes='[128, 128]' ent_coef_schedule.end=0
  rl-training train ppo/cartpole env_id=Acrobot-v1 env_kwargs.max_episode_steps=200
  rl-training train sac env_id=Hopper-v5 total_timesteps=1e6
  rl-training train ppo/cartpole --seeds 1,2,3,4 --execution-backend ray ray_address=auto
  rl-training train openai_es/pendulum --execution-backend ray ray_workers=2
  rl-training train --config my_run.yaml --output-dir /tmp/runs --quiet"""


def add_arguments(parser: Parser) -> None:
    """Options for the most used fields of TrainConfig; all others go by key=value."""
    add_config_arguments(parser)
    add_flags(parser, *FLAGS)
    parser.add_argument("--seeds", metavar="N,N,...", help="several runs that differ in the seed alone")
    parser.add_argument("--jobs", type=int, metavar="N", help="so many seeds at once, each in a process of its own")
    parser.add_argument("--run-suffix", metavar="TEXT", help="last part of the run directory's name, in place of the time")
    parser.add_argument("--quiet", action="store_true", help="no progress and no summary, only the three closing lines")


def run(args: argparse.Namespace) -> int:
    """Check the configurations of all seeds first, then train one after another or side by side."""
    if args.jobs is not None and (args.jobs < 1 or args.seeds is None):
        raise ConfigError(f"--jobs: given {args.jobs}; possible: at least 1, together with --seeds")
    waiting = _per_seed(resolve_config(args), args)
    if args.seeds is not None and (args.jobs is not None or waiting[0].execution_backend == "ray"):
        from rl_training.cli.seeds import train_side_by_side

        return train_side_by_side(waiting, run_suffix=args.run_suffix, max_jobs=args.jobs, quiet=args.quiet)
    done = []
    while waiting:
        config = waiting.pop(0)
        result = _train(config, waiting, args)
        done.append((config.seed, result.metrics, result.run_dir))
        if len(done) > 1 and not waiting and not args.quiet:
            from rl_training.cli.seeds import summarize_seeds

            summarize_seeds(done)
        closing_lines(result)  # of each seed as soon as it is done, and of the last at the very end
    return 0


def _train(config: TrainConfig, waiting: list[TrainConfig], args: argparse.Namespace) -> TrainResult:
    from rl_training.cli.training import train_and_report

    try:
        return train_and_report(config, run_suffix=args.run_suffix, quiet=args.quiet)
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
