"""PETS: planning held against what can be worked out, and updates that call the public loss."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from replay_batches import batch_of
from torch import nn

from rl_training.algorithms.pets import PETS, EpisodePlans, pets_loss
from rl_training.errors import ConfigError
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel
from rl_training.options._dynamics import KNOWN_REWARDS, KNOWN_TERMINATIONS
from rl_training.options.pets import PETSConfig
from rl_training.planning.cem import CEM, colored_noise, truncated_noise
from rl_training.planning.known_functions import REWARDS, TERMINATIONS, reward_function, termination_function
from rl_training.planning.particles import ParticleReturns

SEARCH = {"horizon": 3, "num_candidates": 64, "num_iterations": 5, "num_topk": 8, "num_particles": 4}


LOW, HIGH = torch.full((1,), -1.0), torch.ones(1)


class Sum:
    """Plans are worth the sum of their actions; those that were tried are kept."""

    def __init__(self):
        self.seen = []

    def __call__(self, plans):
        self.seen.append(plans)
        return plans.sum(dim=(2, 3))


class Toy(nn.Module):
    """Only what the interface asks for: the state moves by the action, and `best` earns most."""

    obs_dim, action_dim, num_ensembles = 2, 1, 2

    def __init__(self, best=0.7):
        super().__init__()
        self.best = best
        self.scale = nn.Parameter(torch.ones(1))

    def ensemble_parameters(self):
        return list(self.parameters())

    def predict_distribution(self, obs, actions):
        delta = self.scale * actions.expand(-1, 2)
        reward = -(actions - self.best).square()
        means = torch.cat([delta, reward], dim=-1).expand(2, -1, -1)
        return means, torch.full_like(means, -12.0)


def small(**options):
    model = MLPMOPOEnsembleModel(3, 2, (16,), 3)
    planner = CEM(horizon=4, candidates=24, iterations=3, topk=6)
    return PETS(model, 1e-3, **{"planner": planner, "num_particles": 6, **options})


def test_a_model_that_only_predicts_is_steered_to_the_action_that_earns_most():
    learner = PETS(dynamics_model=Toy(0.7), learning_rate=1e-3)
    action = learner.plan_action(np.zeros(2), action_low=-1.0, action_high=1.0, **SEARCH)
    assert action.shape == (1,)
    assert action[0] == pytest.approx(0.7, abs=0.1)


def test_bounds_of_the_callers_own_are_kept():
    learner = PETS(Toy(best=5.0), 1e-3)
    action = learner.plan_action([0.0, 0.0], action_low=np.array([-3.0]), action_high=np.array([2.0]), **SEARCH)
    assert 1.8 < action[0] <= 2.0
    drawn = [learner.plan_action([0.0, 0.0], action_low=-3.0, action_high=2.0, deterministic=False, **SEARCH) for _ in range(5)]
    assert max(drawn) <= 2.0
    assert len({float(a[0]) for a in drawn}) > 1


def test_a_plan_looks_as_far_as_its_horizon():
    """Reward only where the state has gone far to the right: the first step must be taken though it earns nothing."""

    def far(obs, actions, next_obs):
        return (obs[..., 0] > 0.5).float() - 0.01 * actions[..., 0].square()

    learner = PETS(Toy(), 1e-3, reward_fn=far)
    search = {"action_low": -1.0, "action_high": 1.0, **SEARCH}
    assert learner.plan_action([0.0, 0.0], **search)[0] > 0.5
    assert abs(learner.plan_action([0.0, 0.0], **(search | {"horizon": 1}))[0]) < 0.3  # all it could see is the cost


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"num_topk": 65}, "best 65 cannot be chosen from 64"),
        ({"num_iterations": 0}, "iterations must be at least 1"),
        ({"action_low": 1.0}, "action_low must lie below action_high"),
    ],
)
def test_a_search_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        PETS(Toy(), 1e-3).plan_action(np.zeros(2), **{"action_low": -1.0, "action_high": 1.0, **SEARCH, **changes})


def test_planning_from_an_observation_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        PETS(Toy(), 1e-3).plan_action([math.nan, 0.0], action_low=-1.0, action_high=1.0, **SEARCH)


@pytest.mark.parametrize(
    ("kwargs", "keys"),
    [
        ({"planning_topk": 9, "planning_candidates": 8}, "planning_topk, planning_candidates: the best 9"),
        ({"planning_horizon": 0}, "planning_horizon: given 0"),
        ({"num_elites": 6}, "num_elites, num_ensembles: 6 elites"),
        ({"num_elites": 3}, "num_elites, model_holdout_ratio: elites are chosen by held-out data"),
        ({"model_patience": 3}, "model_patience, model_holdout_ratio: early stopping looks at held-out data"),
        ({"model_weight_decay": [1e-4, 1e-4]}, "model_weight_decay, model_hidden_sizes: 2 numbers for 4 layers"),
        ({"reward_fn": "pendulm"}, "reward_fn: given 'pendulm', which .* did you mean 'pendulum'"),
        ({"termination_fn": "no such"}, "termination_fn: given 'no such'"),
    ],
)
def test_settings_that_cannot_be_are_refused(kwargs, keys):
    with pytest.raises(ConfigError, match=keys):
        PETSConfig(**kwargs)


def test_weight_decay_rises_over_the_layers_or_is_as_given():
    assert PETSConfig(model_hidden_sizes=[8, 8]).layer_decays() == pytest.approx((2.5e-5, 6.25e-5, 1e-4))
    assert PETSConfig(model_hidden_sizes=[8, 8], model_weight_decay=[0.5]).layer_decays() == (0.5, 0.5, 0.5)
    assert PETSConfig(model_hidden_sizes=[8], model_weight_decay=[0.1, 0.2]).layer_decays() == (0.1, 0.2)


def test_the_loss_by_hand():
    means = torch.tensor([[[0.0, 1.0]], [[2.0, 1.0]]])
    batch = {
        "predicted_means": means,
        "predicted_logvars": torch.zeros_like(means),
        "targets": torch.tensor([[1.0, 4.0]]),
        "ensemble_disagreement": torch.tensor([1.0]),
    }
    metrics = pets_loss(batch)
    assert set(metrics) == {"pets_model_loss", "reward_mae", "delta_obs_mae", "ensemble_disagreement"}
    assert metrics["pets_model_loss"].item() == 2 * (1 + 9) / 2  # both members, the mean over two dimensions
    assert metrics["reward_mae"].item() == 3.0
    assert metrics["delta_obs_mae"].item() == 1.0
    assert metrics["ensemble_disagreement"].item() == 1.0


def test_an_update_reports_the_public_loss_and_lowers_it():
    learner, batch = small(), batch_of(rows=64)
    means, logvars = learner.dynamics_model.predict_distribution(batch["obs"], batch["actions"])
    targets = torch.cat([batch["next_obs"] - batch["obs"], batch["rewards"].unsqueeze(-1)], dim=-1)
    wanted = pets_loss(
        {
            "predicted_means": means,
            "predicted_logvars": logvars,
            "targets": targets,
            "ensemble_disagreement": means.std(0, correction=0).norm(dim=-1),
        }
    )
    before = learner.dynamics_model.flat.detach().clone()
    result = learner.update(batch, global_step=0)
    for name, value in wanted.items():
        torch.testing.assert_close(result.metrics[name], value.detach())
    assert not torch.equal(before, learner.dynamics_model.flat)
    for _ in range(100):
        last = learner.update(batch, global_step=0)
    assert last.metrics["pets_model_loss"] < result.metrics["pets_model_loss"]


def test_each_member_can_have_rows_of_its_own():
    learner = small()
    own = {name: torch.stack([column] * 3) for name, column in batch_of(rows=8).items()}
    result = learner.update(own, global_step=0)
    assert result.metrics["ensemble_disagreement"].isfinite()


def test_any_model_is_learnt_by_autograd():
    learner = PETS(Toy(), 0.1)
    rows = {name: value[:, :1] if name == "actions" else value for name, value in batch_of(rows=16, obs_dim=2).items()}
    before = learner.dynamics_model.scale.item()
    learner.update(rows, global_step=0)
    assert learner.dynamics_model.scale.item() != before


def test_deterministic_actions_depend_on_the_observation_alone():
    learner, obs = small(), torch.randn(5, 3)
    together = learner.act(obs, deterministic=True)
    torch.rand(10)
    alone = torch.cat([learner.act(row[None], deterministic=True) for row in obs])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
    state = torch.get_rng_state()
    learner.act(obs, deterministic=True)
    assert torch.equal(state, torch.get_rng_state())
    assert together.abs().max() <= 1


def test_a_plan_handed_in_is_where_the_search_begins():
    planner = CEM(horizon=3, candidates=8, iterations=1, topk=8, momentum=0.999, keep_elites=0)
    start = torch.full((1, 1, 3, 1), 0.9)
    plan = planner.search(lambda plans: plans.sum(dim=(2, 3)), start, low=LOW, high=HIGH)
    torch.testing.assert_close(plan.mean, start[:, 0], atol=2e-3, rtol=0)
    assert plan.shifted(torch.zeros(1))[0, 0, :, 0].tolist() == [*plan.mean[0, 1:, 0].tolist(), 0.0]


def test_one_iteration_by_hand():
    """All candidates are elites: mean and variance are theirs, mixed with the old ones by the momentum."""
    score = Sum()
    planner = CEM(horizon=2, candidates=6, iterations=1, topk=6, momentum=0.25)
    start = torch.full((1, 1, 2, 1), 0.5)
    plan = planner.search(score, start, low=LOW, high=HIGH)
    elites = score.seen[0][0]
    torch.testing.assert_close(plan.mean[0], 0.25 * start[0, 0] + 0.75 * elites.mean(0))
    # the first spread is a quarter of the range of 2
    torch.testing.assert_close(plan.std[0].square(), 0.25 * 0.25 + 0.75 * elites.var(0, correction=0))


def test_kept_elites_compete_again():
    score = Sum()
    planner = CEM(horizon=2, candidates=10, iterations=2, topk=4, keep_elites=0.5)
    planner.search(score, torch.zeros(1, 1, 2, 1), low=LOW, high=HIGH)
    first, second = (plans[0] for plans in score.seen)
    assert torch.equal(second[-2:], first[first.sum(dim=(1, 2)).topk(2).indices])


def test_carried_elites_compete_again_one_step_later():
    score = Sum()
    planner = CEM(horizon=2, candidates=10, iterations=1, topk=4, carry_elites=0.5)
    plan = planner.search(score, planner.fresh(torch.zeros(1)).unsqueeze(0), low=LOW, high=HIGH)
    planner.search(score, plan.shifted(torch.zeros(1)), low=LOW, high=HIGH)
    first, second = (plans[0] for plans in score.seen)
    best = first[first.sum(dim=(1, 2)).topk(2).indices]
    assert torch.equal(second[-2:, 0], best[:, 1])
    assert (second[-2:, 1] == 0).all()


def test_acting_on_the_best_plan_is_not_acting_on_the_mean_of_two_good_ones():
    """Full force either way earns one, and nothing in between does."""

    def score(plans):
        return (plans[:, :, 0, 0].abs() == 1).float()

    start = torch.zeros(1, 1, 1, 1)
    means, bests = (
        CEM(horizon=1, candidates=400, iterations=1, topk=20, initial_std=1.0, act_on_best=best).search(
            score, start, low=LOW, high=HIGH, generator=torch.Generator().manual_seed(0)
        )
        for best in (False, True)
    )
    assert means.actions.abs() < 0.9
    assert bests.actions.abs() == 1.0


def test_the_best_plan_may_be_an_early_one_or_a_mean():
    """What is done is worth at least as much as everything that was tried."""
    score = Sum()
    planner = CEM(horizon=2, candidates=8, iterations=3, topk=4, keep_elites=0.0, act_on_best=True)
    plan = planner.search(score, torch.full((1, 1, 2, 1), 0.3), low=LOW, high=HIGH)
    tried = torch.cat([plans[0] for plans in score.seen])
    assert plan.actions[0] == tried[tried.sum(dim=(1, 2)).argmax(), 0]
    assert torch.equal(score.seen[0][0, 0], torch.full((2, 1), 0.3))


def test_a_plan_that_drives_the_model_mad_is_never_chosen():
    def score(plans):
        values = plans[:, :, 0, 0].clone()
        return torch.where(values > 0, torch.nan, values)

    plan = CEM(horizon=1, candidates=50, iterations=3, topk=5).search(score, torch.zeros(2, 1, 1, 1), low=LOW, high=HIGH)
    assert plan.mean.isfinite().all()
    assert (plan.mean < 0.05).all()


def test_search_noise_is_normal_cut_at_two():
    noise = truncated_noise((200, 50, 2), device=torch.device("cpu"))
    assert noise.abs().max() <= 2.0 + 1e-5
    # the variance of a normal cut at two: 1 - 4 φ(2) / (2 Φ(2) - 1)
    inside = math.erf(2 / math.sqrt(2))
    wanted = 1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / inside
    assert noise.var().item() == pytest.approx(wanted, abs=0.02)


@pytest.mark.parametrize("time", [2, 9, 20])
@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_coloured_noise_has_unit_variance_and_moves_slowly(time, beta):
    noise = colored_noise((4000, time, 2), beta, device=torch.device("cpu"))
    assert noise.var(dim=(0, 2)).tolist() == pytest.approx([1.0] * time, abs=0.1)
    if time > 2:
        neighbours = (noise[:, 1:] * noise[:, :-1]).mean()
        assert neighbours > (0.5 if beta == 2.0 else 0.05)


def returns_of(model, plans, **options):
    obs = torch.zeros(len(plans), 3)
    return ParticleReturns(model, obs, **{"num_particles": 6, **options})(plans)


def test_returns_are_those_of_a_plain_loop_over_members():
    """Without noise a particle is its member's mean, step by step."""
    model = MLPMOPOEnsembleModel(3, 2, (16,), 3)
    for bound in ("max_logvar", "min_logvar"):
        model.vector(bound).data.fill_(-60.0)
    plans = torch.rand(2, 4, 5, 2) * 2 - 1
    totals = torch.zeros(3, 2, 4)
    for member in range(3):
        obs = torch.zeros(8, 3)
        for t in range(5):
            means, _ = model.predict_distribution(obs, plans[:, :, t].reshape(8, 2))
            totals[member] += means[member, :, 3].view(2, 4).detach()
            obs = obs + means[member, :, :3].detach()
    torch.testing.assert_close(returns_of(model, plans), totals.mean(0), rtol=1e-4, atol=1e-5)
    # in pieces of a few rows it is the same
    torch.testing.assert_close(returns_of(model, plans, max_rows=4), totals.mean(0), rtol=1e-4, atol=1e-5)


def test_changing_members_at_every_step_matters_only_if_they_differ():
    model = MLPMOPOEnsembleModel(3, 2, (16,), 3)
    for bound in ("max_logvar", "min_logvar"):
        model.vector(bound).data.fill_(-60.0)
    plans = torch.rand(1, 4, 5, 2) * 2 - 1
    kept, changed = returns_of(model, plans), returns_of(model, plans, ts1=True)
    assert not torch.allclose(kept, changed, rtol=1e-5)
    model.copy_members(model.flat.data, torch.tensor([0]), model.flat.data)
    for layer in model.layers("net"):
        layer.weight[:] = layer.weight[:1].clone()
    kept, changed = returns_of(model, plans), returns_of(model, plans, ts1=True)
    torch.testing.assert_close(kept, changed)


def test_nothing_is_earned_after_the_end():
    model = Toy(best=0.0)
    plans = torch.full((1, 1, 4, 1), 0.5)
    ends = lambda obs, actions, next_obs: next_obs[..., 0] > 0.9  # noqa: E731 (after the second step)
    ones = lambda obs, actions, next_obs: torch.ones_like(obs[..., 0])  # noqa: E731
    obs = torch.zeros(1, 2)
    assert ParticleReturns(model, obs, num_particles=2, reward_fn=ones)(plans).item() == 4.0
    assert ParticleReturns(model, obs, num_particles=2, reward_fn=ones, termination_fn=ends)(plans).item() == 2.0
    swapped = ParticleReturns(model, obs, num_particles=2, ts1=True, reward_fn=ones, termination_fn=ends)
    assert swapped(plans).item() == 2.0


def test_who_has_ended_and_runs_away_in_the_model_leaves_its_plan_a_number():
    class Explosive(Toy):
        def predict_distribution(self, obs, actions):
            means, logvars = super().predict_distribution(obs, actions)
            return torch.cat([1e15 * (1 + obs), means[0, :, 2:]], dim=-1).expand(2, -1, -1), logvars

    ends = lambda obs, actions, next_obs: torch.ones_like(obs[..., 0], dtype=torch.bool)  # noqa: E731
    size = lambda obs, actions, next_obs: 1 + obs.square().sum(-1)  # noqa: E731
    returns = ParticleReturns(Explosive(), torch.zeros(1, 2), num_particles=2, reward_fn=size, termination_fn=ends)
    assert [returns(torch.full((1, 1, horizon, 1), 0.5)).item() for horizon in (1, 2, 4, 8)] == [1.0] * 4


@pytest.mark.parametrize("ts1", [False, True])
def test_who_has_ended_is_not_brought_back_by_leaving_the_end_behind(ts1):
    ends = lambda obs, actions, next_obs: (next_obs[..., 0] - 1.0).abs() < 0.2  # noqa: E731 (after the second step of 0.5)
    ones = lambda obs, actions, next_obs: torch.ones_like(obs[..., 0])  # noqa: E731
    plans, obs = torch.full((1, 1, 4, 1), 0.5), torch.zeros(1, 2)
    returns = ParticleReturns(Toy(), obs, num_particles=2, ts1=ts1, reward_fn=ones, termination_fn=ends)
    assert returns(plans).item() == 2.0


def test_particles_that_change_members_take_their_ends_with_them():
    class Uneven(Toy):
        def predict_distribution(self, obs, actions):
            means, logvars = super().predict_distribution(obs, actions)
            return means * torch.tensor([1.0, 0.0]).view(2, 1, 1), logvars  # the second member stays where it is

    at_the_end = lambda obs, actions, next_obs: next_obs[..., 0] > 0.9  # noqa: E731
    before_it = lambda obs, actions, next_obs: (obs[..., 0] <= 0.9).float()  # noqa: E731
    plans, obs = torch.full((1, 1, 8, 1), 0.5), torch.zeros(1, 2)

    def earned(termination_fn):
        torch.manual_seed(0)
        returns = ParticleReturns(Uneven(), obs, num_particles=16, ts1=True, reward_fn=before_it, termination_fn=termination_fn)
        return returns(plans).item()

    # there is nothing to earn after the end, so that whoever is said to have ended loses nothing by it
    assert 2.0 < earned(None) < 8.0
    assert earned(at_the_end) == earned(None)


def test_particles_are_shared_evenly():
    assert ParticleReturns(MLPMOPOEnsembleModel(3, 2, (4,), 3), torch.zeros(1, 3), num_particles=7).particles == 9
    assert ParticleReturns(Toy(), torch.zeros(1, 2), num_particles=1).particles == 2


def test_every_episode_keeps_its_own_plan():
    learner = small()
    both, alone = EpisodePlans(learner), EpisodePlans(learner)
    obs = torch.randn(6, 2, 3)
    for t in range(3):
        pair, single = both(obs[t], [0, 1]), alone(obs[t, :1], [0])
        torch.testing.assert_close(pair[:1], single, rtol=1e-4, atol=1e-4)
    # episode 0 ends, 1 moves up and 2 begins
    kept = both.plans[1]
    both(obs[3], [1, 2])
    assert set(both.plans) == {1, 2}
    assert kept.abs().sum() > 0


def test_the_names_the_options_know_are_those_there_are():
    assert tuple(sorted(REWARDS)) == KNOWN_REWARDS
    assert tuple(sorted(TERMINATIONS)) == KNOWN_TERMINATIONS


CASES = [
    ("pendulum", "Pendulum-v1", {}),
    ("inverted_pendulum", "InvertedPendulum-v5", {}),
    ("halfcheetah", "HalfCheetah-v5", {"exclude_current_positions_from_observation": False}),
    ("cartpole", "CartPole-v1", {}),
    ("hopper", "Hopper-v5", {}),
    ("walker2d", "Walker2d-v5", {}),
]


@pytest.mark.parametrize(("name", "env_id", "kwargs"), CASES)
def test_known_functions_say_what_the_environment_says(name, env_id, kwargs):
    env = gym.make(env_id, **kwargs)
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    rows = []
    for episode in range(300):
        action = env.action_space.sample()
        after, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, np.atleast_1d(action), after, reward, terminated))
        obs = env.reset(seed=episode)[0] if terminated or truncated else after
    before, actions, after, rewards, ended = (
        torch.as_tensor(np.array(column), dtype=torch.float64) for column in zip(*rows, strict=True)
    )
    if name in REWARDS:
        said = reward_function(name, obs_dim=before.shape[1])(before, actions, after)
        torch.testing.assert_close(said, rewards, rtol=1e-5, atol=1e-4)
    if name in TERMINATIONS:
        said = termination_function(name, obs_dim=before.shape[1])(before, actions, after)
        assert said.tolist() == ended.bool().tolist()
        assert ended.any()
    env.close()


def test_the_centred_reward_breaks_the_ties_of_the_true_one():
    standing, leaning, fallen = torch.tensor([[0.0, 0.0, 0, 0], [0.5, 0.1, 0, 0], [0.0, 0.3, 0, 0]])
    true, centred = (REWARDS[name].function for name in ("inverted_pendulum", "inverted_pendulum_centered"))
    assert [true(obs, obs[:1], obs).item() for obs in (standing, leaning, fallen)] == [1.0, 1.0, 0.0]
    values = [centred(obs, obs[:1], obs).item() for obs in (standing, leaning, fallen)]
    assert values == pytest.approx([1.0, 1.0 - 0.1**2 - 0.1 * 0.5**2, -(0.3**2)])


def test_a_known_function_for_another_observation_is_refused_with_advice():
    with pytest.raises(ConfigError, match=r"18 observed values; this environment has 17.*exclude_current_positions"):
        reward_function("halfcheetah", obs_dim=17)


def test_functions_come_from_import_paths():
    named = reward_function("rl_training.planning.known_functions:pendulum_reward", obs_dim=3)
    assert named.resolve() is REWARDS["pendulum"].function
    for wrong in ("no_such_module_xyz:f", "math:no_such", "math:pi"):
        with pytest.raises(ConfigError, match="termination_fn"):
            termination_function(wrong, obs_dim=3).resolve()
