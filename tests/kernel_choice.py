"""Which library in C a test's ops compute with, if any."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rl_training.kernels import library

_RUN_HERE = {"avx512": ["avx512", "avx2"], "avx2": ["avx2"]}.get(library.kind_of_processor(), [])
KINDS = [kind for kind in _RUN_HERE if library.load(kind) is not None]
"""The libraries that were compiled and that this processor runs."""

needs_library = pytest.mark.skipif(not KINDS, reason="the library in C was not compiled for this processor")


def compute_with(kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ops compute with that library, or by their definitions in torch."""
    monkeypatch.setattr(library, "library", lambda: None if kind is None else library.load(kind))


def assert_near(found: Tensor, exact: Tensor, *, within: float = 2e-5) -> None:
    """In units of the largest number, and with NaN in the same places."""
    assert found.shape == exact.shape
    size = exact.nan_to_num().abs().max().item() if exact.numel() else 0.0
    torch.testing.assert_close(found.double(), exact.double(), rtol=0, atol=within * (size + 1e-6), equal_nan=True)
