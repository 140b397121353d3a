"""Train with a population spread over Ray workers, then train the same run here and compare every byte of the two policies."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "src"))  # works from a source tree that is not installed


def main() -> None:
    from rl_training import OpenAIES
    from rl_training.cli import load_config
    from rl_training.experiment import load_checkpoint

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", help="of a running cluster, HOST:PORT or auto; without it one is started here")
    parser.add_argument("--workers", type=int, help="processes that evaluate the population; one per core without it")
    parser.add_argument("--total-timesteps", type=int, help="in place of those in train.yaml")
    parser.add_argument("--output-dir", type=Path, default=Path("runs"))
    args = parser.parse_args()
    config = load_config(HERE / "train.yaml").replace(
        ray_address=args.address, ray_workers=args.workers, output_dir=args.output_dir
    )
    if args.total_timesteps:
        config = config.replace(total_timesteps=args.total_timesteps)

    parameters = {}
    for backend in ("ray", "local_sync"):
        here = {} if backend == "ray" else {"ray_address": None, "ray_workers": None}
        begun = time.perf_counter()
        result = OpenAIES(config.replace(execution_backend=backend, **here)).learn()
        parameters[backend] = load_checkpoint(result.checkpoint_path).algorithm_state["model"]["flat"].numpy().tobytes()
        score = result.metrics["eval_return_mean"]
        seconds = time.perf_counter() - begun
        print(f"{backend}: return {score:.1f} after {result.metrics['global_step']:,} steps in {seconds:.1f} s")
    print(f"the policies are {'the same' if parameters['ray'] == parameters['local_sync'] else 'NOT the same'}")


if __name__ == "__main__":
    main()
