"""From a trained policy to a dataset of what it does."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.data.recorded_data import RecordedData
from rl_training.errors import ConfigError
from rl_training.runtime.policy import Policy
from rl_training.runtime.recording import RandomBehavior, record
from rl_training.runtime.rng import Stream, isolated_rng


class PolicyBehavior:
    """A trained policy; Gaussian noise on its actions and a share of uniformly random ones make the data broader."""

    def __init__(
        self, policy: Policy, rng: np.random.Generator, *, deterministic: bool, noise: float, random_share: float
    ) -> None:
        self.policy, self.rng, self.random = policy, rng, RandomBehavior(policy.spec, rng)
        self.deterministic, self.noise, self.random_share = deterministic, noise, random_share

    def explore(self, obs: Tensor, **allowed: Tensor) -> Tensor:
        actions = self.policy.algorithm.act(obs.to(self.policy.device), deterministic=self.deterministic, **allowed).cpu()
        if self.noise:
            actions = (actions + self.noise * torch.from_numpy(self.rng.standard_normal(actions.shape)).float()).clamp(-1, 1)
        if self.random_share:
            chosen = torch.from_numpy(self.rng.random(len(obs)) < self.random_share)
            random = self.random.explore(obs, **allowed)
            actions = torch.where(chosen if actions.dim() == 1 else chosen[:, None], random, actions)
        return actions


def collect_data(
    policy: Policy,
    *,
    num_steps: int,
    seed: int = 0,
    deterministic: bool = False,
    noise: float = 0.0,
    random_share: float = 0.0,
    env: Any = None,
) -> RecordedData:
    """`num_steps` transitions of a policy's behaviour; `noise` is in units of half the action range."""
    for name, value in (("noise", noise), ("random_share", random_share)):
        if not 0 <= value <= 1:
            raise ConfigError(f"{name}: given {value}; possible: from 0 to 1")
    if num_steps < 1:
        raise ConfigError(f"steps: given {num_steps}; possible: at least 1")
    if noise and policy.spec.discrete:
        raise ConfigError(f"noise: {policy.spec.env_id} takes discrete actions, which have no noise; give a random share")
    config = policy.config
    behavior = PolicyBehavior(
        policy,
        np.random.default_rng((seed, Stream.DATASET_ACTIONS)),
        deterministic=deterministic,
        noise=noise,
        random_share=random_share,
    )
    source = policy.environments(env)
    with isolated_rng(seed):
        return record(
            source,
            policy.spec,
            behavior,
            num_steps=num_steps,
            seed=seed,
            stream=Stream.DATASET_ENVS,
            origin=f"{config.algo} policy",
        )
