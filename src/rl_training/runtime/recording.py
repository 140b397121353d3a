"""Behaviour written down: what becomes a dataset."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.data.recorded_data import RecordedData
from rl_training.envs.guards import folder_kept
from rl_training.envs.pool import EnvPool
from rl_training.envs.source import EnvSource
from rl_training.errors import DatasetError
from rl_training.runtime.collector import Collector, Explorer, random_actions
from rl_training.types import EnvSpec


class RandomBehavior:
    """Actions drawn uniformly from the space, or from what is allowed of it."""

    def __init__(self, spec: EnvSpec, rng: np.random.Generator) -> None:
        self.spec, self.rng = spec, rng

    def explore(self, obs: Tensor, *, action_masks: Tensor | None = None) -> Tensor:
        masks = None if action_masks is None else action_masks.cpu().numpy()
        return torch.from_numpy(random_actions(self.spec, self.rng, len(obs), masks))


@folder_kept()
def record(
    source: EnvSource, spec: EnvSpec, behavior: Explorer, *, num_steps: int, seed: int, stream: int, origin: str
) -> RecordedData:
    """`num_steps` transitions of one environment, episode after episode; the last is cut where the recording ends."""
    if any(part.image for part in spec.observation):
        raise DatasetError(f"datasets hold vectors; {spec.env_id} observes images")
    pool = EnvPool(source, spec, num_envs=1, seed=seed, stream=stream)
    try:
        collector = Collector(pool, spec, behavior, seed=seed, device=torch.device("cpu"))
        columns = {name: column[:, 0] for name, column in collector.collect(num_steps)[0].items()}
    finally:
        pool.close()
    terminations = columns["dones"].astype(bool)
    truncations = columns["cuts"].astype(bool) & ~terminations
    ends = np.flatnonzero(columns["cuts"])
    truncations[-1] = not terminations[-1]
    return RecordedData(
        origin,
        obs=columns["obs"],
        actions=spec.to_env(columns["actions"]),
        rewards=columns["rewards"],
        next_obs=columns["next_obs"],
        terminations=terminations,
        truncations=truncations,
        unfinished=num_steps - (int(ends[-1]) + 1 if len(ends) else 0),
    )
