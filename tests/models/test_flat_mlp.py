"""Networks over one flat vector, and what moves such vectors: Adam, clipping, averaging."""

import copy

import pytest
import torch
from kernel_choice import KINDS, compute_with

from rl_training.models.flat_mlp import FlatMLP, MLPLayout
from rl_training.models.optim import Adam, clip_gradients, polyak_update

pytestmark = pytest.mark.usefixtures("kernel")


@pytest.fixture(params=[*KINDS[:1], None], ids=lambda kind: kind or "torch")
def kernel(request, monkeypatch):
    compute_with(request.param, monkeypatch)


def test_members_are_independent_networks():
    net = FlatMLP((2, 4, 1), members=3)
    x = torch.randn(5, 2)
    before = net(x)
    layer = net.layers("net")[0]
    layer.weight[1] += 1.0
    after = net(x)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[2], after[2])
    assert not torch.equal(before[1], after[1])


def test_a_linear_network_by_hand():
    net = FlatMLP((2, 1))
    net.flat.data.copy_(torch.tensor([2.0, -3.0, 0.5]))  # weights, bias
    assert net(torch.tensor([[1.0, 1.0], [0.0, 2.0]])).tolist() == [[-0.5], [-5.5]]


def test_a_deep_copy_has_views_of_its_own_vector():
    net = FlatMLP((3, 4, 2))
    x = torch.randn(2, 3)
    net(x)  # the views exist before the copy
    twin = copy.deepcopy(net)
    twin.flat.data.add_(1.0)
    assert not torch.equal(net(x), twin(x))
    torch.testing.assert_close(twin(x), twin(x).detach())


def test_views_follow_the_vector_to_another_type():
    net = FlatMLP((3, 4, 2))
    x = torch.randn(2, 3)
    before = net(x)
    net.double()
    torch.testing.assert_close(net(x.double()), before.double())


def test_orthogonal_initialisation_has_the_given_gain():
    layout = MLPLayout((8, 8, 4))
    flat = torch.empty(layout.num_parameters)
    layout.initialize(flat, gains=[2.0, 0.5])
    first, last = layout.layers(flat)
    torch.testing.assert_close(first.weight.T @ first.weight, 4.0 * torch.eye(8), atol=1e-5, rtol=0)
    torch.testing.assert_close(last.weight.T @ last.weight, 0.25 * torch.eye(4), atol=1e-5, rtol=0)
    assert first.bias.abs().sum() == 0


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="relu, silu, tanh"):
        FlatMLP((1, 1), activation="gelu")


def test_adam_takes_the_steps_of_torchs_adam():
    start = torch.randn(6)
    mine, theirs = start.clone(), start.clone().requires_grad_()
    optimizer = Adam([mine], learning_rate=0.01, eps=1e-5, weight_decay=0.1)
    reference = torch.optim.Adam([theirs], lr=0.01, eps=1e-5, weight_decay=0.1)
    for _ in range(5):
        gradient = torch.randn(6)
        optimizer.step([gradient.clone()])
        theirs.grad = gradient.clone()
        reference.step()
    torch.testing.assert_close(mine, theirs.detach())


def test_adam_moves_what_torchs_adam_moves():
    """One takes part, one is frozen half-way and rests, one is never reached: torch is given a zero gradient for it."""
    start = [torch.randn(3) for _ in range(3)]
    mine, theirs = ([tensor.clone().requires_grad_() for tensor in start] for _ in range(2))
    settings = {"weight_decay": 0.1, "eps": 1e-5}
    optimizer, reference = Adam(mine, learning_rate=0.1, **settings), torch.optim.Adam(theirs, lr=0.1, **settings)
    for i in range(6):
        reached, other, _ = mine
        d_other = None if i >= 3 else 2 * (reached.square() * other).detach()
        optimizer.step([2 * (reached * other.square()).detach(), d_other, torch.zeros(3)])
        theirs[1].requires_grad_(i < 3)
        reference.zero_grad()
        (theirs[0] * theirs[1]).square().sum().backward()
        theirs[2].grad = torch.zeros(3)
        reference.step()
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-4, atol=1e-5)
    assert not torch.equal(mine[2], start[2])  # by its decay
    assert optimizer.steps[1] == 3


def test_adam_follows_parameters_whose_memory_moves():
    parameter, gradient = torch.ones(1000), torch.ones(1000)
    adam = Adam([parameter], learning_rate=0.1)
    adam.step([gradient])
    parameter.share_memory_()
    adam.step([gradient])
    torch.testing.assert_close(parameter, torch.full((1000,), 0.8))


def test_a_copy_of_an_optimiser_moves_its_own_parameters():
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


def test_adam_goes_on_from_its_state_bit_for_bit():
    gradients = [torch.randn(4) for _ in range(6)]
    whole = torch.zeros(4)
    optimizer = Adam([whole], learning_rate=0.1)
    for gradient in gradients[:3]:
        optimizer.step([gradient])
    resumed = whole.clone()
    other = Adam([resumed], learning_rate=0.1)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for gradient in gradients[3:]:
        optimizer.step([gradient])
        other.step([gradient])
    assert torch.equal(whole, resumed)


def test_gradients_are_clipped_together_and_the_norm_before_is_told():
    one, other = torch.tensor([3.0]), torch.tensor([4.0])
    norm = clip_gradients([one, other], 1.0)
    assert norm.item() == 5.0
    assert one.item() == pytest.approx(0.6, abs=1e-5)
    assert other.item() == pytest.approx(0.8, abs=1e-5)
    small = torch.tensor([0.3, 0.4])
    clip_gradients([small], 1.0)
    assert small.tolist() == pytest.approx([0.3, 0.4])


def test_polyak_moves_a_fraction_of_the_way():
    source, target = torch.tensor([10.0]), torch.tensor([0.0])
    polyak_update([source], [target], 0.1)
    assert target.item() == pytest.approx(1.0)


def test_what_does_not_fit_is_refused_not_read():
    """C would read on behind the end of it."""
    net = FlatMLP((4, 16, 2), members=3)
    for wrong in (torch.randn(8, 3), torch.randn(2, 8, 4), torch.randn(8, 5)):
        with pytest.raises(RuntimeError, match=r"size|shapes"):
            net(wrong)
        with pytest.raises(RuntimeError, match=r"size|shapes"):
            net.vjp(wrong)
    _, pull = net.vjp(torch.randn(8, 4))
    for gradient in (torch.randn(3, 7, 2), torch.randn(8, 2)):
        for back in (pull.parameters, pull.inputs):
            with pytest.raises((ValueError, RuntimeError), match=r"where 48 numbers belong|is invalid for input of size"):
                back(gradient)
    with pytest.raises(RuntimeError):
        polyak_update([torch.zeros(3)], [torch.zeros(4)], 0.1)


def test_members_are_counted_before_they_are_read():
    net = FlatMLP((3, 8, 2), members=3)
    x = torch.randn(5, 3)
    whole = net(x)
    for members in (
        torch.tensor([2, 1], dtype=torch.int32),
        torch.tensor([2, 0, 1, 0])[::2],
        torch.tensor([], dtype=torch.int64),
    ):
        torch.testing.assert_close(net(x, members=members), whole[members.long()])
        torch.testing.assert_close(net.vjp(x, members=members)[0], whole[members.long()].detach())
    for wrong in ([-4], [3]):
        with pytest.raises(IndexError):
            net(x, members=torch.tensor(wrong))


def test_a_rows_outputs_do_not_depend_on_the_rows_around_it():
    net, x = FlatMLP((4, 200, 200, 3), members=2, activation="relu"), torch.randn(150, 4)
    whole = net(x)
    for first, last in ((0, 1), (3, 11), (70, 150)):
        torch.testing.assert_close(net(x[first:last]), whole[:, first:last], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ["silu", "tanh"])
@pytest.mark.parametrize("size", [1e-30, 1e-4, 0.6, 0.65, 9.0, 40.0, 88.5, 101.0, 1e5, 1e20, 1e30])
def test_activations_are_right_near_zero_and_far_from_it(size, activation):
    net = FlatMLP((1, 16, 1), activation=activation)
    for layer in net.layers("net"):
        layer.weight.fill_(1.0)
        layer.bias.zero_()
    x = torch.tensor([[size], [-size]])
    exact = getattr(torch.nn.functional, activation)(x.double()) * 16
    torch.testing.assert_close(net(x).detach().double(), exact, rtol=1e-6, atol=max(1e-16, 1e-38 * size))
