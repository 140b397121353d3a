"""Adam, and the two other things done to vectors of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.errors import MisfitError
from rl_training.forms import like
from rl_training.kernels.adam import AdamSettings, AdamState, adam_step
from rl_training.kernels.differentiable import outside_autograd
from rl_training.types import State


class Adam:
    """Adam on a few tensors, usually one flat vector.

    Not `torch.optim.Adam`: constructing the first one imports torch._dynamo, a second of every start, and its
    bookkeeping costs as much as the mathematics for networks of this size.
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

    @outside_autograd
    def step(self, gradients: Sequence[Tensor | None]) -> None:
        """Descend along `gradients`, one per parameter. A parameter without one rests, and so does what is known of it."""
        settings = AdamSettings(self.learning_rate, *self.betas, self.eps, self.weight_decay)
        states = map(AdamState, self.exp_avg, self.exp_avg_sq, self.steps)
        for parameter, gradient, state in zip(self.parameters, gradients, states, strict=True):
            if gradient is not None:
                adam_step(parameter, gradient, state, settings)

    def state_dict(self) -> State:
        return {"exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        like(self.state_dict())(state, "the state of Adam")  # copying would spread a single number over all
        if any(bool((moment < 0).any()) for name in ("exp_avg_sq", "steps") for moment in state[name]):
            raise MisfitError("the state of Adam holds a square or a count below 0")
        for name in ("exp_avg", "exp_avg_sq", "steps"):
            for mine, saved in zip(getattr(self, name), state[name], strict=True):
                mine.copy_(saved)


@outside_autograd
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


@outside_autograd
def polyak_update(source: Sequence[Tensor], target: Sequence[Tensor], tau: float) -> None:
    """Move `target` a fraction `tau` of the way to `source`."""
    for s, t in zip(source, target, strict=True):
        t.lerp_(s, tau)
