"""The passes in C: what autograd says, the same bits with any number of threads, and nothing lost where they are missing."""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from rl_training.algorithms.lean_losses import bellman_targets, lowest_shares, mean
from rl_training.models.native_net import NativeNet, passes_on, passes_threads
from rl_training.models.stacked_net import StackedNet
from small_runs import ALGORITHMS, difference, small_config, train
from torch import Tensor

from rl_training import native
from rl_training.algorithms import SAC
from rl_training.cli import main
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.metadata import environment_differences, numeric_environment
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.models import mlp_sac, native_steps
from rl_training.models.crew import shared_map
from rl_training.models.deterministic import DeterministicActorCritic, blurred
from rl_training.models.flat_mlp import FlatMLP
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.models.optim import Adam, polyak_update
from rl_training.runtime.torch_settings import torch_settings

BUILT = [kind for kind in ("avx512", "avx2") if native.load(kind) is not None]
RUNS_HERE = {"avx512": ["avx512", "avx2"], "avx2": ["avx2"]}.get(native.kind_of_processor(), [])
KINDS = [kind for kind in RUNS_HERE if kind in BUILT]
needs_passes = pytest.mark.skipif(not KINDS, reason="the passes were not compiled for this processor")

SHAPES = [(4, 256, 256, 1), (5, 200, 200, 200, 8), (23, 64, 12), (3, 7, 2), (9, 33)]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(native, "library", lambda: native.load(request.param))
    return request.param


@pytest.fixture
def without_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)


def _network(sizes: tuple[int, ...], **settings: Any) -> FlatMLP:
    torch.manual_seed(sum(sizes))
    net = FlatMLP(sizes, **{"activation": "relu", **settings})
    net.flat.data.add_(0.05 * torch.randn_like(net.flat))  # biases, gains and shifts that are not what they began with
    return net


class Found(NamedTuple):
    outputs: Tensor
    parameters: Tensor
    inputs: Tensor
    each_input: Tensor


def _passes(net: FlatMLP, x: Tensor, gradient: Tensor, *, threads: int) -> Found:
    """Everything there is to a pass both ways, with nothing left of an earlier one."""
    net.gradient.fill_(torch.nan)
    passes = NativeNet(net.layout, net.layers("net"), net.gradient_layers("net"))
    with passes_on(threads):
        outputs, tape = passes.run(x)
        assert torch.equal(passes.infer(x), outputs)
        passes.backward(tape, gradient)
        summed = passes.input_gradient(tape, gradient, summed=True)
        return Found(outputs, net.gradient.clone(), summed, passes.input_gradient(tape, gradient, start=1))


def _assert_near(found: Tensor, exact: Tensor) -> None:
    assert found.shape == exact.shape
    assert (found - exact).abs().max() <= 2e-5 * (exact.abs().max() + 1e-6)


@needs_passes
@pytest.mark.parametrize("rows", [1, 5, 64, 300, 1100])
@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", ["relu", "silu", "tanh"])
@pytest.mark.usefixtures("kind")
def test_passes_are_those_of_autograd_with_any_number_of_threads(activation, layer_norm, members, sizes, rows):
    net = _network(sizes, activation=activation, layer_norm=layer_norm, members=members)
    torch.manual_seed(rows)
    x = torch.randn(rows, sizes[0])
    flat, inputs = net.flat.detach().double().requires_grad_(), x.double().requires_grad_()
    outputs = net.layout.forward(net.layout.layers(flat), inputs)
    gradient = torch.randn(outputs.shape)
    at_parameters, at_inputs = torch.autograd.grad((outputs * gradient).sum(), [flat, inputs])

    found = _passes(net, x, gradient, threads=1)
    _assert_near(found.outputs.view_as(outputs), outputs.detach())
    _assert_near(found.parameters, at_parameters)
    _assert_near(found.inputs, at_inputs)
    _assert_near(found.each_input if members is None else found.each_input.sum(0), at_inputs[:, 1:])
    for threads in (2, 3):
        again = _passes(net, x, gradient, threads=threads)
        assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


@needs_passes
def test_a_rows_outputs_do_not_depend_on_the_rows_around_it(kind):
    net = _network((4, 200, 200, 3), members=2)
    passes = NativeNet(net.layout, net.layers("net"))
    x = torch.randn(150, 4)
    whole = passes.infer(x)
    for first, last in ((0, 1), (3, 11), (70, 150)):
        assert torch.equal(passes.infer(x[first:last]), whole[:, first:last])


@needs_passes
def test_chosen_members_run_alone_and_rows_of_their_own(kind):
    net = _network((4, 64, 64, 2), members=5, layer_norm=True)
    passes = NativeNet(net.layout, net.layers("net"), net.gradient_layers("net"))
    x, chosen = torch.randn(33, 4), torch.tensor([3, 0])
    assert torch.equal(passes.infer(x, chosen), passes.infer(x)[chosen])

    own = torch.randn(5, 33, 4)
    outputs, tape = passes.run(own)
    assert torch.equal(outputs, torch.stack([passes.infer(rows)[i] for i, rows in enumerate(own)]))
    passes.backward(tape, torch.ones_like(outputs))
    whole = net.gradient.clone()
    for member, rows in enumerate(own):
        given, kept = passes.run(rows, torch.tensor([member]))
        passes.backward(kept, torch.ones_like(given))
    assert torch.equal(net.gradient, whole)


@needs_passes
def test_rows_without_a_gradient_are_left_out_of_a_sum_and_not_counted(kind):
    net = _network((5, 64, 64, 1), members=2)
    passes = NativeNet(net.layout, net.layers("net"))
    outputs, tape = passes.run(torch.randn(100, 5))
    gradient = torch.randn_like(outputs) * (torch.rand_like(outputs) < 0.5)
    each = passes.input_gradient(tape, gradient, start=2)
    assert torch.equal(passes.input_gradient(tape, gradient, start=2, summed=True), each[0] + each[1])


@needs_passes
@pytest.mark.parametrize("members", [None, 1, 2, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_regress_is_forwards_and_backwards_from_the_squared_error(members, threads, kind):
    net = _network((4, 64, 64, 2), members=members, layer_norm=True)
    x, target = torch.randn(90, 4), torch.randn(90, 2)
    with passes_on(threads):
        outputs = net.regress(x, target)
        found = net.gradient.clone()
        again, tape = net.run(x)
        net.backward(tape, (again - target) * (2.0 / 90))
    assert torch.equal(outputs, again)
    torch.testing.assert_close(found, net.gradient, rtol=1e-6, atol=1e-8)
    loss = (net(x) - target).square().mean(dim=-2).sum()
    torch.testing.assert_close(found, torch.autograd.grad(loss, net.flat)[0], rtol=1e-4, atol=1e-6)


@needs_passes
@pytest.mark.parametrize("activation", ["relu", "silu", "tanh"])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_what_is_not_a_number_stays_none(activation, layer_norm, kind):
    net = _network((4, 64, 64, 1), activation=activation, layer_norm=layer_norm)
    net.layers("net")[0].weight[2, 5] = torch.nan
    passes = NativeNet(net.layout, net.layers("net"), net.gradient_layers("net"))
    outputs, tape = passes.run(torch.randn(20, 4))
    assert outputs.isnan().all()
    passes.backward(tape, torch.ones_like(outputs))
    assert net.gradient.isnan().any()


@needs_passes
@pytest.mark.parametrize("activation", ["silu", "tanh"])
@pytest.mark.parametrize("size", [1e-4, 0.6, 0.65, 9.0, 60.0, 200.0, 1e20])
def test_activations_are_right_near_zero_and_far_from_it(size, activation, kind):
    net = FlatMLP((1, 16, 1), activation=activation)
    for layer in net.layers("net"):
        layer.weight.fill_(1.0)
        layer.bias.zero_()
    passes = NativeNet(net.layout, net.layers("net"))
    x = torch.tensor([[size], [-size]])
    exact = getattr(torch.nn.functional, activation)(x.double()) * 16
    torch.testing.assert_close(passes.infer(x).double(), exact, rtol=1e-6, atol=1e-16)


@needs_passes
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("count", [3, 17, 50_000])
def test_adam_is_torchs_and_the_same_with_two_threads(count, weight_decay, kind):
    start, gradients = torch.randn(count), torch.randn(5, count)
    theirs = torch.nn.Parameter(start.double())
    optimizer = torch.optim.Adam([theirs], lr=3e-3, weight_decay=weight_decay)
    found = []
    for threads in (1, 2):
        ours = torch.nn.Parameter(start.clone())
        adam = Adam([ours], learning_rate=3e-3, weight_decay=weight_decay)
        with passes_on(threads):
            for gradient in gradients:
                adam.step([gradient])
        found.append(ours.detach())
    for gradient in gradients:
        theirs.grad = gradient.double()
        optimizer.step()
    torch.testing.assert_close(found[0].double(), theirs.detach(), rtol=1e-6, atol=1e-7)
    assert torch.equal(*found)


@needs_passes
def test_targets_follow_as_torchs_lerp_does(kind):
    source, target = torch.randn(50_001), torch.randn(50_001)
    expected = target.lerp(source, 0.005)
    polyak_update([source], [target], 0.005)
    torch.testing.assert_close(target, expected, rtol=1e-6, atol=1e-7)


@needs_passes
@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("width", [1, 2, 6])
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_squashed_samples_and_their_gradients_are_those_of_autograd(scale, width):
    torch.manual_seed(width)
    outputs, noise = torch.randn(50, 2 * width) * scale, torch.randn(50, width)
    leaf = outputs.double().requires_grad_()
    exact, exact_spread = mlp_sac._squash(*leaf.chunk(2, dim=-1), noise.double())
    actions, logprobs, spread = native_steps.squash(outputs, noise)
    size = exact.logprobs.abs().max().item()
    torch.testing.assert_close(actions.double(), exact.actions.detach(), rtol=2e-6, atol=2e-7)
    torch.testing.assert_close(logprobs.double(), exact.logprobs.detach(), rtol=1e-6, atol=1e-6 * size)
    torch.testing.assert_close(spread.double(), exact_spread.detach(), rtol=1e-5, atol=1e-30)

    d_actions, d_logprobs = torch.randn(50, width), torch.randn(50)
    ((exact.actions * d_actions).sum() + (exact.logprobs * d_logprobs).sum()).backward()
    found = native_steps.squash_back(outputs, actions, spread, d_actions=d_actions, d_logprobs=d_logprobs)
    _assert_near(found, leaf.grad)
    by_torch = mlp_sac._squash_back(outputs, actions, spread, d_actions=d_actions, d_logprobs=d_logprobs)
    torch.testing.assert_close(found, by_torch)


@needs_passes
@pytest.mark.parametrize("clip", [0.5, math.inf])
def test_chosen_actions_are_squashed_and_blurred_as_by_torch(kind, clip):
    torch.manual_seed(0)
    actor, obs, noise = _network((3, 16, 7)), torch.randn(5, 3), torch.randn(5, 7) * 3
    passes = NativeNet(actor.layout, actor.layers("net"))
    obs[0, 0] = torch.nan
    actions = passes.choose(obs)
    torch.testing.assert_close(actions, passes.infer(obs).tanh(), rtol=1e-6, atol=1e-6, equal_nan=True)
    assert actions[0].isnan().all()
    expected = blurred(actions, noise.clone(), std=0.4, clip=clip)
    found = passes.choose(obs, noise, std=0.4, clip=clip)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
    assert torch.equal(passes.choose(obs, noise, std=0.0, clip=clip)[1:], actions[1:])  # no noise leaves them as they are
    with pytest.raises(ValueError, match="where 35 numbers belong"):
        passes.choose(obs, noise[:, :6], std=0.4, clip=clip)


@needs_passes
@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("apart", [0, 3])
def test_critics_fitted_to_columns_where_they_lie_are_what_autograd_says(kind, apart, rows, members):
    torch.manual_seed(0)
    critics = FlatMLP((5, 20, 1), members=members, activation="relu")
    batch, target = torch.randn(rows, 5 + apart), torch.randn(rows)
    obs, actions = batch[:, apart : apart + 3], batch[:, apart + 3 :]
    passes = critics.native_net("net")
    assert passes is not None
    assert passes.fits(obs, actions, target)
    exact = copy.deepcopy(critics).double()
    errors = exact(torch.cat([obs, actions], dim=-1).double()).squeeze(-1) - target.double()
    values = passes.fit_values(obs, actions, target)
    torch.testing.assert_close(values.double(), (errors + target.double()).detach(), rtol=1e-5, atol=1e-6)
    expected = torch.autograd.grad(errors.square().mean(dim=-1).sum(), exact.flat)[0]
    torch.testing.assert_close(critics.gradient.double(), expected, rtol=1e-4, atol=1e-6)
    before = critics.gradient.clone()
    critics.gradient.zero_()
    with passes_on(2):
        assert torch.equal(passes.fit_values(obs, actions, target), values)
    assert torch.equal(critics.gradient, before)


@needs_passes
def test_columns_that_c_would_misread_are_not_fitted_to(kind):
    critics = FlatMLP((5, 8, 1), members=2, activation="relu")
    passes, obs, actions, target = critics.native_net("net"), torch.randn(6, 3), torch.randn(6, 2), torch.randn(6)
    assert passes is not None
    assert passes.fits(obs, actions, target)
    for wrong in (
        (obs[:, :2], actions, target),
        (obs[:5], actions, target),
        (obs.double(), actions, target),
        (obs, actions.double(), target),
        (obs, actions, target.double()),
        (obs, actions, target[:5]),
        (obs, actions, target.unsqueeze(-1)),
        (obs.t().contiguous().t(), actions, target),
        (obs[:0], actions[:0], target[:0]),
    ):
        assert not passes.fits(*wrong)


@pytest.fixture(params=["steps in C", "torch"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "torch":
        monkeypatch.setattr(native, "library", lambda: None)


@pytest.mark.usefixtures("steps")
def test_targets_are_those_by_hand():
    next_q = torch.tensor([[4.0, 1.0, torch.nan], [2.0, 3.0, 1.0]])
    rows = torch.tensor([[1.0, 0.0, 7.0], [5.0, 1.0, 7.0], [0.0, 0.0, 7.0]])  # as in a packed batch, columns are strided
    batch = {"rewards": rows[:, 0], "dones": rows[:, 1]}
    plain = bellman_targets(batch, next_q, gamma=0.5)
    assert plain[:2].tolist() == [1.0 + 0.5 * 2.0, 5.0]
    assert plain[2].isnan()
    soft = bellman_targets(batch, next_q, gamma=0.5, entropy_term=torch.tensor([-1.0, 9.0, 0.0]))
    assert soft[:2].tolist() == [1.0 + 0.5 * 3.0, 5.0]


@pytest.mark.usefixtures("steps")
def test_the_lowest_critic_has_the_share_and_equals_divide_it():
    q = torch.tensor([[1.0, 2.0, 5.0, 0.0], [3.0, 2.0, 4.0, torch.nan], [3.0, 2.5, 4.0, 1.0]])
    shares = lowest_shares(q, -2.0)
    assert shares[:, :3].tolist() == [[-2.0, -1.0, 0.0], [0.0, -1.0, -1.0], [0.0, 0.0, -1.0]]
    assert shares[:, 3].isnan().all()


@pytest.mark.usefixtures("steps")
def test_a_mean_is_that_of_all_numbers_and_autograd_s_where_it_follows():
    numbers = torch.arange(-3.0, 40.0)
    assert mean(numbers).item() == 18.0
    assert mean(numbers[::2]).item() == 18.0  # contiguous or not
    assert mean(torch.tensor([1.0, torch.nan])).isnan()
    leaf = torch.ones(4, requires_grad=True)
    mean(leaf).backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [0.25] * 4


@needs_passes
def test_what_does_not_fit_is_refused_not_read():
    """C would read on behind the end of it."""
    net = _network((4, 16, 2), members=3)
    for wrong in (torch.randn(8, 3), torch.randn(2, 8, 4), torch.randn(8, 5)):
        with pytest.raises(RuntimeError, match="size"):
            net.run(wrong)
    _, tape = net.run(torch.randn(8, 4))
    for gradient in (torch.randn(3, 7, 2), torch.randn(8, 2)):
        with pytest.raises(ValueError, match="where 48 numbers belong"):
            net.backward(tape, gradient)
        with pytest.raises(ValueError, match="where 48 numbers belong"):
            net.input_gradient(tape, gradient)
    with pytest.raises(ValueError, match="where 16 numbers belong"):
        net.regress(torch.randn(8, 4), torch.randn(8, 3))
    with pytest.raises(RuntimeError):
        polyak_update([torch.zeros(3)], [torch.zeros(4)], 0.1)


@pytest.mark.parametrize("name", ["rewards", "dones", "obs", "next_obs"])
def test_a_batch_in_double_precision_is_learnt_from_or_refused_but_never_misread(name):
    def updated(dtype: torch.dtype) -> Tensor:
        torch.manual_seed(0)
        learner = SAC(MLPSACModel(3, 1, (16,)), learning_rate=1e-2)
        batch = {"obs": torch.randn(8, 3), "actions": torch.rand(8, 1), "next_obs": torch.randn(8, 3)}
        batch |= {"rewards": torch.randn(8), "dones": torch.zeros(8)}
        learner.update(batch | {name: batch[name].to(dtype)})
        return learner.model.critics.flat.detach()

    expected = updated(torch.float32)
    try:
        found = updated(torch.float64)
    except (RuntimeError, ValueError):
        return  # torch's own words about types that differ
    torch.testing.assert_close(found, expected)


@needs_passes
@pytest.mark.parametrize("hidden", [(), (16,), (33, 20)])
@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("apart", [0, 5])
def test_an_actor_and_its_critics_in_one_call_are_what_autograd_says(kind, apart, rows, hidden):
    torch.manual_seed(0)
    model = DeterministicActorCritic(3, 2, hidden, num_critics=2)
    obs, noise = torch.randn(rows, 3 + apart)[:, :3], torch.randn(rows, 2)
    native_both = model._native(obs)
    assert native_both is not None
    exact, wide = copy.deepcopy(model).double(), obs.double()
    actions = exact.actor(wide)
    rewards, dones = torch.randn(rows, 2).unbind(1)[0], (torch.rand(rows) < 0.5).float()

    def targets(at: Tensor) -> Tensor:
        return rewards.double() + 0.9 * (1 - dones.double()) * exact.q_values(wide, at).detach().amin(0)

    settings = {"gamma": 0.9, "std": 0.3, "clip": 0.4}
    found = native_both.targets(obs, rewards, dones, None, **settings)
    torch.testing.assert_close(found.double(), targets(actions), rtol=1e-5, atol=1e-6)
    blurry = (actions + (0.3 * noise.double()).clamp(-0.4, 0.4)).clamp(-1, 1)
    blurred_too = native_both.targets(obs, rewards, dones, noise, **settings)
    torch.testing.assert_close(blurred_too.double(), targets(blurry), rtol=1e-5, atol=1e-6)
    values = exact.q_values(wide, actions)[:1]
    expected = torch.autograd.grad(-0.7 * values.sum(), exact.actor.flat)[0]
    torch.testing.assert_close(model.climb(obs, -0.7).double(), values.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.actor.gradient.double(), expected, rtol=1e-4, atol=1e-6)
    assert not model.critics.gradient.any()
    with passes_on(2):
        assert torch.equal(native_both.targets(obs, rewards, dones, noise, **settings), blurred_too)
    with pytest.raises(ValueError, match="noise of shape"):
        native_both.targets(obs, rewards, dones, noise[:, :1], **settings)
    assert not native_both.serves(obs, rewards, dones.double())
    assert not native_both.serves(obs, rewards, dones[:-1])


@needs_passes
def test_a_copy_of_an_actor_and_its_critics_climbs_by_itself(kind):
    model, obs = DeterministicActorCritic(3, 2, (8,), num_critics=2), torch.randn(5, 3)
    model.climb(obs, -1.0)
    before = model.actor.gradient.clone()
    other = copy.deepcopy(model)
    other.actor.flat.data.mul_(2.0)
    other.climb(obs, -1.0)
    assert torch.equal(model.actor.gradient, before)
    assert not torch.equal(other.actor.gradient, before)
    assert model._native(obs.double()) is None  # torch's own words about such a batch, not C's


@needs_passes
def test_several_threads_of_python_may_call_at_once(kind):
    net = _network((4, 128, 128, 2), members=3)
    passes, inputs = NativeNet(net.layout, net.layers("net")), torch.randn(40, 200, 4)
    with passes_on(2):
        expected = [passes.infer(x) for x in inputs]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(passes.infer, inputs))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@needs_passes
def test_a_fork_begins_threads_of_its_own(kind):
    program = """
import os, torch, warnings
from rl_training import native
from rl_training.models.flat_mlp import FlatMLP
from rl_training.models.native_net import _threads
native.library = lambda: native.load("KIND")
_threads.passes = 2
net, x = FlatMLP((4, 64, 64, 1), members=3, activation="relu"), torch.randn(300, 4)
before = net.infer(x)
child = os.fork()
same = torch.equal(net.infer(x), before)
if child == 0:
    os._exit(0 if same else 1)
assert same and os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program.replace("KIND", kind)], check=True, timeout=120)


@needs_passes
def test_a_runs_threads_are_the_passes_and_torch_has_one():
    with torch_settings(2):
        outside = torch.get_num_threads(), passes_threads()
        with torch_settings(2, by_passes=True):
            assert (torch.get_num_threads(), passes_threads()) == (1, 2)
            # threads that take whole parts each have their passes for themselves
            assert shared_map(lambda _: passes_threads(), range(2), device=torch.device("cpu")) == [1, 1]
        assert (torch.get_num_threads(), passes_threads()) == outside == (2, 1)


def test_without_the_passes_a_runs_threads_are_torchs(without_passes):
    with torch_settings(2, by_passes=True):
        assert (torch.get_num_threads(), passes_threads()) == (2, 1)


@needs_passes
@pytest.mark.parametrize("deterministic", [False, True])
def test_an_ensemble_is_the_same_without_the_passes_but_for_rounding(deterministic, monkeypatch):
    torch.manual_seed(0)
    model = MLPMOPOEnsembleModel(3, 1, (200, 200), 4, deterministic=deterministic)
    inputs, obs, actions = torch.randn(70, 4), torch.randn(70, 3), torch.randn(70, 1)

    def everything() -> list[Tensor]:
        model._nets.clear()
        done = model.run(inputs)
        ones = torch.ones_like(done.means)
        model.backward(done, d_means=ones, d_logvars=None if deterministic else ones)
        return [done.means, done.logvars, model.gradient.clone(), *model.simulator().particles(obs, actions, None)]

    found = everything()
    monkeypatch.setattr(native, "library", lambda: None)
    for mine, torchs in zip(found, everything(), strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("sizes", "members"), [((4, 64, 64, 1), 3), ((4, 64, 2), None)])
def test_without_the_passes_networks_go_another_way(sizes, members, without_passes):
    net = _network(sizes, members=members)
    x, target = torch.randn(30, 4), torch.randn(30, sizes[-1])
    assert isinstance(net.net("net", x), StackedNet)
    outputs = net.regress(x, target)
    torch.testing.assert_close(outputs, net(x).detach())
    loss = (net(x) - target).square().mean(dim=-2).sum()
    torch.testing.assert_close(net.gradient, torch.autograd.grad(loss, net.flat)[0], rtol=1e-4, atol=1e-6)


TRAIN = """
import sys
from rl_training import SAC
SAC("Pendulum-v1", total_timesteps=60, learning_starts=20, hidden_sizes=[16, 16], seed=1, output_dir=sys.argv[1]).learn()
"""


def test_a_process_can_do_without_and_says_what_it_computed_with(tmp_path):
    for switch, expected in (("0", "none"), ("1", native.in_use())):
        folder = tmp_path / switch
        environment = {**os.environ, native.SWITCH: switch}
        subprocess.run([sys.executable, "-c", TRAIN, str(folder)], check=True, env=environment, timeout=120)
        (metadata,) = folder.rglob("metadata.json")
        assert json.loads(metadata.read_text())["passes"] == expected


@needs_passes
@pytest.mark.parametrize("algo", [name for name in ALGORITHMS if get_algorithm_spec(name).config.by_passes])
def test_a_run_is_the_same_with_any_number_of_threads(algo, tmp_path):
    # SAC's batches and layers are large enough to be cut into the blocks that threads share
    wide = {"batch_size": 200, "hidden_sizes": [160, 160], "buffer_capacity": 230, "learning_starts": 200}
    large = {"algo_kwargs": wide} if algo == "sac" else {}
    runs = [train(small_config(algo, tmp_path / str(threads), num_threads=threads, **large)) for threads in (1, 2)]
    one, other = (load_checkpoint(run.checkpoint_path) for run in runs)
    assert difference(one.algorithm_state, other.algorithm_state) is None
    assert difference(one.buffer_state, other.buffer_state) is None


def test_the_doctor_says_whether_passes_are_compiled(capsys, monkeypatch):
    assert main(["doctor"]) == 0
    assert ("compiled for" if native.library() else "not compiled") in capsys.readouterr().out
    monkeypatch.setattr(native, "library", lambda: None)
    assert main(["doctor"]) == 0
    assert "install again with a C compiler" in capsys.readouterr().out


def test_other_passes_are_a_difference_that_a_resume_tells_of():
    now = numeric_environment()
    (sentence,) = environment_differences({**now, "passes": "avx1"}, now)
    assert sentence == f"the kind of compiled passes was avx1 and is {native.in_use()}"


def test_a_library_that_cannot_be_loaded_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(native, "FOLDER", tmp_path)
    native.load.cache_clear()
    try:
        assert native.load("avx2") is None
        (tmp_path / "passes_avx512.so").write_bytes(b"not a library")
        assert native.load("avx512") is None
    finally:
        native.load.cache_clear()


@needs_passes
def test_a_library_of_other_sources_is_left_alone_and_said_to_be(tmp_path, monkeypatch, caplog):
    """Python after a pull, C from before: what is called must be what was compiled."""
    for path in native.FOLDER.iterdir():
        if path.suffix in (".c", ".h", ".so"):
            shutil.copy(path, tmp_path)
    monkeypatch.setattr(native, "FOLDER", tmp_path)
    native.load.cache_clear()
    try:
        assert native.load(KINDS[0]) is not None
        native.load.cache_clear()
        with (tmp_path / "steps.h").open("a") as file:
            file.write("\n")
        assert native.load(KINDS[0]) is None
        assert "compiled from other sources" in caplog.text
    finally:
        native.load.cache_clear()


@pytest.mark.skipif(not (Path(__file__).parents[2] / "hatch_build.py").is_file(), reason="not in a source tree")
def test_without_a_compiler_the_package_is_built_without_the_passes(tmp_path, capsys):
    pytest.importorskip("hatchling")
    from hatchling.builders.wheel import WheelBuilder

    root = tmp_path / "tree"
    source = Path(__file__).parents[2]
    root.mkdir()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(source / name, root)
    shutil.copytree(source / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", str(tmp_path / "no-such-compiler"))
        (wheel,) = WheelBuilder(str(root)).build(directory=str(tmp_path / "dist"), versions=["standard"])
    assert wheel.endswith("-py3-none-any.whl")
    assert not list(root.rglob("*.so"))
    assert "left out" in capsys.readouterr().err


@needs_passes
def test_adam_follows_parameters_whose_memory_moves() -> None:
    parameter, gradient = torch.ones(1000), torch.ones(1000)
    adam = Adam([parameter], learning_rate=0.1)
    adam.step([gradient])
    parameter.share_memory_()
    adam.step([gradient])
    torch.testing.assert_close(parameter, torch.full((1000,), 0.8))


@needs_passes
def test_members_are_counted_before_c_reads_them(kind: str) -> None:
    net = _network((3, 8, 2), members=3)
    x = torch.randn(5, 3)
    whole = net.infer(x)
    for members in (
        torch.tensor([2, 1], dtype=torch.int32),
        torch.tensor([False, True, True]),
        torch.tensor([2, 0, 1, 0])[::2],
        torch.tensor([], dtype=torch.int64),
    ):
        torch.testing.assert_close(
            net.infer(x, members=members), whole[members.long() if members.dtype != torch.bool else members]
        )
    for wrong in ([-1], [3], [[0], [1]]):
        with pytest.raises(IndexError, match="of 3 for inputs"):
            net.infer(x, members=torch.tensor(wrong))
    with pytest.raises(IndexError, match="of 3 for inputs"):
        net.infer(torch.randn(3, 5, 3), members=torch.tensor([0, 1]))


@needs_passes
def test_members_are_fitted_to_rows_of_their_own(kind: str) -> None:
    net = _network((3, 8, 2), members=3)
    x, target = torch.randn(3, 5, 3), torch.randn(5, 2)
    native_net = net.native_net("net")
    assert native_net is not None
    found = native_net.regress(x, target)
    torch.testing.assert_close(found, net.infer(x))
    loss = (net(x) - target).square().sum(dim=-1).mean(dim=-1).sum()
    (expected,) = torch.autograd.grad(loss, [net.flat])
    torch.testing.assert_close(net.gradient, expected, rtol=1e-4, atol=1e-5)


def test_a_simulator_is_copied_with_memory_of_its_own() -> None:
    model = MLPMOPOEnsembleModel(3, 1, (8,), num_ensembles=2)
    simulator = model.simulator()
    again = copy.deepcopy(simulator)
    obs, actions = torch.randn(4, 3), torch.randn(4, 1)
    for found, expected in zip(again.particles(obs, actions, None), simulator.particles(obs, actions, None), strict=True):
        assert torch.equal(found, expected)
    assert (again.native is None) == (simulator.native is None)
