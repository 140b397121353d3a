"""Settings of RLPD (Ball et al., 2023, arXiv:2302.02948)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from rl_training.options._datasets import DatasetOptions
from rl_training.options._search import SearchSpace, one_of
from rl_training.options.base import Problem, option
from rl_training.options.sac import SACConfig


class RLPDConfig(DatasetOptions, SACConfig):
    """Reinforcement learning with prior data: SAC with many normalised critics, on batches half prior and half fresh."""

    algo: ClassVar[str] = "rlpd"
    summary: ClassVar[str] = "RL with prior data: online SAC that learns from recorded data as well, many updates a step"
    paper: ClassVar[str] = "Ball et al., 2023, arXiv:2302.02948"
    discrete: ClassVar[bool] = False
    continuous: ClassVar[bool] = True
    images: ClassVar[bool] = False  # datasets hold vectors
    default_num_threads: ClassVar[int] = 1
    search_space: ClassVar[SearchSpace] = {
        **SACConfig.search_space,
        "gradient_updates_per_step": one_of(1, 5, 10, 20),
        "num_critics": one_of(2, 5, 10),
        "offline_batch_ratio": one_of(0.25, 0.5, 0.75),
    }

    offline_batch_ratio: float = option(0.5, "Share of prior data in every batch.", ge=0, le=1)
    offline_pretrain_updates: int = option(
        0, "Updates on prior data alone before the first environment step; the paper makes none.", ge=0
    )
    online_timesteps: int | None = option(
        None,
        "Environment steps after total_timesteps updates on prior data alone; none means that total_timesteps are environment "
        "steps.",
        ge=0,
    )
    gradient_updates_per_step: int = option(
        20, "Critic updates in each round; the actor and alpha follow with one update on the last of their batches.", ge=1
    )
    num_critics: int = option(10, "Critics in the ensemble, evaluated as one batched network.", ge=1)
    critic_subset_size: int | None = option(2, "Critics drawn for each target; none means all of them.", ge=1)
    layer_norm: bool = option(True, "Normalise the critics' hidden layers, so that they cannot run off where data is thin.")
    pessimistic_actor: bool = option(False, "Whether the actor climbs the lowest critic; else, as in the paper, their mean.")
    backup_entropy: bool = option(True, "Whether targets value entropy; the paper leaves it out where rewards are sparse.")
    target_entropy: float | Literal["auto"] = option(
        "auto", "Entropy an automatic alpha aims at; auto means minus half the number of action dimensions."
    )

    @property
    def needs_data(self) -> bool:
        return bool(self.offline_batch_ratio or self.offline_pretrain_updates) or self.online_timesteps is not None

    def budget(self, total_timesteps: int) -> int:
        return total_timesteps + (self.online_timesteps or 0)

    def contradictions(self) -> Iterator[Problem]:
        """Updates on prior data alone are counted in one way or the other; uncounted ones come before step 1, where the rate of
        a warm-up is 0."""
        yield from super().contradictions()
        if self.online_timesteps is not None and self.offline_pretrain_updates:
            text = "with online_timesteps the updates on prior data alone are total_timesteps; give one of the two"
            yield Problem(("online_timesteps", "offline_pretrain_updates"), text)
        schedule = self.learning_rate_schedule
        if self.offline_pretrain_updates and (self.warmup_steps or (schedule is not None and schedule.warmup_steps)):
            keys = ("offline_pretrain_updates", "warmup_steps" if self.warmup_steps else "learning_rate_schedule.warmup_steps")
            yield Problem(
                keys, "pretraining comes before the first environment step, where the warm-up has a learning rate of 0"
            )

    def dataset_rows_per_batch(self) -> int:
        return max(1, round(self.batch_size * self.offline_batch_ratio))
