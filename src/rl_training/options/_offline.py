"""Settings of the algorithms that learn from recorded data alone."""

from __future__ import annotations

from collections.abc import Iterator

from rl_training.options._datasets import DatasetOptions
from rl_training.options.base import CommonOptions, Problem, option


class OfflineOptions(DatasetOptions, CommonOptions):
    """No environment is stepped but to evaluate: wherever timesteps or environment steps are counted, updates are meant."""

    batch_size: int = option(256, "Transitions per gradient step.", ge=1)

    def contradictions_with_run(self, *, num_envs: int, execution_backend: str) -> Iterator[Problem]:
        """Nothing of the run steps several environments."""
        why = f"{self.algo} learns from recorded data and steps no environment to train"
        if num_envs > 1:
            yield Problem(("num_envs",), f"{why}, so {num_envs} of them have nothing to do; leave num_envs out")
        if execution_backend == "batched":
            text = f"{why}; possible: 'local_sync', or 'local_async' for evaluations in processes of their own"
            yield Problem(("execution_backend",), text)
