"""One timed run of Stable-Baselines3, SB3-contrib or SBX on the same work: `peer_sb3.py WHO ROW THREADS SEED`."""

from __future__ import annotations

import importlib
import json
import sys
from collections import deque
from typing import Any

import torch
from rows import ROWS, Row, now
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env


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


def model_of(who: str, row: Row, *, seed: int) -> tuple[Any, str]:
    settings = row.settings
    if row.algo == "ars":
        library = importlib.import_module("sb3_contrib")
        env = make_vec_env(row.env_id, n_envs=1, seed=seed)
        sizes = {"net_arch": settings["hidden_sizes"]}
        count = settings["num_directions"]
        model = library.ARS("MlpPolicy", env, n_delta=count, n_top=count, policy_kwargs=sizes, seed=seed, device="cpu")
        return model, library.__version__
    library = importlib.import_module("sbx" if who == "sbx" else "stable_baselines3")
    env = make_vec_env(row.env_id, n_envs=row.num_envs or 1, seed=seed)
    device = {} if who == "sbx" else {"device": "cpu"}
    if row.algo == "ppo":
        falls = "learning_rate_schedule" in settings
        rate, clip = settings["learning_rate"], 0.2
        model = library.PPO(
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
        return model, library.__version__
    model = getattr(library, row.algo.upper())(
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
        **device,
    )
    return model, library.__version__


def main() -> None:
    who, name, threads, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    row = ROWS[name]
    torch.set_num_threads(threads)
    model, version = model_of(who, row, seed=seed)
    program = {"sbx": "sbx-rl", "sb3": "sb3-contrib" if row.algo == "ars" else "stable-baselines3"}[who]
    if row.algo == "ars":
        model.learn(12_800)  # warm-up; each call to `learn` counts from nothing
        began = now()
        model.learn(25_600)
        values = {"rate": model.num_timesteps / (now() - began)}
    else:
        clock = Clock(row.skip, 475 if name == "ppo_solve" else None)
        model.learn(row.total, callback=clock)
        assert clock.begin is not None
        steps, seconds = clock.end[0] - clock.begin[0], clock.end[1] - clock.begin[1]
        values = {"seconds": clock.end[1] - clock.began} if name == "ppo_solve" else {"rate": steps / seconds}
    print(json.dumps({"program": program, "version": version, "values": values}))


if __name__ == "__main__":
    main()
