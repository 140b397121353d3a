"""How the time of a generation falls with Ray workers: measured with one and two, computed beyond.

    python benchmarks/cluster/run.py            # about two minutes on two free cores; writes results/halfcheetah.json

A cluster of two nodes with one core each is started on this machine. Each setting trains OpenAI ES for a few generations of
HalfCheetah-v5; the first ones, in which workers warm up, are left out. The model is T(W) = s + e / W + m W:

- s, the learner's step, made by the learner and then by every worker at once: twice what it was measured to take here;
- m, what the learner does for each worker: measured with empty calls, one after another;
- e, the episodes: what is left of the time with one worker.

So only T(1) is fitted; T(2) is a prediction that stands beside the measured time.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
from ray.cluster_utils import Cluster

from rl_training import TrainConfig
from rl_training.experiment.metadata import numeric_environment
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.openai_es_trainer import train_openai_es

WARM, TIMED = 2, 10  # generations
DIRECTIONS, STEPS = 32, 200
EMPTY_CALLS = 200
WORKERS = (1, 2, 4, 8, 16, 32)
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


class Clock(Callback):
    """When each generation was learnt from, what had been sent by then, and what an empty call costs."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.steps: list[float] = []  # seconds of the learner's own step
        self.collected = 0.0
        self.num_parameters = 0
        self.traffic: list[Any] = []
        self.wire: list[int] = []
        self.empty_call: float | None = None

    def on_collect_end(self, trainer: Any, result: Any) -> None:  # noqa: ARG002 (the name is the library's)
        self.collected = time.perf_counter()

    def on_update_end(self, trainer: Any, result: Any) -> None:  # noqa: ARG002 (the name is the library's)
        self.times.append(time.perf_counter())
        self.steps.append(self.times[-1] - self.collected)
        self.num_parameters = trainer.algorithm.model.num_parameters
        self.wire.append(loopback_bytes())
        self.traffic.append(getattr(trainer.pool, "traffic", None))
        if len(self.times) == WARM + TIMED and self.traffic[-1] is not None:
            actor = trainer.pool._workers[0].actor
            begun = time.perf_counter()
            for _ in range(EMPTY_CALLS):
                ray.get(actor.hello.remote())
            self.empty_call = (time.perf_counter() - begun) / EMPTY_CALLS


def loopback_bytes() -> int:
    """Bytes that have gone through the loopback device, on which all nodes of this cluster are."""
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0])
    return 0


def measured(folder: str, **settings: Any) -> dict[str, Any]:
    steps = 2 * DIRECTIONS * STEPS * (WARM + TIMED)
    options = {
        "num_directions": DIRECTIONS,
        "hidden_sizes": [64, 64],
        "eval_interval": 10**9,
    }
    config = TrainConfig(
        algo="openai_es", env_id="HalfCheetah-v5", seed=1, total_timesteps=steps, output_dir=folder, eval_episodes=0,
        log_interval=10**9, checkpoint_interval=10**9, env_kwargs={"max_episode_steps": STEPS}, algo_kwargs=options, **settings,
    )  # fmt: skip
    clock = Clock()
    train_openai_es(config, callbacks=[clock])
    seconds = [after - before for before, after in zip(clock.times[WARM - 1 : -1], clock.times[WARM:], strict=True)]
    told: dict[str, Any] = {
        "seconds_per_generation": round(statistics.median(seconds), 4),
        "all_seconds": [round(value, 4) for value in seconds],
        "learner_step_seconds": round(statistics.median(clock.steps[WARM:]), 4),
        "num_parameters": clock.num_parameters,
    }
    if clock.empty_call is not None:
        sent, received, _ = (
            (after - before) / TIMED for before, after in zip(clock.traffic[WARM - 1], clock.traffic[-1], strict=True)
        )
        told |= {
            "bytes_sent_per_generation": round(sent),
            "bytes_received_per_generation": round(received),
            "loopback_bytes_per_generation": round((clock.wire[-1] - clock.wire[WARM - 1]) / TIMED),
            "empty_call_seconds": round(clock.empty_call, 6),
            "state_bytes": clock.traffic[-1].states,
        }
    return told


def main() -> None:
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        results["local_sync"] = measured(folder)
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        cluster.add_node(**NODE)
        cluster.wait_for_nodes()
        idle = loopback_bytes()
        time.sleep(3.0)
        results["idle_loopback_bytes_per_second"] = round((loopback_bytes() - idle) / 3.0)
        try:
            for workers in (1, 2):
                settings = {
                    "execution_backend": "ray",
                    "ray_address": cluster.address,
                    "ray_workers": workers,
                }
                results[f"ray_{workers}"] = measured(folder, **settings)
        finally:
            ray.shutdown()
            cluster.shutdown()
    one, message = (
        results["ray_1"]["seconds_per_generation"],
        results["ray_1"]["empty_call_seconds"],
    )
    alone = 2 * results["ray_1"]["learner_step_seconds"]
    episodes = one - alone - message
    model = {str(count): round(alone + episodes / count + message * count, 4) for count in WORKERS}
    results["model"] = {
        "alone": round(alone, 4),
        "episodes": round(episodes, 4),
        "message": message,
        "seconds": model,
    }
    task = {
        "algo": "openai_es",
        "env_id": "HalfCheetah-v5",
        "directions": DIRECTIONS,
        "steps_per_episode": STEPS,
    }
    facts = {
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "task": task,
        **numeric_environment(),
        "ray": ray.__version__,
    }
    path = Path(__file__).parent / "results" / "halfcheetah.json"
    path.write_text(
        json.dumps({**facts, "cores": os.cpu_count(), **results}, indent=1) + "\n",
        encoding="utf-8",
    )
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
