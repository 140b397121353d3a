"""One step of Adam (Kingma and Ba, 2015) on one vector of parameters, with the optional L2 term added to the gradient."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from rl_training.kernels.compiled import library_for
from rl_training.kernels.threads import num_threads


class AdamState(NamedTuple):
    """What is known of a parameter's gradients so far."""

    exp_avg: Tensor
    exp_avg_sq: Tensor
    step: Tensor  # how many there were


class AdamSettings(NamedTuple):
    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float


def definition(parameter: Tensor, gradient: Tensor, state: AdamState, settings: AdamSettings) -> None:
    """The step in torch, in place and outside of autograd."""
    rate, beta1, beta2, eps, weight_decay = settings
    gradient = gradient + weight_decay * parameter if weight_decay else gradient
    state.step.add_(1)
    state.exp_avg.lerp_(gradient, 1 - beta1)
    state.exp_avg_sq.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    count = float(state.step)
    scale = state.exp_avg_sq.sqrt().div_((1 - beta2**count) ** 0.5).add_(eps)
    parameter.addcdiv_(state.exp_avg, scale, value=-rate / (1 - beta1**count))


def adam_step(parameter: Tensor, gradient: Tensor, state: AdamState, settings: AdamSettings) -> None:
    """`definition`, in C where it can be."""
    compiled = library_for(parameter, gradient)
    if compiled is None or not (parameter.is_contiguous() and gradient.shape == parameter.shape):
        definition(parameter, gradient, state, settings)
        return
    gradient, (exp_avg, exp_avg_sq, step) = gradient.contiguous(), state
    compiled.adam(
        parameter.data_ptr(), gradient.data_ptr(), exp_avg.data_ptr(), exp_avg_sq.data_ptr(), step.data_ptr(),
        parameter.numel(), *settings, num_threads(),
    )  # fmt: skip
