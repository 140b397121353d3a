"""The work that is measured, the same for every program: one entry per row of the speed table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """`skip` steps are not timed (start-up, warm-up); from there to `total` the rate is taken."""

    name: str
    title: str
    env_id: str
    algo: str
    num_envs: int
    skip: int
    total: int
    goal: float  # times the peer's rate, one thread
    settings: dict[str, Any] = field(default_factory=dict)


ROWS = {
    row.name: row
    for row in (
        Row(
            name="ppo",
            title="PPO, CartPole-v1, RL-zoo settings",
            env_id="CartPole-v1",
            algo="ppo",
            num_envs=8,
            skip=2_048,
            total=26_624,
            goal=2.5,
            settings={
                "num_steps": 32,
                "minibatch_size": 256,
                "update_epochs": 20,
                "gae_lambda": 0.8,
                "gamma": 0.98,
                "learning_rate": 1e-3,
            },
        ),
        Row(
            name="sac",
            title="SAC, Pendulum-v1, 256×256, one update per step",
            env_id="Pendulum-v1",
            algo="sac",
            num_envs=1,
            skip=1_100,
            total=2_300,
            goal=1.5,
            settings={"learning_rate": 1e-3, "learning_starts": 1_000, "batch_size": 256, "hidden_sizes": [256, 256]},
        ),
        Row(
            name="sac_halfcheetah",
            title="SAC, HalfCheetah-v5, 256×256, one update per step",
            env_id="HalfCheetah-v5",
            algo="sac",
            num_envs=1,
            skip=1_100,
            total=2_300,
            goal=1.8,
            settings={"learning_rate": 3e-4, "learning_starts": 1_000, "batch_size": 256, "hidden_sizes": [256, 256]},
        ),
    )
}
