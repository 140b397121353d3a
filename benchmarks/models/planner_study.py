"""How well can one plan from the starts of a PETS run on Pendulum-v1, given the truth and more time, but no values?

    python benchmarks/models/planner_study.py RUN --out benchmarks/models/results/planner_study.json

Plans of 20 steps, as the preset had before there were values for where plans end, and others that look further or try more,
with the simulator's equations and the known reward, from the first observations of the episodes that count
(`pets_episodes.py`): mean returns, each for several draws of the search's noise.

And what no search can better: at every step the plan of so many steps that earns the most, found by dynamic programming.
`--part exact` makes this anew and leaves the planners in the file as they are; `--part planners` the other way round.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from pets_episodes import STEPS, TORQUES, TruePendulum, planned, solved, starts_of

from rl_training.planning.known_functions import reward_function

DRAWS = 5
HORIZONS = (15, 20, 25, 30, 35, 40, 45, 50, 60, 80)
BASE = {"horizon": 20, "candidates": 60, "iterations": 3, "topk": 8}
MANNER = {"noise_beta": 2.0, "initial_std": 0.25, "carry_elites": 0.0, "act_on_best": False}
PLANNERS: dict[str, dict[str, int]] = {
    "horizon 20, 60 candidates, 3 iterations": {},
    "horizon 30": {"horizon": 30},
    "horizon 40": {"horizon": 40},
    "horizon 50": {"horizon": 50},
    "200 candidates, 5 iterations": {"candidates": 200, "iterations": 5, "topk": 20},
    "horizon 50, 200 candidates, 5 iterations": {"horizon": 50, "candidates": 200, "iterations": 5, "topk": 20},
}


def steps_imagined(changes: dict[str, int]) -> int:
    settings = BASE | changes
    return settings["horizon"] * settings["candidates"] * settings["iterations"]


def exactly_planned(obs: torch.Tensor, horizon: int) -> list[float]:
    """Returns of one who at every step begins the best plan of `horizon` steps, without fail."""
    later, truth, reward = solved(horizon - 1), TruePendulum(), reward_function("pendulum", obs_dim=3)
    torques, total = torch.linspace(-1, 1, TORQUES), torch.zeros(len(obs))
    for _ in range(STEPS):
        tried, actions = obs.repeat_interleave(TORQUES, dim=0), torques.repeat(len(obs)).unsqueeze(-1)
        reached = tried + truth.predict_distribution(tried, actions)[0][0, :, :3]
        angle, speed = torch.atan2(reached[:, 1], reached[:, 0]).numpy(), reached[:, 2].numpy()
        rewards = reward(tried, actions, reached)
        worth = (rewards + torch.from_numpy(later.read(later.corners(angle, speed)))).view(len(obs), TORQUES)
        best = worth.argmax(dim=1) + torch.arange(len(obs)) * TORQUES
        total, obs = total + rewards[best], reached[best]
    return total.tolist()


def studied(run: Path, starts: torch.Tensor) -> list[dict[str, object]]:
    """Each of the planners from these starts, with so many draws of its noise."""
    rows: list[dict[str, object]] = []
    for name, changes in PLANNERS.items():
        settings = {**MANNER, **BASE, **changes}
        returns = [float(np.mean(planned(run, starts, values=False, seed=seed, **settings))) for seed in range(DRAWS)]
        times = round(steps_imagined(changes) / steps_imagined({}), 1)
        rows.append({"planner": name, "times_the_work": times, "mean_returns": [round(value, 1) for value in returns]})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=("planners", "exact", "both"), default="both")
    args = parser.parse_args()
    torch.set_num_threads(1)
    starts, mesh = starts_of(args.run), solved()
    angle, speed = torch.atan2(starts[:, 1], starts[:, 0]).numpy(), starts[:, 2].numpy()
    optimum = round(float(mesh.read(mesh.corners(angle, speed)).mean()), 1)
    told = json.loads(args.out.read_text()) if args.part != "both" else {}
    told = {**told, "run": args.run.name, "optimum": optimum}
    if args.part != "exact":
        told["planners"] = studied(args.run, starts)
    if args.part != "planners":
        told["exact_search"] = [
            {"horizon": horizon, "mean_return": round(float(np.mean(exactly_planned(starts, horizon))), 1)}
            for horizon in HORIZONS
        ]
    args.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
