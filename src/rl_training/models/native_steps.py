"""What learners do between and after passes, in C (`rl_training.native`): squashed samples, targets, Adam, averages.

The same mathematics stands beside each caller in torch's operators, for other devices and where nothing was compiled.
Everything is outside of autograd.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training import native
from rl_training.models.native_net import floats, passes_threads


def steps_serve(*tensors: Tensor) -> bool:
    """Whether these functions can be called with such tensors in this process."""
    for tensor in tensors:  # not `all`, which takes as long again
        if not (tensor.is_cpu and tensor.dtype == torch.float32):
            return False
    return native.library() is not None


def squash(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """tanh(mean + std · noise), its log-probabilities, and std · noise, for outputs (rows, 2 width) and noise (rows, width)."""
    rows, width = noise.shape
    actions, spread, logprobs = floats(rows, width), floats(rows, width), floats(rows)
    outputs, noise = outputs.contiguous(), noise.contiguous()
    given, made = (outputs.data_ptr(), noise.data_ptr()), (actions.data_ptr(), logprobs.data_ptr(), spread.data_ptr())
    _library().squash(*given, rows, width, *made)
    return actions, logprobs, spread


def squash_back(outputs: Tensor, actions: Tensor, spread: Tensor, *, d_actions: Tensor, d_logprobs: Tensor) -> Tensor:
    """The gradient at `outputs` from those at the actions and their log-probabilities."""
    rows, width = actions.shape
    known = [tensor.contiguous() for tensor in (outputs, actions, spread, d_actions, d_logprobs)]
    d_outputs = floats(rows, 2 * width)
    _library().squash_back(*(tensor.data_ptr() for tensor in known), rows, width, d_outputs.data_ptr())
    return d_outputs


def targets(q_values: Tensor, rewards: Tensor, dones: Tensor, *, gamma: float, entropy_term: Tensor | None) -> Tensor:
    """r + γ (1 − done) (min q − entropy term), from q_values (critics, batch)."""
    (critics, rows), q_values = q_values.shape, q_values.contiguous()
    found, entropy = floats(rows), None if entropy_term is None else entropy_term.contiguous()
    apart = rewards.stride(0), dones.stride(0)
    given = q_values.data_ptr(), critics, rewards.data_ptr(), dones.data_ptr(), *apart
    _library().targets(*given, None if entropy is None else entropy.data_ptr(), gamma, rows, found.data_ptr())
    return found


def squared_errors(q_values: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Of q_values (critics, batch): mean squared distances from the target (batch,), added up; and the target's mean."""
    q_values, target, found = q_values.contiguous(), target.contiguous(), floats(2)
    _library().squared_errors(q_values.data_ptr(), len(q_values), target.data_ptr(), q_values.shape[1], found.data_ptr())
    loss, mean = found.unbind()
    return loss, mean


def mean(numbers: Tensor) -> Tensor:
    """Their mean, of at least one."""
    numbers, found = numbers.contiguous(), floats(())
    _library().mean_of(numbers.data_ptr(), numbers.numel(), found.data_ptr())
    return found


def lowest_shares(q_values: Tensor, share: float) -> Tensor:
    """`share` for the lowest of each column of q_values (critics, batch), divided between equal ones; 0 for the others."""
    q_values = q_values.contiguous()
    shares = torch.empty_like(q_values)
    _library().lowest_shares(q_values.data_ptr(), *q_values.shape, share, shares.data_ptr())
    return shares


class AdamStep:
    """Steps of Adam on parameters, from their gradient, and on both moments; all of one length, and contiguous.

    `count`, of one number, is how many there were. Addresses are read once, so ask whether it `stands` before a step.
    """

    def __init__(self, parameters: Tensor, gradient: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, count: Tensor) -> None:
        self._tensors = (parameters, gradient, exp_avg, exp_avg_sq, count)  # as long as they are here, their memory is
        self._addresses = tuple(tensor.data_ptr() for tensor in self._tensors)
        self._length, self._adam = parameters.numel(), _library().adam

    def stands(self) -> bool:
        """Whether the tensors' memory is where it was: `share_memory_`, `set_` and `resize_` move it elsewhere."""
        return self._addresses == tuple([tensor.data_ptr() for tensor in self._tensors])

    def __call__(self, settings: tuple[float, ...]) -> None:
        self._adam(*self._addresses, self._length, *settings, passes_threads())


def follow(source: Tensor, target: Tensor, tau: float) -> None:
    """Move `target` a fraction `tau` of the way to `source`; both are contiguous."""
    _library().follow(source.data_ptr(), target.data_ptr(), target.numel(), tau, passes_threads())


def _library() -> native.Passes:
    passes = native.library()
    assert passes is not None
    return passes
