"""Run directories to report on, written without any training."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

VERSIONS = {"python": "3.11.7", "rl_training": "0.1.0", "torch": "2.9.0", "numpy": "2.1.0", "gymnasium": "1.2.0"}


def make_run(
    folder: Path,
    *,
    algo: str = "ppo",
    env_id: str = "CartPole-v1",
    seed: int = 1,
    suffix: str = "test",
    points: int = 20,
    steps_per_point: int = 1000,
    total: int | None = None,
    tags: Iterable[str] = (),
    evaluated: bool = True,
    final: float | None = None,
    **algo_kwargs: Any,
) -> Path:
    """A run whose evaluations rise from 0 towards 500 (or `final`), each seed a little differently."""
    run = folder / f"{algo}__{env_id}__seed{seed}__{suffix}"
    run.mkdir(parents=True)
    config = {"algo": algo, "env_id": env_id, "seed": seed, "total_timesteps": total or points * steps_per_point}
    config |= {"output_dir": str(folder), "tags": list(tags), "algo_kwargs": algo_kwargs}
    (run / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    (run / "metadata.json").write_text(json.dumps({"versions": VERSIONS, "cpu_model": "a processor", "cpu_count": 2}))
    lines = []
    for number in range(1, points + 1):
        share = number / points
        value = (500 if final is None else final) * share + 10 * math.sin(number + seed) * (number < points)
        metrics = {
            "global_step": number * steps_per_point,
            "updates": number * 10,
            "episode_return": value / 2,
            "loss": 1 / number,
        }
        metrics |= {"time/steps_per_second": 2000.0, "time/updates_per_second": 20.0, "nothing": None}
        metrics |= {"eval_return_mean": value, "eval_return_std": 12.5, "eval_episodes": 5} if evaluated else {}
        lines.append(json.dumps({"step": number * steps_per_point, "metrics": metrics}))
    (run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return run
