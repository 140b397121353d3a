"""Environments for whole episodes: kept for the run, reset for each episode, nothing runs on in them in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rl_training.envs.batched import find_batched
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import VectorEnvs, make_envs
from rl_training.types import EnvSpec

MOST = 64  # environments that are not batched: more of them side by side gain nothing


class PopulationEnvs:
    """Where a population is evaluated. As no episode outlasts an evaluation, they can be lent between any two."""

    def __init__(
        self,
        source: EnvSource,
        spec: EnvSpec,
        *,
        num_episodes: int,
        num_envs: int | None,
        backend: str,
        batched: bool,
        timeout: float | None = None,
        num_workers: int | None = None,
    ) -> None:
        wanted = num_envs or num_episodes
        found = find_batched(source, spec, num_envs=wanted) if batched and backend == "local_sync" else None
        if backend != "batched":
            wanted = num_envs or (min(num_episodes, MOST) if source.can_make_more else 1)
        self.envs: VectorEnvs = found or make_envs(
            source, spec, num_envs=wanted, backend=backend, timeout=timeout, num_workers=num_workers
        )

    @contextmanager
    def lend(self) -> Iterator[VectorEnvs]:
        yield self.envs

    def close(self) -> None:
        self.envs.close()
