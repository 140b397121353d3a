"""A copied learner is a learner: its optimisers move its own networks, and nobody else's."""

from __future__ import annotations

import copy

import pytest
import torch
from kernel_choice import KINDS, compute_with
from torch import Tensor

from rl_training.algorithms import PETS, PPO, SAC, TD3
from rl_training.models import MLPActorCritic, MLPMOPOEnsembleModel, MLPSACModel, MLPTD3Model

LEARNERS = {
    "sac": lambda: SAC(MLPSACModel(3, 1, (8,)), learning_rate=1e-2, alpha="auto"),
    "td3": lambda: TD3(MLPTD3Model(3, 1, (8,)), learning_rate=1e-2, policy_delay=1),
    "ppo": lambda: PPO(MLPActorCritic(3, 1, (8,), discrete=False), learning_rate=1e-2),
    "pets": lambda: PETS(MLPMOPOEnsembleModel(3, 1, (8,), num_ensembles=2), learning_rate=1e-2),
}


def batch() -> dict[str, Tensor]:
    wide = {"obs": torch.randn(6, 3), "next_obs": torch.randn(6, 3), "actions": torch.rand(6, 1)}
    names = ("rewards", "dones", "logprobs", "advantages", "returns")
    return wide | {name: torch.rand(6) for name in names}


def tensors(state: object) -> list[Tensor]:
    if isinstance(state, Tensor):
        return [state.clone()]
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, (list, tuple)) else ()
    return [tensor for part in parts for tensor in tensors(part)]


@pytest.mark.parametrize("kind", [*KINDS[:1], None])
@pytest.mark.parametrize("name", list(LEARNERS))
def test_a_copy_learns_what_the_original_does_and_leaves_it_alone(
    name: str, kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute_with(kind, monkeypatch)
    torch.manual_seed(0)
    learner, data = LEARNERS[name](), batch()
    learner.update(data, global_step=0)
    copied, before = copy.deepcopy(learner), tensors(learner.state_dict())
    torch.manual_seed(1)
    copied.update(data, global_step=1)
    for mine, was in zip(tensors(learner.state_dict()), before, strict=True):
        assert torch.equal(mine, was)
    torch.manual_seed(1)
    learner.update(data, global_step=1)
    learnt = tensors(learner.state_dict())
    assert any(not torch.equal(mine, was) for mine, was in zip(learnt, before, strict=True))
    for mine, its in zip(learnt, tensors(copied.state_dict()), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=0)
