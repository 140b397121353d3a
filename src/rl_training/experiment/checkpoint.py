"""A checkpoint: everything a run needs to go on as if it had never stopped, in one `.safetensors` file without pickle.

Three trees of state, plus config and metadata. A tree is made of dicts (str or int keys), lists, tuples, torch tensors,
numpy arrays and plain values; all come back as what they were, to the bit, tensors on the CPU and without gradient.
Subclasses come back as their plain type: a named tuple as a tuple, an enum member as its value, a numpy scalar as a number.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import numpy as np

from rl_training.errors import CheckpointError, ConfigError, MisfitError, RLTrainingError, UntrustedError, did_you_mean
from rl_training.experiment.checkpoint_file import FORMAT_VERSION, Leaf, begin_file, finish_file, is_tensor, why_unstorable
from rl_training.experiment.checkpoint_reader import CheckpointFile
from rl_training.experiment.files import Replacement, sync_directory
from rl_training.types import State

STATE_PARTS = ("algorithm_state", "buffer_state", "trainer_state")
PLAIN_PARTS = ("config", "metadata")  # no tensors in these: they are read without touching the data
_PLAIN = (int, float, str, type(None))
_MAX_DEPTH = 64  # deeper trees are a mistake, such as a dict that holds itself


@dataclass(frozen=True)
class CheckpointState:
    """What stands in a checkpoint. Nothing in the first three depends on when or where the run was made."""

    algorithm_state: State = field(default_factory=dict)
    buffer_state: State = field(default_factory=dict)
    trainer_state: State = field(default_factory=dict)
    config: State = field(default_factory=dict)
    metadata: State = field(default_factory=dict)


@dataclass(frozen=True)
class CheckpointHeader:
    """What can be known about a checkpoint without reading a tensor."""

    config: State
    metadata: State
    format_version: int


def save_checkpoint(path: str | Path, state: CheckpointState) -> Path:
    """Write it whole or not at all; equal states give equal bytes. A file that was there before stays until the end."""
    path = Path(path)
    finish_file(begin_checkpoint(path, state))
    sync_directory(path.parent)
    return path


def begin_checkpoint(path: Path, state: CheckpointState) -> Replacement:
    """The state written down, so that it may change again; `finish_file` does what is left for the disk to do."""
    encoder = _Encoder(path)
    texts = {part: encoder.text(getattr(state, part), part) for part in (*STATE_PARTS, *PLAIN_PARTS)}
    return begin_file(path, encoder.arrays, texts)


def load_checkpoint(path: str | Path, *, parts: Iterable[str] | None = None) -> CheckpointState:
    """Read and verify it; with `parts` only those of the three states, the others stay empty and unread on the disk."""
    with CheckpointFile(Path(path)) as file:
        return _decoded(file, _chosen(parts), tensor=file.read_tensor, array=file.read_array)


def verify_checkpoint(path: str | Path, *, parts: Iterable[str] | None = None) -> None:
    """Raise the CheckpointError that loading would, without taking memory for it."""
    with CheckpointFile(Path(path)) as file:
        _decoded(file, _chosen(parts), tensor=file.verify, array=file.verify)


def read_header(path: str | Path) -> CheckpointHeader:
    """Config and metadata, in the same few milliseconds however large the file is."""
    with CheckpointFile(Path(path)) as file:
        state = _decoded(file, (), tensor=file.verify, array=file.verify)
    return CheckpointHeader(state.config, state.metadata, FORMAT_VERSION)


@contextmanager
def must_fit() -> Iterator[None]:
    """Within it, whatever goes wrong while a checkpoint's state is taken over is told as that state not fitting here."""
    try:
        yield
    except UntrustedError:
        raise
    except CheckpointError as error:
        raise MisfitError(str(error)) from error
    except RLTrainingError as error:
        if isinstance(error, ConfigError):
            raise MisfitError(f"its configuration cannot be used: {error}") from error
        raise  # an environment that breaks is not the checkpoint's fault
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise MisfitError(f"the checkpoint does not fit here: {type(error).__name__}: {error}") from error


def _chosen(parts: Iterable[str] | None) -> tuple[str, ...]:
    chosen = STATE_PARTS if parts is None else tuple(parts)
    for part in chosen:
        if part not in STATE_PARTS:
            raise CheckpointError(f"a checkpoint has no part {part!r}{did_you_mean(part, STATE_PARTS)}")
    return chosen


class _Encoder:
    """Turns trees into JSON and sets their arrays aside under their tree paths."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.arrays: dict[str, Leaf] = {}

    def text(self, tree: object, part: str) -> str:
        if not isinstance(tree, Mapping):
            raise CheckpointError(f"{self.path}: {part} must be a dict; it is a {type(tree).__name__}")
        return json.dumps(self._encode(tree, part, 0), separators=(",", ":"), allow_nan=False)

    def _encode(self, value: object, where: str, depth: int) -> object:
        if depth > _MAX_DEPTH:
            raise self._refusal(where, f"more than {_MAX_DEPTH} levels below each other")
        if isinstance(value, _PLAIN):  # most are; to find out that something is no Mapping takes ten times as long
            return self._encode_plain(value, where)
        if isinstance(value, Mapping):
            return self._encode_dict(value, where, depth)
        if type(value) is list and _plain_numbers(value):  # histories are long: each by itself takes twenty times as long
            return value
        if isinstance(value, list | tuple):
            items = [self._encode(item, f"{where}/{index}", depth + 1) for index, item in enumerate(value)]
            return {"$tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, np.ndarray) or is_tensor(value):
            return self._set_aside(cast("Leaf", value), where)
        return self._encode_plain(value, where)

    def _encode_dict(self, values: Mapping[Any, object], where: str, depth: int) -> object:
        for key in values:
            if not isinstance(key, str | int) or isinstance(key, bool):
                raise self._refusal(where, f"the key {key!r}; keys are texts or whole numbers")
        # sorted, because equal dicts may have been filled in another order
        pairs = [
            (key, self._encode(values[key], f"{where}/{_word(key, values)}", depth + 1))
            for key in sorted(values, key=lambda key: (isinstance(key, str), key))
        ]
        if all(isinstance(key, str) and not key.startswith("$") for key in values):
            return dict(pairs)
        return {"$dict": [[self._encode_plain(key, where), value] for key, value in pairs]}

    def _encode_plain(self, value: object, where: str) -> object:
        value = value.item() if isinstance(value, np.generic) else value
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):  # JSON readers elsewhere, and Python's for very long ones, lose large numbers
            return int(value) if -(2**53) <= value <= 2**53 else {"$int": hex(value)}
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}
        raise self._refusal(where, f"a {type(value).__name__}")

    def _set_aside(self, leaf: Leaf, name: str) -> object:
        why = why_unstorable(leaf)
        if why or name.startswith(PLAIN_PARTS):
            raise self._refusal(name, why or "a tensor; config and metadata take plain values only")
        self.arrays[name] = leaf
        return {"$array" if isinstance(leaf, np.ndarray) else "$tensor": name}

    def _refusal(self, where: str, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path}: cannot be saved, because {where} holds {what}. "
            "A checkpoint takes dicts, lists, tuples, tensors, numpy arrays, numbers, texts, booleans and None"
        )


def _plain_numbers(values: list[Any]) -> bool:
    """Whether JSON can hold them all as they are."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return all(map(math.isfinite, values))
    return kinds == {int} and min(values) >= -(2**53) and max(values) <= 2**53


def _word(key: str | int, siblings: Mapping[Any, object]) -> str:
    """One step of a tree path, made of characters that mean nothing to any file system."""
    if isinstance(key, str):
        if key.isascii() and key.isidentifier():
            return key
        word = quote(key, safe="", errors="surrogatepass")
        return word if word.strip(".") else word.replace(".", "%2E") or "%"
    return f"%i{key}" if str(key) in siblings else str(int(key))


def _decoded(
    file: CheckpointFile, parts: tuple[str, ...], *, tensor: Callable[[str], object], array: Callable[[str], object]
) -> CheckpointState:
    for name in file.entries:
        if not name.startswith(tuple(f"{part}/" for part in STATE_PARTS)):
            raise file.damaged(f"the array {name} belongs to no part")
    decoder = _Decoder(file, tensor=tensor, array=array)
    return CheckpointState(**{part: decoder.part(part) for part in (*parts, *PLAIN_PARTS)})


class _Decoder:
    """The way back, for trees that may have been written by somebody who means harm."""

    def __init__(self, file: CheckpointFile, *, tensor: Callable[[str], object], array: Callable[[str], object]) -> None:
        self.file = file
        self.tensor = tensor
        self.array = array
        self.pending: set[str] = set()

    def part(self, part: str) -> State:
        # each array is handed out once; or a small file could ask for the same large array many times
        self.pending = {name for name in self.file.entries if name.startswith(f"{part}/")}
        tree = self._decode(self.file.parse(self.file.texts.get(part, "")), 0)
        if not isinstance(tree, dict) or self.pending:
            raise self.file.damaged(f"the tree of {part} does not fit its arrays")
        return tree

    def _decode(self, value: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise self.file.damaged("its tree is nested too deeply")
        if isinstance(value, list):
            return [self._decode(item, depth + 1) for item in value]
        if not isinstance(value, dict):
            return value
        if any(key.startswith("$") for key in value):
            return self._decode_marked(value, depth)
        return {key: self._decode(item, depth + 1) for key, item in value.items()}

    def _decode_marked(self, value: dict[str, Any], depth: int) -> Any:
        try:
            match value:
                case {"$tensor": str(name)} if len(value) == 1 and name in self.pending:
                    self.pending.remove(name)
                    return self.tensor(name)
                case {"$array": str(name)} if len(value) == 1 and name in self.pending:
                    self.pending.remove(name)
                    return self.array(name)
                case {"$tuple": [*items]} if len(value) == 1:
                    return tuple(self._decode(item, depth + 1) for item in items)
                case {"$dict": [*pairs]} if len(value) == 1:
                    return {self._key(key): self._decode(item, depth + 1) for key, item in pairs}
                case {"$int": str(digits)} if len(value) == 1:
                    return int(digits, 16)
                case {"$float": str(bits)} if len(value) == 1:
                    return struct.unpack(">d", bytes.fromhex(bits))[0]
        except (ValueError, TypeError, struct.error) as error:
            if isinstance(error, CheckpointError):
                raise
        raise self.file.damaged(f"its tree holds the unknown {repr(value)[:200]}")

    def _key(self, key: Any) -> str | int:
        decoded = self._decode(key, _MAX_DEPTH)
        if not isinstance(decoded, str | int) or isinstance(decoded, bool):
            raise self.file.damaged(f"its tree holds the key {repr(decoded)[:200]}")
        return decoded
