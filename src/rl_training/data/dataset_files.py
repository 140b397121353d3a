"""Datasets in `.npz` files: arrays and nothing else, so that opening one can run nobody's code."""

from __future__ import annotations

import io
import json
import lzma
import math
import secrets
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.recorded_arrays import ROLES, require_same_rows
from rl_training.data.recorded_data import RecordedData
from rl_training.errors import DatasetError

PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt")
UNSAFE = "pickled data can run any code when it is opened, which is unsafe for untrusted datasets"
METADATA = "metadata"  # the array that holds what else is known, as JSON
UNFINISHED = "unfinished_rows"  # in it: as RecordedData.unfinished
MAX_HEADER = 1 << 15  # bytes of an array's header; numpy takes 10,000 letters
MAX_METADATA = 1 << 22
# what numpy and zipfile raise where somebody has written into a file what they did not expect
UNREADABLE = (
    *(OSError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, EOFError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError),
)


def read_npz(path: str | Path) -> RecordedData:
    """The transitions in a file, or DatasetError that says what is wrong with it."""
    arrays = NpzArrays(Path(path))
    data = RecordedData.from_arrays(arrays, str(path))
    unfinished, last = arrays.metadata().get(UNFINISHED), data.episodes()[-1]
    # anybody may have written it: taken only where it says what the rows can mean
    return replace(data, unfinished=unfinished) if unfinished == last.stop - last.start else data


def read_metadata(path: str | Path) -> dict[str, Any]:
    """What `write_npz` wrote down beside the transitions; empty for files of others."""
    return NpzArrays(Path(path)).metadata()


def write_npz(path: str | Path, data: RecordedData, *, metadata: Mapping[str, Any] | None = None) -> Path:
    """A new file with Gymnasium's array names; an existing one is never overwritten."""
    path = Path(path)
    require_new(path)
    unfinished = {UNFINISHED: data.unfinished} if data.unfinished else {}
    arrays = {
        "observations": data.obs,
        "actions": data.actions,
        "rewards": data.rewards,
        "next_observations": data.next_obs,
        "terminations": data.terminations,
        "truncations": data.truncations,
        METADATA: np.array(json.dumps({**(metadata or {}), **unfinished}, sort_keys=True)),
    }
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")  # nobody can have laid a link under it
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("xb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        partial.replace(path)
    except OSError as error:
        raise DatasetError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return path


def require_new(path: Path) -> None:
    """DatasetError where a dataset cannot be written; asked before the work of making one is done."""
    if path.suffix != ".npz":
        raise DatasetError(f"{path}: a dataset file ends in .npz")
    if path.exists():
        raise DatasetError(f"{path} exists already and is left alone; choose another name or remove it")


class NpzArrays(Mapping[str, np.ndarray]):
    """The arrays of an archive, none of them of python objects. Each is read when it is asked for: what plays no part in the
    data may be as large as it likes."""

    def __init__(self, path: Path) -> None:
        if path.suffix.lower() in PICKLES:
            raise DatasetError(f"{path}: {UNSAFE}; save the arrays with numpy.savez instead")
        if path.suffix.lower() != ".npz":
            raise DatasetError(f"{path}: a dataset is an .npz file; others can be converted with numpy.savez")
        self.path = path
        with self._told():
            with zipfile.ZipFile(path) as archive:
                sizes = dict(_checked_member(path, archive, member) for member in archive.infolist())
            with np.load(path, allow_pickle=False) as file:
                self._names = list(file.files)
        require_same_rows(str(path), {name: shape[0] for name, shape in sizes.items() if shape and name in ROLES})

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        with self._told(), np.load(self.path, allow_pickle=False) as file:
            array: np.ndarray = file[name]
            return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def metadata(self) -> dict[str, Any]:
        """What else is known of the data; empty where nothing is that can be understood."""
        text = self.get(METADATA)
        try:
            values = json.loads(str(text)) if text is not None and text.dtype.kind == "U" else {}
        except (ValueError, RecursionError):
            return {}
        return values if isinstance(values, dict) else {}

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except DatasetError:
            raise
        except FileNotFoundError:
            advice = f"rl-training collect --checkpoint RUN --steps N --out {self.path} records one"
            raise DatasetError(f"{self.path}: there is no such file; {advice}") from None
        except MemoryError as error:
            raise DatasetError(f"{self.path}: there is not enough memory for what it says it holds") from error
        except UNREADABLE as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise DatasetError(f"{self.path}: cannot be read as an npz archive: {reason}") from error


def _checked_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[str, tuple[int, ...]]:
    """Name and shape of an array by its header alone: kind of values, and whether its size can be true."""
    if not member.filename.endswith(".npy"):
        if member.filename.lower().endswith(PICKLES):
            raise DatasetError(f"{path} holds {member.filename}: {UNSAFE}")
        raise DatasetError(f"{path} holds {member.filename}, which is no array; a dataset is made with numpy.savez")
    name = member.filename.removesuffix(".npy")
    with archive.open(member) as packed:
        stream = io.BytesIO(packed.read(MAX_HEADER))  # a header may claim to be of gigabytes, and numpy would read them
    version = np.lib.format.read_magic(stream)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read_header(stream)
    except MemoryError as error:  # python's parser has no room for what stands there; nothing was allocated
        raise DatasetError(f"{path}: the header of {name} makes no sense") from error
    if dtype.hasobject:
        raise DatasetError(f"{path}: {name} is an array of python objects; {UNSAFE}; save numbers, not objects")
    size = member.file_size - stream.tell()
    if math.prod(shape) * dtype.itemsize != size or any(type(length) is not int for length in shape):
        raise DatasetError(f"{path}: {name} should hold {shape} values of {dtype}, but its size is another; it is damaged")
    if name == METADATA and size > MAX_METADATA:
        raise DatasetError(f"{path}: {name} takes {size:,} bytes; at most {MAX_METADATA:,} are read")
    return name, shape
