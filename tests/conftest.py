"""Shared by all tests: one torch thread, so that parallel workers do not fight over the cores."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
