"""One timed run of Stable-Baselines3, SB3-contrib or SBX on the same work: `peer_sb3.py WHO ROW THREADS SEED`."""

from __future__ import annotations

import importlib
import sys
from collections import deque
from typing import Any

import numpy as np
import torch
from rows import GENERATION, PEER_GENERATIONS, ROWS, Row, now, report
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise

PLAIN = {"disable_env_checker": True}


class Clock(BaseCallback):
    """The time at the first step past `skip`, and at the last; with `target` it ends once 20 episodes are worth that."""

    def __init__(self, skip: int, target: float | None = None) -> None:
        super().__init__()
        self.skip, self.target = skip, target
        self.returns: deque[float] = deque(maxlen=20)
        self.begin: tuple[int, float] | None = None
        self.began = 0.0
        self.end = (0, 0.0)

    def _on_training_start(self) -> None:
        self.began = now()

    def _on_step(self) -> bool:
        self.end = (self.num_timesteps, now())
        if self.begin is None and self.num_timesteps >= self.skip:
            self.begin = self.end
        if self.target is None:
            return True
        for info in self.locals["infos"]:
            if "episode" in info:
                self.returns.append(info["episode"]["r"])
        return len(self.returns) < 20 or sum(self.returns) < 20 * self.target


def model_of(who: str, row: Row, *, seed: int) -> Any:
    settings = row.settings
    if row.algo == "ars":
        library = importlib.import_module("sb3_contrib")
        env = make_vec_env(row.env_id, n_envs=1, seed=seed, env_kwargs=PLAIN)
        sizes = {"net_arch": settings["hidden_sizes"]}
        count = settings["num_directions"]
        return library.ARS("MlpPolicy", env, n_delta=count, n_top=count, policy_kwargs=sizes, seed=seed, device="cpu")
    library = importlib.import_module("sbx" if who == "sbx" else "stable_baselines3")
    env = make_vec_env(row.env_id, n_envs=row.num_envs or 1, seed=seed, env_kwargs=PLAIN)
    device = {} if who == "sbx" else {"device": "cpu"}
    if row.algo == "ppo":
        falls = "learning_rate_schedule" in settings
        rate, clip = settings["learning_rate"], 0.2
        return library.PPO(
            "MlpPolicy",
            env,
            n_steps=settings["num_steps"],
            batch_size=settings["minibatch_size"],
            n_epochs=settings["update_epochs"],
            gae_lambda=settings["gae_lambda"],
            gamma=settings["gamma"],
            learning_rate=(lambda left: left * rate) if falls else rate,
            clip_range=(lambda left: left * clip) if falls else clip,
            ent_coef=0.0,
            seed=seed,
            **device,
        )
    noise = {}
    if row.algo in ("td3", "ddpg"):  # as ours by default
        size = env.action_space.shape
        noise = {"action_noise": NormalActionNoise(np.zeros(size), np.full(size, 0.1))}
    return getattr(library, row.algo.upper())(
        "MlpPolicy",
        env,
        learning_rate=settings["learning_rate"],
        learning_starts=settings["learning_starts"],
        batch_size=settings["batch_size"],
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": settings["hidden_sizes"]},
        buffer_size=100_000,
        seed=seed,
        **noise,
        **device,
    )


def main() -> None:
    who, name, threads, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    row = ROWS[name]
    torch.set_num_threads(threads)
    model = model_of(who, row, seed=seed)
    packages = {"sbx": ["sbx-rl", "jax"], "sb3": ["sb3-contrib" if row.algo == "ars" else "stable-baselines3"]}[who]
    if row.algo == "ars":
        model.learn(row.skip)  # each call to `learn` counts from nothing
        began = now()
        model.learn(PEER_GENERATIONS * GENERATION)
        values = {"rate": model.num_timesteps / (now() - began)}
    else:
        clock = Clock(row.skip, 475 if name == "ppo_solve" else None)
        model.learn(row.total, callback=clock)
        assert clock.begin is not None
        steps, seconds = clock.end[0] - clock.begin[0], clock.end[1] - clock.begin[1]
        values = {"seconds": clock.end[1] - clock.began} if name == "ppo_solve" else {"rate": steps / seconds}
    report(values, *packages, "torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
