"""The bound that makes CQL calibrated: worked out by hand, in the loss and in its gradient, and CQL as its limit."""

import copy
import math

import pytest
import torch
from replay_batches import batch_of

from rl_training.algorithms.cal_ql import CalQL, CalQLAlgorithm, cal_ql_loss, calibrated
from rl_training.algorithms.cql import CQL, conservative_gap, cql_loss
from rl_training.models.mlp_sac import MLPSACModel


def tensors(critics=2, rows=6, samples=6):
    return {
        "q_values": torch.randn(critics, rows),
        "target_q_values": torch.randn(rows),
        "sampled_q_values": torch.randn(critics, rows, samples),
        "sampled_logprobs": torch.randn(rows, samples),
        "returns": torch.randn(rows),
    }


def learner(model=None, **settings):
    return CalQL(model or MLPSACModel(3, 2, (16, 16)), **{"learning_rate": 1e-2, "num_cql_samples": 4} | settings)


def batch_with_returns(rows=32, returns=None):
    return batch_of(rows) | {"returns": torch.randn(rows) if returns is None else torch.full((rows,), returns)}


def test_the_policy_s_actions_are_worth_no_less_than_the_return_and_uniform_ones_what_they_are_by_hand():
    sampled = torch.tensor([[[0.0, 1.0, 5.0]], [[3.0, 2.5, -1.0]]])  # two critics, one row; the first of three is uniform
    assert calibrated(sampled, torch.tensor([2.0])).tolist() == [[[0.0, 2.0, 5.0]], [[3.0, 2.5, 2.0]]]


def test_the_loss_by_hand():
    batch = {
        "q_values": torch.tensor([[1.0]]),
        "target_q_values": torch.tensor([3.0]),
        "sampled_q_values": torch.tensor([[[0.0, 1.0, 5.0]]]),
        "sampled_logprobs": torch.zeros(1, 3),
        "returns": torch.tensor([2.0]),
    }
    gap = math.log((1 + math.exp(2) + math.exp(5)) / 3) - 1.0
    losses = cal_ql_loss(batch, cql_alpha=0.5)
    assert losses["cql_penalty"].item() == pytest.approx(gap)
    assert losses["cql_loss"].item() == pytest.approx(4.0 + 0.5 * gap)
    assert losses["bound_share"].item() == 0.5  # one of the policy's two


def test_values_below_the_return_are_pushed_down_no_further():
    batch = tensors() | {"returns": torch.full((6,), 0.2)}
    _, d = cal_ql_loss.vjp(batch, cql_alpha=1.0)
    below = batch["sampled_q_values"] < 0.2
    below[..., :2] = False  # uniform ones are pushed down as ever
    assert (d.sampled_q_values[below] == 0).all()
    assert (d.sampled_q_values[~below] > 0).all()


def test_with_returns_below_all_values_it_is_cql():
    batch = tensors() | {"returns": torch.full((6,), -100.0)}
    ours, theirs = cal_ql_loss(batch, cql_alpha=5.0), cql_loss(batch, cql_alpha=5.0)
    assert ours["bound_share"] == 0
    for name, value in theirs.items():
        assert ours[name] == value, name


def test_a_column_of_returns_makes_no_table_of_all_pairs():
    batch = tensors()
    column = batch | {"returns": batch["returns"].unsqueeze(-1)}
    assert cal_ql_loss(batch, cql_alpha=1.0)["cql_loss"] == cal_ql_loss(column, cql_alpha=1.0)["cql_loss"]


def test_the_gap_is_that_of_the_calibrated_values():
    batch = tensors()
    bounded = calibrated(batch["sampled_q_values"], batch["returns"])
    gap = conservative_gap(batch["q_values"], bounded, batch["sampled_logprobs"])
    assert cal_ql_loss(batch, cql_alpha=1.0)["cql_penalty"].item() == pytest.approx(gap.mean().item())


def test_the_first_third_of_what_the_learner_samples_is_uniform():
    agent, batch = learner(num_cql_samples=3), batch_with_returns(4)
    _, logprobs = agent.sampled_actions(batch)
    torch.testing.assert_close(logprobs[:, :3], torch.full((4, 3), 2 * math.log(0.5)))
    assert not torch.isclose(logprobs[:, 3:], torch.tensor(2 * math.log(0.5))).all()


def test_an_update_with_returns_below_all_values_is_one_of_cql():
    model, batch = MLPSACModel(3, 2, (16, 16)), batch_with_returns(returns=-1e6)
    agents = CQL(copy.deepcopy(model), learning_rate=1e-2, num_cql_samples=4), learner(copy.deepcopy(model))
    for agent in agents:
        torch.manual_seed(1)
        agent.update(batch)
    torch.testing.assert_close(*(agent.model.critics.flat for agent in agents))
    torch.testing.assert_close(*(agent.model.actor.flat for agent in agents))


def test_values_come_to_rest_where_the_data_earned_them_and_those_of_cql_fall_below():
    torch.manual_seed(0)
    batch = batch_of(64) | {"rewards": torch.full((64,), -1.0), "dones": torch.ones(64), "returns": torch.full((64,), -1.0)}
    values = []
    for kind in (CQL, CalQL):
        torch.manual_seed(0)
        agent = kind(MLPSACModel(3, 2, (16, 16)), learning_rate=1e-2, num_cql_samples=4, cql_alpha=5.0)
        for _ in range(150):
            agent.update(batch)
        values.append(agent.q_values(batch["obs"], agent.act(batch["obs"])).mean().item())
    assert values[0] < values[1] - 0.5


def test_the_metrics_name_the_bound():
    assert CalQLAlgorithm is CalQL
    metrics = learner().update(batch_with_returns(), global_step=0).metrics
    assert {"critic_loss", "cql_penalty", "cql_loss", "bound_share", "actor_loss", "cql_alpha", "alpha"} <= metrics.keys()
    assert all(torch.isfinite(value) for value in metrics.values())
