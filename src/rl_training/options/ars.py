"""Settings of ARS (Mania et al., 2018, arXiv:1803.07055)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rl_training.options._evolution import EvolutionOptions
from rl_training.options.base import HiddenSizes, Problem, option


class ARSConfig(EvolutionOptions):
    """Augmented random search: a linear policy, the best directions, steps scaled by the spread of returns."""

    algo: ClassVar[str] = "ars"
    summary: ClassVar[str] = "Augmented random search: linear policies from the best random directions"
    paper: ClassVar[str] = "Mania et al., 2018, arXiv:1803.07055"
    discrete: ClassVar[bool] = True
    in_parts: ClassVar[bool] = True
    continuous: ClassVar[bool] = True

    hidden_sizes: HiddenSizes = option((), "Width of each hidden layer; none at all makes the policy linear, as in the paper.")
    step_size: float = option(0.02, "Step along the estimate; learning_rate_schedule and warmup_steps move it.", gt=0)
    noise_std: float = option(0.03, "Standard deviation of the perturbations.", gt=0)
    num_top_directions: int | None = option(None, "Best directions that are used; none means all of them.", ge=1)
    survival_bonus: float = option(0.0, "Reward per step that is taken off in training, so that standing still earns nothing.")

    def contradictions(self) -> Iterator[Problem]:
        """The best are chosen among those tried."""
        yield from super().contradictions()
        if self.num_top_directions is not None and self.num_top_directions > self.num_directions:
            text = f"the best {self.num_top_directions} cannot be chosen from {self.num_directions} directions"
            yield Problem(("num_top_directions", "num_directions"), text)
