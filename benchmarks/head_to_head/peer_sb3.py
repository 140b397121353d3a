"""Stable-Baselines3 or SB3-contrib by its own program: `peer_sb3.py CONTEST SEED`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from contests import CONTESTS, CONTRIB, Contest
from judge import Stopwatch, mean_return, say
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecNormalize


def real(value: Any) -> Any:
    """A setting as the program wants it; 'falling 0.2' is a schedule that falls to 0."""
    if isinstance(value, str) and value.startswith("falling "):
        start = float(value.removeprefix("falling "))
        return lambda left: left * start
    return value


def trained(contest: Contest, *, seed: int) -> tuple[Any, Callable[[Any], Any], dict[str, float]]:
    library = sb3_contrib if contest.peer == CONTRIB else stable_baselines3
    settings = {key: real(value) for key, value in contest.settings.items()}
    if "action_noise" in settings:
        settings["action_noise"] = NormalActionNoise(np.zeros(1), settings["action_noise"] * np.ones(1))
    env: Any = make_vec_env(contest.env_id, n_envs=contest.num_envs, seed=seed)
    if contest.normalize:
        env = VecNormalize(env, norm_obs=True, norm_reward=False)
    model = getattr(library, contest.algo.upper())(contest.policy, env, seed=seed, device="cpu", **settings)
    watch = Stopwatch()
    model.learn(contest.steps)
    took = watch.stop()
    seen = env.normalize_obs if contest.normalize else (lambda obs: obs)
    return library, lambda obs: model.predict(seen(obs), deterministic=True)[0], took


def main() -> None:
    contest, seed = CONTESTS[sys.argv[1]], int(sys.argv[2])
    torch.set_num_threads(1)
    library, predict, took = trained(contest, seed=seed)
    say(library.__version__, took, mean_return(predict, contest.env_id))


if __name__ == "__main__":
    main()
