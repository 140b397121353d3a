"""A checkpoint that stays in its file: a run that just fits into memory can be resumed from it, and keeps nothing of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.experiment.checkpoint import load_checkpoint, read_header, read_part
from rl_training.experiment.checkpoint_reader import CheckpointFile
from rl_training.types import State

if TYPE_CHECKING:
    from torch import Tensor


class StoredCheckpoint:
    """A `CheckpointState` whose states are read anew whenever they are asked for; of buffers, only what is asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()  # an environment may change the current folder meanwhile
        header = read_header(self.path)
        self.config, self.metadata = header.config, header.metadata

    @property
    def algorithm_state(self) -> State:
        return load_checkpoint(self.path, parts=("algorithm_state",)).algorithm_state

    @property
    def trainer_state(self) -> State:
        return load_checkpoint(self.path, parts=("trainer_state",)).trainer_state

    @property
    def buffer_state(self) -> dict[str, Mapping[str, Any]]:
        with CheckpointFile(self.path) as file:
            trees = read_part(file, "buffer_state", tensor=_Unread, array=partial(_Unread, numpy=True))
        return {name: _StoredState(self.path, tree) for name, tree in trees.items()}


@dataclass(frozen=True)
class _Unread:
    """An array, by its name in the file."""

    name: str
    numpy: bool = False


class _StoredState(Mapping[str, Any]):
    """The state of one buffer. What is asked for is read and comes as it was saved, in plain dicts."""

    def __init__(self, path: Path, tree: Mapping[str, Any]) -> None:
        self._path, self._tree = path, tree

    def __getitem__(self, key: str) -> Any:
        with CheckpointFile(self._path) as file:
            return _read(self._tree[key], file)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tree)

    def __len__(self) -> int:
        return len(self._tree)

    def shape(self, key: str) -> tuple[int, ...]:
        """Of an array, which is not read for it."""
        with CheckpointFile(self._path) as file:
            return file.shape(self._tree[key].name)

    def read_into(self, key: str, target: Tensor) -> None:
        """An array straight to where it belongs."""
        with CheckpointFile(self._path) as file:
            file.read_into(self._tree[key].name, target)


def _read(value: Any, file: CheckpointFile) -> Any:
    if isinstance(value, _Unread):
        return file.read_array(value.name) if value.numpy else file.read_tensor(value.name)
    if isinstance(value, dict):
        return {key: _read(item, file) for key, item in value.items()}
    return type(value)(_read(item, file) for item in value) if isinstance(value, list | tuple) else value
