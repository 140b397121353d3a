"""A small checkpoint, and what it means to be the same."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import torch

from rl_training.experiment.checkpoint import CheckpointState

SOURCES = str(Path(__file__).parents[2] / "src")


def same(first: object, second: object) -> bool:
    """Equal in type, structure and every bit; NaN equals the NaN of the same bits."""
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, torch.Tensor | np.ndarray):
        return first.dtype == second.dtype and first.shape == second.shape and bits(first) == bits(second)
    return struct.pack("d", first) == struct.pack("d", second) if isinstance(first, float) else first == second


def bits(array: torch.Tensor | np.ndarray) -> bytes:
    return (
        array.view(torch.uint8).numpy().tobytes()
        if getattr(array, "dtype", None) == torch.bfloat16
        else np.asarray(array).tobytes()
    )


def small_state() -> CheckpointState:
    return CheckpointState(
        algorithm_state={"model": {"flat": torch.arange(6.0)}, "optimisers": [{"step": 3, "m": torch.zeros(2, 2)}]},
        buffer_state={
            "obs": torch.arange(12, dtype=torch.float32).reshape(4, 3),
            "rng": np.random.default_rng(7).bit_generator.state,
        },
        trainer_state={"global_step": 1000, "torch_stream": torch.get_rng_state()[:16]},
        config={"algo": "sac", "seed": 1},
        metadata={"exact": True},
    )
