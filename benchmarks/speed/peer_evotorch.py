"""Environment steps per second of EvoTorch's PGPE on stock environments: `peer_evotorch.py WHO ROW THREADS SEED`.

As `evotorch` it steps one environment after the other (GymNE), as `evotorch_vec` a vector of them (VecGymNE).
"""

from __future__ import annotations

import sys

import torch
from evotorch.algorithms import PGPE
from evotorch.neuroevolution import GymNE, VecGymNE
from rows import GENERATION, PEER_GENERATIONS, ROWS, now, report


def main() -> None:
    who, name, threads, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    row = ROWS[name]
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    width, depth = row.settings["hidden_sizes"]
    net = f"Linear(obs_length, {width}) >> Tanh() >> Linear({width}, {depth}) >> Tanh() >> Linear({depth}, act_length)"
    kind, env = (VecGymNE, f"gym::{row.env_id}") if who == "evotorch_vec" else (GymNE, row.env_id)
    problem = kind(env, net, env_config={"disable_env_checker": True}, observation_normalization=False)
    searcher = PGPE(
        problem,
        popsize=2 * row.settings["num_directions"],
        center_learning_rate=0.05,
        stdev_learning_rate=0.1,
        stdev_init=0.1,
        optimizer="adam",
        ranking_method="centered",
    )
    for _ in range(row.skip // GENERATION):
        searcher.step()
    began = now()
    for _ in range(PEER_GENERATIONS):
        searcher.step()
    rate = PEER_GENERATIONS * GENERATION / (now() - began)
    report({"rate": rate}, "evotorch", "torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
