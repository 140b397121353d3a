"""Datasets of strangers: looking at one imports nothing that it names and takes no memory for what nobody needs."""

from __future__ import annotations

import importlib
import json
import resource
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from offline_helpers import arrays, recorded
from traps import Trap

from rl_training.cli import main
from rl_training.data import minari_files
from rl_training.data.dataset_files import read_metadata, read_npz, write_npz
from rl_training.errors import DatasetError

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trap:
    monkeypatch.chdir(tmp_path)
    return Trap(tmp_path, monkeypatch)


def test_the_trap_of_these_tests_springs(trap: Trap):
    assert not trap.sprung
    importlib.import_module(trap.name)
    assert trap.sprung


# --- looking at one


@pytest.mark.parametrize("form", ["{trap}:Pendulum-v1", "{trap}.deeper:Pendulum-v1", "{trap}:Nothing-v0", "{trap}"])
def test_inspecting_an_npz_imports_nothing_that_it_names(form: str, trap: Trap, tmp_path: Path, capsys: Capture):
    named = form.format(trap=trap.name)
    path = write_npz(tmp_path / "data.npz", recorded(9), metadata={"env_id": named})
    assert main(["dataset", "inspect", str(path)]) == 0
    told = capsys.readouterr().out
    assert f"{named!r}, says the data; it is not made unasked: --env says which to make" in told
    assert not trap.sprung
    assert main(["dataset", "inspect", str(path), "--env", "Pendulum-v1"]) == 0
    assert "says the data" not in capsys.readouterr().out
    assert not trap.sprung


def test_what_the_command_line_names_is_imported(trap: Trap, tmp_path: Path):
    path = write_npz(tmp_path / "data.npz", recorded(9))
    assert main(["dataset", "inspect", str(path), "--env", f"{trap.name}:Pendulum-v1"]) == 0
    assert trap.sprung


@pytest.mark.parametrize("value", [["a"], {"a": 1}, 5, None, True])
def test_an_environment_that_is_no_text_is_no_environment(value: Any, tmp_path: Path, capsys: Capture):
    path = write_npz(tmp_path / "data.npz", recorded(9), metadata={"env_id": value})
    assert main(["dataset", "inspect", str(path)]) == 0
    assert "unknown; --env says it" in capsys.readouterr().out


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Writes a dataset into Minari's local store and changes what it says of itself."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    pytest.importorskip("minari")

    def write(**changes: Any) -> None:
        minari_files.write_minari("pendulum/mine-v0", recorded(9), "Pendulum-v1", scores=(-1200.0, -146.0))
        path = tmp_path / "minari" / "pendulum" / "mine-v0" / "data" / "metadata.json"
        values = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))

    return write


def spec_of(trap: Trap, env_id: str) -> str:
    """An environment as Minari's metadata name one, made by the trap."""
    return json.dumps({"id": env_id, "entry_point": f"{trap.name}:Env", "kwargs": {}, "additional_wrappers": []})


def test_inspecting_a_minari_dataset_imports_nothing_that_it_names(store: Callable[..., None], trap: Trap, capsys: Capture):
    named = f"{trap.name}:Pendulum-v1"
    store(env_spec=spec_of(trap, named), eval_env_spec=spec_of(trap, named))
    assert main(["dataset", "inspect", "minari:pendulum/mine-v0"]) == 0
    assert f"{named!r}, says the data" in capsys.readouterr().out
    assert not trap.sprung


@pytest.mark.parametrize("missing", ["observation_space", "action_space"])
def test_reading_a_minari_dataset_makes_no_environment_to_know_its_spaces(
    missing: str, store: Callable[..., None], trap: Trap, capsys: Capture
):
    store(**{missing: None}, env_spec=spec_of(trap, "Stranger-v0"))
    learning = ["cql/pendulum", "dataset_kind=minari", "dataset_path=null", "dataset_id=pendulum/mine-v0"]
    for command in (["dataset", "inspect", "minari:pendulum/mine-v0"], ["train", *learning]):
        assert main(command) == 2, command
        assert f"its metadata do not say its {missing}" in capsys.readouterr().err
        assert not trap.sprung


@pytest.mark.parametrize(
    "changes",
    [
        {"total_episodes": 10**12},
        {"total_episodes": -1},
        {"total_episodes": "three"},
        {"ref_min_score": "a"},
        {"ref_max_score": [1]},
        {"observation_space": '{"type": "Riddle"}'},
        {"action_space": "null"},
        {"env_spec": "[]"},
        {"env_spec": '{"id": "no id!"}'},
        {"data_format": "parchment"},
        {"minari_version": "99"},
        {"combined_datasets": 5, "dataset_size": "large", "total_episodes": True},
    ],
    ids=str,
)
def test_nonsense_in_minaris_metadata_is_named(changes: dict[str, Any], store: Callable[..., None], capsys: Capture):
    store(**changes)
    assert main(["dataset", "inspect", "minari:pendulum/mine-v0"]) == 2
    told = capsys.readouterr().err
    assert "not expected" not in told
    assert "Minari could not do it" in told or "minari:pendulum/mine-v0" in told


# --- reading one


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def with_member(path: Path, name: str, content: bytes) -> Path:
    """A sound dataset with one more array, whose bytes are given."""
    np.savez(path, **{role: array for role, array in arrays().items() if role != name})
    with zipfile.ZipFile(path, "a", compression=zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(f"{name}.npy", content)
    return path


HEADERS = {
    "a long row of minus signs": "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "-" * 9000 + "1,)}",
    "brackets": "(" * 200,
    "half a mapping": "{'a':",
    "a length that is true": "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 20)}",
    "a negative length": "{'descr': '<f4', 'fortran_order': False, 'shape': (-20,)}",
    "no shape": "{'descr': '<f4', 'fortran_order': False}",
    "a shape in words": "{'descr': '<f4', 'fortran_order': False, 'shape': 'six'}",
    "a type of types": "{'descr': [('a', [('b', 5)])], 'fortran_order': False, 'shape': (6,)}",
    "a type in words": "{'descr': 'six', 'fortran_order': False, 'shape': (6,)}",
    "keys that are numbers": "{1: 2}",
    "deep lists": "[" * 4000 + "]" * 4000,
    "nothing": "",
}


@pytest.mark.parametrize("name", ["observations", "junk", "metadata"])
@pytest.mark.parametrize("case", HEADERS)
def test_a_senseless_header_is_refused_by_name(case: str, name: str, tmp_path: Path):
    path = with_member(tmp_path / "data.npz", name, npy(HEADERS[case], b"\0" * 80))
    for read in (read_npz, read_metadata):
        with pytest.raises(DatasetError, match=r"data\.npz"):
            read(path)


@pytest.mark.parametrize(
    "text", ["[" * 5000, '{"a":' * 5000, "NaN", "[]", "null", '{"env_id": ["a"], "unfinished_rows": {}}', ""]
)
def test_metadata_of_any_text_decide_nothing(text: str, tmp_path: Path):
    np.savez(tmp_path / "data.npz", **arrays(), metadata=np.array(text))
    assert len(read_npz(tmp_path / "data.npz")) == 6
    assert isinstance(read_metadata(tmp_path / "data.npz"), dict)


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Half of what a large array takes, beyond what there is."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + LARGE // 2, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


LARGE = 1 << 27  # bytes; true arrays of so many zeros, packed into a thousandth of it
LENGTHS = {
    "junk": f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({LARGE // 4},)}}",  # nobody needs it
    "rewards": f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({LARGE // 4},)}}",  # of other data
    "observations": f"{{'descr': '<f4', 'fortran_order': False, 'shape': (6, {LARGE // 24})}}",  # as it could be
    "metadata": f"{{'descr': '<U{LARGE // 4}', 'fortran_order': False, 'shape': ()}}",
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for each of them, otherwise sound."""
    folder = tmp_path_factory.mktemp("large")
    for name, header in LENGTHS.items():
        with_member(folder / f"{name}.npz", name, npy(header, bytes(LARGE // 24 * 24 if name == "observations" else LARGE)))
    return folder


@pytest.mark.usefixtures("little_memory")
def test_an_array_that_plays_no_part_takes_no_memory(large: Path):
    assert (large / "junk.npz").stat().st_size < LARGE // 100
    assert len(read_npz(large / "junk.npz")) == 6


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("rewards", "every array has one per transition"),
        ("metadata", "metadata takes 134,217,728 bytes"),
        ("observations", "there is not enough memory"),
    ],
)
def test_what_takes_too_much_memory_is_refused_by_name(name: str, why: str, large: Path):
    with pytest.raises(DatasetError, match=rf"{name}\.npz: .*{why}"):
        read_npz(large / f"{name}.npz")
    if name == "metadata":
        with pytest.raises(DatasetError, match=why):
            read_metadata(large / "metadata.npz")
