"""What can be differentiated gives its outputs and a pullback, as `jax.vjp` does; whoever learns chains them.

- `Loss`: a function in torch that returns named metrics. `loss.vjp(...)` gives the metrics and the gradient of one of them at
  the inputs, derived by autograd on the loss alone or by a closed form beside it.
- `method`: a network's method with a pullback of its own beside its definition.
- `by_autograd` and `ByAutograd`: the same for a function, and for a method of any module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from types import SimpleNamespace
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor, nn

Function = TypeVar("Function", bound=Callable[..., Any])

Pullback: TypeAlias = Callable[..., Any]
"""From gradients at the outputs to those at the parameters (one for each, None for what rests), or at an input."""


def outside_autograd(function: Function) -> Function:
    """`torch.no_grad()` for what is nearly always called within it, where it costs a tenth."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return function(*args, **kwargs)
        with torch.no_grad():
            return function(*args, **kwargs)

    return cast("Function", call)


class Loss:
    """A loss by its definition in torch. It is called like the function that it is made of; `vjp` differentiates its metric
    `total` with respect to the inputs named by `wrt`."""

    def __init__(self, definition: Callable[..., dict[str, Any]], *, total: str, wrt: tuple[str, ...]) -> None:
        self.definition, self.total, self.wrt = definition, total, wrt
        self.closed_form: Callable[..., Mapping[str, Tensor | None]] | None = None
        self.in_c: Callable[..., Any] | None = None
        self._names = tuple(inspect.signature(definition).parameters)
        self.__doc__, self.__name__, self.__module__ = definition.__doc__, definition.__name__, definition.__module__
        self.__wrapped__ = definition  # what `inspect.signature` shows

    def __call__(self, *inputs: Any, **settings: Any) -> dict[str, Any]:
        return self.definition(*inputs, **settings)

    def gradient(self, closed_form: Callable[..., Mapping[str, Tensor | None]]) -> Callable[..., Mapping[str, Tensor | None]]:
        """Register the gradient in closed form; it takes what the loss takes and gives a gradient for each name in `wrt`."""
        self.closed_form = closed_form
        return closed_form

    def compiled(self, both: Callable[..., Any]) -> Callable[..., Any]:
        """Register a function that gives metrics and gradients by C in one call, or None where that cannot be."""
        self.in_c = both
        return both

    def vjp(self, *inputs: Any, wrt: Sequence[str] | None = None, **settings: Any) -> tuple[dict[str, Tensor], Any]:
        """The metrics, and the gradients of `total` by the names of the inputs: `losses, d = loss.vjp(...)`, then
        `d.q_values`. Inputs are tensors, or one mapping of them; `wrt` names others than the loss does by itself."""
        if self.in_c is not None and wrt is None and (found := self.in_c(*inputs, **settings)) is not None:
            return found[0], SimpleNamespace(**found[1])
        if self.closed_form is None or wrt is not None:
            return self.derived(*inputs, wrt=wrt, **settings)
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self.vjp(*inputs, **settings)
        return self.definition(*inputs, **settings), SimpleNamespace(**self.closed_form(*inputs, **settings))

    def derived(self, *inputs: Any, wrt: Sequence[str] | None = None, **settings: Any) -> tuple[dict[str, Tensor], Any]:
        """`vjp` by autograd on the definition."""
        as_mapping = isinstance(inputs[0], Mapping)
        known = dict(inputs[0]) if as_mapping else dict(zip(self._names, inputs, strict=False))
        at = {name: known[name].detach().requires_grad_() for name in (self.wrt if wrt is None else wrt)}
        known |= at
        with torch.enable_grad():
            losses = self.definition(known, *inputs[1:], **settings) if as_mapping else self.definition(**known, **settings)
        found = torch.autograd.grad(losses[self.total], list(at.values()), allow_unused=True)
        losses = {name: loss.detach() if isinstance(loss, Tensor) else loss for name, loss in losses.items()}
        return losses, SimpleNamespace(**dict(zip(at, found, strict=True)))


def loss(total: str, *, wrt: tuple[str, ...]) -> Callable[[Callable[..., dict[str, Any]]], Loss]:
    """`Loss` as a decorator."""
    return lambda definition: Loss(definition, total=total, wrt=wrt)


def by_autograd(function: Callable[..., Any], *inputs: Tensor) -> tuple[Any, Pullback]:
    """A function's outputs, with the pullback to its inputs by autograd."""
    at = [x.detach().requires_grad_() for x in inputs]
    with torch.enable_grad():
        outputs = function(*at)
    return _detached(outputs), lambda *d: _gradients(outputs, at, d)


class method:  # noqa: N801 (used as a decorator, like `property`)
    """A method with outputs and a pullback: called it is its definition, `.vjp(...)` is what `with_vjp` registered."""

    def __init__(self, definition: Callable[..., Any]) -> None:
        self.definition = definition
        self.outputs_and_pullback: Callable[..., Any] | None = None
        self.__doc__ = definition.__doc__

    def with_vjp(self, function: Callable[..., tuple[Any, Pullback]]) -> Callable[..., tuple[Any, Pullback]]:
        """Register a function that gives the outputs with a pullback."""
        self.outputs_and_pullback = function
        return function

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else BoundMethod(owner, self)


class BoundMethod:
    """A `method` of one object."""

    __slots__ = ("owner", "what")

    def __init__(self, owner: Any, what: method) -> None:
        self.owner, self.what = owner, what

    def __call__(self, *inputs: Any, **settings: Any) -> Any:
        return self.what.definition(self.owner, *inputs, **settings)

    def vjp(self, *inputs: Any, **settings: Any) -> tuple[Any, Pullback]:
        assert self.what.outputs_and_pullback is not None
        given: tuple[Any, Pullback] = self.what.outputs_and_pullback(self.owner, *inputs, **settings)
        return given


class ByAutograd:
    """A method of any module: its outputs with a pullback by autograd.

    `parameters` are what a pullback without `wrt` answers for. `answer` brings what the method says into the form that
    learners read; the pullback takes gradients at the tensors that come out of it.
    """

    def __init__(self, owner: nn.Module, name: str, parameters: Sequence[Tensor], answer: Callable[..., Any]) -> None:
        self.owner, self.name, self.parameters, self.answer = owner, name, list(parameters), answer

    def __call__(self, *inputs: Any, **settings: Any) -> Any:
        return self.answer(getattr(self.owner, self.name)(*inputs, **settings), *inputs)

    def vjp(self, *inputs: Tensor, wrt: int | None = None, **settings: Any) -> tuple[Any, Pullback]:
        """The pullback gives a gradient for each parameter, or with `wrt` the one at that input."""
        if wrt is None:
            with torch.enable_grad():
                outputs = self(*inputs, **settings)
            moving = [p for p in self.parameters if p.requires_grad]
            return _detached(outputs), lambda *d: self._by_parameter(moving, _gradients(outputs, moving, d))
        at = inputs[wrt].detach().requires_grad_()
        with torch.enable_grad(), _frozen(self.parameters):
            outputs = self(*inputs[:wrt], at, *inputs[wrt + 1 :], **settings)
        return _detached(outputs), lambda *d: _gradients(outputs, [at], d)[0]

    def _by_parameter(self, moving: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor | None]:
        if len(moving) == len(self.parameters):
            return list(gradients)
        known = {id(p): g for p, g in zip(moving, gradients, strict=True)}
        return [known.get(id(p)) for p in self.parameters]


def _tensors(outputs: Any) -> Sequence[Tensor]:
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


def _detached(outputs: Any) -> Any:
    if isinstance(outputs, Tensor):
        return outputs.detach()
    parts = [output if output is None else output.detach() for output in outputs]
    return outputs._make(parts) if hasattr(outputs, "_make") else tuple(parts)


def _gradients(outputs: Any, at: Sequence[Tensor], d_outputs: Sequence[Tensor | None]) -> list[Tensor]:
    """What reaches `at`, zeros where nothing does, so that momentum goes on there. Outputs without a gradient are left out."""
    reached = [(o, d) for o, d in zip(_tensors(outputs), d_outputs, strict=True) if d is not None and o.requires_grad]
    if not reached or not at:
        return [torch.zeros_like(x) for x in at]
    given, d = zip(*reached, strict=True)
    found = torch.autograd.grad(given, at, d, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(at, found, strict=True)]


@contextmanager
def _frozen(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Without gradients at these parameters, so that a pass back to an input does not work them out."""
    moving = [p for p in parameters if p.requires_grad]
    for p in moving:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in moving:
            p.requires_grad_()
