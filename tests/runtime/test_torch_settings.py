"""Torch is put back as the user had it."""

from __future__ import annotations

import pytest
import torch

from rl_training.envs.processes import flushes_denormals
from rl_training.runtime.torch_settings import torch_settings


@pytest.mark.parametrize("usual", [True, False])
def test_numbers_too_small_for_full_precision_are_treated_afterwards_as_before(usual):
    torch.set_flush_denormal(usual)
    try:
        with torch_settings(1):
            assert flushes_denormals()
            with torch_settings(1):  # an evaluation within a training, say
                pass
            assert flushes_denormals()
        assert flushes_denormals() is usual
    finally:
        torch.set_flush_denormal(False)
