"""How well can one plan from the starts of a PETS run on Pendulum-v1, given the truth and more time?

    python benchmarks/models/planner_study.py RUN --out benchmarks/models/results/planner_study.json

The run's planner and others that look further or try more, with the simulator's equations and the known reward, from the first
observations of the episodes that count (`pets_episodes.py`): mean returns, each for several draws of the search's noise.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from pets_episodes import planned, solved, starts_of

DRAWS = 5
PLANNERS: dict[str, dict[str, int]] = {
    "the preset: horizon 20, 60 candidates, 3 iterations": {},
    "horizon 30": {"horizon": 30},
    "horizon 40": {"horizon": 40},
    "horizon 50": {"horizon": 50},
    "200 candidates, 5 iterations": {"candidates": 200, "iterations": 5, "topk": 20},
    "horizon 50, 200 candidates, 5 iterations": {"horizon": 50, "candidates": 200, "iterations": 5, "topk": 20},
}


def steps_imagined(changes: dict[str, int]) -> int:
    settings = {"horizon": 20, "candidates": 60, "iterations": 3} | changes
    return settings["horizon"] * settings["candidates"] * settings["iterations"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    starts, mesh, rows = starts_of(args.run), solved(), []
    angle, speed = torch.atan2(starts[:, 1], starts[:, 0]).numpy(), starts[:, 2].numpy()
    for name, changes in PLANNERS.items():
        returns = [float(np.mean(planned(args.run, starts, seed=seed, **changes))) for seed in range(DRAWS)]
        times = round(steps_imagined(changes) / steps_imagined({}), 1)
        rows.append({"planner": name, "times_the_work": times, "mean_returns": [round(value, 1) for value in returns]})
        print(json.dumps(rows[-1]), flush=True)
    optimum = round(float(mesh.read(mesh.corners(angle, speed)).mean()), 1)
    args.out.write_text(json.dumps({"run": args.run.name, "optimum": optimum, "planners": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
