"""Populations: every member acts as its own parameters say, whoever else is there, in C and in torch."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from kernel_choice import KINDS, compute_with, needs_library
from small_runs import small_config, train
from torch import Tensor

from rl_training.envs.batched import make_batched
from rl_training.envs.source import EnvSource
from rl_training.kernels import population
from rl_training.kernels.population import PolicyShape, policies_around
from rl_training.models import MLPARSModel
from rl_training.runtime.generation import Generation
from rl_training.runtime.population import PopulationEvaluator

SHAPES = [
    (348, (), 17), (3, (), 1), (3, (64, 64), 1), (4, (6,), 5), (11, (17, 9, 70), 2), (376, (65, 33), 17), (1, (1,), 1),
    (2, (16, 8), 16),
]  # fmt: skip
ODD = [(17, 6, (64, 40)), (348, 17, ()), (17, 6, (40, 30)), (376, 17, (33,)), (3, 1, (64, 64))]


@pytest.fixture(params=[*KINDS, None], ids=lambda kind: kind or "torch")
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    compute_with(request.param, monkeypatch)
    return request.param


def _around(model: MLPARSModel, *, directions: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A policy, and steps away from it."""
    rng = np.random.default_rng(seed)
    steps = 0.3 * rng.standard_normal((directions, model.num_parameters), dtype=np.float32)
    return model.flat_parameters().numpy() + steps[0], steps


def _by_hand(model: MLPARSModel, parameters: np.ndarray, obs: Tensor) -> Tensor:
    """One policy in double precision."""
    h = obs.double()
    for i, (weight, bias) in enumerate(model.shape.layers(torch.from_numpy(parameters).double())):
        h = (h.tanh() if i else h) @ weight
        h = h if bias is None else h + bias
    return h


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_member_acts_as_its_side_of_its_step_says(shape: tuple[int, tuple[int, ...], int], rows: int, biased: bool) -> None:
    obs_dim, hidden, action_dim = shape
    model = MLPARSModel(obs_dim, action_dim, hidden, bias=biased)
    center, steps = _around(model, directions=4)
    members = np.array([5, 0, 1, 7])
    policies = policies_around(model.shape, center, steps, members, rows=rows)
    obs = torch.randn(4, rows, obs_dim)
    policies.obs.copy_(obs)
    found = torch.from_numpy(policies.act())
    for i, member in enumerate(members):
        parameters = center - steps[member // 2] if member % 2 else center + steps[member // 2]
        expected = _by_hand(model, parameters, obs[i]).clamp(-1, 1)
        torch.testing.assert_close(found[i].double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    "sizes", [(17, 6, (64, 40)), (348, 17, ()), (17, 6, (40, 30)), (376, 17, (33,)), (3, 1, (64, 64))], ids=str
)
def test_a_member_does_not_depend_on_the_others(sizes: tuple[int, int, tuple[int, ...]]) -> None:
    obs_dim, action_dim, hidden = sizes
    model = MLPARSModel(obs_dim, action_dim, hidden, bias=True, initial="normc")
    center, steps = _around(model, directions=8)
    obs = torch.randn(16, 2, obs_dim)

    def actions(members: np.ndarray) -> np.ndarray:
        policies = policies_around(model.shape, center, steps, members, rows=2)
        policies.obs.copy_(obs[torch.from_numpy(members)])
        return policies.act().copy()

    whole = actions(np.arange(16))
    for members in ([3], [14, 2], [0, 1, 9, 15], list(range(3, 14))):
        np.testing.assert_array_equal(actions(np.array(members)), whole[members])


@pytest.mark.usefixtures("kernel")
def test_the_largest_output_is_the_action_where_actions_are_discrete() -> None:
    model = MLPARSModel(4, 3, (8,), discrete=True)
    center, steps = _around(model, directions=2)
    policies = policies_around(model.shape, center, 5 * steps, np.arange(4), rows=2)
    obs = torch.randn(4, 2, 4)
    policies.obs.copy_(obs)
    sides = [center + sign * 5 * step for step in steps for sign in (1, -1)]
    expected = [_by_hand(model, side, shown).argmax(dim=-1) for side, shown in zip(sides, obs, strict=True)]
    assert policies.act().tolist() == [row.tolist() for row in expected]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("hidden", [(), (8,)])
def test_the_largest_output_of_each_part_is_chosen_where_actions_have_parts(hidden: tuple[int, ...]) -> None:
    model = MLPARSModel(4, 7, hidden, discrete=True, nvec=(2, 4, 1))
    center, steps = _around(model, directions=2)
    policies = policies_around(model.shape, center, 5 * steps, np.arange(4), rows=2)
    obs = torch.randn(4, 2, 4)
    policies.obs.copy_(obs)
    sides = [center + sign * 5 * step for step in steps for sign in (1, -1)]
    expected = []
    for side, shown in zip(sides, obs, strict=True):
        parts = _by_hand(model, side, shown).split([2, 4, 1], dim=-1)
        expected.append([list(choice) for choice in zip(*(part.argmax(dim=-1).tolist() for part in parts), strict=True)])
    assert policies.act().tolist() == expected
    model.set_flat_parameters(torch.from_numpy(sides[0]))
    assert model.actor(obs[0]).tolist() == expected[0]
    assert model.actor(obs[0, 0]).tolist() == expected[0][0]


@pytest.mark.usefixtures("kernel")
def test_what_is_no_number_stays_one() -> None:
    model = MLPARSModel(3, 2, (16,))
    center, steps = _around(model, directions=1)
    policies = policies_around(model.shape, center, steps, np.arange(2), rows=1)
    policies.obs.copy_(torch.tensor([[[math.nan, 0.0, 0.0]], [[1.0, 2.0, 3.0]]]))
    found = policies.act()
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


@pytest.mark.usefixtures("kernel")
def test_members_and_parameters_that_are_not_there_are_refused() -> None:
    center, steps = np.zeros(13, dtype=np.float32), np.zeros((2, 13), dtype=np.float32)  # 2 · 3 + 3 and 3 · 1 + 1
    shape = PolicyShape((2, 3, 1), biased=True, discrete=False)
    for member in (-1, 4):
        with pytest.raises(ValueError, match="of 2 steps to both sides"):
            policies_around(shape, center, steps, np.array([0, member]), rows=1)
    with pytest.raises(ValueError, match="for policies of 13"):
        policies_around(shape, center, steps[:, 1:], np.array([0]), rows=1)


@needs_library
def test_a_population_is_worth_the_same_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    source = EnvSource("Pendulum-v1", {"max_episode_steps": 40})
    spec = source.spec()
    model = MLPARSModel(spec.obs_dim, spec.action_dim, (16,))

    def returns() -> np.ndarray:
        evaluator = PopulationEvaluator(model, make_batched(source, spec, num_envs=12), spec)
        generation = Generation(1, 0, model.flat_parameters().numpy(), 0.1, action_noise=0.01, episodes=2)
        return evaluator.run(generation, range(6)).returns

    torch.manual_seed(0)
    model._initialize()
    by_c = returns()
    compute_with(None, monkeypatch)
    np.testing.assert_allclose(by_c, returns(), rtol=1e-4)


@needs_library
@pytest.mark.parametrize("algo", ["ars", "openai_es"])
def test_a_run_asks_its_population_in_c(algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    act = population._InC.act
    monkeypatch.setattr(population._InC, "act", lambda self: calls.append(1) or act(self))
    train(small_config(algo, tmp_path, algo_kwargs={"hidden_sizes": [8]}))
    assert calls
