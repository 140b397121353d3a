"""Files that were damaged, cut, spliced or made up: refused by name with the file in the message, or read as what they are."""

from __future__ import annotations

import hashlib
import io
import json

import numpy as np
import pytest
import torch
from fuzzing import CORPUS, RUBBISH, fuzz
from hypothesis import given
from hypothesis import strategies as st

from rl_training.data.dataset_files import read_metadata, read_npz
from rl_training.errors import CheckpointError, DatasetError
from rl_training.experiment.checkpoint import CheckpointState, load_checkpoint, read_header, save_checkpoint

EDITS = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "drop", "insert", "repeat"]), st.integers(0, 10**6), st.integers(0, 255)),
    min_size=1,
    max_size=4,
)


def edited(raw: bytes, edits: list[tuple[str, int, int]]) -> bytes:
    """`raw` with each edit made at a place of its own."""
    data = bytearray(raw)
    for kind, where, value in edits:
        at = where % max(1, len(data))
        if kind == "flip" and data:
            data[at] ^= value or 1
        elif kind == "cut":
            del data[at:]
        elif kind == "drop":
            del data[at : at + 1 + value % 16]
        elif kind == "insert":
            data[at:at] = bytes([value]) * (1 + value % 9)
        elif kind == "repeat":
            data[at:at] = data[at : at + 1 + value]
    return bytes(data)


# --- npz ---


def npz(**changes: object) -> bytes:
    rows = 4
    arrays: dict[str, object] = {
        "observations": np.ones((rows, 3), dtype=np.float32),
        "actions": np.zeros((rows, 1), dtype=np.float32),
        "rewards": np.arange(rows, dtype=np.float32),
        "next_observations": np.ones((rows, 3), dtype=np.float32),
        "terminations": np.zeros(rows, dtype=bool),
        "truncations": np.zeros(rows, dtype=bool),
        **changes,
    }
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **{name: array for name, array in arrays.items() if array is not None})
    return file.getvalue()


def read_or_refuse(path) -> None:
    try:
        data = read_npz(path)
    except DatasetError as error:
        assert str(path) in str(error)  # noqa: PT017 (both ways are right)
    else:
        assert np.isfinite(data.obs).all()
        assert np.isfinite(data.rewards).all()
        read_metadata(path)


@pytest.mark.parametrize("path", sorted((CORPUS / "npz").glob("*.npz")), ids=lambda path: path.stem)
def test_every_dataset_in_the_corpus_is_refused_by_name(path):
    with pytest.raises(DatasetError, match=path.name):
        read_npz(path)


@fuzz(share=0.7)
@given(edits=EDITS)
def test_a_damaged_npz_is_refused_or_read(edits, tmp_path):
    path = tmp_path / "data.npz"
    path.write_bytes(edited(npz(), edits))
    read_or_refuse(path)


DTYPES = ["f4", "f8", "f2", "i8", "u1", "?", "c8", "U3", "S2", "M8[s]", "V4", "i4,f4"]


@fuzz(share=0.7)
@given(
    name=st.sampled_from(["observations", "actions", "rewards", "terminations", "truncations", "next_observations", "other"]),
    shape=st.lists(st.integers(0, 5), max_size=4),
    dtype=st.sampled_from(DTYPES),
    left_out=st.sampled_from([None, "rewards", "terminations", "observations", "next_observations"]),
)
def test_arrays_of_any_shape_and_kind_are_refused_or_read(name, shape, dtype, left_out, tmp_path):
    path = tmp_path / "data.npz"
    changes = {name: np.zeros(shape, dtype=dtype)}
    path.write_bytes(npz(**({left_out: None} | changes if left_out else changes)))
    read_or_refuse(path)


# --- safetensors ---


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    state = CheckpointState(
        algorithm_state={
            "model": {"w": torch.arange(6.0).reshape(2, 3)},
            "steps": [torch.zeros(()), torch.ones(2, dtype=torch.int64)],
        },
        buffer_state={"replay": {"rows": torch.ones(3, 2), "rng": {"state": 2**100, "has_uint32": 0}}},
        trainer_state={"progress": {"global_step": 5, "recent": [1.0, float("nan")]}},
        config={"algo": "sac"},
    )
    return save_checkpoint(tmp_path_factory.mktemp("whole") / "step.safetensors", state).read_bytes()


def load_or_refuse(read, path) -> None:
    try:
        read(path)
    except CheckpointError as error:
        assert str(path) in str(error)  # noqa: PT017 (both ways are right)


@pytest.mark.parametrize("path", sorted((CORPUS / "safetensors").glob("*.safetensors")), ids=lambda path: path.stem)
def test_every_checkpoint_in_the_corpus_is_refused_by_name(path):
    with pytest.raises(CheckpointError, match=path.name):
        load_checkpoint(path)


@fuzz(share=0.7)
@given(edits=EDITS)
def test_a_damaged_checkpoint_is_always_refused(edits, whole, tmp_path):
    path, raw = tmp_path / "a.safetensors", edited(whole, edits)
    path.write_bytes(raw)
    if raw == whole:
        return
    with pytest.raises(CheckpointError, match=r"a\.safetensors"):
        load_checkpoint(path)


def sealed(header: object, data: bytes) -> bytes:
    """A header with a digest that is right: what is in it must be judged by itself."""
    text = json.dumps(header, separators=(",", ":")).encode()
    raw = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(raw).hexdigest().encode()
    return raw.replace(b'"digest":"' + b"0" * 64, b'"digest":"' + digest, 1) + data


NUMBERS = st.integers(-2, 80) | st.sampled_from([2**31, 2**62, 2**64, -(2**63), 10**30]) | RUBBISH


@fuzz(share=0.7)
@given(data=st.data())
def test_a_header_with_a_true_digest_and_false_claims_is_refused_or_read(data, whole, tmp_path):
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    header["__metadata__"]["digest"] = "0" * 64
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(header)))
        entry = header[name]
        if not isinstance(entry, dict) or not entry or data.draw(st.integers(0, 9)) == 0:
            header[name] = data.draw(RUBBISH)
            continue
        key = data.draw(st.sampled_from(sorted(entry)))
        if key in ("shape", "data_offsets"):
            entry[key] = data.draw(st.lists(NUMBERS, max_size=4) | RUBBISH)
        elif key == "dtype":
            entry[key] = data.draw(st.sampled_from(["F32", "F64", "I64", "BOOL", "BF16", "F8", ""]) | RUBBISH)
        else:
            text = st.sampled_from(
                ["{}", "[]", "null", "1", '{"a":', '{"a": {"$tensor": "x"}}', "[" * 5000, '"\\ud800"', "NaN"]
            )
            entry[key] = data.draw(text | st.text(max_size=20) | RUBBISH)
    path = tmp_path / "a.safetensors"
    path.write_bytes(sealed(header, whole[8 + length :]))
    load_or_refuse(load_checkpoint, path)
    load_or_refuse(read_header, path)
