"""What PETS earned in each episode of its training runs, and what the same planner earns on the true dynamics.

    python benchmarks/models/pets_episodes.py RUN... --out benchmarks/models/results/pets_pendulum.json

A run's history holds the mean of its episodes so far, from which each follows. For the true dynamics (Pendulum only) the
learnt model of each run is replaced by the simulator's equations and the known reward; episodes and settings stay.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch

from rl_training.experiment.statistics import interquartile_mean
from rl_training.models.known_dynamics import reward_function
from rl_training.runtime.policy import load_policy

FIRST, LAST = 6, 15  # the episodes that count; the first is random


class TruePendulum:
    """Pendulum-v1's own equations as an ensemble of one that is never in doubt."""

    obs_dim, action_dim, num_ensembles = 3, 1, 1

    def ensemble_parameters(self) -> list[torch.Tensor]:
        return []

    def predict_distribution(self, obs: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angle, speed = torch.atan2(obs[:, 1], obs[:, 0]), obs[:, 2]
        torque = 2.0 * actions[:, 0].clamp(-1.0, 1.0)
        new_speed = (speed + (15.0 * angle.sin() + 3.0 * torque) * 0.05).clamp(-8.0, 8.0)
        new_angle = angle + new_speed * 0.05
        new_obs = torch.stack([new_angle.cos(), new_angle.sin(), new_speed], dim=-1)
        means = torch.cat([new_obs - obs, torch.zeros(len(obs), 1)], dim=-1)
        return means.unsqueeze(0), torch.full_like(means, -math.inf).unsqueeze(0)


def episode_returns(run: Path) -> list[float]:
    """Of a run that logs once an episode and has made fewer than the mean forgets (100)."""
    lines = [json.loads(line)["metrics"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    totals = {line["episodes"]: line["episodes"] * line["episode_return"] for line in lines if line.get("episodes")}
    if sorted(totals) != list(range(1, len(totals) + 1)):
        raise SystemExit(f"{run}: its history does not have a line for every episode")
    return np.diff([0.0, *(totals[n] for n in sorted(totals))]).tolist()


def on_true_dynamics(run: Path, episodes: int) -> float:
    policy = load_policy(run, device="cpu")
    policy.algorithm.dynamics.model = TruePendulum()
    policy.algorithm.reward_fn = reward_function("pendulum", obs_dim=3)
    policy.algorithm.num_particles = 1
    return policy.evaluate(num_episodes=episodes)["eval_return_mean"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--episodes", type=int, default=20, help="of the last policy, learnt and true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    seeds = []
    for run in args.runs:
        returns = episode_returns(run)
        learnt = load_policy(run, device="cpu").evaluate(num_episodes=args.episodes)["eval_return_mean"]
        seeds.append(
            {
                "run": run.name,
                "episode_returns": [round(value, 1) for value in returns],
                "mean_6_to_15": round(float(np.mean(returns[FIRST - 1 : LAST])), 1),
                "last_policy": round(learnt, 1),
                "on_true_dynamics": round(on_true_dynamics(run, args.episodes), 1),
            }
        )
        print(json.dumps(seeds[-1]))
    names = ("mean_6_to_15", "last_policy", "on_true_dynamics")
    iqms = {name: round(interquartile_mean([seed[name] for seed in seeds]), 1) for name in names}
    record = {"episodes": args.episodes, "iqm": iqms, "seeds": seeds}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(iqms))


if __name__ == "__main__":
    main()
