"""Populations in C: every member acts as its own parameters say, whoever else is there."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from rl_training.models.native_policies import NativePolicies
from small_runs import small_config, train
from test_native import KINDS, needs_passes
from torch import Tensor

from rl_training import native
from rl_training.envs.batched import make_batched
from rl_training.envs.source import EnvSource
from rl_training.models import MLPARSModel
from rl_training.models.mlp_ars import MemberPolicies, policies_around
from rl_training.runtime.generation import Generation
from rl_training.runtime.population import PopulationEvaluator

SHAPES = [(3, (64, 64), 1), (4, (6,), 5), (11, (17, 9, 70), 2), (376, (65, 33), 17), (1, (1,), 1), (2, (16, 8), 16)]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(native, "library", lambda: native.load(request.param))
    return request.param


def _around(model: MLPARSModel, *, directions: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A policy, and steps away from it."""
    rng = np.random.default_rng(seed)
    steps = 0.3 * rng.standard_normal((directions, model.num_parameters), dtype=np.float32)
    return model.flat_parameters().numpy() + steps[0], steps


def _by_hand(model: MLPARSModel, parameters: np.ndarray, obs: Tensor) -> Tensor:
    """One policy in double precision."""
    h = obs.double()
    for i, (weight, bias) in enumerate(model.cut(torch.from_numpy(parameters).double())):
        h = (h.tanh() if i else h) @ weight
        h = h if bias is None else h + bias
    return h


@needs_passes
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_member_acts_as_its_side_of_its_step_says(
    shape: tuple[int, tuple[int, ...], int], rows: int, biased: bool, kind: str
) -> None:
    obs_dim, hidden, action_dim = shape
    model = MLPARSModel(obs_dim, action_dim, hidden, bias=biased)
    center, steps = _around(model, directions=4)
    members = np.array([5, 0, 1, 7])
    policies = policies_around(model, center, steps, members, rows=rows)
    assert isinstance(policies, NativePolicies)
    obs = torch.randn(4, rows, obs_dim)
    policies.obs.copy_(obs)
    found = torch.from_numpy(policies.act_array())
    for i, member in enumerate(members):
        parameters = center - steps[member // 2] if member % 2 else center + steps[member // 2]
        expected = _by_hand(model, parameters, obs[i]).clamp(-1, 1)
        torch.testing.assert_close(found[i].double(), expected, rtol=1e-4, atol=1e-5)


@needs_passes
def test_a_member_does_not_depend_on_the_others(kind: str) -> None:
    model = MLPARSModel(17, 6, (64, 40))
    center, steps = _around(model, directions=8)
    obs = torch.randn(16, 2, 17)

    def actions(members: np.ndarray) -> np.ndarray:
        policies = policies_around(model, center, steps, members, rows=2)
        policies.obs.copy_(obs[torch.from_numpy(members)])
        return policies.act_array().copy()

    whole = actions(np.arange(16))
    for members in ([3], [14, 2], [0, 1, 9, 15]):
        np.testing.assert_array_equal(actions(np.array(members)), whole[members])


@needs_passes
def test_the_largest_output_is_the_action_where_actions_are_discrete(kind: str) -> None:
    model = MLPARSModel(4, 3, (8,), discrete=True)
    center, steps = _around(model, directions=2)
    policies = policies_around(model, center, 5 * steps, np.arange(4), rows=2)
    obs = torch.randn(4, 2, 4)
    policies.obs.copy_(obs)
    sides = [center + sign * 5 * step for step in steps for sign in (1, -1)]
    expected = [_by_hand(model, side, shown).argmax(dim=-1) for side, shown in zip(sides, obs, strict=True)]
    assert policies.act_array().tolist() == [row.tolist() for row in expected]


@needs_passes
def test_what_is_no_number_stays_one(kind: str) -> None:
    model = MLPARSModel(3, 2, (16,))
    center, steps = _around(model, directions=1)
    policies = policies_around(model, center, steps, np.arange(2), rows=1)
    policies.obs.copy_(torch.tensor([[[math.nan, 0.0, 0.0]], [[1.0, 2.0, 3.0]]]))
    found = policies.act_array()
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


@needs_passes
def test_members_and_parameters_that_are_not_there_are_refused(kind: str) -> None:
    center, steps = np.zeros(13, dtype=np.float32), np.zeros((2, 13), dtype=np.float32)  # 2 · 3 + 3 and 3 · 1 + 1
    settings = {"rows": 1, "biased": True, "discrete": False}
    for member in (-1, 4):
        with pytest.raises(ValueError, match="of 2 steps to both sides"):
            NativePolicies((2, 3, 1), center, steps, np.array([0, member]), **settings)
    with pytest.raises(ValueError, match="for policies of 13"):
        NativePolicies((2, 3, 1), center, steps[:, 1:], np.array([0]), **settings)


def test_without_passes_and_without_hidden_layers_numpy_or_torch_act(monkeypatch: pytest.MonkeyPatch) -> None:
    deep, flat = MLPARSModel(3, 1, (8,)), MLPARSModel(3, 1)
    assert isinstance(policies_around(flat, *_around(flat, directions=1), np.arange(2), rows=1), MemberPolicies)
    monkeypatch.setattr(native, "library", lambda: None)
    assert isinstance(policies_around(deep, *_around(deep, directions=1), np.arange(2), rows=1), MemberPolicies)


@needs_passes
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
    monkeypatch.setattr(native, "library", lambda: None)
    np.testing.assert_allclose(by_c, returns(), rtol=1e-4)


@needs_passes
@pytest.mark.parametrize("algo", ["ars", "openai_es"])
def test_a_run_asks_its_population_in_c(algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    act = NativePolicies.act_array
    monkeypatch.setattr(NativePolicies, "act_array", lambda self: calls.append(1) or act(self))
    train(small_config(algo, tmp_path, algo_kwargs={"hidden_sizes": [8]}))
    assert calls
