"""How the cost of one step grows with its sizes: `python benchmarks/speed/scaling.py`, by processor time, one thread."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from about import HERE, circumstances, computing

from rl_training.algorithms import PETS, RLPD, SAC
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.envs.batched import make_batched
from rl_training.envs.pool import EnvPool
from rl_training.envs.source import EnvSource
from rl_training.models import MLPARSModel, MLPMOPOEnsembleModel, MLPSACModel
from rl_training.runtime.generation import Generation
from rl_training.runtime.population import PopulationEvaluator
from rl_training.runtime.torch_settings import torch_settings


def microseconds(function: Callable[[], object], *, seconds: float = 0.4, repeats: int = 5) -> float:
    """The median of a few short stretches."""
    function()
    began, calls = time.process_time(), 0
    while time.process_time() - began < seconds / 4:
        function()
        calls += 1
    found = []
    for _ in range(repeats):
        began = time.process_time()
        for _ in range(calls):
            function()
        found.append(1e6 * (time.process_time() - began) / calls)
    return statistics.median(found)


def columns(rows: int, obs_dim: int = 17, action_dim: int = 6) -> dict[str, np.ndarray]:
    rng, widths = np.random.default_rng(0), {"obs": obs_dim, "actions": action_dim, "next_obs": obs_dim}
    wide = {name: rng.standard_normal((rows, width), dtype=np.float32) for name, width in widths.items()}
    return wide | {name: rng.random(rows, dtype=np.float32) for name in ("rewards", "dones", "cuts")}


def buffer_step(size: int) -> float:
    """One transition in, a batch of 256 out, of a full buffer of HalfCheetah's width."""
    buffer = ReplayBuffer(size, obs_dim=17, action_dim=6, seed=0)
    buffer.add(columns(size))
    one = columns(1)

    def step() -> None:
        buffer.add(one)
        buffer.sample(256)

    return microseconds(step)


def batch(rows: int = 256) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(column) for name, column in columns(rows).items()}


def critic_update(critics: int) -> float:
    model = MLPSACModel(17, 6, (256, 256), num_critics=critics, layer_norm=True)
    learner, data = RLPD(model, learning_rate=3e-4, critic_subset_size=2), batch()
    return microseconds(lambda: learner.update(data, global_step=0), repeats=3)


def sac_update(width: int) -> float:
    learner, data = SAC(MLPSACModel(17, 6, (width, width)), learning_rate=3e-4), batch()
    return microseconds(lambda: learner.update(data, global_step=0), repeats=3)


def dynamics_update(members: int) -> float:
    model = MLPMOPOEnsembleModel(17, 6, (200, 200), num_ensembles=members)
    learner, data = PETS(model, learning_rate=1e-3), batch()
    return microseconds(lambda: learner.update(data, global_step=0), repeats=3)


def plan(candidates: int) -> float:
    learner, obs = PETS(MLPMOPOEnsembleModel(3, 1, (128, 128), 5), 1e-3), np.zeros(3, dtype=np.float32)
    budget: dict[str, Any] = {"horizon": 20, "num_iterations": 3, "num_topk": 8, "num_particles": 5}
    return microseconds(
        lambda: learner.plan_action(obs, action_low=-2, action_high=2, num_candidates=candidates, **budget), repeats=3
    )


def generation(population: int) -> float:
    source = EnvSource("Pendulum-v1", {})
    spec = source.spec()
    model = MLPARSModel(spec.obs_dim, spec.action_dim, (64, 64))
    evaluator = PopulationEvaluator(model, make_batched(source, spec, num_envs=population), spec)
    todo = Generation(0, 0, model.flat_parameters().numpy(), 0.1)
    return microseconds(lambda: evaluator.run(todo, range(population // 2)), repeats=3) / 200


def pool_step(num_envs: int, backend: str = "batched") -> float:
    source = EnvSource("CartPole-v1", {})
    pool = EnvPool(source, source.spec(), num_envs=num_envs, seed=0, stream=0, backend=backend)
    actions = np.arange(num_envs) % 2
    return microseconds(lambda: pool.step(actions))


CURVES: tuple[tuple[str, str, Callable[[int], float], tuple[int, ...]], ...] = (
    ("Replay: one in, 256 out", "rows in the buffer", buffer_step, (1_000, 10_000, 100_000, 1_000_000)),
    ("RLPD update", "critics", critic_update, (2, 5, 10, 20)),
    ("SAC update", "network width", sac_update, (32, 64, 128, 256, 512)),
    ("Update of dynamics, 2×200", "members", dynamics_update, (2, 5, 10, 20)),
    ("PETS plan", "candidates", plan, (25, 50, 100, 200, 400)),
    ("ES: a step of all", "population", generation, (16, 64, 256, 1024)),
    ("CartPole, batched: a step of all", "environments", pool_step, (1, 8, 64, 512)),
    ("CartPole, stock: a step of all", "environments", partial(pool_step, backend="local_sync"), (1, 8, 64, 512)),
)


def curve(title: str, axis: str, function: Callable[[int], float], sizes: tuple[int, ...]) -> dict[str, Any]:
    points = [(size, float(f"{function(size):.4g}")) for size in sizes]
    exponents = [math.log(b / a) / math.log(y / x) for (x, a), (y, b) in pairwise(points)]
    # of the last stretch too: what small sizes cost is mostly the call itself
    grows = {"exponent": round(exponents[-1], 3), "largest": round(max(exponents), 3)}
    return {"title": title, "axis": axis, "points": points, **grows, "expected": 2 if axis == "network width" else 1}


def main() -> None:
    torch.manual_seed(0)
    about, found = circumstances("python benchmarks/speed/scaling.py"), []
    with torch_settings(1):  # as every run has them
        for entry in CURVES:
            found.append(curve(*entry))
            print(found[-1], flush=True)
    record = {"curves": found, **about, "computed_with": computing()}
    (HERE / "results" / "scaling.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
