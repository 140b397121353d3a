"""Settings of PETS (Chua et al., 2018, arXiv:1805.12114)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from rl_training.options._dynamics import KNOWN_REWARDS, DynamicsOptions, function_problems
from rl_training.options._search import Real, SearchSpace, Whole, one_of
from rl_training.options.base import CommonOptions, HiddenSizes, Problem, option


class PETSConfig(DynamicsOptions, CommonOptions):
    """Learn how the environment answers, and plan every action through what was learnt."""

    algo: ClassVar[str] = "pets"
    summary: ClassVar[str] = "Probabilistic ensembles: learn the dynamics from few steps, plan every action with CEM"
    paper: ClassVar[str] = "Chua et al., 2018, arXiv:1805.12114"
    discrete: ClassVar[bool] = False
    continuous: ClassVar[bool] = True
    default_num_threads: ClassVar[int] = 1
    search_space: ClassVar[SearchSpace] = {
        "model_learning_rate": Real(1e-4, 1e-2, log=True),
        "model_epochs": Whole(1, 20),
        "model_hidden_sizes": one_of([64, 64], [200, 200], [200, 200, 200]),
        "planning_horizon": Whole(5, 40),
        "planning_iterations": Whole(2, 8),
        "planning_particles": one_of(5, 10, 20),
        "planning_noise_beta": one_of(0.0, 0.5, 1.0, 2.0),
    }

    buffer_capacity: int = option(100_000, "Transitions the model is fitted on at most; the oldest give way.", ge=1)
    batch_size: int = option(32, "Transitions per gradient step, drawn for each member apart.", ge=1)
    learning_starts: int = option(0, "Environment steps before the first fit.", ge=0)
    initial_random_steps: int = option(200, "Random environment steps at first; they go on until the first fit is done.", ge=0)
    train_frequency: int | None = option(None, "Turns between two fits of the model; none means after every episode.", ge=1)
    model_epochs: int = option(5, "Passes over all data in a fit.", ge=1)
    model_updates_per_step: int | None = option(
        None, "Gradient steps in a fit for every environment step since the last one, in place of model_epochs.", ge=1
    )
    planning_horizon: int = option(25, "Steps that a plan looks ahead.", ge=1)
    planning_candidates: int = option(400, "Plans tried in every iteration of the search.", ge=1)
    planning_iterations: int = option(5, "Iterations of the search for each action.", ge=1)
    planning_topk: int = option(40, "Best plans that the next iteration is drawn around.", ge=1)
    planning_particles: int = option(
        20, "Imagined futures per plan; rounded up to a multiple of the members that predict, which share them evenly.", ge=1
    )
    planning_propagation: Literal["tsinf", "ts1"] = option(
        "tsinf", "Whether a particle keeps its member for the whole plan (tsinf) or changes it at every step (ts1)."
    )
    planning_warm_start: bool = option(
        True, "Begin each search at what is left of the plan before; else in the middle of the action range."
    )
    planning_momentum: float = option(0.1, "Share of the old mean and variance that stays in each iteration.", ge=0, lt=1)
    planning_keep_elites: float = option(
        0.3, "Share of the best plans that stay among the candidates of the next iteration.", ge=0, le=1
    )
    planning_carry_elites: float = option(
        0.0, "Share of the best plans that the search of the next step tries again (iCEM).", ge=0, le=1
    )
    planning_act_on: Literal["mean", "best"] = option(
        "mean", "Whose first action is done: of the search's last mean, or of the best plan it tried (iCEM)."
    )
    planning_noise_beta: float = option(
        0.0, "Colour of the search noise: 0 is white as in the paper, more makes plans that change less often (iCEM).", ge=0
    )
    planning_initial_std: float = option(
        0.25, "Spread of the first candidates as a share of the action range; the paper's variance is range²/16.", gt=0
    )
    value_updates_per_step: int = option(
        0,
        "Gradient steps, for every environment step since the last fit, of values for where plans end, learnt through the "
        "model; 0 means that plans end in nothing, as in the paper.",
        ge=0,
    )
    value_gamma: float = option(0.99, "Discount within plans and values, where there are values.", gt=0, lt=1)
    value_action_repeat: int = option(4, "Steps for which the values' backups hold an action.", ge=1)
    value_hidden_sizes: HiddenSizes = option((128, 128), "Width of each hidden layer of the value networks.")
    value_learning_rate: float = option(1e-3, "Adam's step size for the value networks.", gt=0)
    reward_fn: str | None = option(
        None,
        f"The reward where it is known: {', '.join(KNOWN_REWARDS)}, or package.module:function of (obs, actions, next_obs); "
        "none means it is learnt.",
    )
    eval_interval: int = option(1_000, "Environment steps between two evaluations.", ge=1)

    def scheduled_values(self, step: int, total_steps: int, *, reached: int | None = None) -> dict[str, float]:
        """The common schedule and warm-up move the model's learning rate; that of values stays as it is."""
        return self.scheduled_rate("model_learning_rate", step, total_steps, reached=reached)

    def contradictions(self) -> Iterator[Problem]:
        yield from super().contradictions()
        if self.planning_topk > self.planning_candidates:
            text = f"the best {self.planning_topk} cannot be chosen from {self.planning_candidates} candidates"
            yield Problem(("planning_topk", "planning_candidates"), text)
        yield from function_problems("reward_fn", self.reward_fn, KNOWN_REWARDS)
