"""Single parts of this library, timed by its public API: `ours_parts.py WHO ROW THREADS SEED`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from about import computing
from plain_torch import seconds_per_call
from rows import ROWS, Row, now, report

from rl_training import PPO, SAC, TrainConfig
from rl_training.algorithms import PETS
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.models import MLPMOPOEnsembleModel
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.torch_settings import torch_settings
from rl_training.runtime.workflows import resume_training
from rl_training.types import Collected, TrainResult

MILLION = 1_000_000


def plan(row: Row, *, threads: int) -> dict[str, float]:
    """Milliseconds of `plan_action` with a fresh ensemble; what it has learnt does not change the work."""
    settings = row.settings
    learner = PETS(MLPMOPOEnsembleModel(3, 1, settings["hidden"], settings["members"]), 1e-3)

    def once() -> None:
        learner.plan_action(
            np.zeros(3, dtype=np.float32),
            action_low=-2.0,
            action_high=2.0,
            horizon=settings["horizon"],
            num_candidates=settings["candidates"],
            num_iterations=settings["iterations"],
            num_topk=settings["topk"],
            num_particles=settings["particles"],
        )

    with torch_settings(threads):  # as every run has them
        return {"milliseconds": 1e3 * seconds_per_call(once, calls=3, warm_up=1)}


class Rollouts(Callback):
    """How long MOPO's refreshes take: the turn's collecting, which does nothing else."""

    def __init__(self) -> None:
        self.began, self.seconds = 0.0, 0.0

    def on_update_end(self, trainer: Any, result: Any) -> None:  # noqa: ARG002
        self.began = now()

    def on_collect_end(self, trainer: Any, result: Collected) -> None:  # noqa: ARG002
        if trainer.global_step == 1:
            self.seconds = now() - self.began


def rollouts(row: Row, *, threads: int, seed: int, folder: str) -> dict[str, float]:
    config = config_for(row.algo, row.env_id, folder, seed=seed, threads=threads, total_timesteps=1, algo_kwargs=row.settings)
    clock = Rollouts()
    result = get_algorithm_spec(row.algo).train_fn(config, callbacks=[clock])
    return {"rate": result.metrics["synthetic_buffer_size"] / clock.seconds}


def predict(*, threads: int, seed: int, folder: str) -> dict[str, float]:
    """Microseconds of `predict` on one observation, after a few steps of learning."""
    agents: dict[str, Any] = {
        "sac": SAC(config_for("sac", "Pendulum-v1", folder, seed=seed, threads=threads, total_timesteps=10)),
        "ppo": PPO(config_for("ppo", "CartPole-v1", folder, seed=seed, threads=threads, total_timesteps=128)),
    }
    torch.set_num_threads(threads)
    found = {}
    for name, agent in agents.items():
        agent.learn()
        obs = np.random.default_rng(seed).standard_normal(3 if name == "sac" else 4).astype(np.float32)
        found[name] = 1e6 * seconds_per_call(lambda agent=agent, obs=obs: agent.predict(obs), calls=5_000, warm_up=500)
    return found


def startup(folder: str) -> dict[str, float]:
    """Seconds from the command to its end, or to its first logged training step."""
    command = [sys.executable, "-m", "rl_training"]
    found = {}
    for word in ("--help", "list"):
        began = time.perf_counter()
        subprocess.run([*command, word], stdout=subprocess.DEVNULL, check=True)
        found[word.strip("-")] = time.perf_counter() - began
    began = time.perf_counter()
    short = ["--total-timesteps", "8", "--eval-episodes", "0", "--output-dir", folder, "num_steps=1"]
    subprocess.run(
        [*command, "train", "ppo/cartpole", *short], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    # the whole command, its one turn of 8 steps, its checkpoint and its way out: the first step comes before
    found["first_step"] = time.perf_counter() - began
    return found


class FullBuffer(Callback):
    """Fills the replay buffer with a million transitions before the first step, and times a checkpoint."""

    def __init__(self, seed: int) -> None:
        self.rng, self.seconds = np.random.default_rng(seed), 0.0

    def on_train_start(self, trainer: Any) -> None:
        obs_dim, action_dim = trainer.spec.obs_dim, trainer.spec.action_dim
        for _ in range(10):
            rows = MILLION // 10
            numbers = [
                self.rng.standard_normal((rows, width), dtype=np.float32) for width in (obs_dim, action_dim, obs_dim, 1, 1, 1)
            ]
            names = ("obs", "actions", "next_obs", "rewards", "dones", "cuts")
            trainer.loop.buffer.add(dict(zip(names, numbers, strict=True)))

    def on_collect_end(self, trainer: Any, result: Collected) -> None:  # noqa: ARG002
        began = time.perf_counter()
        trainer.save_checkpoint()
        self.seconds = time.perf_counter() - began


class FirstTurn(Callback):
    """The moment a resumed run has made its first turn."""

    def __init__(self) -> None:
        self.at = 0.0

    def on_collect_end(self, trainer: Any, result: Collected) -> None:  # noqa: ARG002
        self.at = self.at or time.perf_counter()


def checkpoint(*, threads: int, seed: int, folder: str) -> dict[str, float]:
    options = {"buffer_capacity": MILLION, "learning_starts": 2 * MILLION}
    config = config_for("sac", "HalfCheetah-v5", folder, seed=seed, threads=threads, total_timesteps=1, algo_kwargs=options)
    full = FullBuffer(seed)
    result: TrainResult = get_algorithm_spec("sac").train_fn(config, callbacks=[full])
    began = time.perf_counter()
    SAC.load(result.checkpoint_path).predict(np.zeros(17, dtype=np.float32))
    opened = time.perf_counter() - began
    began, first = time.perf_counter(), FirstTurn()
    resume_training(result.run_dir, total_timesteps=2, eval_episodes=0, callbacks=[first])
    return {"saved": full.seconds, "opened": opened, "resumed": first.at - began}


def config_for(algo: str, env_id: str, folder: str, *, seed: int, threads: int, **settings: Any) -> TrainConfig:
    return TrainConfig(algo=algo, env_id=env_id, seed=seed, output_dir=folder, num_threads=threads, eval_episodes=0, **settings)


def measured(name: str, *, threads: int, seed: int, folder: str) -> dict[str, float]:
    if name == "pets_plan":
        return plan(ROWS[name], threads=threads)
    if name.startswith("mopo_rollouts"):
        return rollouts(ROWS[name], threads=threads, seed=seed, folder=folder)
    if name == "startup":
        return startup(folder)
    timed = {"predict": predict, "checkpoint": checkpoint}[name]
    return timed(threads=threads, seed=seed, folder=folder)


def main() -> None:
    name, threads, seed = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    # beside the sources, as a checkpoint is written to a disk and not to memory
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        values = measured(name, threads=threads, seed=seed, folder=folder)
    report(values, "rl-training", computed_with=computing())


if __name__ == "__main__":
    main()
