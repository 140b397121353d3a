"""Adam on a few tensors, usually one flat vector, and the two other things done to such vectors."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_training.models.native_steps import AdamStep, follow, steps_serve
from rl_training.types import State


class _Slot(NamedTuple):
    """A parameter with its gradient and all that is known of it."""

    parameter: Tensor
    gradient: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor
    step: Tensor


class Adam:
    """Adam (Kingma and Ba, 2015), with the optional L2 term added to the gradient.

    Not `torch.optim.Adam`: constructing the first one imports torch._dynamo, a second of every start, and its
    bookkeeping costs as much as the mathematics for networks of this size. The kernel underneath is ours
    (`rl_training.native`) where it can be, else torch's own.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        *,
        learning_rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        self._owners = list(parameters)
        self.parameters = [p.data for p in parameters]
        self.base_learning_rate = self.learning_rate = learning_rate  # schedules move the second
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self.exp_avg = [torch.zeros_like(p) for p in self.parameters]
        self.exp_avg_sq = [torch.zeros_like(p) for p in self.parameters]
        self._native = steps_serve(*self.parameters) and all(p.is_contiguous() for p in self.parameters)
        self._fitting: Sequence[Tensor | None] = ()
        self._native_steps: list[AdamStep] = []
        self.steps = [torch.zeros((), dtype=torch.float32, device=p.device) for p in self.parameters]

    def step(self, gradients: Sequence[Tensor | None]) -> None:
        """Descend along `gradients`, one per parameter; like the parameters here, they are outside of autograd. A parameter
        without one rests, and so does what is known of it."""
        if self._native and self._fit(gradients):
            settings = (self.learning_rate, *self.betas, self.eps, self.weight_decay)
            for native_step in self._native_steps:
                native_step(settings)
            return
        moving = self._moving(gradients)
        for slot in moving:
            slot.step.add_(1)
        if not moving:
            return
        if hasattr(torch, "_fused_adam_"):
            self._fused_step(moving)
        else:
            self._plain_step(moving)

    def _moving(self, gradients: Sequence[Tensor | None]) -> list[_Slot]:
        each = zip(self.parameters, gradients, self.exp_avg, self.exp_avg_sq, self.steps, strict=True)
        return [_Slot(p, g, m, v, step) for p, g, m, v, step in each if g is not None]

    def _fit(self, gradients: Sequence[Tensor | None]) -> bool:
        """Whether C can read these gradients; most of the time they are those of the step before, and were looked at then."""
        known = len(gradients) == len(self._fitting) and all(map(operator.is_, gradients, self._fitting))
        if known and all(map(AdamStep.stands, self._native_steps)):
            return True
        moving = self._moving(gradients)
        fit = all(steps_serve(slot.gradient) and _fits(slot.gradient, slot.parameter) for slot in moving)
        self._fitting, self._native_steps = (), []
        if fit:
            self._fitting, self._native_steps = list(gradients), [AdamStep(*slot) for slot in moving]
        return fit

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "parameters": [], "_fitting": (), "_native_steps": []}  # a copy reads memory of its own

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self.parameters = [p.data for p in self._owners]  # of the networks that were copied along with it

    def _fused_step(self, moving: Sequence[_Slot]) -> None:
        parameters, gradients, exp_avgs, exp_avg_sqs, counts = map(list, zip(*moving, strict=True))
        torch._fused_adam_(
            parameters,
            gradients,
            exp_avgs,
            exp_avg_sqs,
            [],
            counts,
            lr=self.learning_rate,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )

    def _plain_step(self, moving: Sequence[_Slot]) -> None:
        """The same in ordinary operations, for a torch that has no fused kernel."""
        beta1, beta2 = self.betas
        for p, g, m, v, step in moving:
            gradient = g + self.weight_decay * p if self.weight_decay else g
            m.lerp_(gradient, 1 - beta1)
            v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            t = float(step)
            scale = v.sqrt().div_((1 - beta2**t) ** 0.5).add_(self.eps)
            p.addcdiv_(m, scale, value=-self.learning_rate / (1 - beta1**t))

    def descend(self, loss: Tensor, parameters: Sequence[Tensor], *, max_grad_norm: float | None = None) -> Tensor:
        """One step on `loss` by autograd; gives the gradient's norm. `parameters` are those given at construction.

        Those that require no gradient rest; for those that the loss does not reach it is zero, so that their momentum goes on.
        """
        moving = [p for p in parameters if p.requires_grad]
        if not moving:
            return torch.zeros_like(loss)
        found = torch.autograd.grad(loss, moving, allow_unused=True) if loss.requires_grad else [None] * len(moving)
        gradients = [torch.zeros_like(p) if g is None else g for p, g in zip(moving, found, strict=True)]
        norm = clip_gradients(gradients, max_grad_norm)
        gradient_of = dict(zip(moving, gradients, strict=True))
        self.step([gradient_of.get(p) for p in parameters])
        return norm

    def state_dict(self) -> State:
        return {"exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("exp_avg", "exp_avg_sq", "steps"):
            for mine, saved in zip(getattr(self, name), state[name], strict=True):
                mine.copy_(saved)


@torch.no_grad()
def clip_gradients(gradients: Sequence[Tensor], max_norm: float | None) -> Tensor:
    """Scale `gradients` together so that their norm is at most `max_norm`; gives the norm before."""
    if len(gradients) == 1:
        norm: Tensor = torch.linalg.vector_norm(gradients[0])
    else:
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
    if max_norm is not None:
        scale = (max_norm / (norm + 1e-6)).clamp_(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale)
    return norm


@torch.no_grad()
def polyak_update(source: Sequence[Tensor], target: Sequence[Tensor], tau: float) -> None:
    """Move `target` a fraction `tau` of the way to `source`."""
    for s, t in zip(source, target, strict=True):
        if steps_serve(s, t) and _fits(s, t) and t.is_contiguous():
            follow(s, t, tau)
        else:
            t.lerp_(s, tau)


def _fits(source: Tensor, target: Tensor) -> bool:
    """Whether C may read `source` number by number beside `target`."""
    return source.shape == target.shape and source.is_contiguous()
