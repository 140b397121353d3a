"""Export a policy as ONNX, TorchScript or safetensors.

The file holds the deterministic policy together with its observation normaliser and the scaling of its actions: raw
observations go in, what the environment takes comes out. Before it is written it is run on random observations, by
onnxruntime or torch, and compared with `predict`; the largest difference is printed, and a file that acts otherwise is
refused. A model card (Markdown) is written beside it. Without --out it goes to RUN/exports/.
TorchScript is deprecated in torch; choose onnx to run the policy elsewhere and safetensors to read its weights.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rl_training.cli.parser import Parser
from rl_training.cli.settings import add_checkpoint_argument, given_checkpoint
from rl_training.cli.tables import facts, say

if TYPE_CHECKING:
    from rl_training.shipping.export import Exported

USAGE = "rl-training export RUN (--format NAME | --out FILE)"
EXAMPLES = """\
  rl-training export runs/ppo__CartPole-v1__seed1__20260101-120000 --format onnx
  rl-training export runs/RUN/checkpoints/best.safetensors --out policy.onnx
  rl-training export --checkpoint runs/RUN --format safetensors --out pendulum.safetensors"""


def add_arguments(parser: Parser) -> None:
    """Which policy, in which format, where to."""
    add_checkpoint_argument(parser, "the policy")
    parser.add_argument("--format", choices=("onnx", "torchscript", "safetensors"), help="what to write (default: by --out)")
    parser.add_argument("--out", metavar="FILE", help="the file: .onnx, .pt (TorchScript) or .safetensors")


def run(args: argparse.Namespace) -> int:
    """Export, and say how far it is from `predict`."""
    path = given_checkpoint(args)
    from rl_training.shipping.export import chosen_format, export_checkpoint

    chosen_format(args.out, args.format)  # refused before a checkpoint is read
    done = export_checkpoint(path, args.out, format=args.format, trust=args.trust)
    size = done.path.stat().st_size
    facts(
        [
            ("policy", f"{done.format}, {size:,} bytes"),
            ("checked", f"max difference to predict {_difference(done)} on {done.num_observations:,} random observations"),
            ("card", str(done.card_path)),
        ]
    )
    say(f"export={done.path}")
    return 0


def _difference(done: Exported) -> str:
    return f"{done.max_difference:.0f} (other actions)" if done.discrete else f"{done.max_difference:.3g}"
