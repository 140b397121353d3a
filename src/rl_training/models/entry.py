"""What learners are handed, as their networks take it: in rows, of the parameters' type, and outside of autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from rl_training.types import Batch

Method = TypeVar("Method", bound=Callable[..., Tensor])

OBSERVED = ("obs", "next_obs")


def type_of(parameters: Sequence[Tensor]) -> torch.dtype:
    """What networks with these parameters compute in."""
    return parameters[0].dtype if parameters else torch.float32


def of_any_obs(method: Method) -> Method:
    """Let a learner's method that answers to rows of observations (and what stands beside them) answer to a single one too,
    without an axis of rows then, and to observations of any type."""

    @wraps(method)
    def answer(self: Any, obs: Tensor, *beside: Tensor, **settings: Any) -> Tensor:
        if obs.dim() > 1 and obs.dtype is self.dtype and not obs.requires_grad:  # nearly always, and in 0.2 µs
            return method(self, obs, *beside, **settings)
        rows = obs if self.reads_bytes else obs.detach().to(self.dtype)
        if obs.dim() > 1:
            return method(self, rows, *beside, **settings)
        return method(self, rows.unsqueeze(0), *(column.unsqueeze(0) for column in beside), **settings)[0]

    return cast("Method", answer)


def plain(batch: Batch, dtype: torch.dtype, *, reads_bytes: bool = False) -> Batch:
    """The batch outside of autograd, its numbers of this type; the very same where it is so already, as nearly always. Rows of
    bytes are left to networks that read them."""
    observed = () if reads_bytes else OBSERVED
    for name, column in batch.items():  # half a microsecond; a function for each column would take three
        if column.requires_grad or ((kind := column.dtype) is not dtype and (kind.is_floating_point or name in observed)):
            return {name: _plain_column(column, dtype, whole=name not in observed) for name, column in batch.items()}
    return batch


def _plain_column(column: Tensor, dtype: torch.dtype, *, whole: bool) -> Tensor:
    """In this type, unless it may hold `whole` numbers and does: these are choices, or do as they are."""
    return column.detach().to(column.dtype if whole and not column.dtype.is_floating_point else dtype)


def flat_columns(batch: Mapping[str, Any], *names: str) -> list[Tensor]:
    """Columns of a loss as vectors (rows,), also where they came as (rows, 1), of which two make all pairs of rows."""
    columns = [batch[name].reshape(-1) for name in names]
    if len({len(column) for column in columns}) > 1:
        shapes = ", ".join(f"{name} {tuple(batch[name].shape)}" for name in names)
        raise ValueError(f"columns of different lengths make no loss: {shapes}")
    return columns
