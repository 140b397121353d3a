"""IQL's three losses worked out by hand, what each of them moves, and in which order."""

import copy
import math

import pytest
import torch
from replay_batches import batch_of
from torch.distributions import Normal

from rl_training.algorithms.iql import IQL, IQLAlgorithm, advantage_weighted_loss, expectile_loss, iql_loss
from rl_training.models.mlp_iql import LOG_STD_MAX, LOG_STD_MIN, MLPIQLModel
from rl_training.options.iql import IQLConfig


def learner(**settings):
    return IQL(MLPIQLModel(3, 2, (16, 16)), **{"learning_rate": 1e-2} | settings)


def test_errors_below_a_recorded_action_weigh_more_by_hand():
    values, recorded = torch.zeros(2), torch.tensor([2.0, -1.0])
    # 0.7 * 2^2 and 0.3 * 1^2, over two rows
    assert expectile_loss(values, recorded, expectile=0.7)["value_loss"].item() == pytest.approx((2.8 + 0.3) / 2)


@pytest.mark.parametrize(("expectile", "value"), [(0.5, 0.5), (0.7, 0.7), (0.9, 0.9)])
def test_of_two_values_0_and_1_the_expectile_is_its_own_number(expectile, value):
    """e (1 - v)^2 + (1 - e) v^2 is least at v = e."""
    _, d = expectile_loss.vjp(torch.full((2,), value), torch.tensor([0.0, 1.0]), expectile=expectile)
    assert d.values.sum().item() == pytest.approx(0.0, abs=1e-7)
    assert (d.values != 0).all()


def test_half_an_expectile_is_half_the_squared_error():
    values, recorded = torch.randn(8), torch.randn(8)
    loss = expectile_loss(values, recorded, expectile=0.5)["value_loss"]
    torch.testing.assert_close(loss, 0.5 * (values - recorded).square().mean())


def test_weights_are_exponential_in_the_advantage_up_to_a_limit_by_hand():
    logprobs = torch.tensor([-1.0, -2.0, -3.0])
    advantages = torch.tensor([0.0, math.log(2) / 3, 50.0])  # weights 1, 2, and e^150, which is cut to 100
    losses, d = advantage_weighted_loss.vjp(logprobs, advantages, inverse_temperature=3.0)
    assert losses["actor_loss"].item() == pytest.approx((1 * 1 + 2 * 2 + 100 * 3) / 3)
    assert losses["advantage_weight_mean"].item() == pytest.approx(103 / 3)
    assert d.logprobs.tolist() == pytest.approx([-1 / 3, -2 / 3, -100 / 3])


def test_at_temperature_zero_it_clones():
    logprobs = torch.randn(8)
    loss = advantage_weighted_loss(logprobs, 100 * torch.randn(8), inverse_temperature=0.0)["actor_loss"]
    torch.testing.assert_close(loss, -logprobs.mean())


def test_the_public_loss_is_all_three():
    batch = {name: torch.randn(6) for name in ("values", "recorded_q_values", "logprobs", "q1_values", "q2_values")}
    batch["target_q_values"] = torch.randn(6, 1)
    losses = iql_loss(batch, expectile=0.8, inverse_temperature=2.0)
    assert losses["value_loss"] == expectile_loss(batch["values"], batch["recorded_q_values"], expectile=0.8)["value_loss"]
    errors = torch.stack([batch[f"q{i}_values"] - batch["target_q_values"].flatten() for i in (1, 2)])
    assert losses["critic_loss"].item() == pytest.approx(errors.square().mean(1).sum().item())
    weights = (2.0 * (batch["recorded_q_values"] - batch["values"])).exp().clamp(max=100)
    assert losses["actor_loss"].item() == pytest.approx(-(weights * batch["logprobs"]).mean().item())


def test_log_probabilities_are_those_of_a_normal_around_the_squashed_mean():
    model, batch = MLPIQLModel(3, 2, (16,)), batch_of(6, 3, 2)
    model.actor.vector("log_std").data.copy_(torch.tensor([-1.0, 0.5]))
    network = model.actor.net(model.actor.vector("mean"), batch["obs"])
    wanted = Normal(network.tanh(), torch.tensor([-1.0, 0.5]).exp()).log_prob(batch["actions"]).sum(-1)
    torch.testing.assert_close(model.log_prob(batch["obs"], batch["actions"]), wanted)


@pytest.mark.parametrize("name", ["log_prob", "values"])
def test_pullbacks_are_the_gradients_of_autograd(name):
    model, batch = MLPIQLModel(3, 2, (16, 16)), batch_of(6, 3, 2)
    network = model.actor if name == "log_prob" else model.value_net
    inputs = (batch["obs"], batch["actions"]) if name == "log_prob" else (batch["obs"],)
    d_outputs = torch.randn(6)
    (getattr(model, name)(*inputs) * d_outputs).sum().backward()
    outputs, pull = getattr(model, name).vjp(*inputs)
    torch.testing.assert_close(outputs, getattr(model, name)(*inputs).detach())
    torch.testing.assert_close(pull(d_outputs)[0], network.flat.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("beyond", [LOG_STD_MIN - 1, LOG_STD_MAX + 1])
def test_a_spread_beyond_its_bounds_is_cut_off_and_not_pushed(beyond):
    model, batch = MLPIQLModel(3, 1, (8,)), batch_of(4, 3, 1)
    model.actor.vector("log_std").data.fill_(beyond)
    assert model.actor(batch["obs"]).log_std.item() == min(max(beyond, LOG_STD_MIN), LOG_STD_MAX)
    _, pull = model.log_prob.vjp(batch["obs"], batch["actions"])
    assert pull(torch.ones(4))[0][-1] == 0


def test_a_policy_acts_by_its_mean_and_explores_around_it_within_the_bounds():
    agent, obs = learner(), torch.randn(5, 3)
    actor = agent.model.actor
    actor.vector("log_std").data.fill_(1.0)
    torch.testing.assert_close(agent.act(obs, deterministic=True), actor.net(actor.vector("mean"), obs).tanh().detach())
    drawn = torch.stack([agent.explore(obs) for _ in range(50)])
    assert drawn.abs().max() == 1.0
    assert drawn.std(0).min() > 0.5


def test_next_states_are_worth_what_the_value_function_says_and_nothing_after_an_end():
    agent = learner(gamma=0.5)
    batch = batch_of(2, 3, 2) | {"rewards": torch.tensor([1.0, 2.0]), "dones": torch.tensor([0.0, 1.0])}
    agent.model.value_net.flat.data.zero_()
    agent.model.value_net.layers("net")[-1].bias.fill_(10.0)
    metrics = agent.update_critics(batch)
    assert metrics["target_q_mean"].item() == pytest.approx((1.0 + 0.5 * 10 + 2.0) / 2)


def test_recorded_actions_are_valued_by_the_lower_target_critic():
    agent, batch = learner(), batch_of(4, 3, 2)
    agent.target.flat.data.zero_()
    last = agent.target.layers("net")[-1]
    last.bias[0], last.bias[1] = 3.0, -2.0
    seen = []
    agent.update_value = lambda batch, recorded_q: seen.append(recorded_q) or {}
    agent.update(batch)
    assert seen[0].tolist() == [-2.0] * 4


def test_actor_and_critics_see_what_the_value_function_has_just_learnt():
    agent, batch = learner(), batch_of(8, 3, 2)
    before = agent.values(batch["obs"]).clone()
    seen = []
    original = agent.update_actor
    agent.update_actor = lambda *given: seen.append(agent.values(batch["obs"]).clone()) or original(*given)
    agent.update(batch)
    assert not torch.equal(seen[0], before)
    torch.testing.assert_close(seen[0], agent.values(batch["obs"]))  # and neither of them moves it


@pytest.mark.parametrize(
    ("method", "moved"), [("update_value", "value_net"), ("update_actor", "actor"), ("update_critics", "critics")]
)
def test_each_loss_moves_its_own_network_alone(method, moved):
    agent, batch = learner(), batch_of(8, 3, 2)
    before = copy.deepcopy(agent.model)
    arguments = (batch,) if method == "update_critics" else (batch, torch.randn(8))
    with torch.no_grad():
        getattr(agent, method)(*arguments)
    for name in ("value_net", "actor", "critics"):
        same = torch.equal(getattr(agent.model, name).flat, getattr(before, name).flat)
        assert same == (name != moved), name


def test_target_critics_follow_by_a_small_share():
    agent, batch = learner(tau=0.1), batch_of(8, 3, 2)
    before = agent.target.flat.clone()
    agent.update(batch)
    torch.testing.assert_close(agent.target.flat, before + 0.1 * (agent.model.critics.flat.detach() - before))


def test_it_learns_the_better_of_two_recorded_actions():
    """One state, two actions, rewards 0 and 1: cloning would end between them."""
    torch.manual_seed(0)
    agent = learner(gamma=0.0, expectile=0.9, inverse_temperature=10.0, tau=0.05)
    good = torch.arange(64) % 2
    batch = {
        "obs": torch.ones(64, 3),
        "actions": (good * 1.0 - 0.5).unsqueeze(-1).expand(-1, 2),
        "rewards": good.float(),
        "next_obs": torch.ones(64, 3),
        "dones": torch.ones(64),
    }
    for _ in range(400):
        agent.update(batch)
    assert agent.act(torch.ones(1, 3), deterministic=True).min() > 0.4
    assert agent.values(torch.ones(1, 3)).item() == pytest.approx(0.9, abs=0.1)


def test_the_actor_s_rate_falls_along_a_cosine_offline_and_is_what_it_was_online():
    options = IQLConfig(online_timesteps=50, learning_rate=1e-3, actor_learning_rate=2e-3)
    rates = [options.scheduled_values(step, 150)["actor_learning_rate"] for step in (0, 50, 99, 100, 150)]
    assert rates == pytest.approx([2e-3, 1e-3, 2e-3 * 0.5 * (1 + math.cos(0.99 * math.pi)), 2e-3, 2e-3])
    assert "actor_learning_rate" not in IQLConfig(actor_learning_rate_schedule=None).scheduled_values(0, 10)


def test_without_a_phase_online_the_cosine_ends_with_the_run():
    options = IQLConfig(learning_rate=1e-3)
    assert [options.scheduled_values(step, 100)["actor_learning_rate"] for step in (50, 100)] == pytest.approx([5e-4, 0.0])


def test_the_actor_has_a_schedule_of_its_own():
    agent = learner(actor_learning_rate=0.02)
    agent.schedule("learning_rate", 0.005)
    agent.schedule("actor_learning_rate", 0.003)
    rates = [getattr(agent, f"{name}_optimizer").learning_rate for name in ("value", "critic", "actor")]
    assert rates == pytest.approx([0.005, 0.005, 0.003])


def test_the_metrics_name_all_losses():
    assert IQLAlgorithm is IQL
    metrics = learner().update(batch_of(8, 3, 2), global_step=0).metrics
    assert {"value_loss", "critic_loss", "actor_loss", "advantage_weight_mean", "target_q_mean"} <= metrics.keys()
    assert all(torch.isfinite(value) for value in metrics.values())
