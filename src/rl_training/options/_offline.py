"""Settings of the algorithms that learn from recorded data alone."""

from __future__ import annotations

from rl_training.options._datasets import DatasetOptions
from rl_training.options.base import CommonOptions, option


class OfflineOptions(DatasetOptions, CommonOptions):
    """No environment is stepped but to evaluate: wherever timesteps or environment steps are counted, updates are meant."""

    batch_size: int = option(256, "Transitions per gradient step.", ge=1)
