"""Reading a checkpoint file that may be cut, damaged, foreign or hostile: whatever it is, the answer is a CheckpointError.

The reader is our own: the safetensors library does not look at the payload's integrity, lets somebody else's metadata
through, and maps the file, so that a file cut while it is read ends the process with SIGBUS. Here every size is checked
against the file's real length before anything is allocated, and bytes are read into memory that is ours.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import zlib
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.errors import CheckpointError
from rl_training.experiment.checkpoint_file import (
    DTYPES,
    FORMAT,
    FORMAT_VERSION,
    MAX_DIMS,
    MAX_HEADER,
    NO_DIGEST,
    Entry,
    dtype_name,
    memory,
    with_digest,
)
from rl_training.experiment.files import reason

if TYPE_CHECKING:
    from torch import Tensor

_CHUNK = 1 << 20
_TEXT = frozenset(b"\t\n\r" + bytes(range(32, 127)))
# a path of plain words; no word consists of dots alone
_SAFE_NAME = re.compile(r"(?!\.+(/|$))[\w.~%-]+(/(?!\.+(/|$))[\w.~%-]+)*", re.ASCII)


class CheckpointFile:
    """An open file whose header has been checked; arrays are read and verified one by one, when they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = self._open()
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> CheckpointFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def error(self, why: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {why}")

    def damaged(self, why: str) -> CheckpointError:
        return self.error(f"the checkpoint is damaged: {why}")

    def read_tensor(self, name: str) -> Tensor:
        import torch

        entry = self._entry(name)
        try:
            # torch's own memory: its alignment can decide in which order a kernel adds up
            tensor = torch.empty(entry.shape, dtype=getattr(torch, DTYPES[entry.code][1]))
        except RuntimeError as error:
            raise self.error(f"there is not enough memory for {name}, {entry.end - entry.begin} bytes") from error
        self._fill(name, memory(tensor))
        return tensor

    def read_array(self, name: str) -> np.ndarray[Any, Any]:
        entry = self._entry(name)
        if entry.code == "BF16":
            raise self.damaged(f"{name} cannot be a numpy array of bfloat16")
        try:
            array = np.empty(entry.shape, dtype=np.dtype(DTYPES[entry.code][1]).newbyteorder("<"))
        except MemoryError as error:
            raise self.error(f"there is not enough memory for {name}, {entry.end - entry.begin} bytes") from error
        self._fill(name, memory(array))
        return array

    def read_into(self, name: str, target: Tensor) -> None:
        """Read into memory that is there already and was made for it."""
        entry = self._entry(name)
        found, wanted = (entry.shape, DTYPES[entry.code][1]), (tuple(target.shape), dtype_name(target))
        if found != wanted:
            raise self.error(f"{name} has shape {found[0]} and type {found[1]}; here it needs {wanted[0]} and {wanted[1]}")
        assert target.is_contiguous()
        self._fill(name, memory(target))

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name).shape

    def verify(self, name: str) -> None:
        """Compare the checksum without keeping the bytes."""
        entry, chunk, checksum = self._entry(name), memoryview(bytearray(_CHUNK)), 0
        for begin in range(entry.begin, entry.end, _CHUNK):
            part = chunk[: min(_CHUNK, entry.end - begin)]
            self._read_into(part, self._data_start + begin)
            checksum = zlib.crc32(part, checksum)
        self._compare(name, checksum)

    def parse(self, text: bytes | str) -> dict[str, Any]:
        """A JSON object in which nothing is said twice."""
        try:
            parsed = json.loads(text if isinstance(text, str) else text.decode(), object_pairs_hook=_unique_keys)
        except RecursionError as error:
            raise self.damaged("its header is nested too deeply") from error
        except ValueError as error:
            raise self.damaged(f"its header is not JSON ({error})") from error
        if not isinstance(parsed, dict):
            raise self.damaged("its header is not a JSON object")
        return parsed

    def _open(self) -> FileIO:
        try:
            # a pipe or a device must not even be opened: that could wait for ever
            is_file = stat.S_ISREG(self.path.stat().st_mode)
            file = FileIO(self.path, "r") if is_file else None
        except FileNotFoundError as error:
            raise self.error("there is no such file") from error
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            raise self.error(f"cannot be read: {reason(error)}") from error
        if file is None:
            raise self.error("is not a file")
        return file

    def _read_header(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        if size < 8:
            raise self.damaged(f"it has only {size} bytes")
        start = self._read(0, 8)
        length = int.from_bytes(start, "little")
        if length > min(size - 8, MAX_HEADER):
            if start.startswith((b"PK", b"\x80")):
                raise self.error("is a zip or pickle file; such files can run code when loaded and are never read")
            if all(byte in _TEXT for byte in start):  # as a length, eight letters are more than any disk holds
                raise self.error("is a text file, not a checkpoint")
            raise self.error(f"is cut short or not a checkpoint: its header claims {length} bytes, the file has {size}")
        raw = start + self._read(8, length)
        header = self.parse(raw[8:])
        self.texts = self._checked_texts(header.pop("__metadata__", None), raw)
        self.entries = {name: self._checked_entry(name, value) for name, value in header.items()}
        self._data_start = len(raw)
        self._check_tiling(size - self._data_start)
        self._checksums = self.parse(self.texts.get("checksums", ""))

    def _checked_texts(self, metadata: object, raw: bytes) -> dict[str, str]:
        """The texts, once the seal over the whole header has been found unbroken."""
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
            raise self.error("is a safetensors file, but not a checkpoint of rl_training")
        version = metadata.get("format_version")
        if version != str(FORMAT_VERSION):  # before the digest, which another format may make in another way
            raise self.error(
                f"has checkpoint format {str(version)[:20]!r}; this version of rl_training reads format {FORMAT_VERSION}. "
                "Was it written by a newer rl_training? Then update this one"
            )
        digest = str(metadata.get("digest"))
        if hashlib.sha256(with_digest(raw, digest, NO_DIGEST)).hexdigest() != digest:
            raise self.damaged("the digest of its header does not match")
        if not all(isinstance(text, str) for text in metadata.values()):
            raise self.damaged("its metadata holds something other than texts")
        return metadata

    def _checked_entry(self, name: str, value: object) -> Entry:
        if not _SAFE_NAME.fullmatch(name):
            raise self.damaged(f"it holds an array with the unsafe name {name[:200]!r}")
        match value:
            case {"dtype": str(code), "shape": [*shape], "data_offsets": [begin, end]} if (
                code in DTYPES
                and len(shape) <= MAX_DIMS
                and all(type(number) is int and number >= 0 for number in (begin, end, *shape))
                # bounded even if a dimension is 0: shape [2**62, 2**62, 0] needs no memory, but is no array either
                and math.prod(size or 1 for size in shape) < 1 << 56
                and end - begin == math.prod(shape) * DTYPES[code][0]
            ):
                return Entry(code, tuple(shape), begin, end)
        raise self.damaged(f"the entry of {name} makes no sense: {repr(value)[:200]}")

    def _check_tiling(self, data_size: int) -> None:
        """Arrays cover the data section without gap or overlap; so all of them together need no more than the file has."""
        position = 0
        for name, entry in sorted(self.entries.items(), key=lambda item: (item[1].begin, item[1].end)):
            if entry.begin != position:
                raise self.damaged(f"{name} begins at byte {entry.begin} of the data and should at {position}")
            position = entry.end
        if position != data_size:
            raise self.error(f"is cut short or damaged: {position} bytes of data are announced, {data_size} are there")

    def _entry(self, name: str) -> Entry:
        if name not in self.entries:
            raise self.damaged(f"the array {name[:200]!r} is missing")
        return self.entries[name]

    def _fill(self, name: str, target: memoryview) -> None:
        self._read_into(target, self._data_start + self.entries[name].begin)
        self._compare(name, zlib.crc32(target))

    def _compare(self, name: str, checksum: int) -> None:
        if self._checksums.get(name) != f"{checksum:08x}":
            raise self.damaged(f"the checksum of {name} does not match")

    def _read(self, offset: int, length: int) -> bytes:
        found = bytearray(length)
        self._read_into(memoryview(found), offset)
        return bytes(found)

    def _read_into(self, target: memoryview, offset: int) -> None:
        try:
            while target.nbytes:
                count = os.preadv(self._file.fileno(), [target], offset)
                if count == 0:
                    raise self.damaged("the file became shorter while it was read")
                target, offset = target[count:], offset + count
        except OSError as error:
            raise self.error(f"cannot be read: {reason(error)}") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found
