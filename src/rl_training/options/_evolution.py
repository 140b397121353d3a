"""Settings that the evolution strategies share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rl_training.options._search import Real, SearchSpace, one_of
from rl_training.options.base import CommonOptions, Problem, option


class EvolutionOptions(CommonOptions):
    """Learning from the returns of whole episodes under perturbed parameters. One update is one generation."""

    search_space: ClassVar[SearchSpace] = {
        "step_size": Real(1e-3, 0.5, log=True),
        "noise_std": Real(1e-3, 0.5, log=True),
        "episodes_per_direction": one_of(1, 2, 4),
        "observation_filter": one_of(True, False),
    }

    num_directions: int = option(32, "Directions tried per generation, each with both signs.", ge=1, le=1_000_000)
    episodes_per_direction: int = option(1, "Episodes that each sign of a direction is judged by.", ge=1)
    observation_filter: bool = option(
        True, "Scale observations by their running mean and standard deviation, which move once per generation."
    )
    episode_cap: float | None = option(
        None, "Cut training episodes at this multiple of the last generation's mean length; none means never.", gt=1
    )  # at 1 or less lengths could only shrink from one generation to the next
    batched_envs: bool = option(True, "Use the batched environments where there are some; the numbers are the same.")
    population_envs: int | None = option(
        None,
        "Environments that evaluate the population; none means one per episode, at most 64 where they are not batched.",
        ge=1,
    )
    eval_interval: int = option(50_000, "Environment steps between two evaluations.", ge=1)

    def contradictions_with_run(self, *, num_envs: int, execution_backend: str) -> Iterator[Problem]:  # noqa: ARG002
        """A population has environments of its own, whose number is an option."""
        if num_envs > 1:
            text = f"{self.algo} evaluates a population; the number of its environments is population_envs: {num_envs}"
            yield Problem(("num_envs",), f"{text} in algo_kwargs, and num_envs is left out")

    def scheduled_values(self, step: int, total_steps: int, *, reached: int | None = None) -> dict[str, float]:
        """`step_size` is the learning rate here: the common schedule and warm-up move it."""
        return self.scheduled_rate("step_size", step, total_steps, reached=reached)
