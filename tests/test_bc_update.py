"""Cloning: both losses worked out by hand, and what is cloned."""

import math

import pytest
import torch
from replay_batches import batch_of

from rl_training.algorithms.bc import BC, BCAlgorithm, bc_loss
from rl_training.models.mlp_bc import MLPBCModel


def learner(*, discrete=False, **settings):
    model = MLPBCModel(3, 2, (16, 16), discrete=discrete)
    return BC(model, discrete=discrete, **{"learning_rate": 1e-2} | settings)


def test_the_error_of_continuous_actions_by_hand():
    outputs, actions = torch.tensor([[0.5, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 0.0], [0.0, -1.0]])
    losses, d = bc_loss.vjp(outputs, actions)
    assert losses["bc_loss"].item() == pytest.approx((0.25 + 4.0) / 4)
    assert d.outputs.tolist() == [[0.25, 0.0], [0.0, 1.0]]  # twice the error over four numbers


def test_the_error_of_discrete_actions_by_hand():
    logits = torch.tensor([[math.log(3.0), 0.0], [math.log(3.0), 0.0]])  # three to one for the first
    losses, d = bc_loss.vjp(logits, torch.tensor([[0.0], [1.0]]), discrete=True)
    assert losses["bc_loss"].item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)
    assert losses["accuracy"].item() == 0.5
    torch.testing.assert_close(d.outputs, torch.tensor([[-0.25, 0.25], [0.75, -0.75]]) / 2)


def test_a_single_number_for_each_action_makes_no_table_of_all_pairs():
    outputs, actions = torch.randn(6, 1), torch.randn(6)
    assert bc_loss(outputs, actions)["bc_loss"] == bc_loss(outputs, actions.unsqueeze(-1))["bc_loss"]


@pytest.mark.parametrize("discrete", [False, True])
def test_the_pullback_is_the_gradient_of_autograd(discrete):
    model, obs, d_outputs = MLPBCModel(3, 2, (16,), discrete=discrete), torch.randn(6, 3), torch.randn(6, 2)
    (model(obs) * d_outputs).sum().backward()
    outputs, pull = model.outputs.vjp(obs)
    torch.testing.assert_close(outputs, model(obs).detach())
    torch.testing.assert_close(pull(d_outputs)[0], model.actor.flat.grad, atol=1e-5, rtol=1e-4)


def test_it_does_what_was_done():
    torch.manual_seed(0)
    agent, obs = learner(), torch.randn(64, 3)
    batch = batch_of(64) | {"obs": obs, "actions": obs[:, :2].tanh()}
    for _ in range(300):
        loss = agent.update(batch).metrics["bc_loss"]
    assert loss < 1e-3
    torch.testing.assert_close(agent.act(obs), obs[:, :2].tanh(), atol=0.15, rtol=0)


def test_of_two_actions_at_one_place_it_takes_the_mean_and_rewards_say_nothing():
    agent = learner()
    batch = {"obs": torch.ones(2, 3), "actions": torch.tensor([[0.8, 0.8], [-0.2, -0.2]]), "rewards": torch.tensor([9.0, -9.0])}
    for _ in range(300):
        agent.update(batch)
    torch.testing.assert_close(agent.act(torch.ones(1, 3)), torch.full((1, 2), 0.3), atol=0.01, rtol=0)


def test_discrete_actions_are_drawn_as_often_as_they_were_chosen_or_the_most_likely_is_taken():
    torch.manual_seed(0)
    agent, obs = learner(discrete=True), torch.ones(4, 3)
    for _ in range(300):
        agent.update({"obs": obs, "actions": torch.tensor([1.0, 1.0, 1.0, 0.0]).unsqueeze(-1)})
    drawn = agent.act(torch.ones(4000, 3))
    assert drawn.float().mean().item() == pytest.approx(0.75, abs=0.03)
    assert agent.act(obs, deterministic=True).tolist() == [1, 1, 1, 1]


def test_the_metrics_name_the_loss():
    assert BCAlgorithm is BC
    assert learner().update(batch_of(), global_step=0).metrics.keys() == {"bc_loss"}
    discrete = learner(discrete=True).update(batch_of() | {"actions": torch.ones(32, 1)})
    assert discrete.metrics.keys() == {"bc_loss", "accuracy"}
