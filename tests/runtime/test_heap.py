"""Freed memory stays with the process, so that an update does not fault in every page anew."""

import platform
import resource

import pytest
import torch

from rl_training.runtime.heap import keep_freed_memory

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's heap can be told")


def test_activations_of_the_next_update_fault_in_no_pages():
    assert keep_freed_memory()

    def update() -> None:
        kept = [torch.ones(512, 512) for _ in range(12)]  # 12 MiB, 3,072 pages
        del kept

    for _ in range(3):
        update()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        update()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 3_072  # of 30,720 without it
