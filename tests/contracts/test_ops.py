"""Every op and every loss with a closed form is what its definition says in double precision: values and gradients, in C
and in torch."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from kernel_choice import KINDS, assert_near, compute_with
from torch import Tensor, nn

from rl_training.kernels import adam, losses, squash
from rl_training.kernels.differentiable import ByAutograd, Loss, by_autograd, loss
from rl_training.kernels.heads import Categorical, DiagonalGaussian, choices
from rl_training.kernels.mlp import MLPLayout
from rl_training.kernels.threads import use_threads

ROWS = (1, 7, 64, 257)
COLUMNS = (1, 8, 33)


@pytest.fixture(params=[*KINDS, None], ids=lambda kind: kind or "torch")
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    compute_with(request.param, monkeypatch)
    return request.param


def by_one_thread_and_two(function: Callable[[], list[Tensor]]) -> list[Tensor]:
    """What it gives with either, which is the same bit for bit."""
    found = []
    for threads in (1, 2):
        with use_threads(threads):
            found.append(function())
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0, equal_nan=True)
    return found[0]


# ---- networks ----

SIZES = [(1, 8, 1), (8, 33, 33, 8), (33, 8, 33), (33, 8), (9, 160, 160, 1)]
SHAPES = [*((sizes, layer_norm) for sizes in SIZES for layer_norm in (False, True)), ((33, 1, 33), False)]
SHARED, OWN = "the same rows", "rows of their own"
MEMBERS = [(None, SHARED), (1, SHARED), (3, SHARED), (3, OWN)]


class Case(NamedTuple):
    """A network, and what a pass through it is given."""

    layout: MLPLayout
    flat: Tensor
    x: Tensor
    d_outputs: Tensor


def case_of(sizes: tuple[int, ...], rows: int, *, own: bool = False, **settings: Any) -> Case:
    torch.manual_seed(sum(sizes) + rows)
    layout = MLPLayout(sizes, **settings)
    flat = torch.empty(layout.num_parameters)
    layout.initialize(flat)
    flat += 0.05 * torch.randn_like(flat)  # gains and shifts that are not what they began with
    x = torch.randn(*([layout.members] if own else []), rows, sizes[0])
    d_outputs = torch.randn(*([] if layout.members is None else [layout.members]), rows, sizes[-1])
    return Case(layout, flat, x, d_outputs)


def exact_pass(case: Case, d_features: Tensor | None = None) -> list[Tensor]:
    """Outputs, gradients at parameters and inputs, and features, by autograd on the definition in double precision."""
    flat, x = case.flat.double().requires_grad_(), case.x.double().requires_grad_()
    outputs, features = case.layout.definition(case.layout.layers(flat), x)
    total = (outputs * case.d_outputs.double()).sum()
    if d_features is not None:
        total = total + (features * d_features.double()).sum()
    return [outputs.detach(), *torch.autograd.grad(total, [flat, x]), features.detach()]


def found_pass(case: Case, **others: Tensor) -> list[Tensor]:
    outputs, pull = case.layout.vjp(case.flat, case.x)
    return [outputs, pull.parameters(case.d_outputs, **others), pull.inputs(case.d_outputs)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("members", "shown"), MEMBERS)
@pytest.mark.parametrize("activation", ["relu", "silu", "tanh"])
def test_a_network_and_its_pullbacks_are_the_definition_s(activation, members, shown, shape, kernel):
    sizes, layer_norm = shape
    for rows in ROWS:
        case = case_of(sizes, rows, own=shown is OWN, members=members, activation=activation, layer_norm=layer_norm)
        outputs, d_flat, d_x, _ = exact_pass(case)
        found = by_one_thread_and_two(lambda: found_pass(case))  # noqa: B023 (called at once)
        for one, exact in zip(found, (outputs, d_flat, d_x), strict=True):
            assert_near(one, exact)
        assert_near(case.layout(case.flat, case.x), found[0], within=0 if kernel else 2e-6)


@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.usefixtures("kernel")
def test_a_network_is_a_node_of_autograd_s_graph(layer_norm, members):
    case = case_of((8, 33, 1), 7, members=members, activation="silu", layer_norm=layer_norm)
    flat, x = case.flat.clone().requires_grad_(), case.x.clone().requires_grad_()
    twice = case.layout(flat, x) + case.layout(flat, 2 * x)  # used twice in one graph
    again = case_of((8, 33, 1), 7, members=members, activation="silu", layer_norm=layer_norm)
    one, two = exact_pass(case), exact_pass(again._replace(x=2 * case.x))
    assert_near(twice.detach(), one[0] + two[0])
    d_flat, d_x = torch.autograd.grad((twice * case.d_outputs).sum(), [flat, x])
    assert_near(d_flat, one[1] + two[1])
    assert_near(d_x, one[2] + 2 * two[2])


@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.usefixtures("kernel")
def test_two_pullbacks_of_one_network_know_their_own_rows_and_answer_again(members):
    first, second = (case_of((8, 33, 33, 8), rows, members=members, layer_norm=True) for rows in (64, 7))
    second = second._replace(flat=first.flat)
    pulls = [case.layout.vjp(first.flat, case.x)[1] for case in (first, second)]
    for case, pull in ((second, pulls[1]), (first, pulls[0]), (second, pulls[1])):
        _, d_flat, d_x, _ = exact_pass(case)
        assert_near(pull.parameters(case.d_outputs), d_flat)
        assert_near(pull.inputs(case.d_outputs), d_x)


@pytest.mark.parametrize("start", [0, 3, 8])
@pytest.mark.parametrize(("members", "shown"), MEMBERS)
@pytest.mark.usefixtures("kernel")
def test_gradients_at_inputs_may_begin_at_a_column(members, shown, start):
    case = case_of((8, 33, 4), 64, own=shown is OWN, members=members, activation="relu")
    case.d_outputs[..., ::2, :] = 0  # rows that no gradient reaches
    case.d_outputs[:1, 1:3] = 0  # and one that reaches some members
    _, pull = case.layout.vjp(case.flat, case.x)
    assert_near(pull.inputs(case.d_outputs, start=start), exact_pass(case)[2][..., start:])


@pytest.mark.parametrize("sizes", [(8, 33, 1), (8, 33, 8, 33), (8, 3)], ids=str)
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.usefixtures("kernel")
def test_another_reader_of_the_last_hidden_layer_sends_its_gradient_along(layer_norm, sizes):
    case = case_of(sizes, 64, activation="tanh", layer_norm=layer_norm)
    d_features = torch.randn(64, sizes[-2])
    _, d_flat, _, features = exact_pass(case, d_features)
    _, pull = case.layout.vjp(case.flat, case.x)
    assert_near(pull.features, features)
    assert_near(pull.parameters(case.d_outputs, d_features=d_features), d_flat)


@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.usefixtures("kernel")
def test_a_gradient_goes_into_a_part_of_a_larger_one(members):
    case = case_of((8, 33, 1), 7, members=members)
    whole = torch.full((case.layout.num_parameters + 5,), 7.0)
    part = whole[2:-3]
    _, pull = case.layout.vjp(case.flat, case.x)
    assert pull.parameters(case.d_outputs, into=part).data_ptr() == part.data_ptr()
    assert_near(part, exact_pass(case)[1])
    assert whole[[0, 1, -3, -2, -1]].tolist() == [7.0] * 5


@pytest.mark.parametrize("chosen", [[2], [3, 0], [4, 3, 1, 2, 0]], ids=str)
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.usefixtures("kernel")
def test_chosen_members_are_those_members_and_the_others_have_no_gradient(layer_norm, chosen):
    case = case_of((8, 33, 2), 64, members=5, activation="relu", layer_norm=layer_norm)
    members = torch.tensor(chosen)
    everyones = torch.zeros_like(case.d_outputs)
    everyones[members] = case.d_outputs[: len(chosen)]
    outputs, d_flat, d_x, _ = exact_pass(case._replace(d_outputs=everyones))

    def found() -> list[Tensor]:
        given, pull = case.layout.vjp(case.flat, case.x, members)
        d_outputs = case.d_outputs[: len(chosen)]
        return [given, pull.parameters(d_outputs), pull.inputs(d_outputs), case.layout(case.flat, case.x, members)]

    for one, exact in zip(by_one_thread_and_two(found), (outputs[members], d_flat, d_x, outputs[members]), strict=True):
        assert_near(one, exact)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", ["relu", "silu", "tanh"])
@pytest.mark.usefixtures("kernel")
def test_what_is_not_a_number_stays_none(activation, layer_norm, own):
    """A ReLU that makes 0 of a NaN, as some libraries' does, would hide a broken weight or observation."""
    case = case_of((8, 33, 33, 2), 64, own=own, members=3, activation=activation, layer_norm=layer_norm)
    case.layout.layers(case.flat)[1].weight[1, 2, 5] = torch.nan
    case.x[..., 9, 0] = torch.nan
    found, exact = by_one_thread_and_two(lambda: found_pass(case)), exact_pass(case)
    assert torch.equal(found[0].isnan(), exact[0].isnan())
    assert found[0][1].isnan().all()
    for one, wanted in zip(found, exact, strict=False):
        assert one.isnan()[wanted.isnan()].all()


# ---- squashed samples ----


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])  # the last: log-standard deviations beyond their bounds
@pytest.mark.usefixtures("kernel")
def test_squashed_samples_are_the_definition_s(scale, columns):
    for rows in ROWS:
        torch.manual_seed(rows)
        outputs, noise = torch.randn(rows, 2 * columns) * scale, torch.randn(rows, columns)
        d_actions, d_logprobs = torch.randn(rows, columns), torch.randn(rows)
        at = outputs.double().requires_grad_()
        actions, logprobs = squash.definition(at, noise.double())
        (wanted,) = torch.autograd.grad([actions, logprobs], [at], [d_actions.double(), d_logprobs.double()])

        (found, found_logprobs), pull = squash.vjp(outputs, noise)
        assert_near(found, actions.detach(), within=2e-6)
        assert_near(found_logprobs, logprobs.detach(), within=2e-6)
        assert_near(pull(d_actions, d_logprobs), wanted)

        leaf = outputs.clone().requires_grad_()
        by_graph = squash.squash(leaf, noise)
        assert torch.equal(by_graph[0], found)
        assert_near(torch.autograd.grad(by_graph, [leaf], [d_actions, d_logprobs])[0], wanted)
        assert torch.equal(squash.squash(outputs, noise)[1], found_logprobs)


@pytest.mark.usefixtures("kernel")
def test_two_pullbacks_of_squashed_samples_know_their_own_noise():
    outputs, d = torch.randn(7, 16), (torch.randn(7, 8), torch.randn(7))
    noises = torch.randn(2, 7, 8)
    pulls = [squash.vjp(outputs, noise)[1] for noise in noises]
    for noise, pull in zip(noises.flip(0), pulls[::-1], strict=True):
        at = outputs.double().requires_grad_()
        sample = squash.definition(at, noise.double())
        assert_near(pull(*d), torch.autograd.grad(sample, [at], [x.double() for x in d])[0])


@pytest.mark.usefixtures("kernel")
def test_a_squashed_sample_of_what_is_not_a_number_is_none():
    outputs, noise = torch.randn(7, 4), torch.randn(7, 2)
    outputs[3, 0] = outputs[5, 3] = torch.nan
    (actions, logprobs), pull = squash.vjp(outputs, noise)
    exact = squash.definition(outputs.double(), noise.double())
    assert torch.equal(actions.isnan(), exact[0].isnan())
    assert torch.equal(logprobs.isnan(), exact[1].isnan())
    gradient = pull(torch.ones(7, 2), torch.ones(7))
    assert gradient[3].isnan().any()
    assert gradient[5].isnan().any()
    assert gradient[[0, 1, 2, 4, 6]].isfinite().all()


@pytest.mark.usefixtures("kernel")
def test_graphs_through_ops_are_freed():
    layout = MLPLayout((3, 8, 4))
    flat = torch.zeros(layout.num_parameters, requires_grad=True)

    def graph_of_a_sample() -> weakref.ref[Any]:
        actions, _ = squash.squash(layout(flat, torch.randn(7, 3)), torch.randn(7, 2))
        torch.autograd.grad(actions.sum(), [flat])
        return weakref.ref(actions.grad_fn)

    assert graph_of_a_sample()() is None


# ---- Adam ----


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("count", [*COLUMNS, 50_001])
@pytest.mark.usefixtures("kernel")
def test_adam_is_its_definition_and_torch_s(count, weight_decay):
    torch.manual_seed(count)
    start, gradients = torch.randn(count), torch.randn(5, count)
    gradients[:, :1] = torch.nan  # concerns its own parameter and no other
    settings = adam.AdamSettings(3e-3, 0.9, 0.99, 1e-5, weight_decay)

    def steps(step: Callable[..., None], parameter: Tensor) -> list[Tensor]:
        state = adam.AdamState(*(torch.zeros_like(parameter) for _ in range(2)), torch.zeros(()))
        for gradient in gradients:
            step(parameter, gradient.to(parameter.dtype), state, settings)
        return [parameter, *state]

    exact = steps(adam.definition, start.double())
    for found, wanted in zip(by_one_thread_and_two(lambda: steps(adam.adam_step, start.clone())), exact, strict=True):
        assert_near(found, wanted, within=5e-6)
    theirs = nn.Parameter(start.double())
    optimizer = torch.optim.Adam([theirs], lr=3e-3, betas=(0.9, 0.99), eps=1e-5, weight_decay=weight_decay)
    for gradient in gradients:
        theirs.grad = gradient.double()
        optimizer.step()
    assert_near(theirs.detach(), exact[0], within=1e-12)


# ---- heads ----


@pytest.mark.parametrize("with_entropy", [True, False])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("kind", [Categorical, DiagonalGaussian])
def test_a_head_s_written_gradients_are_its_definition_s(kind, columns, with_entropy):
    for rows in ROWS:
        torch.manual_seed(rows)
        discrete = kind is Categorical
        numbers = [torch.randn(rows, columns)] + ([] if discrete else [0.3 * torch.randn(columns)])
        actions = torch.randint(columns, (rows,)) if discrete else torch.randn(rows, columns)
        d_logprobs, d_entropy = torch.randn(rows), torch.randn(rows) if with_entropy else None
        at = [x.double().requires_grad_() for x in numbers]
        head = kind(*at)
        total = (head.log_prob(actions if discrete else actions.double()) * d_logprobs.double()).sum()
        if d_entropy is not None:
            total = total + (head.entropy() * d_entropy.double()).sum()
        given = kind(*numbers).output_gradient(actions, d_logprobs, d_entropy)
        for found, exact in zip(given, torch.autograd.grad(total, at), strict=False):
            assert_near(found, exact)


@pytest.mark.parametrize("with_entropy", [True, False])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("nvec", [(), (9,), (2, 2, 2), (4, 1, 7)])
def test_the_written_gradients_of_choices_are_their_definition_s_in_parts_and_under_masks(nvec, masked, with_entropy):
    for rows in ROWS:
        torch.manual_seed(rows)
        columns = sum(nvec) or 9
        logits, masks = torch.randn(rows, columns), torch.rand(rows, columns) < 0.5
        masks[:, [0, *itertools.accumulate(nvec[:-1])]] = True
        masks = masks if masked else None
        actions = choices(logits, nvec, masks).sample()
        d_logprobs, d_entropy = torch.randn(rows), torch.randn(rows) if with_entropy else None
        at = logits.double().requires_grad_()
        head = choices(at, nvec, masks)
        total = (head.log_prob(actions) * d_logprobs.double()).sum()
        if d_entropy is not None:
            total = total + (head.entropy() * d_entropy.double()).sum()
        found, _ = choices(logits, nvec, masks).output_gradient(actions, d_logprobs, d_entropy)
        assert_near(found, torch.autograd.grad(total, at)[0])


# ---- losses ----


def columns_of(*names: str, rows: int) -> dict[str, Tensor]:
    return {name: torch.randn(rows) for name in names}


def ppo_columns(rows: int) -> dict[str, Tensor]:
    columns = columns_of("advantages", "returns", "values", "logprobs", "entropy", rows=rows)
    moved = {f"new_{name}": columns[name] + 0.3 * torch.randn(rows) for name in ("logprobs", "values")}
    return columns | moved


def tied(rows: int) -> Tensor:
    """Values of three critics, of which two are the lowest in every other row."""
    q_values = torch.randn(3, rows)
    q_values[:2, ::2] = q_values[:2, ::2].amin(0) - 3
    return q_values


CLIPS = {"clip_coef": 0.2, "vf_coef": 0.5}
EXAMPLES: dict[str, Callable[[int], list[tuple[list[Any], dict[str, Any]]]]] = {
    "critic_loss": lambda rows: [([torch.randn(3, rows), torch.randn(rows)], {})],
    "quantile_huber_loss": lambda rows: [
        ([spread * torch.randn(critics, rows, 5), spread * torch.randn(rows, 7)], {})
        for spread in (0.3, 3.0)
        for critics in (1, 3)
    ],
    "soft_actor_loss": lambda rows: [
        ([q_values, torch.randn(rows), alpha], {"pessimistic": pessimistic})
        for q_values in (tied(rows), torch.randn(1, rows))
        for alpha in (0.3, torch.tensor(0.3))
        for pessimistic in (True, False)
    ],
    "deterministic_actor_loss": lambda rows: [([torch.randn(1, rows)], {})],
    "clipped_objective": lambda rows: [
        ([ppo_columns(rows)], {**CLIPS, "ent_coef": ent_coef, "clip_value": clip_value})
        for ent_coef in (0.0, 0.01)
        for clip_value in (True, False)
    ],
}


LOSSES = {name: value for name, value in vars(losses).items() if isinstance(value, Loss)}


def test_every_loss_with_a_closed_form_has_an_example_here():
    assert LOSSES.keys() == EXAMPLES.keys()


def in_double(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: in_double(column) for name, column in value.items()}
    return value.double() if isinstance(value, Tensor) else value


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("name", LOSSES)
def test_a_closed_form_is_the_gradient_of_its_loss(name):
    for rows in ROWS:
        torch.manual_seed(rows)
        for inputs, settings in EXAMPLES[name](rows):
            found_losses, d = LOSSES[name].vjp(*inputs, **settings)
            exact, exact_d = LOSSES[name].derived(*map(in_double, inputs), **settings)
            assert list(found_losses) == list(exact) == list(LOSSES[name](*inputs, **settings))
            for metric, value in found_losses.items():
                assert not value.requires_grad
                torch.testing.assert_close(value.double(), exact[metric], rtol=1e-5, atol=1e-6)
            for wanted in LOSSES[name].wrt:
                found = getattr(d, wanted)
                assert_near(torch.zeros(rows) if found is None else found, getattr(exact_d, wanted), within=1e-5)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("name", ["new_logprobs", "new_values", "advantages"])
def test_what_is_not_a_number_shows_in_ppo_s_losses_and_in_its_own_row_s_gradient(name):
    columns = ppo_columns(64)
    columns[name][9] = torch.nan
    found, d = losses.clipped_objective.vjp(columns, **CLIPS, ent_coef=0.01, clip_value=True)
    assert found["loss"].isnan()
    broken = d.new_values if name == "new_values" else d.new_logprobs
    assert broken.isnan().nonzero().tolist() == [[9]]


@loss("total", wrt=("x", "y"))
def product_loss(x: Tensor, y: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
    return {"total": scale * (x * y).sum(), "apart": (x - y).abs().mean()}


def test_a_loss_without_a_closed_form_has_its_gradient_derived_and_a_wish_for_others_is_heard():
    x, y = torch.randn(7), torch.randn(7, requires_grad=True)
    losses, d = product_loss.vjp(x, y, scale=2.0)
    assert losses["total"].item() == pytest.approx(2 * (x @ y).item(), rel=1e-5)
    assert not any(value.requires_grad for value in losses.values())
    torch.testing.assert_close(d.x, 2 * y.detach())
    torch.testing.assert_close(d.y, 2 * x)
    _, d = product_loss.vjp(x, y, wrt=["y"])
    assert vars(d).keys() == {"y"}
    _, d = LOSSES["critic_loss"].vjp(torch.ones(2, 4), torch.zeros(4), wrt=("targets",))
    assert d.targets.tolist() == [-1.0] * 4  # by autograd: the closed form is about the other input


# ---- any function, any module ----


def test_the_pullback_of_any_function_is_autograd_s():
    x, y = torch.randn(7, 3), torch.randn(3)
    (total, product), pull = by_autograd(lambda a, b: (a + b, a * b), x, y)
    d_total, d_product = torch.randn(7, 3), torch.randn(7, 3)
    d_x, d_y = pull(d_total, d_product)
    torch.testing.assert_close(total, x + y)
    torch.testing.assert_close(d_x, d_total + d_product * y)
    torch.testing.assert_close(d_y, (d_total + d_product * x).sum(0))
    assert not product.requires_grad


class Answer(NamedTuple):
    values: Tensor
    nothing: None
    squares: Tensor


class Module(nn.Module):
    """A trunk that may be frozen, a head, and a layer that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head, self.spare = nn.Linear(5, 4), nn.Linear(4, 1), nn.Linear(2, 2)

    def values(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.head(self.trunk(torch.cat([obs, actions], -1)).tanh()).squeeze(-1)


def said(values: Tensor, *_: Tensor) -> Answer:
    return Answer(values, None, values.square())


@pytest.mark.parametrize("frozen", [False, True])
def test_the_pullbacks_of_any_module_are_autograd_s(frozen):
    module = Module()
    module.trunk.requires_grad_(not frozen)
    values, parameters = ByAutograd(module, "values", list(module.parameters()), said), list(module.parameters())
    obs, actions, d, d_squares = torch.randn(7, 3), torch.randn(7, 2), torch.randn(7), torch.randn(7)
    with torch.no_grad():  # as within a learner's update
        answer, pull = values.vjp(obs, actions)
        _, pull_actions = values.vjp(obs, actions, wrt=1)
        found, at_actions = pull(d, None, d_squares), pull_actions(d, None, d_squares)
    at = actions.clone().requires_grad_()
    again = module.values(obs, at)
    total = (again * d).sum() + (again.square() * d_squares).sum()
    moving = [p for p in parameters if p.requires_grad]
    *wanted, wanted_at = torch.autograd.grad(total, [*moving, at], allow_unused=True)
    assert torch.equal(answer.values, again.detach())
    assert answer.nothing is None
    torch.testing.assert_close(at_actions, wanted_at)
    known = dict(zip(moving, wanted, strict=True))
    for parameter, gradient in zip(parameters, found, strict=True):
        if parameter not in set(known):
            assert gradient is None  # frozen: it rests
        else:  # what nothing reads has zeros, so that momentum goes on
            expected = known[parameter]
            torch.testing.assert_close(gradient, torch.zeros_like(parameter) if expected is None else expected)
    assert [p.requires_grad for p in parameters] == [not frozen] * 2 + [True] * 4
