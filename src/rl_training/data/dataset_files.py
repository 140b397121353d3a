"""Datasets in `.npz` files: arrays and nothing else, so that opening one can run nobody's code."""

from __future__ import annotations

import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.recorded_data import RecordedData
from rl_training.errors import DatasetError

PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt")
UNSAFE = "pickled data can run any code when it is opened, which is unsafe for untrusted datasets"
METADATA = "metadata"  # the array that holds what else is known, as JSON
UNFINISHED = "unfinished_rows"  # in it: as RecordedData.unfinished


def read_npz(path: str | Path, *, time_limit: int | None = None) -> RecordedData:
    """The transitions in a file, or DatasetError that says what is wrong with it; `time_limit` as `RecordedData.from_arrays`
    takes it."""
    arrays = read_arrays(Path(path))
    data = RecordedData.from_arrays(arrays, str(path), time_limit=time_limit)
    unfinished, last = _metadata_of(arrays).get(UNFINISHED), data.episodes()[-1]
    # anybody may have written it: taken only where it says what the rows can mean
    return replace(data, unfinished=unfinished) if unfinished == last.stop - last.start else data


def read_metadata(path: str | Path) -> dict[str, Any]:
    """What `write_npz` wrote down beside the transitions; empty for files of others."""
    with np.load(path, allow_pickle=False) as file:
        return _metadata_of({METADATA: file[METADATA]} if METADATA in file.files else {})


def _metadata_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    text = str(arrays[METADATA]) if METADATA in arrays and arrays[METADATA].dtype.kind == "U" else "{}"
    try:
        values = json.loads(text)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


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
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
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


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of the archive; none of them is of python objects."""
    if path.suffix.lower() in PICKLES:
        raise DatasetError(f"{path}: {UNSAFE}; save the arrays with numpy.savez instead")
    if path.suffix.lower() != ".npz":
        raise DatasetError(f"{path}: a dataset is an .npz file; others can be converted with numpy.savez")
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(path, archive)
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        advice = f"rl-training collect --checkpoint RUN --steps N --out {path} records one"
        raise DatasetError(f"{path}: there is no such file; {advice}") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        if isinstance(error, DatasetError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise DatasetError(f"{path}: cannot be read as an npz archive: {reason}") from error


def _check_members(path: Path, archive: zipfile.ZipFile) -> None:
    """Look at the headers alone, before anything is read: kinds of values, and whether the sizes can be true."""
    for member in archive.infolist():
        if not member.filename.endswith(".npy"):
            if member.filename.lower().endswith(PICKLES):
                raise DatasetError(f"{path} holds {member.filename}: {UNSAFE}")
            raise DatasetError(f"{path} holds {member.filename}, which is no array; a dataset is made with numpy.savez")
        with archive.open(member) as stream:
            version = np.lib.format.read_magic(stream)
            read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read_header(stream)
            name = member.filename.removesuffix(".npy")
            if dtype.hasobject:
                raise DatasetError(f"{path}: {name} is an array of python objects; {UNSAFE}; save numbers, not objects")
            size = member.file_size - stream.tell()
        if math.prod(shape) * dtype.itemsize != size:
            raise DatasetError(f"{path}: {name} should hold {shape} values of {dtype}, but its size is another; it is damaged")
