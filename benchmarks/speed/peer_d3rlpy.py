"""CQL updates of d3rlpy on random Pendulum data: `peer_d3rlpy.py WHO ROW THREADS SEED`."""

from __future__ import annotations

import logging
import sys

import d3rlpy
import gymnasium as gym
import numpy as np
import structlog
import torch
from rows import ROWS, now, report


def random_data(rows: int, *, seed: int) -> d3rlpy.dataset.MDPDataset:
    """Episodes of Pendulum-v1 under uniformly random torque, as our `dataset_kind: random` records them."""
    env, rng = gym.make("Pendulum-v1"), np.random.default_rng(seed)
    columns: tuple[list[np.ndarray], list[np.ndarray], list[float], list[float]] = ([], [], [], [])
    obs, _ = env.reset(seed=seed)
    for _ in range(rows):
        action = rng.uniform(-1, 1, size=1).astype(np.float32)
        next_obs, reward, _, truncated, _ = env.step(2 * action)
        for column, value in zip(columns, (obs, action, float(reward), float(truncated)), strict=True):
            column.append(value)  # type: ignore[arg-type]
        obs = env.reset()[0] if truncated else next_obs
    observed, actions, rewards, timeouts = (np.array(column, dtype=np.float32) for column in columns)
    return d3rlpy.dataset.MDPDataset(observed, actions, rewards, np.zeros(rows, np.float32), timeouts)


def main() -> None:
    name, threads, seed = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    row, settings = ROWS[name], ROWS[name].settings
    torch.set_num_threads(threads)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    data = random_data(settings["dataset_size"], seed=seed)
    encoder = d3rlpy.models.VectorEncoderFactory(settings["hidden_sizes"])
    config = d3rlpy.algos.CQLConfig(
        batch_size=settings["batch_size"],
        actor_encoder_factory=encoder,
        critic_encoder_factory=encoder,
        n_action_samples=settings["num_cql_samples"],
        temp_learning_rate=3e-4,
        # the penalty's weight is fixed, as ours
        initial_alpha=1.0,
        alpha_learning_rate=0.0,
    )
    learner = config.create(device="cpu:0")
    learner.build_with_dataset(data)
    began = 0.0
    for update in range(row.total):
        if update == row.skip:
            began = now()
        learner.update(data.sample_transition_batch(settings["batch_size"]))
    rate = (row.total - row.skip) / (now() - began)
    report({"rate": rate}, "d3rlpy", "torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
