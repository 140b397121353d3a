"""TD3's losses and targets worked out by hand, and when its actor moves."""

import pytest
import torch
from replay_batches import batch_of

from rl_training.algorithms.td3 import TD3, td3_loss
from rl_training.models.mlp_td3 import MLPTD3Model


def test_the_losses_by_hand():
    losses = td3_loss(
        {
            "q1_values": torch.tensor([1.0, 2.0]),
            "q2_values": torch.tensor([0.0, 4.0]),
            "target_q_values": torch.tensor([1.0, 3.0]),
            "sampled_q1": torch.tensor([5.0, 2.0]),
        }
    )
    assert losses["critic_loss"].item() == pytest.approx((0 + 1) / 2 + (1 + 1) / 2)
    assert losses["target_q_mean"].item() == 2.0
    assert losses["actor_loss"].item() == -3.5


def linear_td3(**options):
    """Target action 0.25; target critics Q1 = 10 a and Q2 = 20 a - 5, which cross at a = 0.5."""
    learner = TD3(MLPTD3Model(1, 1, ()), learning_rate=1e-3, gamma=0.5, **options)
    learner.target.actor.flat.data.copy_(torch.tensor([0.0, torch.atanh(torch.tensor(0.25))]))
    learner.target.critics.flat.data.copy_(torch.tensor([0.0, 10.0, 0.0, 20.0, 0.0, -5.0]))
    return learner


@pytest.mark.parametrize(
    ("noise", "next_value"),
    [
        (0.0, 0.0),  # a' = 0.25: min(2.5, 0)
        (1.0, 4.0),  # 0.2 · 1 → a' = 0.45: min(4.5, 4)
        (9.0, 7.5),  # 0.2 · 9, clipped to 0.5 → a' = 0.75: min(7.5, 10)
        (-9.0, -10.0),  # clipped to -0.5 → a' = -0.25: min(-2.5, -10)
    ],
)
def test_the_target_is_the_lower_critic_at_the_action_moved_by_clipped_noise(monkeypatch, noise, next_value):
    monkeypatch.setattr(torch, "randn_like", lambda actions: torch.full_like(actions, noise))
    batch = batch_of(2, 1, 1) | {"rewards": torch.tensor([1.0, 1.0]), "dones": torch.tensor([0.0, 1.0])}
    torch.testing.assert_close(linear_td3().targets(batch), torch.tensor([1.0 + 0.5 * next_value, 1.0]))


def test_a_smoothed_action_does_not_leave_the_bounds(monkeypatch):
    monkeypatch.setattr(torch, "randn_like", lambda actions: torch.full_like(actions, 9.0))
    learner = linear_td3(noise_clip=3.0, policy_noise=1.0)
    assert learner.next_actions(torch.zeros(1, 1)).item() == 1.0


def test_the_smoothing_noise_has_the_spread_of_a_clipped_normal():
    learner = linear_td3(policy_noise=0.4, noise_clip=0.5)
    noise = learner.next_actions(torch.zeros(200_000, 1)) - 0.25
    assert noise.min().item() == pytest.approx(-0.5, abs=1e-6)
    assert noise.max().item() == pytest.approx(0.5, abs=1e-6)
    assert noise.mean().abs() < 0.003
    # P(|n| >= 0.5) with a deviation of 0.4 is 2 (1 - Φ(1.25))
    assert (noise.abs() > 0.4999).float().mean().item() == pytest.approx(0.2113, abs=0.004)


@pytest.mark.parametrize("policy_delay", [1, 2, 3])
def test_the_actor_and_all_targets_move_at_every_policy_delay_th_update_and_at_no_other(policy_delay):
    learner = TD3(MLPTD3Model(3, 2, (8,)), learning_rate=1e-2, policy_delay=policy_delay)
    slow = (learner.model.actor.flat, learner.target.actor.flat, learner.target.critics.flat)
    for i in range(1, 8):
        before, critics = [vector.detach().clone() for vector in slow], learner.model.critics.flat.detach().clone()
        learner.update(batch_of())
        assert not torch.equal(critics, learner.model.critics.flat)
        moved = [not torch.equal(a, b) for a, b in zip(before, slow, strict=True)]
        assert moved == [i % policy_delay == 0] * 3


def test_between_two_actor_steps_the_last_actor_loss_is_told():
    learner = TD3(MLPTD3Model(3, 2, (8,)), learning_rate=1e-2, policy_delay=2)
    first, second, third, fourth = (learner.update(batch_of()).metrics for _ in range(4))
    assert "actor_loss" not in first
    assert third["actor_loss"] == second["actor_loss"] != fourth["actor_loss"]
    assert third["critic_loss"] != second["critic_loss"]


def test_a_resumed_learner_keeps_the_rhythm_of_its_actor():
    learner, resumed = (TD3(MLPTD3Model(3, 2, (8,)), learning_rate=1e-2, policy_delay=3) for _ in range(2))
    for _ in range(2):
        learner.update(batch_of())
    resumed.load_state_dict(learner.state_dict())
    actor = resumed.model.actor.flat.detach().clone()
    resumed.update(batch_of())  # the third of all, the first of this object
    assert not torch.equal(actor, resumed.model.actor.flat)


def test_a_learner_resumed_between_two_actor_steps_tells_the_last_actor_loss():
    learner, resumed = (TD3(MLPTD3Model(3, 2, (8,)), learning_rate=1e-2, policy_delay=2) for _ in range(2))
    second = [learner.update(batch_of()).metrics for _ in range(2)][-1]
    resumed.load_state_dict(learner.state_dict())
    assert resumed.update(batch_of()).metrics["actor_loss"] == second["actor_loss"]


def test_the_actor_climbs_the_first_critic_whatever_the_second_says():
    def actor_after_a_step(shift):
        torch.manual_seed(0)
        learner = TD3(MLPTD3Model(3, 2, (8,)), learning_rate=1e-2)
        for layer in learner.model.critics.layers("net"):
            layer.weight[1] += shift
        learner.update_actor(batch_of())
        return learner.model.actor.flat.detach()

    assert torch.equal(actor_after_a_step(0.0), actor_after_a_step(5.0))


def test_two_critics_unpack_and_differ():
    q1, q2 = MLPTD3Model(3, 2, (8,)).q_values(torch.randn(4, 3), torch.randn(4, 2))
    assert q1.shape == q2.shape == (4,)
    assert not torch.equal(q1, q2)
