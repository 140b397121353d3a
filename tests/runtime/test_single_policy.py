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
from rl_training.shipping.export_traced import random_masks
from rl_training.types import EnvSpec

BOX = EnvSpec("Box-v0", 3, 2, low=(-2.0, 0.0), high=(2.0, 10.0))
CHOICE = EnvSpec("Choice-v0", 3, 4, discrete=True, action_start=5)
PARTS = EnvSpec("Parts-v0", 3, 7, discrete=True, nvec=(4, 3), action_start=(0, 9))


def policy_of(algorithm, spec: EnvSpec) -> Policy:
    config = TrainConfig(algo="ppo", env_id="CartPole-v1", seed=0, total_timesteps=1, output_dir="unused")
    return Policy(config, spec, algorithm, device=torch.device("cpu"))


def ppo(spec: EnvSpec) -> PPO:
    normalizer = ObservationNormalizer(3)
    normalizer.observe(torch.randn(100, 3) * 4 + 2)
    model = MLPActorCritic(3, spec.action_dim, (16, 16), discrete=spec.discrete, nvec=spec.nvec)
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


@pytest.mark.parametrize("spec", [CHOICE, PARTS], ids=lambda spec: spec.env_id)
def test_under_masks_the_action_alone_is_that_in_a_batch_and_is_allowed(spec):
    torch.manual_seed(0)
    policy = policy_of(ppo(spec), spec)
    rng = np.random.default_rng(0)
    batch, masks = rng.standard_normal((50, 3)), random_masks(spec.choices, rng=rng, count=50)
    together = policy.predict(batch, action_masks=masks)
    single = [policy.predict(row, action_masks=mask) for row, mask in zip(batch, masks, strict=True)]
    np.testing.assert_array_equal(np.asarray(single), together)
    assert not np.array_equal(together, policy.predict(batch))
    places = together.reshape(50, -1) - np.array(spec.starts) + np.cumsum((0, *spec.choices[:-1]))
    assert masks[np.arange(50)[:, None], places].all()
    drawn = policy.predict(batch, deterministic=False, action_masks=masks)
    places = drawn.reshape(50, -1) - np.array(spec.starts) + np.cumsum((0, *spec.choices[:-1]))
    assert masks[np.arange(50)[:, None], places].all()


def test_an_action_in_parts_is_an_array_that_counts_from_where_each_part_does():
    policy = policy_of(ppo(PARTS), PARTS)
    action = policy.predict(np.zeros(3))
    assert action.shape == (2,)
    assert action.dtype == np.int64
    assert 0 <= action[0] < 4
    assert 9 <= action[1] < 12


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        ([0, 0, 0, 0], "action_masks for Choice-v0: what was given allows nothing"),
        ([1, 1], r"has shape \(2,\); with one flag for each choice it would be \(4,\)"),
        ([[1, 1, 1, 1]], "has shape"),
    ],
)
def test_a_mask_that_cannot_be_is_refused(masks, said):
    with pytest.raises(ValueError, match=said):
        policy_of(ppo(CHOICE), CHOICE).predict(np.zeros(3), action_masks=masks)


def test_of_a_batch_the_row_whose_mask_allows_nothing_is_named():
    with pytest.raises(ValueError, match="allows nothing in row 1"):
        policy_of(ppo(CHOICE), CHOICE).predict(np.zeros((2, 3)), action_masks=[[1, 0, 0, 0], [0, 0, 0, 0]])


def test_masks_for_continuous_actions_are_refused_with_where_there_are_some():
    with pytest.raises(ValueError, match="ppo has none for a Box of 2; ppg, ppo have them for Discrete"):
        policy_of(ppo(BOX), BOX).predict(np.zeros(3), action_masks=[1, 1])
