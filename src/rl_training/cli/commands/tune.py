"""Search for good settings with Optuna.

Tries settings within the ranges that are declared beside the algorithm's options (--dry-run prints them), beginning with the
configuration as it is. A trial is trained and evaluated as `train` would; one that does worse than the median of the
earlier ones at the same step is given up (pruned). --jobs makes trials in several processes. Everything is kept in --out:
stopped or killed, the same command goes on, with the trials that were under way resumed from their checkpoints; more
--trials add to those there are. Writes best.yaml, which `train --config` takes, and at the end importance.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.cli.parser import Parser
from rl_training.cli.settings import add_config_arguments, add_flags, resolve_config
from rl_training.cli.tables import facts, heading, say, table
from rl_training.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from rl_training.experiment.config import TrainConfig
    from rl_training.tuning.tune import Trial, Tuned
    from rl_training.tuning.tune_plan import TunePlan

USAGE = "rl-training tune (PRESET | --config PATH) [key=value ...] [options]"
EXAMPLES = """\
  rl-training tune ppo/cartpole --trials 30 --jobs 2
  rl-training tune sac/pendulum total_timesteps=5_000 --seeds 1,2 --out runs/tune/pendulum
  rl-training tune ppo/cartpole --search learning_rate=log:1e-4..1e-2 --search gamma=[0.95,0.99] --search update_epochs
  rl-training tune ppo/cartpole --dry-run"""
SHOWN = 5  # trials in the closing table


def add_arguments(parser: Parser) -> None:
    """What is tuned, how long, where."""
    add_config_arguments(parser)
    add_flags(parser, "total_timesteps", "num_envs", "eval_episodes", "execution_backend", "device")
    parser.add_argument(
        "--trials", type=int, default=20, metavar="N", help="trials in all, those made before included (default 20)"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that make trials side by side (default 1)")
    parser.add_argument(
        "--seeds", metavar="N,N,...", help="seeds each trial is trained with (default: the configuration's one)"
    )
    help_text = "an option to vary, once for each: KEY for its declared range, KEY=LOW..HIGH, KEY=log:LOW..HIGH or KEY=[a, b]"
    parser.add_argument("--search", action="append", default=[], metavar="KEY[=RANGE]", help=help_text)
    parser.add_argument(
        "--pruner", choices=("median", "none"), default="median", help="when to give trials up (default median)"
    )
    parser.add_argument("--sampler-seed", type=int, default=0, metavar="N", help="decides what is tried (default 0)")
    parser.add_argument("--out", metavar="DIR", help="where the search is kept (default: tune/ALGO__ENV in output_dir)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be searched and leave")


def run(args: argparse.Namespace) -> int:
    """Search, then tell and draw."""
    plan = _plan(args)
    _announce(plan, args)
    if args.dry_run:
        return 0
    from rl_training.tuning.tune import tune

    tuned = tune(plan, num_trials=args.trials, jobs=args.jobs, on_trial=_tell)
    _report(tuned)
    return 0


def _plan(args: argparse.Namespace) -> TunePlan:
    from rl_training.experiment.run_folder import output_folder
    from rl_training.tuning.tune_plan import TunePlan, make_space
    from rl_training.tuning.tune_study import require_optuna

    if not args.dry_run:
        require_optuna()  # before anything else: what is missing is said at once
    config = resolve_config(args)
    space = make_space(config, args.search)
    usual = output_folder(config) / "tune" / f"{config.algo}__{config.env_id.replace('/', '-')}"
    out = Path(args.out) if args.out else usual
    return TunePlan(out, config, space, _seeds(config, args.seeds), args.pruner, args.sampler_seed)


def _seeds(config: TrainConfig, text: str | None) -> tuple[int, ...]:
    if text is None:
        return (config.seed,)
    from rl_training.experiment.yaml_loader import parse_yaml

    seeds = tuple(parse_yaml(word, source="--seeds") for word in text.split(","))
    for seed in seeds:
        config.replace(seed=seed)  # checked as any seed is
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"--seeds: given {text}; each seed once")
    return seeds


def _announce(plan: TunePlan, args: argparse.Namespace) -> None:
    from rl_training.cli.commands.show import default_words
    from rl_training.options._search import range_words

    own = plan.config.options
    heading(f"{plan.config.algo} on {plan.config.env_id}: {args.trials} trials, kept in {plan.directory}")
    rows = [(name, range_words(found), default_words(getattr(own, name))) for name, found in plan.space.items()]
    table(("option", "searched in", "now"), rows)
    say()


def _tell(trial: Trial) -> None:
    words = {"complete": "", "pruned": " (given up)", "fail": f" (failed: {trial.failure})"}[trial.state]
    score = "no score" if trial.score is None else f"{trial.score:.6g}"
    say(f"trial {trial.number}: {score}{words}")


def _report(tuned: Tuned) -> None:
    from rl_training.tuning.tune import BEST_FILE

    directory = tuned.plan.directory
    if tuned.best is None:
        raise ConfigError(f"no trial was complete; {directory}/worker0.log says why, or give more --trials")
    say()
    complete = sorted((t for t in tuned.trials if t.state == "complete"), key=lambda t: t.score or 0.0, reverse=True)
    names = list(tuned.importances or tuned.plan.space)[:6]
    rows = [(str(t.number), f"{t.score:.6g}", *(_short(t.values.get(name)) for name in names)) for t in complete[:SHOWN]]
    table(("trial", "return", *names), rows)
    counts = {state: sum(trial.state == state for trial in tuned.trials) for state in ("complete", "pruned", "fail")}
    told = f"{counts['complete']} complete, {counts['pruned']} given up, {counts['fail']} failed"
    facts(
        [("trials", told), ("importance", _picture(tuned)), ("train it", f"rl-training train --config {directory / BEST_FILE}")]
    )
    say(f"best_config={directory / BEST_FILE}")
    say(f"best_value={tuned.best.score}")


def _picture(tuned: Tuned) -> str:
    if not tuned.importances:
        return "not drawn: too few trials are complete, or all are equally good"
    from rl_training.cli.tune_picture import draw_tuning

    try:
        return str(draw_tuning(tuned, tuned.plan.directory / "importance.png"))
    except MissingExtraError as error:
        return f"not drawn: {error}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
