"""Evaluate a trained policy: mean and spread of its returns.

The deterministic policy plays episodes of the evaluation stream, the same ones every time, so two evaluations of one
checkpoint agree. The last line, metrics=, is JSON for scripts.

--video films the first of these episodes, without a screen: classic control through pygame, MuJoCo through EGL or OSMesa.
Without a FILE it goes to RUN/videos/, where `report` finds it.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rl_training.cli.parser import Parser
from rl_training.cli.settings import add_checkpoint_argument, given_checkpoint
from rl_training.cli.tables import facts, say

if TYPE_CHECKING:
    from rl_training.runtime.policy import Policy

USAGE = "rl-training eval --checkpoint PATH [options]"
EXAMPLES = """\
  rl-training eval --checkpoint runs/ppo__CartPole-v1__seed1__20260101-120000
  rl-training eval --checkpoint runs/RUN/checkpoints/best.safetensors --num-episodes 100
  rl-training eval --checkpoint runs/RUN --video
  rl-training eval runs/RUN --video cheetah.gif --video-episodes 2"""


def add_arguments(parser: Parser) -> None:
    """Which policy, how long, where."""
    add_checkpoint_argument(parser, "the policy")
    parser.add_argument("--num-episodes", type=int, metavar="N", help="episodes to play (default: the run's eval_episodes)")
    parser.add_argument(
        "--video", nargs="?", const="", metavar="FILE", help="film it: an .mp4 or .gif (default: in RUN/videos/)"
    )
    parser.add_argument("--video-episodes", type=int, metavar="N", help="episodes to film (default 1)")
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto (default), cpu, cuda or cuda:N")


def run(args: argparse.Namespace) -> int:
    """Play and print."""
    from rl_training.cli.results import metrics_json, number, spread
    from rl_training.errors import ConfigError

    if args.num_episodes is not None and args.num_episodes < 1:
        raise ConfigError(f"--num-episodes: given {args.num_episodes}; possible: at least 1")
    path = given_checkpoint(args)
    _check_video(args)
    from rl_training.runtime.policy import load_policy

    policy = load_policy(path, device=args.device, trust=args.trust)
    metrics = policy.evaluate(num_episodes=args.num_episodes)
    rows = [("return", spread(metrics))]
    if "eval_return_min" in metrics:
        rows.append(("range", f"{number(metrics['eval_return_min'])} to {number(metrics['eval_return_max'])}"))
        rows.append(("length", f"{number(metrics['eval_length_mean'])} steps on average"))
    facts([*rows, ("checkpoint", path)])
    if args.video is not None:
        _film(policy, path, args)
    say(f"metrics={metrics_json(metrics)}")
    return 0


def _check_video(args: argparse.Namespace) -> None:
    """What cannot be filmed is refused before the evaluation."""
    from rl_training.errors import ConfigError

    if args.video is None:
        if args.video_episodes is not None:
            raise ConfigError(f"--video-episodes: given {args.video_episodes} without --video; give both, or none")
        return
    if args.video_episodes is not None and args.video_episodes < 1:
        raise ConfigError(f"--video-episodes: given {args.video_episodes}; possible: at least 1")
    from rl_training.shipping.video import require_video

    require_video(args.video or "policy.mp4")


def _film(policy: Policy, path: str, args: argparse.Namespace) -> None:
    from rl_training.cli.results import spread
    from rl_training.experiment.locate import resolve_checkpoint
    from rl_training.shipping.video import default_video_path, record_video

    out = args.video or default_video_path(resolve_checkpoint(path, parts=("algorithm_state",)))
    video = record_video(policy, out, num_episodes=args.video_episodes or 1)
    length = f"{video.num_frames:,} pictures, {video.num_frames / video.fps:.1f} s"
    facts([("film", f"{length}; return {spread(video.metrics)}")])
    say(f"video={video.path}")
