"""Train on an environment of one's own: by its id, as a factory; then evaluate, resume and export."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[0:0] = [str(HERE), str(HERE.parents[1] / "src")]  # runs without installation

import gymnasium as gym  # noqa: E402
from thermostat import Thermostat  # noqa: E402

from rl_training import SAC  # noqa: E402


def limited() -> gym.Env:
    """A factory: a new environment at every call, with a limit on its steps as the registered one has."""
    return gym.wrappers.TimeLimit(Thermostat(max_power=0.5), max_episode_steps=50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=3_000)
    parser.add_argument("--output-dir", type=Path, default=Path("runs/custom_env"))
    args = parser.parse_args()
    settings = {
        "total_timesteps": args.total_timesteps,
        "output_dir": args.output_dir,
        "learning_starts": min(300, args.total_timesteps // 3),
        "hidden_sizes": [64, 64],
        "batch_size": 64,
        "learning_rate": 1e-3,
        "eval_interval": 1_000,
    }

    agent = SAC("thermostat:Thermostat-v0", **settings)  # `package:Id`: the package is imported, and registers the id
    result = agent.learn()
    print(f"by its id:    {result.metrics['eval_return_mean']:.2f}, in {result.run_dir}")

    half = SAC(limited, **settings)
    print(f"as a factory: {half.learn().metrics['eval_return_mean']:.2f}")
    print(f"evaluated:    {half.evaluate(num_episodes=10)['eval_return_mean']:.2f} over 10 episodes")

    # as after a crash, in another process: an id is all it needs; for a factory give it again, with load(path, env=limited)
    again = SAC.load(result.run_dir)
    further = again.learn(total_timesteps=args.total_timesteps + args.total_timesteps // 3)
    print(f"resumed:      {further.metrics['eval_return_mean']:.2f} at step {further.metrics['global_step']}")

    exported = again.export(args.output_dir / "thermostat.safetensors")
    print(f"exported:     {exported.path}, at most {exported.max_difference:.1e} from predict")
    print(f"power at 15 degrees in the room and 0 outside: {again.predict([-0.5, 0.0])[0]:.2f}")


if __name__ == "__main__":
    main()
