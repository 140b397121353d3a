"""DDPG's losses and targets worked out by hand."""

import pytest
import torch
from replay_batches import batch_of

from rl_training.algorithms.ddpg import DDPG, ddpg_loss
from rl_training.models.mlp_ddpg import MLPDDPGModel


def test_the_losses_by_hand():
    losses = ddpg_loss(
        {
            "q_values": torch.tensor([1.0, 2.0]),
            "target_q_values": torch.tensor([1.0, 4.0]),
            "sampled_q": torch.tensor([5.0, 2.0]),
        }
    )
    assert losses["critic_loss"].item() == pytest.approx((0 + 4) / 2)
    assert losses["target_q_mean"].item() == 2.5
    assert losses["actor_loss"].item() == -3.5


def test_the_target_is_the_critic_s_value_of_the_target_actor_s_own_action():
    learner = DDPG(MLPDDPGModel(1, 1, ()), learning_rate=1e-3, gamma=0.5)
    learner.target.actor.flat.data.copy_(torch.tensor([0.0, torch.atanh(torch.tensor(0.25))]))
    learner.target.critics.flat.data.copy_(torch.tensor([0.0, 10.0, 3.0]))  # Q = 10 a + 3 = 5.5
    batch = batch_of(2, 1, 1) | {"rewards": torch.tensor([1.0, 1.0]), "dones": torch.tensor([0.0, 1.0])}
    state = torch.get_rng_state()
    torch.testing.assert_close(learner.targets(batch), torch.tensor([1.0 + 0.5 * 5.5, 1.0]))
    assert torch.equal(state, torch.get_rng_state())  # nothing is blurred


def test_everything_moves_at_every_update():
    learner = DDPG(MLPDDPGModel(3, 2, (8,)), learning_rate=1e-2)
    vectors = [n.flat for each in (learner.model, learner.target) for n in (each.actor, each.critics)]
    for _ in range(3):
        before = [vector.detach().clone() for vector in vectors]
        metrics = learner.update(batch_of()).metrics
        assert not any(torch.equal(a, b) for a, b in zip(before, vectors, strict=True))
        assert torch.isfinite(metrics["actor_loss"])


def test_an_update_is_the_same_function_of_its_batch_each_time():
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        learner, batch = DDPG(MLPDDPGModel(3, 2, (8,)), learning_rate=1e-2), batch_of()
        torch.rand(len(results) + 1)  # an update draws nothing, so what was drawn before does not matter
        learner.update(batch)
        results.append(learner.model.actor.flat.detach())
    assert torch.equal(*results)
