"""Nothing foreign or hostile gets through, and nothing in a file is ever run."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rl_training.errors import CheckpointError
from rl_training.experiment.checkpoint import CheckpointState, load_checkpoint

# --- foreign and hostile files ---


def forged(path: Path, header: object, data: bytes = b"", *, seal: bool = True) -> Path:
    """A file somebody made by hand, digest and all."""
    if seal and isinstance(header, dict):
        header.setdefault("__metadata__", {})
        parts = dict.fromkeys(("algorithm_state", "buffer_state", "trainer_state", "config", "metadata"), "{}")
        header["__metadata__"] = {
            "digest": "0" * 64,
            "format": "rl_training.checkpoint",
            "format_version": "1",
            **parts,
            "checksums": "{}",
            **header["__metadata__"],
        }
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    raw = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(raw).hexdigest().encode()
    path.write_bytes(raw.replace(b'"digest":"' + b"0" * 64, b'"digest":"' + digest, 1) + data)
    return path


def entry(dtype: str = "F32", shape: tuple[int, ...] = (2,), offsets: tuple[int, ...] = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_the_forger_of_these_tests_makes_readable_files(tmp_path: Path):
    assert load_checkpoint(forged(tmp_path / "a.safetensors", {})) == CheckpointState()


A = "algorithm_state/a"
HOSTILE = {
    "unknown dtype": ({A: entry("F99")}, "makes no sense"),
    "dtype of another type": ({A: {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}}, "makes no sense"),
    "shape beyond the file": ({A: entry(shape=(10**12,), offsets=(0, 4 * 10**12))}, "announced"),
    "shape and offsets disagree": ({A: entry(shape=(10**12,))}, "makes no sense"),
    "negative shape": ({A: entry(shape=(-2, -1))}, "makes no sense"),
    "offsets backwards": ({A: entry(offsets=(8, 0))}, "makes no sense"),
    "negative offsets": ({A: entry(offsets=(-8, 0))}, "makes no sense"),
    "offsets are not numbers": ({A: {"dtype": "F32", "shape": [2], "data_offsets": [0.0, 8.0]}}, "makes no sense"),
    "absurd empty shape": ({A: entry(shape=(2**62, 2**62, 0), offsets=(0, 0))}, "makes no sense"),
    "thousand dimensions": ({A: entry(shape=(1,) * 1000, offsets=(0, 4))}, "makes no sense"),
    "gap": ({A: entry(offsets=(8, 16))}, "begins at byte 8"),
    "overlap": ({A: entry(), "algorithm_state/b": entry(offsets=(4, 12))}, "begins at byte 4"),
    "path out of the file": ({"algorithm_state/../../etc/passwd": entry()}, "unsafe name"),
    "absolute path": ({"/etc/passwd": entry()}, "unsafe name"),
    "path of dots": ({"..": entry()}, "unsafe name"),
    "windows path": ({"algorithm_state\\a": entry()}, "unsafe name"),
    "no name": ({"": entry()}, "unsafe name"),
    "line break in a name": ({"algorithm_state/a\n": entry()}, "unsafe name"),
    "array of no part": ({"elsewhere/a": entry()}, "belongs to no part"),
    "array outside of the tree": ({A: entry()}, "does not fit"),
    "no checksum": ({A: entry(), "__metadata__": {"algorithm_state": json.dumps({"a": {"$tensor": A}})}}, "checksum"),
    "checksums are a list": ({"__metadata__": {"checksums": "[]"}}, "not a JSON object"),
    "array not there": ({"__metadata__": {"algorithm_state": json.dumps({"a": {"$tensor": A}})}}, "unknown"),
    "array of another part": (
        {"buffer_state/a": entry(), "__metadata__": {"algorithm_state": json.dumps({"a": {"$tensor": "buffer_state/a"}})}},
        "unknown",
    ),
    "unknown marker": ({"__metadata__": {"config": '{"a":{"$object":"os.system"}}'}}, "unknown"),
    "marker and more": ({"__metadata__": {"config": '{"a":{"$int":"0x1","b":2}}'}}, "unknown"),
    "broken number": ({"__metadata__": {"config": '{"a":{"$int":"one"}}'}}, "unknown"),
    "broken float": ({"__metadata__": {"config": '{"a":{"$float":"00"}}'}}, "unknown"),
    "broken pairs": ({"__metadata__": {"config": '{"a":{"$dict":[[1,2,3]]}}'}}, "unknown"),
    "key that cannot be one": ({"__metadata__": {"config": '{"a":{"$dict":[[[],2]]}}'}}, "nested|key"),
    "part is a list": ({"__metadata__": {"config": "[]"}}, "not a JSON object"),
    "part is a tuple": ({"__metadata__": {"config": '{"$tuple":[]}'}}, "does not fit"),
    "part is missing": ({"__metadata__": {"config": ""}}, "not JSON"),
    "deep tree": ({"__metadata__": {"config": '{"a":' * 200 + "1" + "}" * 200}}, "too deeply"),
    "very deep tree": ({"__metadata__": {"config": '{"a":' * 100_000 + "1" + "}" * 100_000}}, "too deeply"),
    "text that is none": ({"__metadata__": {"extra": 1}}, "other than texts"),
    "endless number": ({"__metadata__": {"config": '{"a":' + "9" * 10_000 + "}"}}, "not JSON"),
    "deep header": (b"[" * 100_000, "too deeply"),
    "header in another encoding": ('{"a":"ü"}'.encode("latin-1"), "not JSON"),
    "header is no JSON": (b"{]}     ", "not JSON"),
    "header is a list": (b"[1,2,3] ", "not a JSON object"),
    "name twice": (b'{"a":1,"a":2}   ', "twice"),
    "no header": (b"", "not JSON"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_header_is_refused_with_file_and_reason(case: str, tmp_path: Path):
    header, why = HOSTILE[case]
    header = {**header} if isinstance(header, dict) else header
    path = forged(tmp_path / "hostile.safetensors", header, b"\0" * 8)
    if isinstance(header, dict) and not any(name != "__metadata__" for name in header):
        path = forged(path, header)
    with pytest.raises(CheckpointError, match=rf"(?s)hostile\.safetensors: .*({why})"):
        load_checkpoint(path)


def test_a_claim_of_ten_gigabytes_allocates_nothing(tmp_path: Path):
    path = tmp_path / "huge.safetensors"
    path.write_bytes((10 * 2**30).to_bytes(8, "little") + b"{}" * 100)
    with pytest.raises(CheckpointError, match="claims 10737418240 bytes, the file has 208"):
        load_checkpoint(path)
    with path.open("wb") as sparse:  # a file that really is as long, on paper
        sparse.write((10 * 2**30).to_bytes(8, "little"))
        sparse.truncate(10 * 2**30 + 8)
    with pytest.raises(CheckpointError, match="claims"):
        load_checkpoint(path)


def test_one_array_cannot_be_asked_for_twice(tmp_path: Path):
    tree = json.dumps({"a": {"$tensor": A}, "b": {"$tensor": A}})
    checksum = json.dumps({A: "00000000"})
    header = {A: entry(shape=(0,), offsets=(0, 0)), "__metadata__": {"algorithm_state": tree, "checksums": checksum}}
    with pytest.raises(CheckpointError, match="unknown"):
        load_checkpoint(forged(tmp_path / "a.safetensors", header))


def test_a_newer_format_is_named_as_such(tmp_path: Path):
    path = forged(tmp_path / "a.safetensors", {"__metadata__": {"format_version": "2"}})
    with pytest.raises(CheckpointError, match=r"format '2'.*reads format 1.*newer"):
        load_checkpoint(path)


def test_somebody_elses_safetensors_file_is_not_a_checkpoint(tmp_path: Path):
    for metadata in (None, {"format": "pt"}):
        save_file({"weight": torch.ones(3)}, tmp_path / "other.safetensors", metadata=metadata)
        with pytest.raises(CheckpointError, match="not a checkpoint of rl_training"):
            load_checkpoint(tmp_path / "other.safetensors")


class Payload:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_in_disguise_is_refused_and_never_run(protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.safetensors"
    path.write_bytes(pickle.dumps({"state": Payload(), "padding": "x" * 500}, protocol=protocol))
    with pytest.raises(CheckpointError, match="zip or pickle" if protocol >= 2 else "not a checkpoint"):
        load_checkpoint(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Payload()))
    with pytest.raises(CheckpointError, match="zip or pickle"):
        load_checkpoint(path)
    assert not (tmp_path / "executed").exists()


def test_what_is_no_file_at_all_is_refused(tmp_path: Path):
    (tmp_path / "empty.safetensors").touch()
    os.mkfifo(tmp_path / "pipe.safetensors")
    for name, why in {
        "": "is not a file",
        "missing.safetensors": "no such file",
        "empty.safetensors": "only 0 bytes",
        "pipe.safetensors": "is not a file",
        "empty.safetensors/below": "Not a directory",
        "n\0l": "null",
    }.items():
        with pytest.raises(CheckpointError, match=why):
            load_checkpoint(tmp_path / name)
