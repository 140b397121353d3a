"""The ensemble whose members give means alone: fitted by squared error, with nothing drawn around the means."""

import math

import pytest
import torch
from replay_batches import batch_of, standardized_rows
from small_runs import difference, small_config

from rl_training.algorithms.pets import PETS, EpisodePlans
from rl_training.errors import ConfigError
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel
from rl_training.options.mopo import MOPOConfig
from rl_training.planning.cem import CEM
from rl_training.planning.dynamics import DynamicsLearner, dynamics_metrics, error_loss, model_rows, squared_error
from rl_training.planning.dynamics_fit import DynamicsFit, FitSettings
from rl_training.planning.particles import ParticleReturns
from rl_training.runtime.mopo_trainer import build_mopo
from rl_training.runtime.pets_trainer import PlanningExplorer, build_pets
from rl_training.types import EnvSpec

PENDULUM = EnvSpec("x", 3, 1, low=(-2.0,), high=(2.0,))


def model_of(**options):
    return MLPMOPOEnsembleModel(3, 2, (16, 16), **{"num_ensembles": 4, "deterministic": True, **options})


def fit_of(model, **settings):
    learner = DynamicsLearner(model, learning_rate=3e-3, decays=(1e-5, 2e-5, 3e-5))
    return DynamicsFit(learner, FitSettings(**{"batch_size": 32, "max_epochs": 4, **settings}), loss_name="loss")


def noisy(rows=400, seed=0):
    """The state moves by half the action, and by noise that nobody can foresee."""
    generator = torch.Generator().manual_seed(seed)
    obs, noise = (torch.randn(rows, 3, generator=generator) for _ in range(2))
    actions = torch.rand(rows, 2, generator=generator) * 2 - 1
    moved = obs + torch.cat([0.5 * actions, torch.zeros(rows, 1)], dim=1)
    return {"obs": obs, "actions": actions, "rewards": -obs[:, 0], "next_obs": moved + 0.1 * noise}


def test_the_squared_error_by_hand():
    means, targets, scale = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]]), torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 4.0])
    assert squared_error(means, targets, scale).tolist() == [(4 + 4 / 16) / 2, 0.0]
    batch = {"predicted_means": means, "targets": targets, "ensemble_disagreement": torch.ones(1)}
    assert dynamics_metrics(batch | {"target_scale": scale}, "loss")["loss"].item() == (4 + 4 / 16) / 2
    assert dynamics_metrics(batch, "loss")["loss"].item() == 4.0


def test_it_is_the_likelihood_of_a_variance_that_does_not_move():
    """Up to a constant: so both losses weigh targets alike."""
    means, targets = torch.randn(3, 5, 2, requires_grad=True), torch.randn(5, 2)
    scale = torch.tensor([0.5, 8.0])
    batch = {"predicted_means": means, "targets": targets, "ensemble_disagreement": torch.ones(5)}
    logvars = (2 * scale.log()).expand(3, 5, 2)
    likelihood = dynamics_metrics(batch | {"predicted_logvars": logvars}, "loss")["loss"]
    torch.testing.assert_close(squared_error(means, targets, scale).sum() + 3 * logvars[0, 0].mean(), likelihood)
    likelihood.backward()
    torch.testing.assert_close(error_loss.vjp(means.detach(), targets, scale)[1].means, means.grad)


@pytest.mark.parametrize("own_rows", [False, True])
def test_the_pullback_is_autograd_s(own_rows):
    model, decays = model_of().double(), (1e-2, 2e-2, 3e-2)
    batch, _, targets = standardized_rows(model)
    columns = (rows.expand(4, -1, -1) if own_rows else rows for rows in (batch["obs"], batch["actions"]))
    done, pull = model.predict_distribution.vjp(*columns)
    (gradient,) = pull(error_loss.vjp(done.means, targets, model.target_scale)[1].means, None)
    model.add_regularization(gradient, decays)

    means, logvars = model.predict_distribution(batch["obs"], batch["actions"])
    (squared_error(means, targets, model.target_scale).sum() + model.regularization(decays)).backward()
    torch.testing.assert_close(done.means, means.detach())
    assert torch.equal(done.logvars, logvars)
    assert torch.equal(logvars, torch.full((4, 20, 4), -torch.inf).double())
    torch.testing.assert_close(gradient, model.flat.grad)


def test_an_update_reports_and_lowers_the_squared_error():
    learner = PETS(model_of(), 1e-2)
    batch = batch_of(rows=64)
    _, targets = model_rows(batch)
    means, _ = learner.dynamics_model.predict_distribution(batch["obs"], batch["actions"])
    wanted = squared_error(means.detach(), targets).sum()
    losses = [float(learner.update(batch, global_step=i).metrics["pets_model_loss"]) for i in range(20)]
    assert losses[0] == pytest.approx(float(wanted), rel=1e-5)
    assert losses[-1] < 0.9 * losses[0]


def test_a_fit_learns_the_mean_of_what_is_noisy_and_draws_nothing_around_it():
    fit = fit_of(model_of(), max_epochs=25)
    fit.begin(0)
    fit.advance(noisy())
    model, fresh = fit.learner.model, noisy(rows=200, seed=9)
    truth = fresh["obs"] + torch.cat([0.5 * fresh["actions"], torch.zeros(200, 1)], dim=1)
    members = torch.zeros(200, dtype=torch.long)
    one, other = (model.imagine(fresh["obs"], fresh["actions"], members=members) for _ in range(2))
    assert torch.equal(one.next_obs, other.next_obs)
    assert (one.next_obs - truth).abs().mean() < 0.06
    assert torch.equal(one.max_std, torch.zeros(200))
    assert (one.disagreement > 0).all()


def test_a_fit_stopped_anywhere_goes_on_as_if_it_had_not():
    settings = {"holdout_ratio": 0.2, "patience": 2, "max_epochs": 6}
    torch.manual_seed(0)
    whole, first, second = (fit_of(model_of(num_elites=2), **settings) for _ in range(3))
    first.learner.load_state_dict(whole.learner.state_dict())
    for fit in (whole, first):
        fit.begin(11)
    whole.advance(noisy())
    first.advance(noisy(), max_updates=25)
    second.learner.load_state_dict(first.learner.state_dict())
    second.load_state_dict(first.state_dict())
    second.advance(noisy())
    assert difference(whole.learner.state_dict(), second.learner.state_dict()) is None


def test_members_are_copied_whole():
    one, other = model_of(), model_of()
    one.copy_members(other.flat.data, torch.tensor([False, True, False, False]), one.flat.data)
    obs, actions = torch.randn(5, 3), torch.randn(5, 2)
    here, there = (model.predict_distribution(obs, actions)[0] for model in (one, other))
    torch.testing.assert_close(here[1], there[1])
    assert not torch.allclose(here[0], there[0])


def test_particles_of_a_member_never_part():
    """The value of a plan is the mean over members, whatever the luck, and the simulator says what the model says."""
    model = model_of(num_ensembles=3)
    model.standardize(torch.randn(50, 5) * 3, torch.randn(50, 4) * 0.1 + 2)
    plans = torch.rand(2, 4, 5, 2) * 2 - 1
    totals = torch.zeros(3, 2, 4)
    for member in range(3):
        obs = torch.zeros(8, 3)
        for t in range(5):
            means = model.predict_distribution(obs, plans[:, :, t].reshape(8, 2))[0][member].detach()
            totals[member] += means[:, 3].view(2, 4)
            obs = obs + means[:, :3]
    values = ParticleReturns(model, torch.zeros(2, 3), num_particles=6)(plans)
    torch.testing.assert_close(values, totals.mean(0), rtol=1e-4, atol=1e-4)


def test_without_a_warm_start_every_search_begins_in_the_middle():
    learners = {}
    for warm in (True, False):
        torch.manual_seed(0)
        planner = CEM(horizon=4, candidates=24, iterations=3, topk=6)
        learners[warm] = PETS(model_of(), 1e-3, planner=planner, num_particles=4, warm_start=warm)
    obs = torch.randn(2, 1, 3)
    seen = {}
    for warm, learner in learners.items():
        torch.manual_seed(1)
        explorer, episodes = PlanningExplorer(learner), EpisodePlans(learner)
        seen[warm] = [(explorer.explore(o), episodes(o, [0])) for o in obs]
        assert (explorer.plans is None) == (episodes.plans == {}) == (not warm)
    for first, second in zip(seen[True][0], seen[False][0], strict=True):
        assert torch.equal(first, second)
    assert not any(torch.equal(a, b) for a, b in zip(seen[True][1], seen[False][1], strict=True))
    # the second search is the one that knows of no plan
    torch.manual_seed(1)
    learners[False].plan(obs[0])
    assert torch.equal(learners[False].plan(obs[1]).actions, seen[False][1][0])


def test_the_options_reach_the_learner(tmp_path):
    config = small_config("pets", tmp_path, algo_kwargs={"deterministic_model": True, "planning_warm_start": False})
    learner = build_pets(config.options, PENDULUM, torch.device("cpu"))
    assert learner.dynamics_model.deterministic
    assert not learner.warm_start
    config = small_config("mopo", tmp_path, algo_kwargs={"deterministic_model": True, "penalty": "disagreement"})
    agent = build_mopo(config.options, PENDULUM, torch.device("cpu"))
    imagined = agent.imagine(torch.randn(6, 3), horizon=2)
    assert (imagined["penalties"] > 0).all()
    assert math.isfinite(float(imagined["rewards"].sum()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deterministic_model": True}, "penalty, deterministic_model: deterministic networks have no deviation"),
        ({"penalty": "disagreement", "num_ensembles": 1}, "penalty, num_ensembles: one network agrees with itself"),
    ],
    ids=["max_std", "disagreement"],
)
def test_a_penalty_that_would_always_be_nothing_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        MOPOConfig(**options)
    assert MOPOConfig(**options, penalty_coef=0.0).penalty_coef == 0.0
