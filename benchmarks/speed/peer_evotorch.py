"""Environment steps per second of EvoTorch's PGPE on stock environments: `peer_evotorch.py WHO ROW THREADS SEED`."""

from __future__ import annotations

import json
import sys

import evotorch
import torch
from evotorch.algorithms import PGPE
from evotorch.neuroevolution import GymNE
from rows import ROWS, now

EPISODE = 200  # Pendulum's never end sooner
GENERATIONS = 3


def main() -> None:
    name, threads, seed = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    row = ROWS[name]
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    width, depth = row.settings["hidden_sizes"]
    net = f"Linear(obs_length, {width}) >> Tanh() >> Linear({width}, {depth}) >> Tanh() >> Linear({depth}, act_length)"
    problem = GymNE(row.env_id, net, observation_normalization=False)
    population = 2 * row.settings["num_directions"]
    searcher = PGPE(
        problem,
        popsize=population,
        center_learning_rate=0.05,
        stdev_learning_rate=0.1,
        stdev_init=0.1,
        optimizer="adam",
        ranking_method="centered",
    )
    searcher.step()
    began = now()
    for _ in range(GENERATIONS):
        searcher.step()
    rate = GENERATIONS * population * EPISODE / (now() - began)
    print(json.dumps({"program": "evotorch", "version": evotorch.__version__, "values": {"rate": rate}}))


if __name__ == "__main__":
    main()
