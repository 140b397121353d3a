"""Values for where plans end: held against tasks whose values are known, and what plans make of them."""

import math

import pytest
import torch
from small_runs import difference

from rl_training.algorithms.pets import PETS
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel
from rl_training.planning.cem import CEM
from rl_training.planning.particles import ParticleReturns
from rl_training.planning.plan_values import CHOICES, PlanValues, _rarity, _spread_out, symexp, symlog

GAMMA = 0.5  # values are there after few updates


def fitted(imagine, obs, rewards, *, updates=1_200, seed=0, **options):
    torch.manual_seed(0)
    values = PlanValues(obs.shape[1], 1, (32, 32), learning_rate=3e-3, gamma=GAMMA, **options)
    metrics = values.fit(imagine, obs, rewards, members=2, updates=updates, seed=seed)
    return values, metrics


def line(obs, actions):
    """A point on a line that moves by a tenth at most and pays for its distance from the middle."""
    return obs + 0.1 * actions, -obs[..., 0].abs(), None


def test_symlog_is_a_logarithm_of_size_with_its_inverse():
    x = torch.tensor([-(math.e**3 - 1), -0.01, 0.0, math.e - 1])
    torch.testing.assert_close(symlog(x), torch.tensor([-3.0, -math.log(1.01), 0.0, 1.0]))
    torch.testing.assert_close(symexp(symlog(x)), x)
    assert symexp(torch.tensor([-1e9, 1e9])).isfinite().all()


def test_choices_hold_both_bounds_and_the_middle_in_every_dimension():
    drawn = _spread_out((2, 3), 2, torch.Generator().manual_seed(0))
    assert drawn.shape == (2, 3, CHOICES, 2)
    grid = torch.linspace(-1, 1, CHOICES)
    assert torch.equal(drawn.sort(dim=2).values, grid[:, None].expand(2, 3, CHOICES, 2))
    assert not torch.equal(drawn[..., 0], drawn[..., 1])


def test_a_place_seen_a_hundred_times_counts_as_one_seen_once():
    obs = torch.tensor([[0.0, 3.0]] * 100 + [[1.0, 3.0]] + [[0.5, 3.0]] * 4)  # the second column does not move
    weights = _rarity(obs)
    assert weights[:100].sum().item() == pytest.approx(1.0, abs=1e-5)
    assert weights[100] == 1.0
    assert weights[101:].tolist() == [0.25] * 4


def test_who_has_ended_and_runs_away_in_the_model_is_worth_what_it_earned():
    def explosive(obs, actions):
        reached = obs + 1e20 * (obs > 0)  # from a positive place it is over, and squares of the next are infinite
        return reached, -obs[..., 0].square(), reached[..., 0] > 1

    values = PlanValues(1, 1, (8,), gamma=GAMMA, action_repeat=3)
    generator = torch.Generator().manual_seed(0)
    backups = values._backed_up(explosive, torch.tensor([[[0.5], [-2.0]]]), generator)
    assert backups.states.tolist() == [[0.5], [-2.0]]
    assert backups.rewards[0].tolist() == [-0.25] * CHOICES
    assert backups.rewards[1].tolist() == [-4 * (1 + GAMMA + GAMMA**2)] * CHOICES
    assert backups.discounts[:, 0].tolist() == [0.0, GAMMA**3]


def test_values_are_those_of_the_best_way_to_act():
    """From 0.4 the way to the middle costs .4 + .3γ + .2γ² + .1γ³, and staying there nothing."""
    obs = torch.rand(200, 1) * 2 - 1
    values, _ = fitted(line, obs, -obs[:, 0].abs(), updates=1_500, action_repeat=1)
    points = torch.tensor([[0.4], [-0.4], [0.0], [0.8]])
    ways = [sum(GAMMA**t * (0.1 * n - 0.1 * t) for t in range(n)) for n in (4, 4, 0, 8)]
    torch.testing.assert_close(values(points), -torch.tensor(ways), atol=0.03, rtol=0.05)


def test_an_action_that_is_held_is_discounted_as_so_many_steps():
    """One is earned at every step for ever: 1 / (1 − γ), however long the backups' actions are."""

    def imagine(obs, actions):
        return obs + actions, torch.ones_like(obs[..., 0]), None

    for repeat in (1, 4):
        values, _ = fitted(imagine, torch.randn(50, 1), torch.ones(50), action_repeat=repeat)
        torch.testing.assert_close(values(torch.randn(20, 1)), torch.full((20,), 2.0), atol=0.05, rtol=0)


def test_what_comes_later_is_judged_by_the_slow_average_and_not_by_the_network_that_learns():
    values = PlanValues(1, 1, (), gamma=0.5, action_repeat=1)
    for network, said in ((values.model, 0.0), (values.target, 8.0)):
        network.flat.data.zero_()
        network.layers("net")[-1].bias.copy_(symlog(torch.tensor(said)))
    told = values.fit(
        lambda obs, actions: (obs, torch.ones_like(obs[..., 0]), None),
        torch.randn(50, 1),
        torch.tensor([-10.0, 10.0]),
        members=1,
        updates=1,
        seed=0,
    )
    # 1 + 0.5 · 8 for all that there is to do, where the network says 0
    assert told["value_loss"].item() == pytest.approx(math.log(1 + 5.0) ** 2, rel=1e-5)


def test_after_the_end_there_is_nothing_to_earn():
    """Two is earned at the step that ends the episode; a value at the state behind it would show."""

    def imagine(obs, actions):
        return obs + actions, torch.full_like(obs[..., 0], 2.0), torch.ones_like(obs[..., 0], dtype=torch.bool)

    values, _ = fitted(imagine, torch.randn(50, 1), torch.full((50,), 2.0), action_repeat=3)
    torch.testing.assert_close(values(torch.randn(20, 1)), torch.full((20,), 2.0), atol=0.1, rtol=0)


def test_values_stay_within_what_the_rewards_seen_can_add_up_to():
    def imagine(obs, actions):
        return obs + actions, torch.full_like(obs[..., 0], 1e6), None  # a model gone mad

    values, _ = fitted(imagine, torch.randn(50, 1), torch.linspace(-1, 0.5, 50))
    assert values(torch.randn(100, 1) * 1e3).max() <= 0.5 / (1 - GAMMA) + 1e-5


def test_a_column_that_does_not_move_does_no_harm():
    obs = torch.cat([torch.randn(50, 1), torch.full((50, 1), 7.0)], dim=1)

    def imagine(obs, actions):
        return obs + torch.cat([0.1 * actions, torch.zeros_like(actions)], dim=-1), -obs[..., 0].abs(), None

    values, metrics = fitted(imagine, obs, -obs[:, 0].abs(), updates=50)
    assert values(obs).isfinite().all()
    assert metrics["value_loss"].isfinite()


def test_a_fit_depends_on_its_seed_alone_and_leaves_torchs_stream_where_it_is():
    obs, results = torch.randn(50, 1), []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        values = PlanValues(1, 1, (8,), gamma=GAMMA)
        torch.manual_seed(seed + len(results))
        before = torch.get_rng_state()
        values.fit(line, obs, -obs[:, 0].abs(), members=2, updates=5, seed=seed)
        assert torch.equal(before, torch.get_rng_state())
        results.append(values.state_dict())
    assert difference(results[0], results[1]) is None
    assert difference(results[0], results[2]) is not None


def test_what_is_saved_is_all_there_is():
    obs = torch.randn(50, 1)
    values, _ = fitted(line, obs, -obs[:, 0].abs(), updates=20)
    again = PlanValues(1, 1, (32, 32), learning_rate=3e-3, gamma=GAMMA)
    again.load_state_dict(values.state_dict())
    assert torch.equal(again(obs), values(obs))
    for each in (values, again):
        each.fit(line, obs, -obs[:, 0].abs(), members=2, updates=20, seed=5)
    assert torch.equal(again(obs), values(obs))


class Sliding:
    """Two members that agree: the state moves by the action and earns what it is."""

    obs_dim, action_dim, num_ensembles = 1, 1, 2

    def ensemble_parameters(self):
        return [torch.zeros(1)]

    def predict_distribution(self, obs, actions):
        means = torch.cat([actions, obs], dim=-1).expand(2, -1, -1)
        return means, torch.full_like(means, -torch.inf)


class Tenfold:
    """A state is worth ten times itself."""

    gamma = 0.5

    def __call__(self, obs):
        return 10.0 * obs[..., 0]


@pytest.mark.parametrize("ends", [False, True])
def test_a_plan_is_worth_its_rewards_and_the_value_of_its_end(ends):
    """From 1 by +1, +2: rewards 1 and 2, the end at 4, each step worth half the one before; where 2 ends it, no more."""
    termination = (lambda _, __, next_obs: next_obs[..., 0] >= 2) if ends else None
    score = ParticleReturns(Sliding(), torch.ones(1, 1), num_particles=2, values=Tenfold(), termination_fn=termination)
    plans = torch.tensor([1.0, 2.0]).view(1, 1, 2, 1)
    expected = 1.0 if ends else 1.0 + 0.5 * 2.0 + 0.25 * 10.0 * 4.0
    assert score(plans).item() == pytest.approx(expected)


def test_without_values_the_sum_is_not_discounted():
    score = ParticleReturns(Sliding(), torch.ones(1, 1), num_particles=2)
    assert score(torch.tensor([1.0, 2.0]).view(1, 1, 2, 1)).item() == pytest.approx(3.0)


def test_a_plan_of_one_step_sees_beyond_it_through_values():
    """The reward comes before the step, so that by itself no action of the last step is better than another."""
    planner = CEM(horizon=1, candidates=100, iterations=3, topk=10)
    with_values = PETS(Sliding(), 1e-3, planner=planner, num_particles=2, values=Tenfold())
    without = PETS(Sliding(), 1e-3, planner=planner, num_particles=2)
    obs = torch.zeros(1, 1)
    assert with_values.act(obs, deterministic=True) > 0.9
    assert without.act(obs, deterministic=True).abs() < 0.9


def test_known_rewards_and_ends_reach_the_values():
    """Neither the model's own reward nor the data's counts: every step earns three, and is the last."""
    model = MLPMOPOEnsembleModel(1, 1, (8,), 2)
    values = PlanValues(1, 1, (16, 16), gamma=GAMMA, action_repeat=1, learning_rate=3e-3)
    learner = PETS(
        model,
        1e-3,
        values=values,
        reward_fn=lambda obs, _, __: torch.full_like(obs[..., 0], 3.0),
        termination_fn=lambda obs, _, __: torch.ones_like(obs[..., 0], dtype=torch.bool),
    )
    obs = torch.randn(60, 1)
    batch = {"obs": obs, "actions": torch.zeros(60, 1), "next_obs": obs, "rewards": torch.full((60,), -50.0)}
    learner.fit_values(batch, updates=800, seed=0)
    torch.testing.assert_close(values(obs), torch.full((60,), 3.0), atol=0.3, rtol=0)
