"""From logs to a policy: convert, look, learn offline with CQL, go on in the environment with RLPD."""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[0:0] = [str(HERE), str(HERE.parents[1] / "src")]  # runs without installation

import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402
from convert import convert  # noqa: E402

from rl_training import CQL, RLPD  # noqa: E402
from rl_training.cli import main as rl_training  # noqa: E402


def record_logs(path: Path, *, episodes: int) -> None:
    """Stands for logs you have: a hand-written controller with some noise swings a pendulum up, and somebody wrote it down."""
    env, rng = gym.make("Pendulum-v1"), np.random.default_rng(0)
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["episode", "cos", "sin", "speed", "torque", "reward", "ended"])
        for episode in range(episodes):
            obs, _ = env.reset(seed=episode)
            over = False
            while not over:
                torque = np.clip(_controller(obs) + rng.normal(0.0, 0.5), -2.0, 2.0)
                seen = obs
                obs, reward, ended, cut, _ = env.step(np.array([torque], dtype=np.float32))
                lines.writerow([episode, *(f"{number:.6f}" for number in (*seen, torque, reward)), int(ended)])
                over = ended or cut


def _controller(obs: np.ndarray) -> float:
    """Near the top hold it there, elsewhere push the way it swings."""
    cos, sin, speed = obs
    return float(-8.0 * sin - 2.0 * speed) if cos > 0.8 else float(2.0 * np.sign(speed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=25, help="of 200 steps, in the logs")
    parser.add_argument("--offline-updates", type=int, default=1_500)
    parser.add_argument("--online-steps", type=int, default=600)
    parser.add_argument("--output-dir", type=Path, default=Path("runs/offline_to_online"))
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    logs, dataset = args.output_dir / "logs.csv", args.output_dir / "logs.npz"

    record_logs(logs, episodes=args.episodes)
    data = convert(logs, dataset)
    print(f"converted: {len(data)} transitions from {logs}")
    if rl_training(["dataset", "inspect", str(dataset), "--env", "Pendulum-v1"]):
        raise SystemExit("the dataset cannot be used")

    common = {"output_dir": args.output_dir, "dataset_path": str(dataset), "hidden_sizes": [64, 64], "batch_size": 128}
    offline = CQL("Pendulum-v1", total_timesteps=args.offline_updates, cql_alpha=1.0, num_cql_samples=4, **common)
    print(f"offline:   {offline.learn().metrics['eval_return_mean']:.0f} after {args.offline_updates} updates of CQL")

    # RLPD begins anew, with half of every batch from the logs: nothing learnt offline can mislead it
    online = RLPD(
        "Pendulum-v1",
        total_timesteps=args.online_steps,
        learning_starts=min(200, args.online_steps // 2),
        gradient_updates_per_step=4,
        num_critics=4,
        **common,
    )
    result = online.learn()
    print(f"online:    {result.metrics['eval_return_mean']:.0f} after {args.online_steps} steps of RLPD")
    print(f"policy:    {online.save(args.output_dir / 'policy.safetensors')}")


if __name__ == "__main__":
    main()
