"""RLPD's losses by hand, and in what its update differs from SAC's."""

import copy

import pytest
import torch
from replay_batches import batch_of

from rl_training.algorithms.rlpd import RLPD, RLPDAlgorithm, rlpd_loss
from rl_training.algorithms.sac import SAC, sac_loss
from rl_training.models.mlp_sac import MLPSACModel, SACSample


def model(**settings):
    return MLPSACModel(3, 2, (16, 16), **{"num_critics": 5, "layer_norm": True} | settings)


def named_tensors():
    return {
        "q1_values": torch.tensor([1.0, 2.0]),
        "q2_values": torch.tensor([0.0, 4.0]),
        "target_q_values": torch.tensor([1.0, 3.0]),
        "sampled_logprobs": torch.tensor([-1.0, -3.0]),
        "sampled_q1": torch.tensor([5.0, 1.0]),
        "sampled_q2": torch.tensor([4.0, 2.0]),
        "alpha": 0.5,
    }


def test_the_losses_by_hand():
    losses = rlpd_loss(named_tensors())
    assert losses["critic_loss"].item() == pytest.approx((0 + 1) / 2 + (1 + 1) / 2)
    assert losses["target_q_mean"].item() == 2.0
    assert losses["entropy_term"].item() == pytest.approx(0.5 * -2.0)
    assert losses["actor_loss"].item() == pytest.approx(-1.0 - (4.5 + 1.5) / 2)  # the mean of both critics


def test_only_the_actor_is_judged_otherwise_than_in_sac():
    rlpd, sac = rlpd_loss(named_tensors()), sac_loss(named_tensors())
    assert {name for name in sac if not torch.equal(sac[name], rlpd[name])} == {"actor_loss"}


def test_an_explicit_weight_of_the_entropy_wins():
    assert rlpd_loss(named_tensors(), alpha=0.0)["entropy_term"].item() == 0.0


def test_it_is_a_sac_that_aims_at_half_the_entropy():
    assert RLPDAlgorithm is RLPD
    learner = RLPD(model(), learning_rate=1e-3)
    assert isinstance(learner, SAC)
    assert learner.target_entropy == -1.0  # two action dimensions
    assert RLPD(model(), learning_rate=1e-3, target_entropy=-3.0).target_entropy == -3.0


def test_the_plain_arguments_of_sac_are_enough():
    learner = RLPD(MLPSACModel(3, 2, (16,)), learning_rate=1e-3, gamma=0.9, alpha=0.2, tau=0.01)
    result = learner.update(batch_of(), global_step=0)
    assert result.num_gradient_steps == 1
    assert {"critic_loss", "actor_loss", "target_q_mean", "entropy_term"} <= result.metrics.keys()
    assert all(torch.isfinite(value) for value in result.metrics.values())


def constant_critics(learner, values):
    """Target critics that say the same of everything."""
    learner.target.flat.data.zero_()
    learner.target.layers("net")[-1].bias.copy_(torch.tensor(values).view(-1, 1, 1))


def test_the_target_is_the_lowest_of_a_random_few():
    learner = RLPD(model(), learning_rate=1e-3, gamma=1.0, alpha=0.0)
    constant_critics(learner, [1.0, 2.0, 3.0, 4.0, 5.0])
    batch = batch_of(1) | {"rewards": torch.zeros(1), "dones": torch.zeros(1)}
    seen = torch.tensor([learner.targets(batch).item() for _ in range(2000)])
    # of two drawn from five, the lower is 1 in 4 of 10 cases, 2 in 3, 3 in 2, 4 in 1, and never 5
    shares = torch.bincount(seen.long(), minlength=6)[1:] / len(seen)
    torch.testing.assert_close(shares, torch.tensor([0.4, 0.3, 0.2, 0.1, 0.0]), atol=0.04, rtol=0)


def test_the_few_that_are_drawn_are_evaluated_as_they_are_in_the_whole():
    learner = RLPD(model(), learning_rate=1e-3)
    x = torch.randn(7, 5)
    chosen = torch.tensor([4, 1])
    torch.testing.assert_close(learner.target(x, members=chosen), learner.target(x)[chosen])


def test_without_backed_up_entropy_the_target_is_the_critics_alone():
    learner = RLPD(model(), learning_rate=1e-3, gamma=0.5, alpha=3.0, backup_entropy=False)
    constant_critics(learner, [8.0] * 5)
    batch = batch_of(2) | {"rewards": torch.tensor([1.0, 1.0]), "dones": torch.tensor([0.0, 1.0])}
    assert learner.targets(batch).tolist() == [1.0 + 0.5 * 8.0, 1.0]


def twins():
    networks = model()
    return RLPD(networks, learning_rate=1e-2), RLPD(copy.deepcopy(networks), learning_rate=1e-2)


def parameters(learner):
    return torch.cat([learner.model.critics.flat, learner.model.actor.flat, learner.target.flat, learner.alpha.reshape(1)])


def test_a_round_is_the_critics_slice_by_slice_and_the_actor_once():
    one, other = twins()
    batch = batch_of(32)
    torch.manual_seed(5)
    result = one.update_round(batch, 4)
    torch.manual_seed(5)
    drawn = other.sample_actions(batch["next_obs"])
    for start in (0, 8, 16, 24):
        rows = slice(start, start + 8)
        piece = {name: column[rows] for name, column in batch.items()}
        losses = other.update_critics(piece, next_sample=SACSample(drawn.actions[rows], drawn.logprobs[rows]))
    losses |= other.update_actor(piece)
    assert result.num_gradient_steps == 4
    assert torch.equal(parameters(one), parameters(other))
    assert result.metrics == {name: value.detach() for name, value in losses.items()}


class Drawn:
    """Samples that were drawn before, of as many rows as are asked for."""

    def __init__(self, sample_actions, obs):
        self.drawn, self.vjp = sample_actions(obs), sample_actions.vjp

    def __call__(self, obs):
        return SACSample(*(column[: len(obs)] for column in self.drawn))


def test_rows_beyond_the_last_whole_slice_are_left_out():
    one, other = twins()
    for learner, rows in ((one, 35), (other, 32)):
        torch.manual_seed(7)
        batch = batch_of(35)
        learner.sample_actions = Drawn(learner.sample_actions, batch["next_obs"])
        learner.update_round({name: column[:rows] for name, column in batch.items()}, 4)
    assert torch.equal(parameters(one), parameters(other))


def test_a_round_of_one_is_an_update():
    one, other = twins()
    batch = batch_of(16)
    for learner, update in ((one, lambda: one.update_round(batch, 1)), (other, lambda: other.update(batch))):
        torch.manual_seed(3)
        update()
        assert learner.actor_optimizer.steps[0] == 1
    assert torch.equal(parameters(one), parameters(other))


def test_layer_norm_bounds_what_a_critic_says_far_from_its_data():
    normed, plain = MLPSACModel(3, 2, (64, 64), layer_norm=True), MLPSACModel(3, 2, (64, 64))
    obs, far = torch.randn(50, 3), 1e4 * torch.ones(50, 2)
    assert normed.q_values(obs, far).abs().max() < 30  # however far, hidden units stay of unit size
    assert plain.q_values(obs, far).abs().max() > 30
