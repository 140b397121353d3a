"""Torch's random state: saved with the run, and kept away from evaluation. And the numbers of the other streams.

Everything else that draws numbers owns a `numpy` generator and saves it itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import torch

from rl_training.forms import Array, Each, Record, like
from rl_training.types import State


class Stream(IntEnum):
    """The second number of every seed: what is drawn for one purpose never meets what is drawn for another."""

    TRAIN_ENVS = 0
    EVAL_ENVS = 1
    WARMUP_ACTIONS = 2
    REPLAY = 3
    PERTURBATIONS = 4
    POPULATION_ENVS = 5
    ACTION_NOISE = 6
    MODEL_FITS = 7
    DATASET_SAMPLING = 10
    DATASET_ENVS = 11
    DATASET_ACTIONS = 12


TORCH_RNG = Record({"cpu": like(torch.default_generator.get_state()), "cuda": Each(Array((None,), "i"))})
"""The form of its state."""


class TorchRng:
    """Torch's own stream, on the CPU and on every GPU there is."""

    def __init__(self) -> None:
        self._gpus = torch.cuda.is_available()  # asked once: every turn of a run begins with a look at the state

    def state_dict(self) -> State:
        return {"cpu": torch.default_generator.get_state(), "cuda": torch.cuda.get_rng_state_all() if self._gpus else []}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        torch.set_rng_state(state["cpu"])
        if self._gpus and state["cuda"]:
            torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def isolated_rng(seed: int) -> Iterator[None]:
    """Draw from a stream of our own; whatever happens inside, the outside stream goes on as before."""
    rng = TorchRng()
    before = rng.state_dict()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        rng.load_state_dict(before)
