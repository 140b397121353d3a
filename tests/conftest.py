"""Shared by all tests: one torch thread, so that parallel workers do not fight over the cores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Any]:
    """Forks training processes to be killed; one for all tests of a worker, since its imports take seconds.

    It stands here because a second file of this name would hide this one from those who import from it.
    """
    from faults.nursery import Nursery

    with Nursery() as made:
        yield made
