"""The lean way through PPG's networks gives what the networks give, in both phases and with both architectures."""

import numpy as np
import pytest
import torch

from lean_models import ROWS, actions_for, shaken
from rl_training.algorithms.ppg import PPG
from rl_training.models.mlp_ppg import MLPPPGModel

KINDS = [(discrete, architecture) for discrete in (True, False) for architecture in ("shared", "dual")]
kinds = pytest.mark.parametrize(("discrete", "architecture"), KINDS)


def made(*, discrete: bool, architecture: str, hidden: tuple[int, ...] = (16, 8)) -> MLPPPGModel:
    torch.manual_seed(0)
    return shaken(MLPPPGModel(5, 3, hidden, discrete=discrete, architecture=architecture))


@kinds
@pytest.mark.parametrize("hidden", [(16,), (16, 8)])
def test_the_policy_phase_agrees_on_outputs_and_gradients(discrete, architecture, hidden):
    model = made(discrete=discrete, architecture=architecture, hidden=hidden)
    obs, actions = torch.randn(ROWS, 5), actions_for(model)
    d = {"d_logprobs": torch.randn(ROWS), "d_entropy": torch.randn(ROWS), "d_values": torch.randn(ROWS)}
    done = model.run(obs)
    model.backward(done, actions, **d)
    wanted = model.gradient.clone()
    model.gradient.fill_(torch.nan)

    fast = model.lean.run(model.lean.rows(obs, actions))
    np.testing.assert_allclose(fast.logprobs, done.distribution.log_prob(actions), atol=2e-6)
    np.testing.assert_allclose(fast.values, done.values, atol=1e-6)
    np.testing.assert_allclose(fast.head.entropy(), done.distribution.entropy(), atol=1e-6)
    np.testing.assert_allclose(model.lean.values(obs), done.values, atol=1e-6)
    fast = model.lean.run(model.lean.rows(obs, actions))
    fast.backward(**{name: column.numpy() for name, column in d.items()})
    torch.testing.assert_close(model.gradient, wanted, atol=1e-5, rtol=1e-5)


@kinds
@pytest.mark.parametrize("hidden", [(), (16,), (16, 8)])
def test_a_step_of_either_phase_is_that_of_the_plain_way(discrete, architecture, hidden):
    model = made(discrete=discrete, architecture=architecture, hidden=hidden)
    obs, actions = torch.randn(ROWS, 5), actions_for(model)
    learner = PPG(model, learning_rate=1e-2, max_grad_norm=0.3, ent_coef=0.01)
    twin = made(discrete=discrete, architecture=architecture, hidden=hidden)
    plain = PPG(twin, learning_rate=1e-2, max_grad_norm=0.3, ent_coef=0.01)
    plain.policy._lean = (plain.policy.flat.data_ptr(), None)
    assert learner.lean is not None
    assert plain.lean is None
    batch = {
        "obs": obs,
        "actions": actions,
        "logprobs": learner.log_prob(obs, actions) + 0.1 * torch.randn(ROWS),
        "advantages": torch.randn(ROWS),
        "returns": torch.randn(ROWS),
        "values": torch.randn(ROWS),
    }
    for _ in range(2):
        ours, theirs = learner.update(batch).metrics, plain.update(batch).metrics
        assert {name: float(value) for name, value in ours.items()} == pytest.approx(
            {name: float(value) for name, value in theirs.items()}, abs=1e-5
        )
    taught = {"obs": obs, "returns": batch["returns"], **plain.teacher_columns(obs + 0.1)}
    for _ in range(2):
        ours, theirs = learner.auxiliary_update(taught).metrics, plain.auxiliary_update(taught).metrics
        assert {name: float(value) for name, value in ours.items()} == pytest.approx(
            {name: float(value) for name, value in theirs.items()}, abs=1e-5
        )
    torch.testing.assert_close(learner.policy.flat, plain.policy.flat, atol=1e-4, rtol=1e-4)


@kinds
def test_it_draws_the_same_actions_from_the_same_stream(discrete, architecture):
    learner = PPG(made(discrete=discrete, architecture=architecture), learning_rate=1e-3)
    obs = torch.randn(ROWS, 5)
    torch.manual_seed(3)
    slow = learner.act(obs)
    torch.manual_seed(3)
    torch.testing.assert_close(learner.explore(obs), slow, atol=1e-6, rtol=0)


def test_losses_that_nobody_reads_are_not_worked_out():
    learner = PPG(made(discrete=True, architecture="shared"), learning_rate=1e-3)
    obs = torch.randn(ROWS, 5)
    batch = {"obs": obs, "returns": torch.randn(ROWS), **learner.teacher_columns(obs)}
    learner.measures = False
    assert set(learner.auxiliary_update(batch).metrics) == {"auxiliary_gradient_norm"}
