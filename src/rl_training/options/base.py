"""Settings that algorithms share: common to all, to the on-policy and to the off-policy ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from rl_training.errors import did_you_mean
from rl_training.options._core import OptionInfo, Options, OptionsError, Problem, option
from rl_training.options._foreign import foreign_hint
from rl_training.options._search import SearchSpace
from rl_training.options.schedules import Schedule, warmup_factor

__all__ = [
    "CommonOptions",
    "EarlyStopping",
    "HiddenSizes",
    "OffPolicyOptions",
    "OnPolicyOptions",
    "OptionInfo",
    "Options",
    "OptionsError",
    "Problem",
    "Schedule",
    "option",
]

HiddenSizes: TypeAlias = tuple[Annotated[int, Field(ge=1, le=16_384)], ...]


# what every evaluation tells; runtime/evaluation.py makes them
EVALUATION_METRICS = (
    "eval_return_mean",
    "eval_return_std",
    "eval_return_min",
    "eval_return_max",
    "eval_length_mean",
    "eval_episodes",
)


class EarlyStopping(Options):
    """When to end a run before its time: nothing better for a while, or good enough."""

    noun: ClassVar[str] = "early_stopping"

    metric: str = option("eval_return_mean", "Metric of the evaluations that is watched.", min_length=1)
    mode: Literal["max", "min"] = option("max", "Whether more or less of the metric is better.")
    patience: int | None = option(None, "Evaluations without improvement after which training stops.", ge=1)
    min_delta: float = option(0.0, "Change that counts as an improvement.", ge=0)
    min_steps: int = option(0, "Environment steps before which training never stops early.", ge=0)
    target_value: float | None = option(None, "Value of the metric at which training stops.")

    def contradictions(self) -> Iterator[Problem]:
        """Without patience and without a target it would never stop, and so it would by a metric that there is not.

        Metrics of learners are known when they learn; those of evaluations are known beforehand.
        """
        known = EVALUATION_METRICS
        if self.metric not in known and self.metric.startswith("eval"):
            yield Problem(("metric",), f"evaluations have no metric {self.metric!r}{did_you_mean(self.metric, known)}")
        if self.patience is None and self.target_value is None:
            yield Problem(("patience", "target_value"), "both are none, so it would never stop; give at least one of them")


class CommonOptions(Options):
    """What every algorithm understands. Class constants are facts about the algorithm, not settings."""

    algo: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    discrete: ClassVar[bool] = False  # action spaces it can take
    continuous: ClassVar[bool] = False
    default_num_threads: ClassVar[int] = 1
    schedulable: ClassVar[tuple[str, ...]] = ()  # options with an option `<name>_schedule` beside them
    only_to_learn: ClassVar[tuple[str, ...]] = ()  # options that may name code, and that a trained policy acts without
    search_space: ClassVar[SearchSpace] = {}  # what `tune` varies, and within which bounds

    eval_interval: int = option(5_000, "Environment steps between two evaluations.", ge=1)
    early_stopping: EarlyStopping | None = option(None, "When to end the run before its time; none means never.")
    learning_rate_schedule: Schedule | None = option(None, "How the learning rate changes; none means it does not.")
    max_updates: int | None = option(None, "Gradient updates after which training ends; none means no such limit.", ge=1)
    warmup_steps: int = option(
        0, "Environment steps over which the learning rate first rises linearly from 0, whatever its schedule.", ge=0
    )

    @classmethod
    def unknown_key(cls, key: str, given: Mapping[str, Any]) -> str:  # noqa: ARG003 (the rest does not matter here)
        hint = foreign_hint(key, cls.model_fields) or did_you_mean(key, cls.model_fields)
        return f"{cls.algo or cls.__name__} has no option {key!r}{hint}"

    def scheduled_values(self, step: int, total_steps: int) -> dict[str, float]:
        """Every schedulable option that is a number, at its value for this step (the option's own without a schedule)."""
        values: dict[str, float] = {}
        for name in self.schedulable:
            base, schedule = getattr(self, name), getattr(self, f"{name}_schedule")
            if isinstance(base, float):
                values[name] = base if schedule is None else schedule.value(step, total_steps, base)
        if "learning_rate" in values:
            values["learning_rate"] *= warmup_factor(step, self.warmup_steps)
        return values

    def scheduled_rate(self, name: str, step: int, total_steps: int) -> dict[str, float]:
        """An option that is the learning rate by another name, where the common schedule and warm-up have it at this step;
        with a schedule under the name that this goes by as well."""
        base, schedule = getattr(self, name), self.learning_rate_schedule
        value = base if schedule is None else schedule.value(step, total_steps, base)
        value *= warmup_factor(step, self.warmup_steps)
        return {name: value} if schedule is None else {name: value, "learning_rate": value}

    def contradictions(self) -> Iterator[Problem]:
        yield from super().contradictions()
        schedule = self.learning_rate_schedule
        if self.warmup_steps and schedule is not None and schedule.warmup_steps:
            keys = ("warmup_steps", "learning_rate_schedule.warmup_steps")
            yield Problem(keys, f"{self.warmup_steps} and {schedule.warmup_steps}: both warm up the learning rate; give one")


class OnPolicyOptions(CommonOptions):
    """Learning from the newest rollout only."""

    num_steps: int = option(128, "Steps each environment makes before an update.", ge=1)
    update_epochs: int = option(4, "Passes over each rollout.", ge=1)
    minibatch_size: int = option(64, "Rows per gradient step; at most the whole rollout is used.", ge=1)
    gamma: float = option(0.99, "Discount per step.", ge=0, le=1)
    gae_lambda: float = option(0.95, "Weight of longer advantage estimates: 0 is one step, 1 is the whole return.", ge=0, le=1)
    normalize_observations: bool = option(False, "Scale observations by their running mean and standard deviation.")
    normalize_rewards: bool = option(False, "Scale rewards by the running standard deviation of the discounted return.")


class OffPolicyOptions(CommonOptions):
    """Learning from a replay buffer."""

    buffer_capacity: int = option(100_000, "Transitions the replay buffer holds.", ge=1)
    batch_size: int = option(256, "Transitions per gradient step.", ge=1)
    learning_starts: int = option(1_000, "Random environment steps before the first update.", ge=0)
    train_frequency: int = option(1, "Steps of each environment between two rounds of updates.", ge=1)
    gradient_updates_per_step: int = option(1, "Gradient steps in each round of updates.", ge=1)
    gamma: float = option(0.99, "Discount per step.", ge=0, le=1)

    def contradictions(self) -> Iterator[Problem]:
        """What could never be in the buffer cannot be drawn."""
        yield from super().contradictions()
        if self.batch_size > self.buffer_capacity:
            text = f"batch_size={self.batch_size} is more than buffer_capacity={self.buffer_capacity}; it can be at most that"
            yield Problem(("batch_size", "buffer_capacity"), text)
