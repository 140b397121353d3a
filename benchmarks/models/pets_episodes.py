"""What PETS earned in each episode of its training runs on Pendulum-v1, and what could be earned from the same starts.

    python benchmarks/models/pets_episodes.py RUN... --out benchmarks/models/results/pets_pendulum.json

A run's history holds the mean of its episodes so far, from which each follows; where they began is in its replay buffer. From
the same starts: the same planner with the simulator's equations and the known reward in place of what was learnt, and the
best that anyone can do, by dynamic programming over a mesh of angles and speeds.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.planning.known_functions import reward_function
from rl_training.reports.statistics import interquartile_mean
from rl_training.runtime.policy import load_policy, resolve_checkpoint

FIRST, LAST = 6, 15  # the episodes that count; the first is random
STEPS = 200  # of an episode
MESH, TORQUES = 321, 21


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


def starts_of(run: Path) -> torch.Tensor:
    """The first observation of every episode that counts, from a buffer that has forgotten none."""
    rows: torch.Tensor = load_checkpoint(resolve_checkpoint(run)).buffer_state["replay"]["rows"]
    return rows[(FIRST - 1) * STEPS : LAST * STEPS : STEPS, :3].clone()


def planned(run: Path, obs: torch.Tensor, *, values: bool = True, seed: int = 0, **changes: float) -> list[float]:
    """Returns from these starts of the run's planner on the true dynamics, or of one with other settings; `values` for where
    plans end are those the run has learnt."""
    algorithm: Any = load_policy(run, device="cpu").algorithm
    truth, reward = TruePendulum(), reward_function("pendulum", obs_dim=3)
    algorithm.dynamics.model, algorithm.reward_fn, algorithm.num_particles = truth, reward, 1
    algorithm.planner = replace(algorithm.planner, **changes)
    algorithm.values = algorithm.values if values else None
    policy, total = algorithm.episode_policy(), torch.zeros(len(obs))
    policy.generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        actions = policy(obs, list(range(len(obs))))
        new_obs = obs + truth.predict_distribution(obs, actions)[0][0, :, :3]
        total, obs = total + reward(obs, actions, new_obs), new_obs
    return total.tolist()


class Mesh:
    """Angles × speeds, with values at the nodes and straight lines between them."""

    def __init__(self) -> None:
        self.values = np.zeros(MESH * MESH, np.float32)
        self.angle, self.speed = np.meshgrid(np.linspace(-np.pi, np.pi, MESH), np.linspace(-8, 8, MESH), indexing="ij")

    def corners(self, angle: np.ndarray, speed: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The four nodes around each point with their weights."""
        x = ((angle + np.pi) % (2 * np.pi)) / (2 * np.pi) * (MESH - 1)
        y = (speed + 8) / 16 * (MESH - 1)
        i, j = (np.minimum(place.astype(int), MESH - 2) for place in (x, y))
        u, v = (x - i).astype(np.float32), (y - j).astype(np.float32)
        node = i * MESH + j
        return [(node, (1 - u) * (1 - v)), (node + MESH, u * (1 - v)), (node + 1, (1 - u) * v), (node + MESH + 1, u * v)]

    def read(self, corners: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        return np.sum([self.values[node] * weight for node, weight in corners], axis=0)


def solved(steps: int = STEPS) -> Mesh:
    """The best return of so many steps from every node, backwards from the last."""
    mesh, moves = Mesh(), []
    for torque in np.linspace(-2, 2, TORQUES):
        speed = np.clip(mesh.speed + (15 * np.sin(mesh.angle) + 3 * torque) * 0.05, -8, 8)
        reward = -(mesh.angle**2 + 0.1 * mesh.speed**2 + 0.001 * torque**2)
        moves.append((reward.astype(np.float32), mesh.corners(mesh.angle + 0.05 * speed, speed)))
    for _ in range(steps):
        best = np.full((MESH, MESH), -np.inf, np.float32)
        for reward, corners in moves:
            np.maximum(best, reward + mesh.read(corners), out=best)
        mesh.values = best.ravel()
    return mesh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    mesh, seeds = solved(), []
    for run in args.runs:
        returns, starts = episode_returns(run), starts_of(run)
        angle, speed = torch.atan2(starts[:, 1], starts[:, 0]).numpy(), starts[:, 2].numpy()
        perfect, optimum = planned(run, starts), mesh.read(mesh.corners(angle, speed)).tolist()
        parts = {"learnt": returns[FIRST - 1 : LAST], "true_dynamics": perfect, "optimum": optimum}
        means = {f"{name}_mean": round(float(np.mean(values)), 1) for name, values in parts.items()}
        lists = {name: [round(value, 1) for value in values] for name, values in parts.items()}
        seeds.append({"run": run.name, **means, **lists, "all_episodes": [round(value, 1) for value in returns]})
        print(run.name, json.dumps(means))
    names = ("learnt_mean", "true_dynamics_mean", "optimum_mean")
    iqms = {name: round(interquartile_mean([seed[name] for seed in seeds]), 1) for name in names}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"episodes": [FIRST, LAST], "iqm": iqms, "seeds": seeds}, indent=1) + "\n")
    print(json.dumps(iqms))


if __name__ == "__main__":
    main()
