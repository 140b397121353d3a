"""TQC's loss and its truncated targets worked out by hand, its pullbacks, and SAC as its limit."""

import copy

import pytest
import torch
from replay_batches import batch_of

from rl_training.algorithms.sac import SAC
from rl_training.algorithms.tqc import TQC, TQCAlgorithm, lowest_quantiles, tqc_loss
from rl_training.kernels.losses import quantile_huber_loss
from rl_training.models.mlp_tqc import MLPTQCModel


def model_of(**settings):
    return MLPTQCModel(3, 2, (16, 16), **{"num_critics": 3, "num_quantiles": 4} | settings)


def learner(model=None, **settings):
    return TQC(model or model_of(), **{"learning_rate": 1e-2, "num_dropped_quantiles": 1} | settings)


def test_the_loss_by_hand():
    """Two quantiles with shares 1/4 and 3/4 at 0 and 2, two targets at 1 and -1."""
    losses, d = quantile_huber_loss.vjp(torch.tensor([[[0.0, 2.0]]]), torch.tensor([[1.0, -1.0]]))
    # at 0: one error above and one below, 1/2 each; at 2: both below, 1/2 and 5/2
    assert losses["critic_loss"].item() == pytest.approx((0.25 * 0.5 + 0.75 * 0.5 + 0.25 * (0.5 + 2.5)) / 4)
    # slopes are cut off at 1: above 1 by 1/4 and below 1 by 3/4; below 2 by 1/4
    assert d.quantiles.flatten().tolist() == pytest.approx([(-0.25 + 0.75) / 4, 0.25 * 2 / 4])


def test_far_errors_count_linearly():
    near, far = (quantile_huber_loss(torch.zeros(1, 1, 1), torch.tensor([[x]]))["critic_loss"].item() for x in (10.0, 20.0))
    assert far - near == pytest.approx(5.0)  # half of ten, as the only quantile is the median


def test_quantiles_end_where_they_belong():
    """Of nine targets 10, 20, ..., 90 the quantile with share 1/6 is the second lowest, those with 1/2 and 5/6 the middle and
    the second highest."""
    quantiles, targets = torch.zeros(1, 1, 3), torch.arange(10.0, 100.0, 10.0).unsqueeze(0)
    for _ in range(4000):
        _, d = quantile_huber_loss.vjp(quantiles, targets)
        quantiles -= 2.0 * d.quantiles
    assert quantiles.flatten().tolist() == pytest.approx([20.0, 50.0, 80.0], abs=1.0)


def test_the_highest_of_the_mixture_are_left_out_whoever_they_are_of():
    quantiles = torch.tensor([[[10.0, 11.0]], [[2.0, 1.0]]])  # two critics, one row
    assert lowest_quantiles(quantiles, 1).tolist() == [[1.0, 2.0]]  # two are dropped, both of the first critic
    assert lowest_quantiles(quantiles, 0).tolist() == [[1.0, 2.0, 10.0, 11.0]]


def test_rows_are_mixed_each_by_itself():
    quantiles = torch.tensor([[[1.0, 4.0], [8.0, 5.0]], [[3.0, 2.0], [6.0, 7.0]]])
    assert lowest_quantiles(quantiles, 1).tolist() == [[1.0, 2.0], [5.0, 6.0]]


def test_targets_by_hand():
    agent = learner(model_of(num_critics=2, num_quantiles=2), gamma=0.5, alpha=0.2)
    agent.target_quantiles = lambda obs, actions: torch.tensor([[[10.0, 20.0]] * 2, [[30.0, 40.0]] * 2])
    agent.sample_actions = lambda obs: (torch.zeros(2, 2), torch.tensor([5.0, 5.0]))
    batch = batch_of(2) | {"rewards": torch.tensor([1.0, 2.0]), "dones": torch.tensor([0.0, 1.0])}
    # 30 and 40 are dropped; entropy takes 0.2 * 5 off the others
    torch.testing.assert_close(agent.targets(batch), torch.tensor([[1 + 0.5 * 9, 1 + 0.5 * 19], [2.0, 2.0]]))
    agent.backup_entropy = False
    torch.testing.assert_close(agent.targets(batch)[0], torch.tensor([1 + 0.5 * 10, 1 + 0.5 * 20]))


def test_a_value_is_the_mean_of_all_quantiles_and_the_actor_climbs_that():
    agent, batch = learner(), batch_of(8)
    obs, actions = batch["obs"], batch["actions"]
    torch.testing.assert_close(agent.q_values(obs, actions), agent.quantiles(obs, actions).mean(-1))
    assert not agent.pessimistic_actor


@pytest.mark.parametrize("name", ["quantiles", "q_values"])
def test_pullbacks_to_parameters_are_the_gradients_of_autograd(name):
    model, batch = model_of(), batch_of(8)
    outputs = getattr(model, name)(batch["obs"], batch["actions"])
    d_outputs = torch.randn_like(outputs)
    (outputs * d_outputs).sum().backward()
    found, pull = getattr(model, name).vjp(batch["obs"], batch["actions"])
    torch.testing.assert_close(found, outputs.detach())
    torch.testing.assert_close(pull(d_outputs)[0], model.critics.flat.grad, atol=1e-5, rtol=1e-4)


def test_the_pullback_to_actions_is_the_gradient_of_autograd():
    model, batch = model_of(), batch_of(8)
    actions = batch["actions"].clone().requires_grad_()
    outputs = model.q_values(batch["obs"], actions)
    d_outputs = torch.randn_like(outputs)
    (outputs * d_outputs).sum().backward()
    _, pull = model.q_values.vjp(batch["obs"], batch["actions"], wrt=1)
    torch.testing.assert_close(pull(d_outputs), actions.grad, atol=1e-5, rtol=1e-4)


def test_a_single_observation_has_quantiles_and_values_without_an_axis_of_rows():
    model, obs, actions = model_of(), torch.randn(3), torch.randn(2)
    assert model.quantiles(obs, actions).shape == (3, 4)
    torch.testing.assert_close(model.q_values(obs, actions), model.q_values(obs.unsqueeze(0), actions.unsqueeze(0))[:, 0])


def test_with_one_quantile_and_small_errors_critics_get_what_those_of_sac_get():
    """The median's loss is a quarter of the squared error, and a mean over critics where SAC's is a sum."""
    model, batch = model_of(num_critics=2, num_quantiles=1), batch_of(8) | {"rewards": torch.zeros(8), "dones": torch.ones(8)}
    tqc = learner(copy.deepcopy(model), num_dropped_quantiles=0)
    sac = SAC(copy.deepcopy(model), learning_rate=1e-2)
    gradients = {}
    for name, agent in (("tqc", tqc), ("sac", sac)):
        agent.critic_optimizer.step = lambda given, name=name: gradients.update({name: given[0]})
        with torch.no_grad():
            assert agent.q_values(batch["obs"], batch["actions"]).abs().max() < 1
            if name == "tqc":
                agent.targets = lambda batch, _: torch.zeros(8, 1)
            else:
                agent.targets = lambda batch, _: torch.zeros(8)
            agent.update_critics(batch)
    torch.testing.assert_close(gradients["tqc"] * 8, gradients["sac"], atol=1e-6, rtol=1e-4)


def test_dropping_more_makes_values_smaller():
    batch = batch_of(64)
    means = []
    for dropped in (0, 2):
        torch.manual_seed(0)
        agent = learner(num_dropped_quantiles=dropped, gamma=0.95, tau=0.05)
        for _ in range(300):
            agent.update(batch)
        means.append(agent.q_values(batch["obs"], batch["actions"]).mean().item())
    assert means[1] < means[0] - 0.1


def test_the_public_loss_is_both():
    batch = {"quantiles": torch.randn(2, 6, 4), "target_quantiles": torch.randn(6, 5)}
    batch |= {"sampled_q_values": torch.randn(2, 6), "sampled_logprobs": torch.randn(6, 1)}
    losses = tqc_loss(batch, alpha=0.5)
    wanted = (0.5 * batch["sampled_logprobs"]).mean() - batch["sampled_q_values"].mean()
    torch.testing.assert_close(losses["actor_loss"], wanted)
    assert losses["critic_loss"] == quantile_huber_loss(batch["quantiles"], batch["target_quantiles"])["critic_loss"]


def test_it_is_a_sac_and_the_metrics_name_both_losses():
    assert TQCAlgorithm is TQC
    metrics = learner().update(batch_of(), global_step=0).metrics
    assert {"critic_loss", "target_q_mean", "actor_loss", "alpha", "entropy_term"} <= metrics.keys()
    assert all(torch.isfinite(value) for value in metrics.values())
