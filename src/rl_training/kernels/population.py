"""The policies of a population in C (`c/policies.h`): one in the middle, and others a step away from it on both sides."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from rl_training.kernels.library import MOST_LAYERS, Population, library
from rl_training.kernels.mlp import floats


def population_serves(sizes: Sequence[int]) -> bool:
    """Whether such policies can be asked here. Those without hidden layers are one product, which numpy makes as fast."""
    return 3 <= len(sizes) <= MOST_LAYERS + 1 and library() is not None


class NativePolicies:
    """Of a tanh network (`sizes`, with or without biases), with parameters `center` [P] plus `steps[d]` [D, P] for member 2 d
    and minus that for 2 d + 1, `rows` observations each: put them into `obs` (members, rows, obs_dim), then `act_array`.

    What comes out for a member does not depend, to the last bit, on who else is there.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        center: np.ndarray,
        steps: np.ndarray,
        members: np.ndarray,
        *,
        rows: int,
        biased: bool,
        discrete: bool,
    ) -> None:
        passes = library()
        assert passes is not None
        size = sum((n_in + biased) * n_out for n_in, n_out in pairwise(sizes))
        center, steps = (np.ascontiguousarray(array, dtype=np.float32) for array in (center, steps))
        members = np.ascontiguousarray(members, dtype=np.int64)
        if center.shape != (size,) or steps.shape != (len(steps), size):
            raise ValueError(f"parameters of shapes {center.shape} and {steps.shape} for policies of {size}")
        if members.min(initial=0) < 0 or members.max(initial=0) >= 2 * len(steps):
            raise ValueError(f"members {members.tolist()} of {len(steps)} steps to both sides")
        self.discrete, self._act = discrete, passes.act_as_many
        self.obs = torch.zeros(len(members), rows, sizes[0], dtype=torch.float32)
        self._actions, memory = floats(len(members), rows, sizes[-1]), floats(2 * max(sizes))
        self._array = self._actions.numpy()
        self._held = center, steps, members, memory  # as long as they are here, their memory is
        self._population = population = Population(
            layers=len(sizes) - 1,
            biased=biased,
            bounded=not discrete,
            center=center.ctypes.data,
            steps=steps.ctypes.data,
            apart=size,
            members=members.ctypes.data,
            count=len(members),
            rows=rows,
            x=self.obs.data_ptr(),
            memory=memory.data_ptr(),
            to=self._actions.data_ptr(),
        )
        population.sizes[: len(sizes)] = sizes
        self._at = ctypes.addressof(population)

    def act_array(self) -> np.ndarray:
        """Actions (members, rows, action_dim) or indices (members, rows), in memory that the next call fills again."""
        self._act(self._at)
        return self._actions.argmax(dim=-1).numpy() if self.discrete else self._array
