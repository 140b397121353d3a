"""Imagined steps of learnt dynamics: what the model itself says in double precision, in C and in torch, nothing misread."""

from __future__ import annotations

import copy

import pytest
import torch
from kernel_choice import KINDS, compute_with
from torch import Tensor

from rl_training.kernels.threads import use_threads
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel, disagreement, max_std
from rl_training.models.simulator import Simulator

pytestmark = pytest.mark.usefixtures("kernel")


@pytest.fixture(params=[*KINDS, None], ids=lambda kind: kind or "torch")
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    compute_with(request.param, monkeypatch)
    return request.param


OBS, ACTIONS, MEMBERS = 5, 2, 3


def _model(*, deterministic: bool = False, activation: str = "silu") -> MLPMOPOEnsembleModel:
    torch.manual_seed(0)
    model = MLPMOPOEnsembleModel(OBS, ACTIONS, (40, 40), MEMBERS, deterministic=deterministic, activation=activation)
    model.flat.data.add_(0.1 * torch.randn_like(model.flat))  # biases and bounds that are not what they began with
    model.standardize(torch.randn(50, OBS + ACTIONS) * 3 + 1, torch.randn(50, OBS + 1) * 2 - 1)
    return model


def _everyone(model: MLPMOPOEnsembleModel) -> Simulator:
    return Simulator(model, torch.arange(MEMBERS))


def _exact(model: MLPMOPOEnsembleModel, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations by every member for all rows, in double precision."""
    means, logvars = copy.deepcopy(model).double().predict_distribution(obs.double(), actions.double())
    return means.detach(), (0.5 * logvars.detach()).exp()


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("rows", [1, 16, 37])
@pytest.mark.parametrize("each", [1, 4])
@pytest.mark.parametrize("shared", ["nothing", "actions", "both"])
def test_particles_go_where_their_members_say(shared: str, each: int, rows: int, deterministic: bool) -> None:
    model, particles = _model(deterministic=deterministic), MEMBERS * each
    obs = torch.randn(rows, OBS) if shared == "both" else torch.randn(particles, rows, OBS)
    actions = torch.rand(particles, rows, ACTIONS) if shared == "nothing" else torch.rand(rows, ACTIONS)
    noise = torch.randn(particles, OBS)
    next_obs, rewards = _everyone(model).particles(obs, actions, noise)
    assert next_obs.shape == (particles, rows, OBS)
    for particle in range(particles):
        here, taken = (x if x.dim() == 2 else x[particle] for x in (obs, actions))
        means, stds = (x[particle // each] for x in _exact(model, here, taken))
        expected = here + means[:, :-1] + stds[:, :-1] * noise[particle]
        torch.testing.assert_close(next_obs[particle].double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rewards[particle].double(), means[:, -1], rtol=1e-5, atol=1e-5)


def test_without_noise_particles_follow_the_means() -> None:
    model, obs, actions = _model(), torch.randn(MEMBERS, 20, OBS), torch.rand(MEMBERS, 20, ACTIONS)
    followed, rewards = _everyone(model).particles(obs, actions, None)
    unmoved, same = _everyone(model).particles(obs, actions, torch.zeros(MEMBERS, OBS))
    assert torch.equal(followed, unmoved)
    assert torch.equal(rewards, same)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("rows", [1, 16, 37])
def test_rows_are_drawn_from_their_own_member_and_all_say_how_unsure_they_are(rows: int, deterministic: bool) -> None:
    model, obs, actions = _model(deterministic=deterministic), torch.randn(rows, OBS), torch.rand(rows, ACTIONS)
    chosen, noise = torch.randint(MEMBERS, (rows,)), torch.randn(rows, OBS + 1)
    found = _everyone(model).rows(obs, actions, chosen, noise)
    means, stds = _exact(model, obs, actions)
    own = torch.arange(rows)
    drawn = means[chosen, own] + stds[chosen, own] * noise
    expected = (obs + drawn[:, :-1], drawn[:, -1], disagreement(means), max_std(2 * stds.log()))
    for mine, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-5, atol=1e-5)


def test_threads_and_neighbours_change_no_bit() -> None:
    simulator = _everyone(_model())
    obs, actions, noise = torch.randn(2 * MEMBERS, 150, OBS), torch.rand(150, ACTIONS), torch.randn(2 * MEMBERS, OBS)
    one, _ = simulator.particles(obs, actions, noise)
    with use_threads(2):
        two, _ = simulator.particles(obs, actions, noise)
    few, _ = simulator.particles(obs[:, 10:23], actions[10:23], noise)
    assert torch.equal(one, two)
    assert torch.equal(one[:, 10:23], few)


def test_a_number_that_is_none_stays_one_and_spoils_its_own_row_alone() -> None:
    simulator, obs, actions = _everyone(_model()), torch.randn(20, OBS), torch.rand(20, ACTIONS)
    chosen, noise = torch.zeros(20, dtype=torch.int64), torch.randn(20, OBS + 1)
    whole = simulator.rows(obs, actions, chosen, noise)
    obs[7, 2] = float("nan")
    for before, after in zip(whole, simulator.rows(obs, actions, chosen, noise), strict=True):
        assert after[7].isnan().all()
        others = torch.arange(20) != 7
        assert torch.equal(before[others], after[others])


@pytest.mark.parametrize(
    ("obs", "actions", "noise"),
    [
        ((MEMBERS, 8, OBS + 1), (8, ACTIONS), (MEMBERS, OBS)),
        ((MEMBERS, 8, OBS), (9, ACTIONS), (MEMBERS, OBS)),
        ((MEMBERS, 8, OBS), (8, ACTIONS), (MEMBERS, OBS + 1)),
        ((MEMBERS + 1, 8, OBS), (8, ACTIONS), (MEMBERS + 1, OBS)),
        ((2 * MEMBERS, 8, OBS), (8, ACTIONS), (MEMBERS, OBS)),
    ],
)
def test_what_does_not_fit_is_refused(obs: tuple[int, ...], actions: tuple[int, ...], noise: tuple[int, ...]) -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"shape|size|particles"):
        _everyone(_model()).particles(torch.randn(obs), torch.randn(actions), torch.randn(noise))


def test_there_is_no_member_of_that_number() -> None:
    with pytest.raises(IndexError, match="there are 3"):
        _model().sample_transition(torch.randn(4, OBS), torch.rand(4, ACTIONS), members=torch.tensor([0, 1, 3, 2]))
    with pytest.raises(ValueError, match="4 rows"):
        _model().sample_transition(torch.randn(4, OBS), torch.rand(4, ACTIONS), members=torch.tensor([0, 1]))
