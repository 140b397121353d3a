"""SAC's targets and losses worked out by hand, and a user's module that learns what ours learns."""

import copy
import math

import pytest
import torch
from torch.distributions import Normal

from rl_training.algorithms.sac import SAC, sac_loss
from rl_training.kernels import squash
from rl_training.kernels.losses import critic_loss, soft_actor_loss
from rl_training.models.mlp_sac import MLPSACModel, SACSample


def batch_of(rows=32, obs_dim=3, action_dim=2):
    return {
        "obs": torch.randn(rows, obs_dim),
        "actions": torch.rand(rows, action_dim) * 2 - 1,
        "rewards": torch.randn(rows),
        "next_obs": torch.randn(rows, obs_dim),
        "dones": (torch.rand(rows) < 0.3).float(),
    }


def test_the_losses_by_hand():
    losses = sac_loss(
        {
            "q1_values": torch.tensor([1.0, 2.0]),
            "q2_values": torch.tensor([0.0, 4.0]),
            "target_q_values": torch.tensor([1.0, 3.0]),
            "sampled_logprobs": torch.tensor([-1.0, -3.0]),
            "sampled_q1": torch.tensor([5.0, 1.0]),
            "sampled_q2": torch.tensor([4.0, 2.0]),
            "alpha": 0.5,
        }
    )
    assert losses["critic_loss"].item() == pytest.approx((0 + 1) / 2 + (1 + 1) / 2)
    assert losses["target_q_mean"].item() == 2.0
    assert losses["entropy_term"].item() == pytest.approx(0.5 * -2.0)
    assert losses["actor_loss"].item() == pytest.approx(-1.0 - (4.0 + 1.0) / 2)


def test_log_probabilities_are_those_of_a_squashed_normal():
    model = MLPSACModel(3, 2, (16,))
    obs = torch.randn(200, 3)
    actions, logprobs = model.sample_actions(obs)
    mean, log_std = model.actor(obs).chunk(2, -1)
    u = torch.atanh(actions.double())
    normal = Normal(mean.double(), log_std.double().clamp(-20, 2).exp())
    expected = (normal.log_prob(u) - torch.log(1 - actions.double() ** 2)).sum(-1)
    torch.testing.assert_close(logprobs.double(), expected, atol=2e-3, rtol=1e-3)


def test_the_log_probability_stays_finite_far_out():
    model = MLPSACModel(1, 1, ())
    model.actor.flat.data.copy_(torch.tensor([0.0, 0.0, 30.0, -5.0]))  # mean 30: tanh is exactly 1 in float32
    sample = model.sample_actions(torch.zeros(4, 1))
    assert torch.isfinite(sample.logprobs).all()


def test_a_target_by_hand(monkeypatch):
    model = MLPSACModel(1, 1, ())
    learner = SAC(model, learning_rate=1e-3, gamma=0.5, alpha=0.0)
    learner.target.flat.data.copy_(torch.tensor([0.0, 0.0, 0.0, 0.0, 10.0, 8.0]))  # two constant critics: 10 and 8
    batch = batch_of(2, 1, 1) | {"rewards": torch.tensor([1.0, 1.0]), "dones": torch.tensor([0.0, 1.0])}
    assert learner.targets(batch).tolist() == [1.0 + 0.5 * 8.0, 1.0]  # a real end has no future


def test_the_target_values_entropy():
    model = MLPSACModel(1, 1, ())
    model.actor.flat.data.zero_()  # a standard normal, squashed
    learner = SAC(model, learning_rate=1e-3, gamma=1.0, alpha=2.0)
    learner.target.flat.data.zero_()
    batch = batch_of(50_000, 1, 1) | {"rewards": torch.zeros(50_000), "dones": torch.zeros(50_000)}
    u = torch.randn(200_000)
    entropy = 0.5 * math.log(2 * math.pi * math.e) + torch.log(1 - u.tanh() ** 2).mean()
    assert learner.targets(batch).mean().item() == pytest.approx(2.0 * entropy.item(), abs=0.05)


def test_written_gradients_are_those_of_autograd():
    q, target, logprobs = torch.randn(3, 20), torch.randn(20), torch.randn(20)
    leaf = q.clone().requires_grad_()
    critic_loss(leaf, target)["critic_loss"].backward()
    torch.testing.assert_close(critic_loss.vjp(q, target)[1].q_values, leaf.grad)
    for pessimistic in (True, False):
        q_leaf, p_leaf = q.clone().requires_grad_(), logprobs.clone().requires_grad_()
        soft_actor_loss(q_leaf, p_leaf, 0.3, pessimistic=pessimistic)["actor_loss"].backward()
        _, d = soft_actor_loss.vjp(q, logprobs, 0.3, pessimistic=pessimistic)
        torch.testing.assert_close(d.q_values, q_leaf.grad)
        torch.testing.assert_close(d.logprobs, p_leaf.grad)


@pytest.mark.parametrize("pessimistic", [True, False])
def test_equal_critics_share_the_gradient_as_in_autograd(pessimistic):
    q, logprobs = torch.randn(3, 20), torch.randn(20)
    q[1, :5] = q[0, :5]
    q[2, :5] += 10.0
    leaf = q.clone().requires_grad_()
    soft_actor_loss(leaf, logprobs, 0.3, pessimistic=pessimistic)["actor_loss"].backward()
    torch.testing.assert_close(soft_actor_loss.vjp(q, logprobs, 0.3, pessimistic=pessimistic)[1].q_values, leaf.grad)


def test_an_update_reports_what_the_public_losses_say(monkeypatch):
    said = {}

    def telling(loss):
        original = loss.vjp

        def told(*args, **kwargs):
            said.update(loss(*args, **kwargs))  # by its definition
            return original(*args, **kwargs)

        monkeypatch.setattr(loss, "vjp", told)

    for loss in (critic_loss, soft_actor_loss):
        telling(loss)
    metrics = SAC(MLPSACModel(3, 2, (16,)), learning_rate=1e-3).update(batch_of(rows=8), global_step=0).metrics
    assert said.keys() == {"critic_loss", "target_q_mean", "actor_loss", "entropy_term"}
    for name, value in said.items():
        torch.testing.assert_close(metrics[name], value)


class Wrapped(torch.nn.Module):
    """The same networks as any module of a user's."""

    def __init__(self, model):
        super().__init__()
        self.actor, self.critics, self.action_dim = model.actor, model.critics, model.action_dim

    def sample_actions(self, obs, *, deterministic=False):
        outputs = self.actor(obs)
        noise = (
            torch.zeros_like(outputs[:, : self.action_dim])
            if deterministic
            else torch.randn_like(outputs[:, : self.action_dim])
        )
        return SACSample(*squash.definition(outputs, noise))

    def q_values(self, obs, actions):
        return self.critics(torch.cat([obs, actions], -1)).squeeze(-1)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_target_is_worth_what_the_actor_would_do_where_the_action_led(wrapped):
    model = MLPSACModel(1, 1, ())
    model.actor.flat.data.copy_(torch.tensor([1.0, 0.0, 0.0, -20.0]))  # does tanh of what it sees, without noise
    learner = SAC(Wrapped(model) if wrapped else model, learning_rate=1e-3, gamma=0.5, alpha=0.0)
    # Q̄1 = 10 a and Q̄2 = 20 a - 5, which cross at a = 0.5; the online critics say something else
    target = learner.target.critics if wrapped else learner.target
    target.flat.data.copy_(torch.tensor([0.0, 10.0, 0.0, 20.0, 0.0, -5.0]))
    seen = {"obs": torch.tensor([[-9.0], [9.0]]), "next_obs": torch.tensor([[0.25], [0.75]]).atanh()}
    batch = batch_of(2, 1, 1) | seen | {"rewards": torch.tensor([1.0, 2.0]), "dones": torch.zeros(2)}
    # min(2.5, 0) and min(7.5, 10)
    torch.testing.assert_close(learner.targets(batch), torch.tensor([1.0 + 0.5 * 0.0, 2.0 + 0.5 * 7.5]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("settings", [{}, {"num_critics": 5, "layer_norm": True}], ids=str)
def test_a_module_of_a_user_s_learns_what_ours_learns(settings):
    model = MLPSACModel(3, 2, (16, 16), **settings)
    twin = copy.deepcopy(model)
    ours = SAC(model, learning_rate=1e-2, critic_subset_size=2)
    theirs = SAC(Wrapped(twin), learning_rate=1e-2, critic_subset_size=2)
    batch = batch_of()
    for i in range(3):
        torch.manual_seed(i)
        one = ours.update(batch).metrics
        torch.manual_seed(i)
        other = theirs.update(batch).metrics
    torch.testing.assert_close(model.actor.flat, twin.actor.flat, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(model.critics.flat, twin.critics.flat, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours.target.flat, theirs.target.critics.flat, atol=1e-5, rtol=1e-4)
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=1e-4, rtol=1e-3)


def test_the_actor_has_no_target_copy():
    learner = SAC(MLPSACModel(3, 2, (8,)), learning_rate=1e-3)
    sizes = sum(t.numel() for t in learner.target_parameters)
    assert sizes == learner.model.critics.flat.numel()


def test_targets_follow_slowly_and_only_the_critics_of_the_actor_step_stay_put():
    learner = SAC(MLPSACModel(3, 2, (8,)), learning_rate=1e-2, tau=0.25)
    before = learner.target.flat.clone()
    learner.update_critics(batch_of())
    expected = before + 0.25 * (learner.model.critics.flat - before)
    torch.testing.assert_close(learner.target.flat, expected.detach())
    critics = learner.model.critics.flat.detach().clone()
    learner.update_actor(batch_of())
    assert torch.equal(critics, learner.model.critics.flat)


def test_alpha_falls_while_entropy_is_above_its_target_and_rises_below():
    high = SAC(MLPSACModel(3, 1, (8,)), learning_rate=1e-2, target_entropy=-10.0)
    low = SAC(MLPSACModel(3, 1, (8,)), learning_rate=1e-2, target_entropy=10.0)
    batch = batch_of(action_dim=1)
    for _ in range(5):
        high.update(batch)
        low.update(batch)
    assert high.alpha < 1.0 < low.alpha


def test_a_fixed_alpha_stays():
    learner = SAC(MLPSACModel(3, 1, (8,)), learning_rate=1e-2, alpha=0.2)
    learner.update(batch_of(action_dim=1))
    assert learner.alpha.item() == pytest.approx(0.2)
    learner.schedule("alpha", 0.1)
    assert learner.alpha.item() == pytest.approx(0.1)


def test_deterministic_actions_are_the_squashed_mean_and_need_no_noise():
    model = MLPSACModel(3, 2, (8,))
    learner = SAC(model, learning_rate=1e-3)
    obs = torch.randn(6, 3)
    state = torch.get_rng_state()
    actions = learner.act(obs, deterministic=True)
    assert torch.equal(state, torch.get_rng_state())
    torch.testing.assert_close(actions, model.actor(obs)[:, :2].tanh().detach())


def test_two_critics_unpack():
    model = MLPSACModel(3, 2, (8,))
    q1, q2 = model.q_values(torch.randn(4, 3), torch.randn(4, 2))
    assert q1.shape == q2.shape == (4,)
    assert not torch.equal(q1, q2)
    assert model.q_values(torch.randn(3), torch.randn(2)).shape == (2,)


def test_the_learner_goes_on_from_its_state_bit_for_bit():
    def learner(seed):
        torch.manual_seed(seed)
        return SAC(MLPSACModel(3, 2, (8,)), learning_rate=1e-2)

    one, other, batch = learner(1), learner(2), batch_of()
    one.update(batch)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    results = []
    for each in (one, other):
        torch.manual_seed(7)
        each.update(batch)
        results.append(torch.cat([each.model.actor.flat, each.model.critics.flat, each.target.flat, each.alpha.reshape(1)]))
    assert torch.equal(*results)


def test_rates_of_their_own_keep_their_proportion_under_a_schedule():
    learner = SAC(MLPSACModel(3, 1, (8,)), learning_rate=1e-3, actor_learning_rate=4e-3)
    learner.schedule("learning_rate", 7.5e-4)
    assert learner.critic_optimizer.learning_rate == pytest.approx(7.5e-4)
    assert learner.actor_optimizer.learning_rate == pytest.approx(3e-3)
    assert learner.alpha_optimizer.learning_rate == pytest.approx(7.5e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e38])
def test_a_reward_that_is_no_number_shows_in_the_losses_without_a_warning(bad):
    """Warnings are errors here; whoever trains looks at the losses."""
    learner, batch = SAC(MLPSACModel(3, 2, (192, 192)), learning_rate=1e-3), batch_of(rows=256)
    batch["rewards"][3] = bad
    for _ in range(2):
        metrics = learner.update(batch, global_step=0).metrics
    assert not math.isfinite(metrics["critic_loss"])
