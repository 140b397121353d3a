"""Adam on a few tensors, usually one flat vector, and the two other things done to such vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

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
    bookkeeping costs as much as the mathematics for networks of this size. The kernel underneath is torch's own.
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
        self.parameters = list(parameters)
        self.base_learning_rate = self.learning_rate = learning_rate  # schedules move the second
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self.exp_avg = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        self.exp_avg_sq = [torch.zeros_like(p, requires_grad=False) for p in self.parameters]
        self.steps = [torch.zeros((), dtype=torch.float32, device=p.device) for p in self.parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor | None]) -> None:
        """Descend along `gradients`, one per parameter. A parameter without one rests, and so does what is known of it."""
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

    def state_dict(self) -> State:
        return {"exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("exp_avg", "exp_avg_sq", "steps"):
            for mine, saved in zip(getattr(self, name), state[name], strict=True):
                mine.copy_(saved)


@torch.no_grad()
def clip_gradients(gradients: Sequence[Tensor | None], max_norm: float | None) -> Tensor:
    """Scale `gradients` together so that their norm is at most `max_norm`; gives the norm before."""
    known = [g for g in gradients if g is not None]
    if not known:
        return torch.zeros(())
    norms = [torch.linalg.vector_norm(g) for g in known]
    norm: Tensor = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    if max_norm is not None:
        scale = (max_norm / (norm + 1e-6)).clamp_(max=1.0)
        for gradient in known:
            gradient.mul_(scale)
    return norm


@torch.no_grad()
def polyak_update(source: Sequence[Tensor], target: Sequence[Tensor], tau: float) -> None:
    """Move `target` a fraction `tau` of the way to `source`."""
    for s, t in zip(source, target, strict=True):
        t.lerp_(s, tau)
