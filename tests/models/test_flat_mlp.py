"""The explicit backward pass is held against autograd, and the flat vector against its views."""

import copy

import pytest
import torch

from rl_training import native
from rl_training.models.flat_mlp import SHARED_ROWS, FlatMLP, MLPLayout
from rl_training.models.optim import Adam, clip_gradients, polyak_update
from rl_training.runtime.torch_settings import torch_settings

SHAPES = [
    {"activation": "tanh"},
    {"activation": "relu"},
    {"activation": "silu"},
    {"activation": "relu", "layer_norm": True},
    {"activation": "tanh", "members": 3},
    {"activation": "silu", "members": 3, "layer_norm": True},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_explicit_gradients_are_those_of_autograd(shape):
    net = FlatMLP((5, 16, 12, 3), **shape).double()
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    output = net(x)
    weight = torch.randn_like(output)
    (output * weight).sum().backward()

    again, tape = net.run(x.detach())
    net.backward(tape, weight)
    at_inputs = net.input_gradient(tape, weight, start=2)
    if at_inputs.dim() == 3:
        at_inputs = at_inputs.sum(0)

    torch.testing.assert_close(again, output)
    torch.testing.assert_close(net.gradient, net.flat.grad)
    torch.testing.assert_close(at_inputs, x.grad[:, 2:])


@pytest.mark.parametrize("threads", [1, 3])  # fewer than members: rows are picked; as many: all are taken
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", ["relu", "tanh", "silu"])
def test_the_summed_input_gradient_is_that_of_all_rows_added_up(activation, layer_norm, threads):
    net = FlatMLP((5, 16, 12, 1), members=3, activation=activation, layer_norm=layer_norm).double()
    output, tape = net.run(torch.randn(9, 5, dtype=torch.float64))
    gradient = torch.zeros_like(output)
    lowest = output.argmin(dim=0)  # one member a row, as a minimum picks them; the first row has two, the last none
    gradient.scatter_(0, lowest.unsqueeze(0), torch.randn(1, 9, 1, dtype=torch.float64))
    gradient[:2, 0] = 0.5
    gradient[:, -1] = 0

    with torch_settings(threads):
        summed = net.input_gradient(tape, gradient.clone(), start=2, summed=True)

    torch.testing.assert_close(summed, net.input_gradient(tape, gradient.clone(), start=2).sum(0))
    assert (summed[-1] == 0).all()


def test_members_are_independent_networks():
    net = FlatMLP((2, 4, 1), members=3)
    x = torch.randn(5, 2)
    before = net.infer(x)
    layer = net.layers("net")[0]
    layer.weight[1] += 1.0
    after = net.infer(x)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[2], after[2])
    assert not torch.equal(before[1], after[1])


def test_a_linear_network_by_hand():
    net = FlatMLP((2, 1))
    net.flat.data.copy_(torch.tensor([2.0, -3.0, 0.5]))  # weights, bias
    assert net.infer(torch.tensor([[1.0, 1.0], [0.0, 2.0]])).tolist() == [[-0.5], [-5.5]]


def test_a_deep_copy_has_views_of_its_own_vector():
    net = FlatMLP((3, 4, 2))
    x = torch.randn(2, 3)
    net.infer(x)  # the views exist before the copy
    twin = copy.deepcopy(net)
    twin.flat.data.add_(1.0)
    assert not torch.equal(net.infer(x), twin.infer(x))
    torch.testing.assert_close(twin.infer(x), twin(x).detach())


def test_views_follow_the_vector_to_another_type():
    net = FlatMLP((3, 4, 2))
    x = torch.randn(2, 3)
    before = net.infer(x)
    net.double()
    torch.testing.assert_close(net.infer(x.double()), before.double())


def test_orthogonal_initialisation_has_the_given_gain():
    layout = MLPLayout((8, 8, 4))
    flat = torch.empty(layout.num_parameters)
    layout.initialize(flat, gains=[2.0, 0.5])
    first, last = layout.layers(flat)
    torch.testing.assert_close(first.weight.T @ first.weight, 4.0 * torch.eye(8), atol=1e-5, rtol=0)
    torch.testing.assert_close(last.weight.T @ last.weight, 0.25 * torch.eye(4), atol=1e-5, rtol=0)
    assert first.bias.abs().sum() == 0


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="tanh, relu, silu"):
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


def test_adam_without_the_fused_kernel_takes_the_same_steps():
    start, gradients = torch.randn(6), [torch.randn(6) for _ in range(4)]
    fused, plain = start.clone(), start.clone()
    one, other = Adam([fused], learning_rate=0.01, weight_decay=0.1), Adam([plain], learning_rate=0.01, weight_decay=0.1)
    for gradient in gradients:
        one.step([gradient.clone()])
        for count in other.steps:
            count.add_(1)
        other._plain_step(other._moving([gradient.clone()]))
    torch.testing.assert_close(fused, plain)


@pytest.mark.parametrize("way", ["as it comes", "fused", "plain"])
def test_a_descent_moves_what_torchs_adam_moves(way, monkeypatch):
    """One parameter takes part, one is frozen half-way, one is never reached: torch is given a zero gradient for it."""
    start = [torch.randn(3) for _ in range(3)]
    mine, theirs = ([tensor.clone().requires_grad_() for tensor in start] for _ in range(2))
    settings = {"weight_decay": 0.1, "eps": 1e-5}
    optimizer, reference = Adam(mine, learning_rate=0.1, **settings), torch.optim.Adam(theirs, lr=0.1, **settings)
    optimizer._native &= way == "as it comes"
    if way == "plain":
        monkeypatch.delattr(torch, "_fused_adam_")
    for i in range(6):
        for parameters in (mine, theirs):
            parameters[1].requires_grad_(i < 3)
        reached, frozen, _ = mine
        norm = optimizer.descend((reached * frozen).square().sum(), mine)
        reference.zero_grad()
        (theirs[0] * theirs[1]).square().sum().backward()
        theirs[2].grad = torch.zeros(3)
        torch.testing.assert_close(norm, torch.cat([p.grad for p in theirs if p.grad is not None]).norm(), rtol=1e-4, atol=0)
        reference.step()
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-4, atol=1e-5)
    assert not torch.equal(mine[2], start[2])  # by its decay
    assert optimizer.steps[1] == 3


def test_a_descent_without_anything_to_move_moves_nothing():
    frozen, spare = torch.ones(2), torch.ones(2, requires_grad=True)
    optimizer = Adam([frozen, spare], learning_rate=0.1, weight_decay=0.1)
    assert optimizer.descend(frozen.sum(), [frozen]) == 0
    assert optimizer.descend(frozen.sum(), [frozen, spare]) == 0
    assert torch.equal(frozen, torch.ones(2))


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


@pytest.fixture(params=["passes in C", "torch"])
def way(request, monkeypatch):
    """Who makes a network's passes; where the first were not compiled, torch does in both cases."""
    if request.param == "torch":
        monkeypatch.setattr(native, "library", lambda: None)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [9, SHARED_ROWS])  # all members at once, and one after the other
@pytest.mark.parametrize("layer_norm", [False, True])
def test_learning_is_a_pass_forwards_and_one_backwards(layer_norm, rows, threads):
    net = FlatMLP((5, 16, 1), members=4, activation="relu", layer_norm=layer_norm)
    x = torch.randn(rows, 5)
    with torch_settings(threads, by_passes=True):
        outputs, tape = net.run(x)
        net.backward(tape, outputs * 2)
        expected = net.gradient.clone()
        net.gradient.zero_()
        found = net.learn(x, lambda own: own * 2)
    torch.testing.assert_close(found, outputs)
    torch.testing.assert_close(net.gradient, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("layer_norm", [False, True])
def test_members_chosen_by_number_are_those_members(layer_norm):
    net = FlatMLP((5, 16, 1), members=4, activation="relu", layer_norm=layer_norm)
    x, third = torch.randn(9, 5), torch.tensor([2])
    outputs, tape = net.run(x)
    torch.testing.assert_close(net.infer(x, members=torch.tensor([2, 0])), outputs[[2, 0]])
    own, own_tape = net.run(x, members=third)
    torch.testing.assert_close(own, outputs[2:3])
    gradient = torch.randn(1, 9, 1)
    everyones = torch.zeros_like(outputs)
    everyones[2] = gradient
    at_inputs = net.input_gradient(own_tape, gradient.clone())
    torch.testing.assert_close(at_inputs, net.input_gradient(tape, everyones.clone())[2:3])
    net.backward(tape, everyones)
    expected = net.gradient.clone()
    net.gradient.zero_()
    net.backward(own_tape, gradient)
    torch.testing.assert_close(net.gradient, expected)


@pytest.mark.usefixtures("way")
def test_passes_follow_their_vector():
    net = FlatMLP((3, 4, 2), activation="relu")
    x = torch.randn(2, 3)
    net.infer(x)  # there are views already
    other = copy.deepcopy(net)
    other.flat.data.zero_()
    net.flat.data = torch.ones_like(net.flat.data)
    assert (other.infer(x) == 0).all()
    torch.testing.assert_close(net.infer(x), net(x).detach())


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_broken_weight_shows_in_what_a_network_gives(threads):
    """A ReLU that makes 0 of a NaN, as some libraries' does, would hide it."""
    net = FlatMLP((5, 200, 208, 2), activation="relu")
    net.layers("net")[1].weight[3, 4] = torch.nan
    with torch_settings(threads, by_passes=True):
        assert net.infer(torch.randn(208, 5)).isnan().all()
