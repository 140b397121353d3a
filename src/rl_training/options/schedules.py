"""How a coefficient changes while training goes on: a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from rl_training.options._core import Options, Problem, option


def warmup_factor(step: int, warmup_steps: int) -> float:
    """Rises linearly from 0 at step 0 to 1 at `warmup_steps`, and stays there."""
    return min(1.0, step / warmup_steps) if warmup_steps > 0 else 1.0


class Schedule(Options):
    """The course of one coefficient. Knows no training loop: ask it for the value at a step."""

    noun: ClassVar[str] = "a schedule"

    type: Literal["constant", "linear", "cosine"] = option("linear", "Shape of the way from start to end.")
    start: float | None = option(None, "Value at the beginning; none means the option's own value.", ge=0)
    end: float | None = option(None, "Value when `until` is reached; none means 0 for linear and cosine.", ge=0)
    warmup_steps: int = option(0, "Environment steps over which the value first rises linearly from 0.", ge=0)
    until: float = option(1.0, "Fraction of training at which `end` is reached; the value stays there afterwards.", gt=0, le=1)

    def value(self, step: int, total_steps: int, base: float, *, reached: int | None = None) -> float:
        """The coefficient at `step` of `total_steps`; `base` is the option's own value. The warm-up is where it is at
        `reached`, the end of the turn that begins at `step`, where that is known."""
        start = base if self.start is None else self.start
        progress = min(1.0, max(0.0, step / (self.until * total_steps))) if total_steps > 0 else 1.0
        share = {"constant": 1.0, "linear": 1.0 - progress, "cosine": 0.5 * (1.0 + math.cos(math.pi * progress))}[self.type]
        # a weighted mean rather than start + (end - start) * progress: it is exact at both ends
        return (share * start + (1.0 - share) * (self.end or 0.0)) * warmup_factor(
            step if reached is None else reached, self.warmup_steps
        )

    def contradictions(self) -> Iterator[Problem]:
        """A constant has no other end."""
        if self.type == "constant" and self.end is not None:
            yield Problem(("type", "end"), f"a constant schedule has no end, and {self.end} was given; use linear or cosine")

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`linear` is short for `{type: linear}`."""
        return {"type": value} if isinstance(value, str) else value

    @classmethod
    def form(cls) -> str:
        return f"'constant', 'linear', 'cosine', {super().form()}"
