"""The file under a checkpoint: named arrays and texts in the safetensors layout, every byte of it under a checksum.

Layout: 8 bytes little-endian header length | JSON header, padded with spaces | the arrays' bytes, without gaps.
Our header holds in `__metadata__` the texts, one CRC-32 per array and a SHA-256 over length and header.

CRC-32 for the payload was measured against the others on a 172 MB replay buffer (zlib 1.2, one core with SHA
instructions): crc32 0.05 s, sha256 0.12 s, blake2b 0.25 s. It finds every single damaged byte, and what it lacks,
protection against somebody who forges the sum as well, no unkeyed hash has either.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rl_training.errors import CheckpointError
from rl_training.experiment.files import Replacement, reason, write_all

if TYPE_CHECKING:
    from torch import Tensor

Leaf: TypeAlias = "Tensor | np.ndarray[Any, Any]"

# safetensors' code -> bytes per element and numpy's name; torch's is the same; bfloat16 is unknown to numpy
DTYPES: dict[str, tuple[int, str]] = {
    "F64": (8, "float64"),
    "I64": (8, "int64"),
    "U64": (8, "uint64"),
    "F32": (4, "float32"),
    "I32": (4, "int32"),
    "U32": (4, "uint32"),
    "F16": (2, "float16"),
    "BF16": (2, "bfloat16"),
    "I16": (2, "int16"),
    "U16": (2, "uint16"),
    "I8": (1, "int8"),
    "U8": (1, "uint8"),
    "BOOL": (1, "bool"),
}
_CODES = {name: code for code, (_, name) in DTYPES.items()}
FORMAT = "rl_training.checkpoint"
FORMAT_VERSION = 1
MAX_HEADER = 1 << 24  # parsed JSON takes some 25 times its text in memory; the safetensors library stops at 100 MB
MAX_DIMS = 32  # numpy 1's limit
NO_DIGEST = "0" * 64


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one array stands in the data section."""

    code: str
    shape: tuple[int, ...]
    begin: int
    end: int


def is_tensor(value: object) -> bool:
    """Whether it is a torch tensor; without importing torch, which a tensor's owner has done already."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def dtype_name(leaf: Leaf) -> str:
    """`float32` and the like, the same for torch and numpy."""
    return leaf.dtype.name if isinstance(leaf, np.ndarray) else str(leaf.dtype).removeprefix("torch.")


def why_unstorable(leaf: Leaf) -> str | None:
    """What is wrong with it, if anything: object arrays, for one, can only be stored by pickling."""
    if dtype_name(leaf) not in _CODES:
        return f"dtype {leaf.dtype}; possible are {', '.join(_CODES)}"
    if not isinstance(leaf, np.ndarray) and str(leaf.layout) != "torch.strided":
        return f"a {leaf.layout} tensor; only dense ones can be stored"
    return f"{leaf.ndim} dimensions; at most {MAX_DIMS} can be stored" if leaf.ndim > MAX_DIMS else None


def begin_file(path: Path, arrays: Mapping[str, Leaf], texts: Mapping[str, str]) -> Replacement:
    """All of it written beside `path`, not yet in its place; without a second copy of any contiguous array in memory."""
    entries: dict[str, Entry] = {}
    begin = 0
    codes = {name: _CODES[dtype_name(leaf)] for name, leaf in arrays.items()}
    # wide elements first: every array is then aligned to its element size without padding
    for name in sorted(arrays, key=lambda name: (-DTYPES[codes[name]][0], name)):
        end = begin + math.prod(arrays[name].shape) * DTYPES[codes[name]][0]
        entries[name] = Entry(codes[name], tuple(arrays[name].shape), begin, end)
        begin = end
    checksums = {name: f"{zlib.crc32(memory(arrays[name])):08x}" for name in sorted(entries)}
    header = _sealed_header(entries, {**texts, "checksums": json.dumps(checksums, separators=(",", ":"))})
    if len(header) > MAX_HEADER:
        raise CheckpointError(f"{path}: cannot be saved: its plain values take {len(header)} bytes; put long lists into arrays")
    with _told_of(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with Replacement(path) as replacement:
            write_all(replacement.file, header)
            for name in entries:
                write_all(replacement.file, memory(arrays[name]))
    return replacement


def finish_file(replacement: Replacement, *, before: Callable[[], None] | None = None) -> None:
    """Put it in its place, once it and what `before` sees to are on the disk. The name lasts when the folder is synced."""
    with _told_of(replacement.path), replacement:
        replacement.sync()
        if before is not None:
            before()
        replacement.take_place()


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise CheckpointError(f"{path}: the checkpoint could not be written: {reason(error)}") from error


def _sealed_header(entries: Mapping[str, Entry], texts: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {
        "__metadata__": {"digest": NO_DIGEST, "format": FORMAT, "format_version": str(FORMAT_VERSION), **texts}
    }
    for name, entry in entries.items():
        header[name] = {"dtype": entry.code, "shape": entry.shape, "data_offsets": [entry.begin, entry.end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    raw = len(text).to_bytes(8, "little") + text
    return with_digest(raw, NO_DIGEST, hashlib.sha256(raw).hexdigest())


def with_digest(raw: bytes, old: str, new: str) -> bytes:
    # quotes inside of JSON strings are escaped, so this cannot be found anywhere else
    return raw.replace(f'"digest":"{old}"'.encode(), f'"digest":"{new}"'.encode(), 1)


def memory(leaf: Leaf) -> memoryview:
    """Its bytes in row order; its very own memory where that is possible."""
    if isinstance(leaf, np.ndarray):
        return np.ascontiguousarray(leaf, dtype=leaf.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
    import torch

    if leaf.numel() == 0:
        return memoryview(b"")  # torch does not view an empty tensor that came from numpy as bytes
    return leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
