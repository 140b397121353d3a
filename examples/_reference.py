"""What the reference scripts share: a tiny command line, and running from a source tree that is not installed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))


def main(preset: str) -> None:
    """Train a packaged preset, evaluate the last policy and print what came out."""
    from rl_training.experiment.registry import get_algorithm_spec
    from rl_training.experiment.yaml_loader import load_config_file
    from rl_training.resources import find_preset
    from rl_training.runtime.workflows import evaluate_checkpoint

    config = load_config_file(find_preset(preset))
    parser = argparse.ArgumentParser(description=f"Train {preset} and evaluate what was learnt.")
    parser.add_argument("--total-timesteps", type=int, default=config.total_timesteps)
    parser.add_argument("--eval-episodes", type=int, default=config.eval_episodes)
    parser.add_argument("--seed", type=int, default=config.seed)
    parser.add_argument("--output-dir", type=Path, default=ROOT / "runs" / "reference")
    config = config.replace(**vars(parser.parse_args()))

    result = get_algorithm_spec(config.algo).train_fn(config)
    print(f"run_dir={result.run_dir}")
    print(f"checkpoint_path={result.checkpoint_path}")
    if config.eval_episodes:
        scores = evaluate_checkpoint(result.checkpoint_path, num_episodes=config.eval_episodes)
        print(f"eval_return_mean={scores['eval_return_mean']:.2f}")
        print(f"eval_return_std={scores['eval_return_std']:.2f}")
