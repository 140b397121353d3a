"""Settings of the algorithms that learn from recorded data: alone, or first and in an environment afterwards."""

from __future__ import annotations

from collections.abc import Iterator

from rl_training.options._datasets import DatasetOptions
from rl_training.options.base import CommonOptions, OffPolicyOptions, Problem, option


class OfflineOptions(DatasetOptions, CommonOptions):
    """No environment is stepped but to evaluate: wherever timesteps or environment steps are counted, updates are meant."""

    batch_size: int = option(256, "Transitions per gradient step.", ge=1)

    @property
    def goes_online(self) -> bool:
        """Whether an environment is stepped to learn from."""
        return False

    def contradictions_with_run(self, *, num_envs: int, execution_backend: str) -> Iterator[Problem]:
        """Nothing of the run steps several environments."""
        if self.goes_online:
            return
        why = f"{self.algo} learns from recorded data and steps no environment to train"
        if num_envs > 1:
            yield Problem(("num_envs",), f"{why}, so {num_envs} of them have nothing to do; leave num_envs out")
        if execution_backend == "batched":
            text = f"{why}; possible: 'local_sync', or 'local_async' for evaluations in processes of their own"
            yield Problem(("execution_backend",), text)


class OnlineOptions(OfflineOptions, OffPolicyOptions):
    """With `online_timesteps` actor and critics go on in an environment; the settings of replay are of that phase."""

    online_timesteps: int = option(
        0, "Environment steps after the updates on recorded data, of which total_timesteps are made; 0 means none.", ge=0
    )
    offline_batch_ratio: float | None = option(
        0.5, "Share of recorded rows in each batch online; none draws every row, recorded or fresh, equally often.", ge=0, le=1
    )
    learning_starts: int = option(
        0, "Environment steps of the policy as it was learnt offline before the first update online.", ge=0
    )

    @property
    def goes_online(self) -> bool:
        return self.online_timesteps > 0

    def budget(self, total_timesteps: int) -> int:
        return total_timesteps + self.online_timesteps
