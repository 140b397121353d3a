"""Milliseconds of one plan of mbrl-lib's PETS at the same budget: `peer_mbrl.py WHO ROW THREADS SEED`."""

from __future__ import annotations

import sys

import gymnasium as gym
import mbrl
import numpy as np
import omegaconf
import torch
from rows import ROWS, now, report


def pendulum_reward(actions: torch.Tensor, next_obs: torch.Tensor) -> torch.Tensor:
    angle = torch.atan2(next_obs[:, 1], next_obs[:, 0])
    return -(angle.square() + 0.1 * next_obs[:, 2].square() + 0.001 * actions[:, 0].square()).unsqueeze(1)


def never_ends(actions: torch.Tensor, next_obs: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
    return torch.zeros(len(next_obs), 1, dtype=torch.bool)


def agent_of(settings: dict, *, seed: int):
    from mbrl import models, planning
    from mbrl.util import common

    env = gym.make("Pendulum-v1")
    network = {
        "_target_": "mbrl.models.GaussianMLP",
        "_recursive_": False,
        "device": "cpu",
        "num_layers": len(settings["hidden"]),
        "ensemble_size": settings["members"],
        "hid_size": settings["hidden"][0],
        "in_size": "???",
        "out_size": "???",
        "deterministic": False,
        "propagation_method": "fixed_model",
        "activation_fn_cfg": {"_target_": "torch.nn.SiLU"},
    }
    algorithm = {"learned_rewards": False, "target_is_delta": True, "normalize": True}
    overrides = {"trial_length": 200, "num_steps": 5000, "model_batch_size": 256, "validation_ratio": 0}
    config = omegaconf.OmegaConf.create({"dynamics_model": network, "algorithm": algorithm, "overrides": overrides})
    model = common.create_one_dim_tr_model(config, env.observation_space.shape, env.action_space.shape)
    generator = torch.Generator().manual_seed(seed)
    imagined = models.ModelEnv(env, model, never_ends, pendulum_reward, generator=generator)
    # statistics for its normaliser, as a short random run would give them
    rng = np.random.default_rng(seed)
    columns = [rng.standard_normal(size).astype(np.float32) for size in ((1000, 3), (1000, 1), (1000, 3), 1000)]
    empty = np.zeros(1000, dtype=bool)
    model.update_normalizer(mbrl.types.TransitionBatch(columns[0], columns[1], columns[2], columns[3], empty, empty))
    search = {
        "_target_": "mbrl.planning.CEMOptimizer",
        "num_iterations": settings["iterations"],
        "elite_ratio": settings["topk"] / settings["candidates"],
        "population_size": settings["candidates"],
        "alpha": 0.1,
        "device": "cpu",
        "lower_bound": "???",
        "upper_bound": "???",
        "return_mean_elites": True,
        "clipped_normal": False,
    }
    plan = {
        "_target_": "mbrl.planning.TrajectoryOptimizerAgent",
        "_recursive_": False,
        "planning_horizon": settings["horizon"],
        "replan_freq": 1,
        "verbose": False,
        "action_lb": "???",
        "action_ub": "???",
        "optimizer_cfg": search,
    }
    described = omegaconf.OmegaConf.create(plan)
    return planning.create_trajectory_optim_agent_for_model(imagined, described, num_particles=settings["particles"])


def main() -> None:
    name, threads, seed = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    agent, obs = agent_of(ROWS[name].settings, seed=seed), np.zeros(3, dtype=np.float32)
    agent.act(obs)
    began, calls = now(), 2
    for _ in range(calls):
        agent.act(obs)
    milliseconds = 1e3 * (now() - began) / calls
    report({"milliseconds": milliseconds}, "mbrl", "torch", "numpy", "gymnasium")


if __name__ == "__main__":
    main()
