"""The checkpoint file: what goes in comes out, to the bit."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_helpers import SOURCES, same, small_state
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open

from rl_training.errors import CheckpointError
from rl_training.experiment.checkpoint import CheckpointState, load_checkpoint, read_header, save_checkpoint


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_checkpoint(tmp_path / "a.safetensors", small_state())


def round_trip(folder: Path, tree: object) -> object:
    path = save_checkpoint(folder / "tree.safetensors", CheckpointState(algorithm_state={"tree": tree}))
    return load_checkpoint(path).algorithm_state["tree"]


# --- what goes in comes out ---


def test_all_five_parts_come_back_as_they_were(saved: Path):
    state, loaded = small_state(), load_checkpoint(saved)
    for part in ("algorithm_state", "buffer_state", "trainer_state", "config", "metadata"):
        assert same(getattr(loaded, part), getattr(state, part)), part


arrays = hnp.arrays(
    st.sampled_from(
        [np.bool_, np.uint8, np.int8, np.uint16, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64]
    ),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**300), max_value=2**300)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text()
    | st.text(alphabet="\ud800$./%\0", max_size=3)
)
keys = st.text(max_size=4) | st.integers(-3, 3) | st.sampled_from(["$tensor", "..", ".", "", "1", "a/b", "__metadata__", "%i1"])
trees = st.recursive(
    plain | arrays | arrays.map(torch.from_numpy),
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=trees)
def test_any_tree_comes_back_bit_for_bit(tree: object, tmp_path: Path):
    assert same(round_trip(tmp_path, tree), tree)


@pytest.mark.parametrize(
    "value",
    [
        [0.1, -0.0, 1e300],
        [0.1, math.nan, -math.inf],
        [0, -(2**53), 2**53],
        [1, 2**53 + 1],
        [1, -(2**60)],
        [1, True, 2.0],
        torch.tensor(3, dtype=torch.int64),  # no dimensions
        torch.empty(0, 5),
        torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        torch.tensor([True, False]),
        np.array(2.5),
        np.zeros((3, 0), dtype=np.uint8),
        -0.0,
        struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0],  # a NaN with a sign and a message in it
        5e-324,
        2**10_000,  # Python itself refuses to read so many decimal digits
        np.random.PCG64(3).state,
        np.random.MT19937(3).state,
    ],
    ids=repr,
)
def test_the_odd_ones_come_back_too(value: object, tmp_path: Path):
    if isinstance(value, float) and math.isnan(value) and struct.pack(">d", value).hex() != "fff8000000000123":
        pytest.skip("this processor changes the bits of a NaN")
    assert same(round_trip(tmp_path, value), value)


def test_a_generator_restored_from_file_draws_the_same_numbers(tmp_path: Path):
    generator = np.random.default_rng(11)
    generator.random(5)
    again = np.random.default_rng()
    again.bit_generator.state = round_trip(tmp_path, generator.bit_generator.state)
    assert np.array_equal(generator.random(100), again.random(100))


def test_views_are_stored_as_the_numbers_they_show(tmp_path: Path):
    table = torch.arange(12.0).reshape(3, 4)
    shown = [table.T, table[:, 1], table[::2], table.numpy()[::-1], np.arange(3, dtype=">f4")]
    back = round_trip(tmp_path, shown)
    assert back[0].tolist() == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]
    assert back[1].tolist() == [1, 5, 9]
    assert back[2].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert back[3].tolist() == [[8, 9, 10, 11], [4, 5, 6, 7], [0, 1, 2, 3]]
    assert back[4].tolist() == [0, 1, 2]


def test_parameters_come_back_as_plain_tensors(tmp_path: Path):
    back = round_trip(tmp_path, torch.nn.Parameter(torch.ones(2)))
    assert type(back) is torch.Tensor
    assert not back.requires_grad


def test_loaded_tensors_live_on_when_the_file_is_cut(saved: Path):
    loaded = load_checkpoint(saved)
    os.truncate(saved, 0)
    loaded.buffer_state["obs"] += 1
    assert loaded.buffer_state["obs"].sum() == 66 + 12


def test_equal_states_give_equal_bytes_whatever_the_order_of_their_keys(tmp_path: Path):
    state = small_state()
    turned = CheckpointState(
        algorithm_state=dict(reversed(state.algorithm_state.items())),
        buffer_state=dict(reversed(state.buffer_state.items())),
        trainer_state=state.trainer_state,
        config=dict(reversed(state.config.items())),
        metadata=state.metadata,
    )
    first = save_checkpoint(tmp_path / "first.safetensors", state)
    second = save_checkpoint(tmp_path / "second.safetensors", turned)
    assert first.read_bytes() == second.read_bytes()


def test_saving_what_was_loaded_gives_the_same_file(saved: Path, tmp_path: Path):
    assert save_checkpoint(tmp_path / "again.safetensors", load_checkpoint(saved)).read_bytes() == saved.read_bytes()


def test_the_safetensors_library_reads_the_same_numbers(saved: Path):
    state = small_state()
    with safe_open(saved, framework="pt") as file:
        assert set(file.keys()) == {
            "algorithm_state/model/flat",
            "algorithm_state/optimisers/0/m",
            "buffer_state/obs",
            "trainer_state/torch_stream",
        }
        assert torch.equal(file.get_tensor("algorithm_state/model/flat"), state.algorithm_state["model"]["flat"])
        assert torch.equal(file.get_tensor("buffer_state/obs"), state.buffer_state["obs"])
        assert file.metadata()["format_version"] == "1"


def test_every_array_is_aligned_to_its_elements(tmp_path: Path):
    tree = {"a": torch.ones(3, dtype=torch.uint8), "b": torch.ones(3, dtype=torch.float64), "c": torch.ones(1)}
    raw = save_checkpoint(tmp_path / "a.safetensors", CheckpointState(algorithm_state=tree)).read_bytes()
    length = int.from_bytes(raw[:8], "little")
    assert length % 8 == 0
    header = json.loads(raw[8 : 8 + length])
    assert [header[f"algorithm_state/{name}"]["data_offsets"][0] for name in "bca"] == [0, 24, 28]


# --- one part without the others ---


def test_the_policy_is_read_without_the_replay_buffer(saved: Path):
    raw = bytearray(saved.read_bytes())
    position = raw.index(torch.arange(12, dtype=torch.float32).numpy().tobytes())
    raw[position + 5] ^= 1
    saved.write_bytes(raw)
    policy = load_checkpoint(saved, parts=("algorithm_state",))  # never looks at the damaged rows
    assert same(policy.algorithm_state, small_state().algorithm_state)
    assert policy.config == {"algo": "sac", "seed": 1}
    assert policy.buffer_state == policy.trainer_state == {}
    with pytest.raises(CheckpointError, match="checksum of buffer_state/obs"):
        load_checkpoint(saved, parts=("buffer_state",))
    with pytest.raises(CheckpointError, match="did you mean 'buffer_state'"):
        load_checkpoint(saved, parts=("buffer_sate",))


def test_the_header_is_read_without_tensors_and_without_torch(saved: Path):
    header = read_header(saved)
    assert (header.config, header.metadata, header.format_version) == ({"algo": "sac", "seed": 1}, {"exact": True}, 1)
    code = (
        f"import sys; sys.path.insert(0, {SOURCES!r})\n"
        "from rl_training.experiment.checkpoint import read_header, verify_checkpoint\n"
        f"read_header({str(saved)!r}); verify_checkpoint({str(saved)!r})\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- what cannot be saved is refused, with its place in the tree ---


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({1, 2}, "a set"),
        (object(), "a object"),
        (Path("x"), "PosixPath"),
        (np.array([object()]), "dtype object"),
        (np.array(["text"]), "dtype <U4"),
        (np.zeros(1, dtype=np.complex64), "complex64"),
        (torch.zeros(2, 2).to_sparse(), "sparse"),
        (torch.zeros([1] * 33), "33 dimensions"),
        ({1.5: 0}, "the key 1.5"),
        ({True: 0}, "the key True"),
        (lambda: 0, "a function"),
    ],
)
def test_what_would_need_pickle_is_refused_by_name(value: object, what: str, tmp_path: Path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(CheckpointError, match="algorithm_state/deep/0") as caught:
        save_checkpoint(path, CheckpointState(algorithm_state={"deep": [value]}))
    assert what in str(caught.value)
    assert str(path) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_tree_that_holds_itself_is_refused(tmp_path: Path):
    endless: dict[str, object] = {}
    endless["me"] = endless
    with pytest.raises(CheckpointError, match="levels below each other"):
        save_checkpoint(tmp_path / "a.safetensors", CheckpointState(trainer_state=endless))


def test_tensors_have_no_place_in_the_config(tmp_path: Path):
    with pytest.raises(CheckpointError, match="config/weights"):
        save_checkpoint(tmp_path / "a.safetensors", CheckpointState(config={"weights": torch.ones(1)}))


def test_megabytes_of_plain_values_are_sent_to_an_array(tmp_path: Path):
    with pytest.raises(CheckpointError, match="put long lists into arrays"):
        save_checkpoint(tmp_path / "a.safetensors", CheckpointState(trainer_state={"notes": "x" * 17_000_000}))
