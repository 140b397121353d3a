"""Options that change while training goes on, and the learner that is told so."""

from __future__ import annotations

from rl_training.algorithms.base import Algorithm
from rl_training.options.base import CommonOptions


class Scheduling:
    """What a learner was last told of its scheduled options; it is told again where something has changed."""

    def __init__(self, options: CommonOptions, algorithm: Algorithm, *, total_steps: int) -> None:
        self.options, self.algorithm, self.total_steps = options, algorithm, total_steps
        self._told: dict[str, float] = {}

    def tell(self, step: int, *, reached: int) -> dict[str, float]:
        """The values for a turn that began at `step`, and has come to `reached`."""
        values = self.options.scheduled_values(step, self.total_steps, reached=reached)
        if values != self._told:
            for name, value in values.items():
                self.algorithm.schedule(name, value)
            self._told = values
        return values
