"""One observation goes through numpy and gets the action that a batch of it gets."""

import numpy as np
import pytest
import torch

from rl_training.algorithms.ppo import PPO
from rl_training.algorithms.sac import SAC
from rl_training.experiment.config import TrainConfig
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.runtime.policy import Policy
from rl_training.types import EnvSpec

BOX = EnvSpec("Box-v0", 3, 2, low=(-2.0, 0.0), high=(2.0, 10.0))
CHOICE = EnvSpec("Choice-v0", 3, 4, discrete=True, action_start=5)


def policy_of(algorithm, spec: EnvSpec) -> Policy:
    config = TrainConfig(algo="ppo", env_id="CartPole-v1", seed=0, total_timesteps=1, output_dir="unused")
    return Policy(config, spec, algorithm, device=torch.device("cpu"))


def ppo(spec: EnvSpec) -> PPO:
    normalizer = ObservationNormalizer(3)
    normalizer.observe(torch.randn(100, 3) * 4 + 2)
    model = MLPActorCritic(3, spec.action_dim, (16, 16), discrete=spec.discrete)
    model.flat.data.mul_(3.0)  # so that some actions leave their bounds
    return PPO(model, learning_rate=1e-3, observation_normalizer=normalizer)


@pytest.mark.parametrize(
    ("make", "spec"),
    [(ppo, CHOICE), (ppo, BOX), (lambda spec: SAC(MLPSACModel(3, spec.action_dim, (16, 16)), learning_rate=1e-3), BOX)],
)
def test_alone_or_in_a_batch_the_action_is_the_same(make, spec):
    torch.manual_seed(0)
    policy = policy_of(make(spec), spec)
    batch = (np.random.default_rng(0).standard_normal((50, 3)) * 5).astype(np.float32)
    single = [policy.predict(row) for row in batch]
    together = policy.predict(batch)
    np.testing.assert_allclose(np.asarray(single), together, rtol=1e-5, atol=1e-5)
    if spec.discrete:
        assert all(type(action) is int for action in single)
        assert min(single) >= 5
    else:
        assert all(action.dtype == np.float32 and action.shape == (2,) for action in single)
        assert (np.asarray(single) >= spec.low).all()
        assert (np.asarray(single) <= spec.high).all()
