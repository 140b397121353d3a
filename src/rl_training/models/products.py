"""What layers are made of, where torch's own way is the slow one: thin matrix products, and tanh.

A last layer has few columns, and BLAS is slow at products with few columns: the transposed product, or one
matrix-vector product per member, takes a tenth of the time at the sizes used here; the latter numpy makes in one call.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.models.blas import by_numpy, multiply

THIN = 16  # columns up to which the transposed product wins


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x · weight + bias, for one network or for several side by side."""
    if by_numpy(x, weight) or _members_columns(weight):
        return multiply(x, weight, x.new_empty(*x.shape[:-1], weight.shape[-1])).add_(bias)
    columns = weight.shape[-1]
    if weight.dim() == 2:
        # rows in memory again: whoever draws noise for the output draws it in that order
        return torch.mm(weight.mT, x.mT).mT.contiguous() + bias if 1 < columns <= THIN else torch.addmm(bias, x, weight)
    return torch.baddbmm(bias, x, weight)


def weight_gradient(x: Tensor, gradient: Tensor, out: Tensor) -> None:
    """xᵀ · gradient, into `out`."""
    columns = gradient.shape[-1]
    if by_numpy(x.mT, gradient) or _members_columns(out):
        multiply(x.mT, gradient, out)
    elif out.dim() == 2:
        if 1 < columns <= THIN:
            out.copy_(torch.mm(gradient.mT, x).mT)
        else:
            torch.mm(x.mT, gradient, out=out)
    else:
        torch.bmm(x.mT, gradient, out=out)


def _members_columns(weight: Tensor) -> bool:
    """Whether a layer is a single column for each of several members, on the CPU."""
    return weight.dim() == 3 and weight.shape[-1] == 1 and weight.is_cpu


def through(gradient: Tensor, weight: Tensor) -> Tensor:
    """gradient · weightᵀ: what reaches the layer's inputs."""
    if by_numpy(gradient, weight.mT):
        return multiply(gradient, weight.mT, gradient.new_empty(*gradient.shape[:-1], weight.shape[-2]))
    if weight.shape[-1] == 1:
        return gradient * weight.mT
    return torch.mm(gradient, weight.mT) if weight.dim() == 2 else torch.bmm(gradient, weight.mT)


def tanh_(x: Tensor) -> Tensor:
    """In place; `x` is outside of autograd."""
    if x.device.type != "cpu":
        return x.tanh_()
    # the same memory by numpy: its vectorised tanh takes half the time of torch's
    view = x.numpy()
    np.tanh(view, out=view)
    return x
