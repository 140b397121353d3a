"""One senseless leaf in a checkpoint that is otherwise right, checksums and all; and what comes of going on from it.

For the tests and for the long version, `python benchmarks/faults/mutations.py`.
"""

from __future__ import annotations

import contextlib
import io
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_training.cli import main
from rl_training.errors import RLTrainingError
from rl_training.experiment.checkpoint import CheckpointState, load_checkpoint, save_checkpoint
from rl_training.runtime.workflows import predict_checkpoint

PARTS = ("algorithm_state", "buffer_state", "trainer_state", "metadata")
SECONDS = 60  # that nothing here needs
PLAIN: dict[type, list[Any]] = {
    bool: [None, "yes", 2, [], float("nan")],
    int: [None, "many", -1, -5.5, True, float("nan"), float("inf"), 2**70, 10**12, [], {}],
    float: [None, "much", float("nan"), float("inf"), -1e300, 2**70, True, [], {}],
    str: [None, 5, "", "another", [], {}],
    type(None): [5, -1, "none", [], {}, float("nan"), True],
    list: [None, 5, "empty", [None], ["x"], [-1], [float("nan")], {}],
}


@dataclass(frozen=True)
class Mutation:
    """Where something stands, and what stands there now."""

    path: tuple[Any, ...]
    words: str
    value: Any

    def __str__(self) -> str:
        return f"{'/'.join(map(str, self.path))} = {self.words}"


MISSING = object()


def leaves(state: CheckpointState) -> list[tuple[Any, ...]]:
    """Every place that holds a value; an empty list or mapping is one."""
    return [(part, *path) for part in PARTS for path in _leaves(getattr(state, part)) if path]


def _leaves(tree: Any) -> Iterator[tuple[Any, ...]]:
    items = list(tree.items()) if isinstance(tree, Mapping) else list(enumerate(tree)) if isinstance(tree, list | tuple) else []
    if not items:
        yield ()
    for key, value in items:
        yield from ((key, *path) for path in _leaves(value))


def mutations(state: CheckpointState, path: tuple[Any, ...]) -> list[Mutation]:
    """What else could stand there, and nothing at all."""
    value = _at(getattr(state, path[0]), path[1:])
    if isinstance(value, torch.Tensor | np.ndarray):
        found = [(words, change(value)) for words, change in ARRAYS.items()]
    else:
        kind = list if isinstance(value, list | tuple | dict) else type(value)
        found = [(repr(other), other) for other in PLAIN[kind]]
    return [*(Mutation(path, words, other) for words, other in found), Mutation(path, "(left out)", MISSING)]


def _reshaped(shape: tuple[int, ...]) -> Callable[[Any], Any]:
    return lambda array: (torch.ones if isinstance(array, torch.Tensor) else np.ones)(shape, dtype=array.dtype)


def _longer(array: Any) -> Any:
    shape = (array.shape[0] + 1, *array.shape[1:]) if array.ndim else (2,)
    return _reshaped(shape)(array)


def _filled(number: float, whole: int) -> Callable[[Any], Any]:
    """With a number, or with a whole one where there are no others."""

    def fill(array: Any) -> Any:
        floats = torch.is_floating_point(array) if isinstance(array, torch.Tensor) else array.dtype.kind == "f"
        value = number if floats else whole if array.dtype in (torch.int64, np.int64) else abs(whole) % 128
        return (torch.full_like if isinstance(array, torch.Tensor) else np.full_like)(array, value)

    return fill


def _other_kind(array: Any) -> Any:
    if isinstance(array, torch.Tensor):
        return array.to(torch.int64 if array.is_floating_point() else torch.float32)
    return array.astype(np.int64 if array.dtype.kind == "f" else np.float32)


ARRAYS: dict[str, Callable[[Any], Any]] = {
    "one number": _reshaped((1,)),
    "a scalar": _reshaped(()),
    "nothing": _reshaped((0,)),
    "one row more": _longer,
    "a cube": _reshaped((2, 2, 2)),
    "not a number": _filled(float("nan"), 0),
    "infinities": _filled(float("inf"), 2**62),
    "minus ones": _filled(-1.0, -1),
    "huge numbers": _filled(1e30, 10**12),
    "numbers of another kind": _other_kind,
    "a number": lambda _: 5,
    "a text": lambda _: "array",
    "None": lambda _: None,
    "a mapping": lambda _: {},
}


def mutated(state: CheckpointState, mutation: Mutation) -> CheckpointState:
    part, *path = mutation.path
    return replace(state, **{part: _with(getattr(state, part), tuple(path), mutation.value)})


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    return tree if not path else _at(tree[path[0]], path[1:])


def _with(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return {} if value is MISSING else value
    key, *rest = path
    items = dict(tree.items() if isinstance(tree, Mapping) else enumerate(tree))
    if value is MISSING and not rest:
        del items[key]
    else:
        items[key] = _with(items[key], tuple(rest), value)
    return items if isinstance(tree, Mapping) else type(tree)(items.values())


@dataclass
class Outcomes:
    """How often what came of it, and what must never come of it."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, outcome: str, mutation: Mutation, words: str) -> None:
        self.counts[outcome] += 1
        if outcome in ("unexpected", "endless"):
            self.faults.append(f"{mutation}: {outcome}: {words[-600:]}")


class Subject:
    """A real run that stopped half-way, whose newest checkpoint is spoilt again and again."""

    def __init__(self, run_dir: Path, folder: Path) -> None:
        self.state = load_checkpoint(max((run_dir / "checkpoints").glob("step_*.safetensors")))
        self.folder, self.number = folder, 0
        self.obs = np.zeros(self.state.metadata["env_spec"]["obs_dim"], dtype=np.float32)

    def every_mutation(self) -> list[Mutation]:
        return [mutation for path in leaves(self.state) for mutation in mutations(self.state, path)]

    def put(self, mutation: Mutation) -> tuple[str, str]:
        """The outcome of predicting with it and of going on from it, and the words that were said."""
        self.number += 1
        path = save_checkpoint(self.folder / f"{self.number}.safetensors", mutated(self.state, mutation))
        try:
            if mutation.path[0] in ("algorithm_state", "metadata"):
                predicted = self._predict(path)
                if predicted is not None:
                    return "unexpected", predicted
            return self._resume(path)
        finally:
            path.unlink()

    def _predict(self, path: Path) -> str | None:
        """None where an action came, or the file was refused by its name."""
        try:
            action = predict_checkpoint(path, self.obs)
        except RLTrainingError as error:
            return None if str(path) in str(error) else f"without the file: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None if np.isfinite(action).all() else f"the action is {action}"

    def _resume(self, path: Path) -> tuple[str, str]:
        said, late = io.StringIO(), []

        def leave(*_: Any) -> None:
            late.append(True)
            signal.alarm(1)  # until it has left
            raise TimeoutError("it takes too long")

        before = signal.signal(signal.SIGALRM, leave)
        signal.alarm(SECONDS)
        command = ["resume", "--checkpoint", str(path), "--output-dir", str(self.folder / "runs"), "--quiet"]
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                code = main(command)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        words = said.getvalue()
        if late:
            return "endless", words
        if code == 0:
            return "taken", words
        if "not expected" in words or "Traceback" in words:
            return "unexpected", words
        return ("refused" if f"{path}: " in words else "ended by name"), words
