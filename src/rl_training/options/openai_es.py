"""Settings of OpenAI ES (Salimans et al., 2017, arXiv:1703.03864)."""

from __future__ import annotations

from typing import ClassVar, Literal

from rl_training.options._evolution import EvolutionOptions
from rl_training.options._search import Real, SearchSpace, one_of
from rl_training.options.base import HiddenSizes, option


class OpenAIESConfig(EvolutionOptions):
    """Evolution strategies: follow the directions in parameter space whose returns rank high."""

    algo: ClassVar[str] = "openai_es"
    summary: ClassVar[str] = "Evolution strategies with ranked returns: no gradients, scales over machines"
    paper: ClassVar[str] = "Salimans et al., 2017, arXiv:1703.03864"
    discrete: ClassVar[bool] = True
    in_parts: ClassVar[bool] = True
    continuous: ClassVar[bool] = True
    search_space: ClassVar[SearchSpace] = {
        **EvolutionOptions.search_space,
        "num_directions": one_of(8, 16, 32, 64),
        "weight_decay": Real(1e-5, 0.1, log=True),
        "hidden_sizes": one_of([], [32, 32], [64, 64]),
    }

    hidden_sizes: HiddenSizes = option((64, 64), "Width of each hidden layer; none at all makes the policy linear.")
    step_size: float = option(0.01, "Step of the optimiser; learning_rate_schedule and warmup_steps move it.", gt=0)
    noise_std: float = option(0.02, "Standard deviation of the perturbations.", gt=0)
    fitness_shaping: Literal["centered_ranks", "standardized"] = option(
        "centered_ranks", "What a return counts for: its rank among all, or its distance from their mean in deviations."
    )
    weight_decay: float = option(0.005, "How strongly parameters are drawn to 0 (L2).", ge=0)
    optimizer: Literal["adam", "sgd"] = option("adam", "What turns the estimated gradient into a step.")
    action_noise: float = option(0.01, "Standard deviation of noise on continuous actions, in training only.", ge=0)
