"""A run to test with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rl_training.experiment.checkpoint import CheckpointState

SOURCES = str(Path(__file__).parents[2] / "src")


@dataclass(frozen=True)
class Config:
    output_dir: Path
    algo: str = "sac"
    env_id: str = "Pendulum-v1"
    seed: int = 3

    def to_yaml(self) -> str:
        return f"algo: {self.algo}\n"

    def to_dict(self) -> dict[str, Any]:
        return {"algo": self.algo}


def state(number: float = 0.0) -> CheckpointState:
    return CheckpointState(
        algorithm_state={"w": torch.full((4,), float(number))},
        buffer_state={"obs": torch.full((8, 2), float(number))},
        trainer_state={"global_step": int(number)},
        config={"algo": "sac"},
    )


def history(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
