"""Which library in C a test's ops compute with, if any."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor

from rl_training.kernels import library
from rl_training.kernels.compiled import library_for

_RUN_HERE = {"avx512": ["avx512", "avx2"], "avx2": ["avx2"]}.get(library.kind_of_processor(), [])
KINDS = [kind for kind in _RUN_HERE if library.load(kind) is not None]
"""The libraries that were compiled and that this processor runs."""

needs_library = pytest.mark.skipif(not KINDS, reason="the library in C was not compiled for this processor")


def compute_with(kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ops compute with that library, or by their definitions in torch."""
    before, chosen = library.library, None if kind is None else library.load(kind)
    for name, module in list(sys.modules.items()):  # whoever imported the function by its name
        if name.startswith("rl_training.") and vars(module).get("library") is before:
            monkeypatch.setattr(module, "library", lambda: chosen)
    assert library_for(torch.zeros(1)) is chosen


def assert_near(found: Tensor, exact: Tensor, *, within: float = 2e-5) -> None:
    """In units of the largest number, and with NaN in the same places."""
    assert found.shape == exact.shape
    size = exact.nan_to_num().abs().max().item() if exact.numel() else 0.0
    torch.testing.assert_close(found.double(), exact.double(), rtol=0, atol=within * (size + 1e-6), equal_nan=True)
