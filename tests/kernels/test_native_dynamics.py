"""Steps of learnt dynamics in C: what the model itself says in double precision, and nothing misread."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from rl_training.models.native_net import passes_on
from test_native import kind, needs_passes  # noqa: F401 (a fixture)
from torch import Tensor

from rl_training import native
from rl_training.algorithms.sac import critic_loss
from rl_training.models.flat_mlp import FlatMLP
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel, disagreement, max_std
from rl_training.models.optim import Adam
from rl_training.models.simulator import Simulator

pytestmark = [needs_passes, pytest.mark.usefixtures("kind")]

OBS, ACTIONS, MEMBERS = 5, 2, 3


def _model(*, deterministic: bool = False, activation: str = "silu") -> MLPMOPOEnsembleModel:
    torch.manual_seed(0)
    model = MLPMOPOEnsembleModel(OBS, ACTIONS, (40, 40), MEMBERS, deterministic=deterministic, activation=activation)
    model.flat.data.add_(0.1 * torch.randn_like(model.flat))  # biases and bounds that are not what they began with
    model.standardize(torch.randn(50, OBS + ACTIONS) * 3 + 1, torch.randn(50, OBS + 1) * 2 - 1)
    return model


def _everyone(model: MLPMOPOEnsembleModel) -> Simulator:
    simulator = Simulator(model, torch.arange(MEMBERS))
    assert simulator.native is not None
    return simulator


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
    luck = torch.randn(particles, OBS)
    next_obs, rewards = _everyone(model).particles(obs, actions, luck)
    assert next_obs.shape == (particles, rows, OBS)
    for particle in range(particles):
        here, deeds = (x if x.dim() == 2 else x[particle] for x in (obs, actions))
        means, stds = (x[particle // each] for x in _exact(model, here, deeds))
        expected = here + means[:, :-1] + stds[:, :-1] * luck[particle]
        torch.testing.assert_close(next_obs[particle].double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rewards[particle].double(), means[:, -1], rtol=1e-5, atol=1e-5)


def test_without_luck_they_follow_the_means() -> None:
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
    found = _everyone(model).drawn(obs, actions, chosen, noise)
    means, stds = _exact(model, obs, actions)
    own = torch.arange(rows)
    drawn = means[chosen, own] + stds[chosen, own] * noise
    expected = (obs + drawn[:, :-1], drawn[:, -1], disagreement(means), max_std(2 * stds.log()))
    for mine, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("deterministic", [False, True])
def test_it_is_what_torch_makes_of_it(deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    obs, actions, luck = torch.randn(2 * MEMBERS, 30, OBS), torch.rand(30, ACTIONS), torch.randn(2 * MEMBERS, OBS)
    chosen, noise = torch.randint(MEMBERS, (30,)), torch.randn(30, OBS + 1)

    def everything(simulator: Simulator) -> list[Tensor]:
        asked_once = simulator.particles(obs[0], actions, luck)
        return [*simulator.particles(obs, actions, luck), *asked_once, *simulator.drawn(obs[0], actions, chosen, noise)]

    found = everything(_everyone(_model(deterministic=deterministic)))
    monkeypatch.setattr(native, "library", lambda: None)
    plain = Simulator(_model(deterministic=deterministic), torch.arange(MEMBERS))
    assert plain.native is None
    for mine, torchs in zip(found, everything(plain), strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-4, atol=1e-5)


def test_threads_and_neighbours_change_no_bit() -> None:
    simulator = _everyone(_model())
    obs, actions, luck = torch.randn(2 * MEMBERS, 150, OBS), torch.rand(150, ACTIONS), torch.randn(2 * MEMBERS, OBS)
    one, _ = simulator.particles(obs, actions, luck)
    with passes_on(2):
        two, _ = simulator.particles(obs, actions, luck)
    few, _ = simulator.particles(obs[:, 10:23], actions[10:23], luck)
    assert torch.equal(one, two)
    assert torch.equal(one[:, 10:23], few)


def test_a_number_that_is_none_stays_one_and_spoils_its_own_row_alone() -> None:
    simulator, obs, actions = _everyone(_model()), torch.randn(20, OBS), torch.rand(20, ACTIONS)
    chosen, noise = torch.zeros(20, dtype=torch.int64), torch.randn(20, OBS + 1)
    whole = simulator.drawn(obs, actions, chosen, noise)
    obs[7, 2] = float("nan")
    for before, after in zip(whole, simulator.drawn(obs, actions, chosen, noise), strict=True):
        assert after[7].isnan().all()
        others = torch.arange(20) != 7
        assert torch.equal(before[others], after[others])


@pytest.mark.parametrize(
    ("obs", "actions", "luck"),
    [
        ((MEMBERS, 8, OBS + 1), (8, ACTIONS), (MEMBERS, OBS)),
        ((MEMBERS, 8, OBS), (9, ACTIONS), (MEMBERS, OBS)),
        ((MEMBERS, 8, OBS), (8, ACTIONS), (MEMBERS, OBS + 1)),
        ((MEMBERS + 1, 8, OBS), (8, ACTIONS), (MEMBERS + 1, OBS)),
        ((2 * MEMBERS, 8, OBS), (8, ACTIONS), (MEMBERS, OBS)),
    ],
)
def test_what_does_not_fit_is_refused(obs: tuple[int, ...], actions: tuple[int, ...], luck: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"shape|particles"):
        _everyone(_model()).particles(torch.randn(obs), torch.randn(actions), torch.randn(luck))


def test_there_is_no_member_of_that_number() -> None:
    with pytest.raises(IndexError, match="there are 3"):
        _model().sample_transition(torch.randn(4, OBS), torch.rand(4, ACTIONS), members=torch.tensor([0, 1, 3, 2]))
    with pytest.raises(ValueError, match="4 rows"):
        _model().sample_transition(torch.randn(4, OBS), torch.rand(4, ACTIONS), members=torch.tensor([0, 1]))


@pytest.mark.parametrize("x", [-1e30, -1e5, -88.5, -40.0, -20.0, -1.0, 0.0, 1.0, 40.0, 99.0, 101.0, 1e10, 1e30, float("nan")])
def test_silu_is_right_however_large(x: float) -> None:
    net = FlatMLP((1, 1, 1), activation="silu")
    net.flat.data.copy_(torch.tensor([1.0, 0.0, 1.0, 0.0]))
    given = torch.tensor([[x]])
    exact = torch.nn.functional.silu(given.double())
    torch.testing.assert_close(
        net.infer(given).double(), exact, rtol=1e-6, atol=0.0 if math.isnan(x) else 1e-38 * abs(x), equal_nan=True
    )


@pytest.mark.parametrize(("critics", "rows"), [(1, 256), (2, 37), (10, 16)])
def test_critics_losses_are_torchs(critics: int, rows: int) -> None:
    q, target = torch.randn(critics, rows) * 30, torch.randn(rows) * 30
    found = critic_loss(q, target)
    expected = critic_loss(q.clone().requires_grad_(), target)  # by autograd's operators
    assert expected["critic_loss"].requires_grad
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name].detach(), rtol=1e-5, atol=1e-5)
    q[0, 3] = float("nan")
    assert critic_loss(q, target)["critic_loss"].isnan()


def test_a_copy_of_an_optimiser_moves_its_own_parameters() -> None:
    parameters, gradient = torch.ones(5), torch.ones(5)
    adam = Adam([parameters], learning_rate=0.1)
    adam.step([gradient])
    other = copy.deepcopy(adam)
    kept = parameters.clone()
    other.step([gradient])
    assert torch.equal(parameters, kept)
    assert torch.equal(adam.steps[0], torch.tensor(1.0))
    adam.step([gradient])
    assert torch.equal(other.parameters[0], parameters)
    assert torch.equal(other.exp_avg_sq[0], adam.exp_avg_sq[0])
