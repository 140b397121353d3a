"""The ensemble: one batched network whose pullback is autograd's, and fits that can stop anywhere."""

import math

import numpy as np
import pytest
import torch
from replay_batches import standardized_rows
from small_runs import difference

from rl_training.errors import DatasetError
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel, disagreement, max_std
from rl_training.planning.dynamics import DynamicsLearner, gaussian_nll, likelihood_loss, model_rows
from rl_training.planning.dynamics_fit import DynamicsFit, FitSettings

LOSS = "model_loss"


def model_of(**options):
    return MLPMOPOEnsembleModel(3, 2, (16, 16), **{"num_ensembles": 4, **options})


def pushed(rows=400, seed=0):
    """Transitions of a linear system with a little noise: next = obs + 0.5 action, reward = minus the first number."""
    generator = torch.Generator().manual_seed(seed)
    obs = torch.randn(rows, 3, generator=generator)
    actions = torch.rand(rows, 2, generator=generator) * 2 - 1
    noise = 0.01 * torch.randn(rows, 3, generator=generator)
    delta = torch.cat([0.5 * actions, torch.zeros(rows, 1)], dim=1) + noise
    return {"obs": obs, "actions": actions, "rewards": -obs[:, 0], "next_obs": obs + delta}


def fit_of(model, **settings):
    learner = DynamicsLearner(model, learning_rate=3e-3, decays=(1e-5, 2e-5, 3e-5))
    return DynamicsFit(learner, FitSettings(**{"batch_size": 32, "max_epochs": 4, **settings}), loss_name=LOSS)


def test_predictions_have_a_row_per_member_and_a_column_for_the_reward():
    model = model_of()
    means, logvars = model.predict_distribution(torch.randn(7, 3), torch.randn(7, 2))
    assert means.shape == logvars.shape == (4, 7, 4)
    single = model.predict_distribution(torch.zeros(3), torch.zeros(2))
    batch = model.predict_distribution(torch.zeros(1, 3), torch.zeros(1, 2))
    assert single[0].shape == (4, 4)
    assert torch.equal(single[0], batch[0][:, 0])


def test_the_likelihood_by_hand():
    means, logvars, targets = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[0.0, math.log(4.0)]]]), torch.tensor([[3.0, 4.0]])
    # (2² / 1 + 0 + 2² / 4 + log 4) / 2
    assert gaussian_nll(means, logvars, targets).item() == pytest.approx((4 + 1 + math.log(4)) / 2)


def test_the_derived_gradient_of_the_likelihood_is_that_of_autograd():
    means, logvars = (torch.randn(3, 5, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    targets = torch.randn(5, 2, dtype=torch.float64)
    gaussian_nll(means, logvars, targets).sum().backward()
    _, d = likelihood_loss.vjp(means.detach(), logvars.detach(), targets)
    torch.testing.assert_close(d.means, means.grad)
    torch.testing.assert_close(d.logvars, logvars.grad)


@pytest.mark.parametrize("own_rows", [False, True])
def test_the_pullback_is_autograd_s(own_rows):
    model, decays = model_of().double(), (1e-2, 2e-2, 3e-2)
    batch, _, targets = standardized_rows(model)
    model.vector("min_logvar").data.fill_(-1.0)  # so that both bounds matter
    columns = (rows.expand(4, -1, -1) if own_rows else rows for rows in (batch["obs"], batch["actions"]))
    done, pull = model.predict_distribution.vjp(*columns)
    _, d = likelihood_loss.vjp(*done, targets)
    (gradient,) = pull(d.means, d.logvars)
    model.add_regularization(gradient, decays)

    means, logvars = model.predict_distribution(batch["obs"], batch["actions"])
    (gaussian_nll(means, logvars, targets).sum() + model.regularization(decays)).backward()
    torch.testing.assert_close(done.means, means.detach())
    torch.testing.assert_close(done.logvars, logvars.detach())
    torch.testing.assert_close(gradient, model.flat.grad)


def test_the_regulariser_is_a_hundredth_of_the_width_between_the_bounds():
    model = model_of(num_ensembles=1)
    assert model.regularization().item() == pytest.approx(0.01 * 4 * (0.5 + 10), rel=1e-5)


def test_log_variances_cannot_leave_their_bounds_but_always_feel_a_gradient():
    model = model_of()
    model.layers("net")[-1].bias[..., 4:] = 50.0
    _, logvars = model.predict_distribution(torch.randn(5, 3), torch.randn(5, 2))
    assert logvars.max() <= 0.5 + 1e-3  # the lower bound's softplus adds e^-10.5
    model.layers("net")[-1].bias[..., 4:] = -15.0
    _, logvars = model.predict_distribution(torch.randn(5, 3), torch.randn(5, 2))
    assert logvars.min() >= -10.0
    logvars.sum().backward()
    assert model.flat.grad.abs().sum() > 0


def test_units_do_not_matter_to_what_is_learnt():
    """The same data in other units: the same predictions in these units."""
    data, scale = pushed(), torch.tensor([100.0, 0.01, 1.0])
    other = data | {"obs": data["obs"] * scale, "next_obs": data["next_obs"] * scale}
    torch.manual_seed(0)
    here = fit_of(model_of())
    torch.manual_seed(0)
    there = fit_of(model_of())
    for fit, rows in ((here, data), (there, other)):
        fit.begin(1)
        fit.advance(rows)
    means, _ = here.learner.model.predict_distribution(data["obs"][:10], data["actions"][:10])
    scaled, _ = there.learner.model.predict_distribution(other["obs"][:10], other["actions"][:10])
    torch.testing.assert_close(scaled[..., :3] / scale, means[..., :3], rtol=1e-2, atol=1e-2)


def test_a_column_that_never_changes_divides_by_nothing():
    data = pushed()
    for name in ("obs", "next_obs"):
        data[name][:, 1] = 7.0
    fit = fit_of(model_of())
    fit.begin(0)
    fit.advance(data)
    model = fit.learner.model
    assert model.input_scale[1] == 1.0
    assert model.target_scale[1] == 1.0
    means, logvars = model.predict_distribution(data["obs"], data["actions"])
    assert means.isfinite().all()
    assert logvars.isfinite().all()
    assert means[..., 1].abs().max() < 0.5


def test_data_that_is_not_finite_is_refused_and_the_row_is_named():
    data = pushed(rows=50)
    data["rewards"][17] = torch.nan
    fit = fit_of(model_of())
    fit.begin(0)
    before = fit.learner.model.flat.detach().clone()
    with pytest.raises(DatasetError, match="row 17 of 50"):
        fit.advance(data)
    assert torch.equal(fit.learner.model.flat, before)


def test_a_fit_learns_means_and_noise():
    fit = fit_of(model_of(), max_epochs=60)
    fit.begin(0)
    result = fit.advance(pushed())
    assert result.num_gradient_steps == 60 * math.ceil(400 / 32)
    fresh = pushed(rows=200, seed=9)
    targets = model_rows(fresh)[1]
    means, logvars = fit.learner.model.predict_distribution(fresh["obs"], fresh["actions"])
    assert (means - targets).abs()[..., :3].mean() < 0.03
    assert (0.5 * logvars[..., :3]).exp().median().item() == pytest.approx(0.01, rel=1.0)


def test_members_see_resamples_of_their_own():
    fit = fit_of(model_of())
    fit.begin(5)
    rows = fit._prepared(pushed())
    assert rows.resample.shape == (4, 400)
    assert not np.array_equal(rows.resample[0], rows.resample[1])
    share = len(np.unique(rows.resample[0])) / 400
    assert share == pytest.approx(1 - 1 / math.e, abs=0.06)  # what a draw with replacement leaves out is 1/e


def test_every_epoch_shows_each_member_the_whole_of_its_resample_in_another_order(monkeypatch):
    fit = fit_of(model_of(), max_epochs=3)
    fit.begin(5)
    rows, shown = fit._prepared(pushed()), []
    monkeypatch.setattr(fit.learner, "step", lambda inputs, targets: shown.append(inputs[..., 0]))
    fit.advance(pushed())
    batches = math.ceil(400 / 32)
    assert [len(batch[0]) for batch in shown] == ([32] * (batches - 1) + [400 % 32]) * 3
    epochs = [torch.cat(shown[i : i + batches], dim=1) for i in range(0, 3 * batches, batches)]
    for epoch in epochs:
        own = rows.inputs[torch.from_numpy(rows.resample)][..., 0]
        assert torch.equal(epoch.sort(dim=1).values, own.sort(dim=1).values)
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[1], epochs[2])


def test_held_out_rows_are_never_learnt_from_and_end_the_fit():
    fit = fit_of(model_of(num_elites=2), holdout_ratio=0.2, max_holdout=60, patience=2, max_epochs=None)
    fit.begin(3)
    rows = fit._prepared(pushed())
    assert len(rows.held_inputs) == 60
    assert len(rows.inputs) == 340
    assert not (rows.inputs[:, None] == rows.held_inputs[None]).all(-1).any()
    result = fit.advance(pushed())
    assert not fit.running
    assert 0 < result.num_gradient_steps < 400 * math.ceil(340 / 32)
    errors = fit.learner.holdout_errors(rows.held_inputs, rows.held_targets)
    assert fit.learner.model.elites.tolist() == errors.argsort()[:2].tolist()
    assert result.metrics["holdout_error"].item() == pytest.approx(errors.mean().item())


def test_patience_gives_every_member_its_best_parameters_back():
    fit = fit_of(model_of(), holdout_ratio=0.3, patience=1, max_epochs=None)
    fit.learner.optimizer.learning_rate = 0.3  # steps that soon do harm
    fit.begin(3)
    rows = fit._prepared(pushed())
    seen = []
    while fit.running:
        fit.advance(pushed(), max_updates=math.ceil(280 / 32))
        if fit.running:
            seen.append(fit.learner.holdout_errors(rows.held_inputs, rows.held_targets))
    last = fit.learner.holdout_errors(rows.held_inputs, rows.held_targets)
    best = torch.stack(seen).amin(0)
    assert (last <= best / (1 - 0.01) + 1e-6).all()


@pytest.mark.parametrize("patience", [None, 2])
def test_a_fit_stopped_anywhere_goes_on_as_if_it_had_not(patience):
    settings = {"holdout_ratio": 0.2, "patience": patience, "max_epochs": 6}
    torch.manual_seed(0)
    whole, first, second = (fit_of(model_of(), **settings) for _ in range(3))
    state = whole.learner.state_dict()
    first.learner.load_state_dict(state)
    second.learner.load_state_dict(state)
    for fit in (whole, first):
        fit.begin(11, max_updates=47)
    assert whole.advance(pushed()).num_gradient_steps <= 47
    assert first.advance(pushed(), max_updates=13).num_gradient_steps == 13
    second.learner.load_state_dict(first.learner.state_dict())
    second.load_state_dict(first.state_dict())
    while second.running:
        second.advance(pushed(), max_updates=5)
    assert difference(whole.learner.state_dict(), second.learner.state_dict()) is None
    assert difference(whole.state_dict(), second.state_dict()) is None


def test_a_transition_is_drawn_by_the_member_that_is_named():
    model = model_of()
    for bound in ("max_logvar", "min_logvar"):
        model.vector(bound).data.fill_(-30.0)  # no noise to speak of
    obs, actions = torch.randn(4, 3), torch.randn(4, 2)
    means, _ = model.predict_distribution(obs, actions)
    sample = model.sample_transition(obs, actions, members=torch.arange(4))
    next_obs, rewards, apart = sample
    torch.testing.assert_close(next_obs, obs + means[range(4), range(4), :3], atol=1e-5, rtol=0)
    torch.testing.assert_close(rewards, means[range(4), range(4), 3], atol=1e-5, rtol=0)
    torch.testing.assert_close(apart, disagreement(means))


def test_only_elites_are_drawn():
    model = model_of(num_elites=2)
    model.choose_elites(torch.tensor([0.3, 0.1, 0.4, 0.2]))
    assert model.elites.tolist() == [1, 3]
    assert set(model.draw_members(200).tolist()) == {1, 3}


def test_a_single_observation_gives_a_single_transition():
    sample = model_of().sample_transition(torch.zeros(3), torch.zeros(2))
    assert [tuple(part.shape) for part in sample] == [(3,), (), ()]


def test_uncertainty_by_hand():
    means = torch.tensor([[[0.0, 3.0]], [[2.0, 3.0]]])
    assert disagreement(means).tolist() == [1.0]  # the first number is 1 away from the mean of both
    logvars = torch.log(torch.tensor([[[9.0, 16.0]], [[1.0, 1.0]]]))
    assert max_std(logvars).item() == pytest.approx(5.0)


def test_members_disagree_more_away_from_the_data():
    fit = fit_of(model_of(), max_epochs=40)
    fit.begin(0)
    data = pushed()
    fit.advance(data)
    near = fit.learner.model.imagine(data["obs"][:50], data["actions"][:50])
    far = fit.learner.model.imagine(data["obs"][:50] * 8, data["actions"][:50])
    assert far.disagreement.mean() > 5 * near.disagreement.mean()


def test_the_simulator_says_what_the_model_says():
    model = model_of(num_elites=3)
    model.standardize(torch.randn(50, 5) * 3 + 100, torch.randn(50, 4) * 0.1 + 2)
    model.choose_elites(torch.tensor([4.0, 1.0, 2.0, 3.0]))
    obs, actions = torch.randn(3, 6, 3) + 100, torch.randn(3, 6, 2)
    means, logvars = model.simulator()(obs, actions)
    for row, member in enumerate([1, 2, 3]):
        wanted_means, wanted_logvars = model.predict_distribution(obs[row], actions[row])
        torch.testing.assert_close(means[row], wanted_means[member], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(logvars[row], wanted_logvars[member], rtol=1e-4, atol=1e-4)
