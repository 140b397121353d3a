"""The lean way through PPO's networks gives what the networks give."""

import copy

import numpy as np
import pytest
import torch

from lean_models import ROWS, actions_for, shaken
from rl_training.algorithms.ppo import PPO, ppo_loss
from rl_training.models.mlp_actor_critic import MLPActorCritic


def made(*, discrete: bool, activation: str, hidden: tuple[int, ...] = (16, 8)) -> MLPActorCritic:
    torch.manual_seed(0)
    return shaken(MLPActorCritic(5, 3, hidden, discrete=discrete, activation=activation))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("hidden", [(), (16,), (16, 8)])
def test_both_ways_agree_on_outputs_and_gradients(discrete, activation, hidden):
    model = made(discrete=discrete, activation=activation, hidden=hidden)
    obs, actions = torch.randn(ROWS, 5), actions_for(model)
    d = {"d_logprobs": torch.randn(ROWS), "d_entropy": torch.randn(ROWS), "d_values": torch.randn(ROWS)}
    with torch.no_grad():
        done = model.run(obs)
        model.backward(done, actions, **d)
    wanted = model.gradient.clone()
    model.gradient.zero_()

    lean = model.lean
    assert lean is not None
    fast = lean.run(lean.rows(obs, actions))
    np.testing.assert_allclose(fast.logprobs, done.distribution.log_prob(actions), atol=2e-6)
    np.testing.assert_allclose(fast.values, done.values, atol=1e-6)
    np.testing.assert_allclose(fast.head.entropy(), done.distribution.entropy(), atol=1e-6)
    fast.backward(**{name: column.numpy() for name, column in d.items()})
    torch.testing.assert_close(model.gradient, wanted, atol=1e-5, rtol=1e-5)


def test_values_and_log_probabilities_stay_when_the_next_pass_is_made():
    model = made(discrete=True, activation="tanh")
    obs, actions = torch.randn(ROWS, 5), actions_for(model)
    lean = model.lean
    values, logprobs = lean.values(obs), lean.log_prob(obs, actions)
    kept = values.clone(), logprobs.clone()
    lean.values(obs + 1), lean.log_prob(obs + 1, actions)
    assert torch.equal(values, kept[0])
    assert torch.equal(logprobs, kept[1])


def test_a_copy_computes_with_its_own_parameters():
    model = made(discrete=True, activation="tanh")
    obs = torch.randn(ROWS, 5)
    before = model.lean.values(obs)
    twin = copy.deepcopy(model)
    twin.flat.data.zero_()
    assert twin.lean.values(obs).abs().max() == 0.0
    assert torch.equal(model.lean.values(obs), before)


@pytest.mark.parametrize("discrete", [True, False])
def test_it_draws_the_same_actions_from_the_same_stream(discrete):
    model = made(discrete=discrete, activation="tanh")
    learner = PPO(model, learning_rate=1e-3)
    obs = torch.randn(ROWS, 5)
    torch.manual_seed(3)
    slow = learner.act(obs)
    torch.manual_seed(3)
    fast = learner.explore(obs)
    torch.testing.assert_close(fast, slow, atol=1e-6, rtol=0)
    assert fast.dtype == slow.dtype


def test_other_activations_go_the_plain_way():
    assert made(discrete=True, activation="silu").lean is None


def test_a_gradient_longer_than_the_limit_is_cut_to_it_and_nan_is_not_hidden():
    model = made(discrete=True, activation="tanh")
    lean = model.lean
    model.gradient.fill_(2.0)
    length = 2.0 * len(model.flat) ** 0.5
    assert lean.clip_gradient(0.5).item() == pytest.approx(length)
    assert model.gradient.norm().item() == pytest.approx(0.5, rel=1e-5)
    assert lean.clip_gradient(1.0).item() == pytest.approx(0.5, rel=1e-5)
    assert model.gradient.norm().item() == pytest.approx(0.5, rel=1e-5)
    model.gradient[0] = torch.nan
    assert torch.isnan(lean.clip_gradient(0.5))
    assert torch.isnan(model.gradient).all()


def fresh_batch(model: MLPActorCritic) -> dict[str, torch.Tensor]:
    columns = {name: torch.randn(ROWS) for name in ("logprobs", "advantages", "returns")}
    return {"obs": torch.randn(ROWS, 5), "actions": actions_for(model)} | columns


def gradient_of(learner: PPO, model: MLPActorCritic, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """What `learner` makes of a batch with the parameters of `model`."""
    learner.policy.load_state_dict(model.state_dict())
    learner.update(batch)
    return learner.policy.gradient.clone()


WRITES = {
    "by torch": lambda column: column.copy_(column.flip(0)),
    "past autograd": lambda column: column.data.copy_(column.flip(0)),
    "by numpy": lambda column: np.copyto(column.numpy(), column.flip(0).numpy()),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("column", ["obs", "actions", "logprobs", "advantages", "returns"])
def test_a_batch_is_learnt_from_as_it_is_now_whoever_wrote_into_it(discrete, column, write):
    model = made(discrete=discrete, activation="tanh")
    batch = fresh_batch(model)
    learner = PPO(copy.deepcopy(model), learning_rate=1e-3, max_grad_norm=None)
    first = gradient_of(learner, model, batch)
    assert torch.equal(gradient_of(learner, model, batch), first)
    write(batch[column])
    changed = gradient_of(learner, model, batch)
    assert not torch.equal(changed, first)
    cloned = {name: tensor.clone() for name, tensor in batch.items()}
    assert torch.equal(changed, gradient_of(PPO(copy.deepcopy(model), learning_rate=1e-3, max_grad_norm=None), model, cloned))


def test_batches_that_are_said_to_stay_as_they_are_are_prepared_once_and_give_the_same(monkeypatch):
    model = made(discrete=True, activation="tanh")
    batch = fresh_batch(model)
    ordinary, told = (PPO(copy.deepcopy(model), learning_rate=1e-3) for _ in range(2))
    prepared = []
    rows = told.lean.rows
    monkeypatch.setattr(told.lean, "rows", lambda *columns: prepared.append(1) or rows(*columns))
    with told.unchanging_batches():
        for learner in (ordinary, told):
            for _ in range(3):
                learner.update(dict(batch))
    assert torch.equal(ordinary.policy.flat, told.policy.flat)
    assert len(prepared) == 1
    told.update(batch)
    assert len(prepared) == 2


def test_tensors_made_in_inference_mode_can_be_learnt_from():
    model = made(discrete=True, activation="tanh")
    with torch.inference_mode():
        batch = fresh_batch(model)
        learner = PPO(copy.deepcopy(model), learning_rate=1e-3)
        inside = gradient_of(learner, model, batch)
    batch = {name: column.clone() for name, column in batch.items()}
    assert torch.equal(inside, gradient_of(PPO(copy.deepcopy(model), learning_rate=1e-3), model, batch))


def test_losses_of_arrays_are_those_of_tensors():
    names = ("logprobs", "new_logprobs", "advantages", "returns", "values", "new_values", "entropy")
    columns = {name: torch.randn(64) for name in names}
    coefficients = {"clip_coef": 0.2, "ent_coef": 0.1, "vf_coef": 0.5, "clip_value": True}
    of_arrays = ppo_loss({name: column.numpy() for name, column in columns.items()}, **coefficients)
    of_tensors = {name: value.item() for name, value in ppo_loss(columns, **coefficients).items()}
    assert of_arrays == pytest.approx(of_tensors, rel=1e-5)
