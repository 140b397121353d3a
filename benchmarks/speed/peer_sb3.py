"""One timed run of Stable-Baselines3 on the same work: `peer_sb3.py ROW THREADS SEED`."""

from __future__ import annotations

import json
import sys
import time

import stable_baselines3
import torch
from rows import ROWS
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env


class Clock(BaseCallback):
    """The time at the first step past `skip`, and at the last."""

    def __init__(self, skip: int) -> None:
        super().__init__()
        self.skip = skip
        self.begin: tuple[int, float] | None = None
        self.end = (0, 0.0)

    def _on_step(self) -> bool:
        self.end = (self.num_timesteps, time.perf_counter())
        if self.begin is None and self.num_timesteps >= self.skip:
            self.begin = self.end
        return True


def main() -> None:
    name, threads, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    row, settings = ROWS[name], ROWS[name].settings
    torch.set_num_threads(threads)
    env = make_vec_env(row.env_id, n_envs=row.num_envs, seed=seed)
    if row.algo == "ppo":
        model = PPO(
            "MlpPolicy",
            env,
            n_steps=settings["num_steps"],
            batch_size=settings["minibatch_size"],
            n_epochs=settings["update_epochs"],
            gae_lambda=settings["gae_lambda"],
            gamma=settings["gamma"],
            learning_rate=settings["learning_rate"],
            ent_coef=0.0,
            seed=seed,
            device="cpu",
        )
    else:
        model = SAC(
            "MlpPolicy",
            env,
            learning_rate=settings["learning_rate"],
            learning_starts=settings["learning_starts"],
            batch_size=settings["batch_size"],
            policy_kwargs={"net_arch": settings["hidden_sizes"]},
            buffer_size=100_000,
            seed=seed,
            device="cpu",
        )
    clock = Clock(row.skip)
    model.learn(row.total, callback=clock)
    steps, seconds = clock.end[0] - clock.begin[0], clock.end[1] - clock.begin[1]
    version = stable_baselines3.__version__
    print(json.dumps({"program": "stable-baselines3", "version": version, "steps_per_second": steps / seconds}))


if __name__ == "__main__":
    main()
