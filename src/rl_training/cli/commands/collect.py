"""Record what a trained policy does, as a dataset for offline learning.

The policy acts as it does when training, or deterministically; noise and a share of random actions make the data
broader. The result is an .npz file or a dataset in Minari's local store; neither is ever overwritten. The same
checkpoint, seed and options give the same data.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.cli.parser import Parser
from rl_training.cli.settings import add_checkpoint_argument, given_checkpoint
from rl_training.cli.tables import facts, say
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.data.recorded_data import RecordedData
    from rl_training.runtime.policy import Policy

USAGE = "rl-training collect --checkpoint PATH --steps N (--out FILE.npz | --minari NAME) [options]"
EXAMPLES = """\
  rl-training collect --checkpoint runs/RUN --steps 10_000 --out medium.npz
  rl-training collect --checkpoint runs/RUN --steps 10_000 --out broad.npz --random-share 0.3 --noise 0.1
  rl-training collect --checkpoint runs/RUN --steps 10_000 --minari pendulum/medium-v0"""


def add_arguments(parser: Parser) -> None:
    """Whose behaviour, how much of it, where to."""
    add_checkpoint_argument(parser, "the policy")
    parser.add_argument("--steps", required=True, type=int, metavar="N", help="transitions to record")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", metavar="FILE", help="the .npz file to make")
    target.add_argument("--minari", metavar="NAME", help="the dataset to make in Minari's store, e.g. pendulum/medium-v0")
    parser.add_argument("--random-share", type=float, default=0.0, metavar="P", help="share of uniformly random actions")
    parser.add_argument(
        "--noise", type=float, default=0.0, metavar="STD", help="Gaussian noise on the actions, in halves of their range"
    )
    parser.add_argument("--deterministic", action="store_true", help="the policy's best action rather than a drawn one")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="decides episodes and everything drawn (default 0)")


def run(args: argparse.Namespace) -> int:
    """Check where it goes to first, then record."""
    from rl_training.data.dataset_files import require_new, write_npz
    from rl_training.data.minari_files import require_new_minari

    path = given_checkpoint(args)
    if args.seed < 0:
        raise ConfigError(f"--seed: given {args.seed}; possible: at least 0")
    if args.out is not None:
        require_new(Path(args.out))
    else:
        require_new_minari(args.minari)
    from rl_training.runtime.collecting import collect_data
    from rl_training.runtime.policy import load_policy

    policy = load_policy(path, trust=args.trust)
    settings = {name: getattr(args, name) for name in ("seed", "deterministic", "noise", "random_share")}
    data = collect_data(policy, num_steps=args.steps, **settings)
    if args.out is not None:
        write_npz(args.out, data, metadata=_about(policy, settings))
    else:
        _write_minari(args.minari, data, policy, settings)
    _report(data, args.out or f"minari:{args.minari}")
    return 0


def _about(policy: Policy, settings: dict[str, Any]) -> dict[str, Any]:
    from rl_training import __version__

    config = policy.config
    return {
        "env_id": config.env_id,
        "env_kwargs": config.env_kwargs,
        "algo": config.algo,
        "made_with": f"rl-training {__version__}",
        **settings,
    }


def _write_minari(name: str, data: RecordedData, policy: Policy, settings: dict[str, Any]) -> None:
    from rl_training.data.minari_files import write_minari
    from rl_training.data.reference_scores import SCORES

    config = policy.config
    source = policy.environments()
    env = source.make()
    try:
        about = ", ".join(f"{key} {value}" for key, value in settings.items())
        write_minari(name, data, env, algorithm_name=config.algo, description=about, scores=SCORES.get(config.env_id))
    finally:
        source.release(env)


def _report(data: RecordedData, target: str) -> None:
    from rl_training.cli.results import number
    from rl_training.data.dataset_report import inspect_data

    report = inspect_data(data)
    returns = f"{number(report.returns.mean())} ± {number(report.returns.std())}" if len(report.returns) else "none finished"
    rows = [("rows", f"{report.rows:,}"), ("episodes", f"{len(report.returns):,}"), ("return", returns)]
    if report.unfinished:
        rows.append(("unfinished", f"the last {report.unfinished:,} rows: the recording ended first; no episode of the above"))
    facts(rows)
    say(f"dataset={target}")
