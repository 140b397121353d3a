"""Small configurations of every algorithm (`tests/small/*.yaml`), and how to compare what runs leave behind.

A new algorithm adds a file, and every contract takes it in.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.experiment.yaml_loader import load_yaml
from rl_training.options._offline import OfflineOptions
from rl_training.runtime.callbacks import Callback

SMALL = Path(__file__).parents[1] / "small"
NAMES = sorted(path.stem for path in SMALL.glob("*.yaml"))
ALGORITHMS = [name for name in NAMES if "_mujoco" not in name and "_alt" not in name]  # one for each algorithm
MASKED = ["ppo_alt_masks", "ppg_alt_parts"]
CHOOSING = [*MASKED, "openai_es_alt_parts", "ars_alt_bits"]  # several things at once, or what is allowed alone
OFFLINE = [
    name for name in ALGORITHMS if issubclass(get_algorithm_spec(name).config, OfflineOptions)
]  # as these configure them
PARTS = ("algorithm_state", "buffer_state", "trainer_state")
# nothing is an improvement by so much: the first evaluation is the best, and the second ends the run
ENDS_EARLY = {"early_stopping": {"patience": 1, "min_delta": 1e9}}


def small_config(name: str, output_dir: Path, **changes: Any) -> TrainConfig:
    values = load_yaml(SMALL / f"{name}.yaml")
    options = {**values.pop("algo_kwargs", {}), **changes.pop("algo_kwargs", {})}
    return TrainConfig(**{**values, "output_dir": output_dir, "algo_kwargs": options, **changes})


def train(config: TrainConfig, **options: Any) -> Any:
    return get_algorithm_spec(config.algo).train_fn(config, **options)


class StopAt(Callback):
    """Ends a run at the first turn that reaches a step, as a signal would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_collect_end(self, trainer: Any, result: Any) -> None:
        if trainer.global_step >= self.step:
            trainer.request_stop("the test wants it", over=False)


def difference(a: Any, b: Any, path: str = "") -> str | None:
    """Where two trees of state first differ, bit for bit; None if nowhere."""
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return f"{path}: keys {sorted(map(str, a))} and {sorted(map(str, b))}"
        return next((found for key in a if (found := difference(a[key], b[key], f"{path}/{key}"))), None)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            return f"{path}: lengths {len(a)} and {len(b)}"
        return next(
            (found for i, (x, y) in enumerate(zip(a, b, strict=True)) if (found := difference(x, y, f"{path}/{i}"))), None
        )
    if isinstance(a, torch.Tensor | np.ndarray):
        x, y = np.asarray(a), np.asarray(b)
        same = x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        return None if same else f"{path}: arrays of shapes {x.shape}, {y.shape} differ"
    return None if a == b or (a != a and b != b) else f"{path}: {a!r} and {b!r}"  # noqa: PLR0124 (nan is nan)


def state_difference(one: Path, other: Path, parts: tuple[str, ...] = PARTS) -> str | None:
    a, b = load_checkpoint(one), load_checkpoint(other)
    return next((found for part in parts if (found := difference(getattr(a, part), getattr(b, part), part))), None)


def history(run_dir: Path) -> list[dict[str, Any]]:
    """The metrics of a run without what the clock decides."""
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["metrics"] = {name: value for name, value in line["metrics"].items() if not name.startswith("time/")}
    return lines
