"""When a run makes its first update, where its settings say so beforehand."""

from __future__ import annotations

import logging
import math
from typing import Any

from rl_training.experiment.config import TrainConfig
from rl_training.options._offline import OfflineOptions
from rl_training.options.base import OffPolicyOptions
from rl_training.options.pets import PETSConfig

log = logging.getLogger(__name__)


def warn_of_no_update(config: TrainConfig) -> None:
    """Say at the beginning that a run will end without having learnt anything."""
    first = first_update(config)
    if first > config.total_timesteps:
        named = {name: getattr(config.options, name, None) for name in ("learning_starts", "train_frequency")}
        settings = ", ".join(f"{name}={value}" for name, value in named.items() if value is not None)
        log.warning(
            "this run makes no update: the first would come at step %s (%s), and total_timesteps is %s; give it more steps, or "
            "lower learning_starts",
            *(f"{first:,}", settings, f"{config.total_timesteps:,}"),
        )


def first_update(config: TrainConfig) -> int:
    """The environment step of it, at the earliest; 0 where there is no waiting."""
    options: Any = config.options
    on_recorded_data = getattr(options, "offline_pretrain_updates", 0) or getattr(options, "online_timesteps", None) is not None
    if on_recorded_data or isinstance(options, OfflineOptions):
        return 0
    num_envs = config.num_envs
    if isinstance(options, PETSConfig):  # a fit that is due waits until there is enough to fit
        return max(options.learning_starts, 2, (options.train_frequency or 1) * num_envs)
    if isinstance(options, OffPolicyOptions):
        starts = math.ceil(max(options.learning_starts, 1) / num_envs)
        return math.ceil(starts / options.train_frequency) * options.train_frequency * num_envs
    return 0
