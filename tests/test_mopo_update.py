"""MOPO's learner: the model's loss by hand, a policy update that is SAC's, and what is imagined."""

import copy
import math

import pytest
import torch
from replay_batches import batch_of

from rl_training.algorithms.mopo import MOPO, MOPOAlgorithm, mopo_loss, mopo_model_loss
from rl_training.algorithms.sac import SAC, sac_loss
from rl_training.errors import NumericsError
from rl_training.models.mlp_mopo import ImaginedTransition, MLPMOPOEnsembleModel
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.planning.dynamics import model_rows


def learner(dynamics=None, **settings):
    model = dynamics or MLPMOPOEnsembleModel(3, 2, (16, 16), 4, num_elites=2)
    rates = {"policy_learning_rate": 1e-2, "model_learning_rate": 1e-2}
    return MOPO(MLPSACModel(3, 2, (16, 16)), model, **rates | settings)


class Counts:
    """Every step adds one to all that is observed and pays the first of it; sure of itself it is not."""

    def ensemble_parameters(self):
        return []

    def predict_distribution(self, obs, actions):
        raise NotImplementedError

    def imagine(self, obs, actions):
        assert actions.abs().max() <= 1
        rows = torch.ones(len(obs))
        return ImaginedTransition(obs + 1, obs[:, 0], 0.5 * rows, 2.0 * rows)


def test_the_models_loss_by_hand():
    """Two members, two rows, one observed value and the reward; variances are 1 but for e² in one member's reward."""
    means = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [0.0, 0.0]]])
    logvars = torch.tensor([[[0.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [0.0, 2.0]]])
    batch = {
        "predicted_means": means,
        "predicted_logvars": logvars,
        "targets": torch.zeros(2, 2),
        "ensemble_disagreement": torch.tensor([0.1, 0.3]),
    }
    losses = mopo_model_loss(batch)
    assert {name: value.item() for name, value in losses.items()} == pytest.approx(
        {
            "mopo_model_loss": 1 / 4 + (4 * math.exp(-2) + 2 + 2) / 4,
            "reward_mae": 2 / 4,
            "delta_obs_mae": 1 / 4,
            "ensemble_disagreement": 0.2,
        }
    )


def test_the_loss_of_an_update_is_the_loss_function_on_the_models_predictions():
    agent, batch = learner(), batch_of()
    means, logvars = (x.detach() for x in agent.dynamics_model.predict_distribution(batch["obs"], batch["actions"]))
    apart = means.std(0, correction=0).norm(dim=-1)
    tensors = {"predicted_means": means, "predicted_logvars": logvars, "targets": model_rows(batch)[1]}
    expected = mopo_model_loss(tensors | {"ensemble_disagreement": apart})
    metrics = agent.update_model(batch, global_step=0).metrics
    assert metrics.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(metrics[name], value, atol=1e-5, rtol=1e-4)


def test_the_model_learns_from_model_updates_and_the_policy_from_policy_updates():
    agent, batch = learner(), batch_of()
    losses = [agent.update_model(batch).metrics["mopo_model_loss"].item() for _ in range(50)]
    assert losses[-1] < losses[0]
    model, actor = (x.flat.detach().clone() for x in (agent.dynamics_model, agent.sac.model.actor))
    agent.update(batch, global_step=1)
    torch.testing.assert_close(agent.dynamics_model.flat, model, atol=0, rtol=0)
    assert not torch.equal(agent.sac.model.actor.flat, actor)


def test_the_policy_is_trained_as_sac_trains_it():
    assert MOPOAlgorithm is MOPO
    assert mopo_loss is sac_loss
    agent, batch = learner(alpha=0.3, gamma=0.9, tau=0.1), batch_of()
    sac = SAC(copy.deepcopy(agent.sac.model), learning_rate=1e-2, alpha=0.3, gamma=0.9, tau=0.1)
    for each in (agent, sac):
        torch.manual_seed(1)
        result = each.update(batch, global_step=0)
        assert result.num_gradient_steps == 1
        assert {"critic_loss", "actor_loss", "target_q_mean", "entropy_term", "alpha"} <= result.metrics.keys()
    torch.testing.assert_close(agent.sac.model.actor.flat, sac.model.actor.flat, atol=0, rtol=0)
    torch.testing.assert_close(agent.sac.target.flat, sac.target.flat, atol=0, rtol=0)


@pytest.mark.parametrize(("penalty", "coef", "cost"), [("max_std", 3, 6), ("disagreement", 3, 1.5), ("max_std", 0, 0)])
def test_imagined_rewards_are_lowered_by_the_weighted_penalty(penalty, coef, cost):
    batch = learner(Counts(), penalty=penalty, penalty_coef=coef).imagine(torch.zeros(4, 3), horizon=2)
    assert batch["rewards"].tolist() == [0 - cost] * 4 + [1 - cost] * 4
    assert batch["disagreement"].tolist() == [0.5] * 8


def test_each_step_of_a_rollout_begins_where_the_one_before_led():
    starts = torch.randn(5, 3)
    batch = learner(Counts()).imagine(starts, horizon=4)
    torch.testing.assert_close(batch["obs"], torch.cat([starts + t for t in range(4)]))
    torch.testing.assert_close(batch["next_obs"], batch["obs"] + 1)
    assert batch["dones"].sum() == batch["cuts"].sum() == 0


def test_a_horizon_of_one_gives_one_transition_for_every_start():
    starts = torch.randn(5, 3)
    assert torch.equal(learner(Counts()).imagine(starts, horizon=1)["obs"], starts)


def test_a_rollout_that_ends_is_not_continued():
    agent = learner(Counts(), termination_fn=lambda obs, actions, next_obs: next_obs[..., 0] >= 2)
    starts = torch.tensor([[0.0] * 3, [1.0] * 3, [-9.0] * 3])
    batch = agent.imagine(starts, horizon=3)
    assert batch["obs"][:, 0].tolist() == [0, 1, -9, 1, -8, -7]
    assert batch["dones"].tolist() == [0, 1, 0, 1, 0, 0]
    everything_ends = learner(Counts(), termination_fn=lambda obs, *_: torch.ones(len(obs), dtype=torch.bool))
    assert len(everything_ends.imagine(starts, horizon=3)["obs"]) == 3


def test_observations_stay_within_bounds_where_they_are_given():
    bounds = (torch.full((3,), -1.0), torch.tensor([0.5, 9.0, 9.0]))
    batch = learner(Counts()).imagine(torch.zeros(1, 3), horizon=2, bounds=bounds)
    assert batch["next_obs"].tolist() == [[0.5, 1, 1], [0.5, 2, 2]]
    assert batch["obs"][1].tolist() == [0.5, 1, 1]


def test_what_is_not_finite_never_reaches_the_policy():
    with pytest.raises(NumericsError, match="clip_rollouts"):
        learner(Counts(), penalty_coef=math.inf).imagine(torch.zeros(2, 3), horizon=1)


def test_every_transition_is_drawn_from_a_random_elite():
    """Members differ by what they add to the observation: 10 times their number, and next to no noise."""
    model = MLPMOPOEnsembleModel(3, 2, (8,), 4, num_elites=2)
    model.choose_elites(torch.tensor([9.0, 0.1, 9.0, 0.2]))
    last = model.layers("net")[-1]
    last.weight.zero_()
    last.bias.copy_(torch.cat([torch.arange(4.0).mul(10).view(4, 1, 1).expand(4, 1, 4), torch.full((4, 1, 4), -50.0)], dim=-1))
    batch = learner(model).imagine(torch.zeros(200, 3), horizon=2)
    chosen = ((batch["next_obs"] - batch["obs"])[:, 0] / 10).round().view(2, 200)
    assert set(chosen.flatten().tolist()) == {1.0, 3.0}
    assert 60 < (chosen[0] == 1).sum() < 140
    assert (chosen[0] != chosen[1]).any()  # and a rollout goes from one member to another


@pytest.fixture(scope="module")
def fitted():
    """A learner whose model has only seen observations with every value between -1 and 1, and no noise: with noise the
    learnt variance, and so max_std, need not rise."""
    torch.manual_seed(0)
    obs, actions = torch.rand(512, 3) * 2 - 1, torch.rand(512, 2) * 2 - 1
    moved = torch.cat([actions, obs[:, :1] * obs[:, 1:2]], dim=-1)
    data = {"obs": obs, "actions": actions, "next_obs": obs + moved, "rewards": obs.square().sum(-1)}
    agent = learner(MLPMOPOEnsembleModel(3, 2, (32, 32), 5))
    agent.dynamics_model.standardize(*model_rows(data))
    for _ in range(600):
        rows = torch.randint(512, (5, 64))  # each member its own
        agent.update_model({name: column[rows] for name, column in data.items()})
    return agent


@pytest.mark.parametrize(("penalty", "rise"), [("max_std", 1.5), ("disagreement", 10.0)])
def test_the_penalty_rises_out_of_distribution(fitted, penalty, rise):
    fitted.penalty = penalty
    directions = torch.nn.functional.normalize(torch.randn(256, 3), dim=-1)
    doubts = [fitted.imagine(directions * far, horizon=1)["penalties"].mean().item() for far in (0.5, 2.0, 4.0, 8.0)]
    assert doubts == sorted(doubts)
    assert doubts[-1] > rise * doubts[0]


def test_a_schedule_moves_the_policys_learning_rate_and_leaves_the_models():
    agent = learner(alpha=0.2)
    agent.schedule("policy_learning_rate", 5e-3)
    agent.schedule("alpha", 0.1)
    assert agent.sac.actor_optimizer.learning_rate == agent.sac.critic_optimizer.learning_rate == 5e-3
    assert agent.dynamics.optimizer.learning_rate == 1e-2
    assert agent.sac.alpha.item() == pytest.approx(0.1)


def test_a_loaded_learner_goes_on_as_the_saved_one():
    saved, loaded, batch = learner(), learner(), batch_of()
    saved.update_model(batch)
    saved.update(batch)
    loaded.load_state_dict(copy.deepcopy(saved.state_dict()))
    imagined = []
    for agent in (saved, loaded):
        torch.manual_seed(5)
        agent.update_model(batch)
        agent.update(batch)
        imagined.append(agent.imagine(batch["obs"], horizon=3))
    for name, column in imagined[0].items():
        assert torch.equal(column, imagined[1][name])
