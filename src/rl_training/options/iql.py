"""Settings of IQL (Kostrikov et al., 2021, arXiv:2110.06169)."""

from __future__ import annotations

from typing import ClassVar, Literal

from rl_training.options._offline import OnlineOptions
from rl_training.options._search import Real, SearchSpace, one_of
from rl_training.options.base import HiddenSizes, Schedule, option
from rl_training.options.schedules import warmup_factor


class IQLConfig(OnlineOptions):
    """Implicit Q-learning: values of recorded actions alone, and a policy that imitates the better ones the more."""

    algo: ClassVar[str] = "iql"
    summary: ClassVar[str] = "Implicit Q-learning: offline, then online, without ever asking for an action nobody recorded"
    paper: ClassVar[str] = "Kostrikov et al., 2021, arXiv:2110.06169"
    discrete: ClassVar[bool] = False
    continuous: ClassVar[bool] = True
    default_num_threads: ClassVar[int] = 1
    schedulable: ClassVar[tuple[str, ...]] = ("learning_rate",)
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": Real(1e-5, 1e-2, log=True),
        "gamma": one_of(0.9, 0.95, 0.98, 0.99, 0.995, 0.999),
        "batch_size": one_of(64, 128, 256, 512),
        "hidden_sizes": one_of([64, 64], [128, 128], [256, 256], [400, 300]),
        "expectile": Real(0.5, 0.95),
        "inverse_temperature": Real(0.1, 10.0, log=True),
    }

    expectile: float = option(
        0.7,
        "Of the recorded actions' values a state is worth this expectile: 0.5 is their mean, towards 1 the best.",
        gt=0,
        lt=1,
    )
    inverse_temperature: float = option(
        3.0, "How much more the policy imitates an action for being better: 0 is cloning, more is greedier.", ge=0
    )
    max_advantage_weight: float = option(100.0, "The most that an action can weigh for being better.", gt=0)
    hidden_sizes: HiddenSizes = option((256, 256), "Width of each hidden layer of actor, critics and value function.")
    activation: Literal["tanh", "relu"] = option("relu", "Nonlinearity of the hidden layers.")
    learning_rate: float = option(3e-4, "Adam's step size, for all networks but an actor with a rate of its own.", gt=0)
    actor_learning_rate: float | None = option(None, "The actor's own step size; none means learning_rate.", gt=0)
    actor_learning_rate_schedule: Schedule | None = option(
        Schedule(type="cosine"),
        "How the actor's step size changes over the updates on recorded data, in place of learning_rate_schedule; online it is "
        "what it was. None means it does not.",
    )
    tau: float = option(0.005, "Share of the critics that moves into their targets at each update.", gt=0, le=1)
    offline_batch_ratio: float | None = option(
        None, "Share of recorded rows in each batch online; none draws every row, recorded or fresh, equally often.", ge=0, le=1
    )

    def scheduled_values(self, step: int, total_steps: int, *, reached: int | None = None) -> dict[str, float]:
        """The actor's schedule is of the first phase, as the authors anneal it offline and not where they go on online."""
        values = super().scheduled_values(step, total_steps, reached=reached)
        offline = total_steps - self.online_timesteps
        schedule, base = self.actor_learning_rate_schedule, self.actor_learning_rate or self.learning_rate
        if schedule is None:
            return values
        annealed = step < offline or not self.online_timesteps
        rate = schedule.value(step, offline, base, reached=reached) if annealed else base
        return values | {"actor_learning_rate": rate * warmup_factor(step if reached is None else reached, self.warmup_steps)}
