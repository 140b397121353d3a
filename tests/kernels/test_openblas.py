"""Products by numpy's OpenBLAS: the same numbers as torch's but for rounding, asked for only where it helps, put back after."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.models import mlp_ars
from rl_training.models.blas import by_numpy
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.models.products import affine, through, weight_gradient
from rl_training.runtime import openblas
from rl_training.runtime.torch_settings import torch_settings

Product = Callable[[Tensor, Tensor, Tensor], Tensor]

needs_openblas = pytest.mark.skipif(openblas.openblas() is None, reason="numpy has another library here")


def _weight_gradient(x: Tensor, gradient: Tensor, weight: Tensor) -> Tensor:
    out = torch.empty_like(weight)
    weight_gradient(x, gradient, out)
    return out


PRODUCTS: dict[str, Product] = {
    "affine": lambda x, _, weight: affine(x, weight, weight[..., :1, :]),
    "weight_gradient": _weight_gradient,
    "through": lambda _, gradient, weight: through(gradient, weight),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what numpy is asked for, on a processor of AMD's."""
    shapes: list[tuple[int, ...]] = []
    matmul = np.matmul

    def noted(x: np.ndarray, y: np.ndarray, *, out: np.ndarray) -> None:
        shapes.append(x.shape)
        matmul(x, y, out=out)

    monkeypatch.setattr(openblas, "is_amd", lambda: True)
    monkeypatch.setattr(np, "matmul", noted)
    return shapes


@needs_openblas
@pytest.mark.parametrize("members", [(), (3,)])
@pytest.mark.parametrize("name", PRODUCTS)
def test_large_products_are_numpys_and_as_good(name: str, members: tuple[int, ...], asked: list[tuple[int, ...]]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*members, 130, 140, generator=generator)
    gradient = torch.randn(*members, 130, 150, generator=generator)
    weight = torch.randn(*members, 140, 150, generator=generator)
    with torch_settings(1):
        found = PRODUCTS[name](x, gradient, weight)
        again = PRODUCTS[name](x, gradient, weight)
    assert len(asked) == 2
    assert torch.equal(found, again)
    exact = PRODUCTS[name](x.double(), gradient.double(), weight.double())
    assert len(asked) == 2  # torch's, outside
    assert (found - exact).abs().max() < 1e-4


@needs_openblas
def test_rows_that_members_share_are_not_copied_wrongly(asked: list[tuple[int, ...]]) -> None:
    x, weight = torch.randn(128, 128), torch.randn(3, 128, 128)
    with torch_settings(1):
        found = affine(x.expand(3, 128, 128), weight, torch.zeros(3, 1, 128))
    assert asked == [(3, 128, 128)]
    torch.testing.assert_close(found, x @ weight)


@needs_openblas
def test_small_and_thin_products_stay_with_torch(asked: list[tuple[int, ...]]) -> None:
    with torch_settings(1):
        affine(torch.randn(256, 64), torch.randn(64, 64), torch.zeros(64))
        affine(torch.randn(256, 256), torch.randn(256, 2), torch.zeros(2))
    assert asked == []


@needs_openblas
def test_two_threads_or_another_processor_leave_products_to_torch(
    asked: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(256, 256)
    with torch_settings(2):
        affine(x, x, torch.zeros(256))
    with torch_settings(1), torch_settings(2):
        affine(x, x, torch.zeros(256))
    monkeypatch.setattr(openblas, "is_amd", lambda: False)
    with torch_settings(1):
        affine(x, x, torch.zeros(256))
    assert asked == []


@needs_openblas
def test_the_librarys_threads_are_put_back_even_after_an_error() -> None:
    library = openblas.openblas()
    assert library is not None
    before = library.get_threads()
    library.set_threads(2)
    try:
        with pytest.raises(ZeroDivisionError), torch_settings(1), torch_settings(1):
            math.sqrt(1 / (library.get_threads() - 1))
        assert library.get_threads() == 2
        assert not by_numpy(torch.zeros(256, 256), torch.zeros(256, 256))
    finally:
        library.set_threads(before)


@needs_openblas
@pytest.mark.parametrize("hidden", [(), (64, 64)])
def test_a_population_acts_alike_by_numpy(hidden: tuple[int, ...], asked: list[tuple[int, ...]]) -> None:
    model = MLPARSModel(3, 2, hidden)
    parameters, obs = torch.randn(8, model.num_parameters), torch.randn(8, 4, 3)
    by_torch = model.actor_batch(parameters, obs).clone()
    assert asked == []
    with torch_settings(1):
        found = model.actor_batch(parameters, obs)
    assert len(asked) == len(hidden) + 1
    torch.testing.assert_close(found, by_torch, rtol=1e-5, atol=1e-5)


@needs_openblas
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_members_actions_do_not_depend_on_the_others(rows: int) -> None:
    model = MLPARSModel(17, 6, (64, 64))
    parameters, obs = torch.randn(40, model.num_parameters), torch.randn(40, rows, 17)
    with torch_settings(1):
        whole = mlp_ars.MemberPolicies(model, parameters, rows=rows)
        whole.obs.copy_(obs)
        expected = whole.act().clone()
        for first, last in ((0, 2), (7, 10), (13, 40)):
            part = mlp_ars.MemberPolicies(model, parameters[first:last], rows=rows)
            part.obs.copy_(obs[first:last])
            assert torch.equal(part.act(), expected[first:last])
