"""Datasets on disk: npz files and Minari's store, read, written and refused."""

import io
import zipfile

import numpy as np
import pytest
import torch
from offline_helpers import arrays, recorded

from rl_training.data import minari_files
from rl_training.data.dataset_files import read_metadata, read_npz, write_npz
from rl_training.errors import DatasetError, MissingExtraError

COLUMNS = ("obs", "actions", "rewards", "next_obs", "terminations", "truncations")


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in COLUMNS)


def test_what_is_written_is_read_again(tmp_path):
    path = write_npz(tmp_path / "new" / "data.npz", recorded(9), metadata={"env_id": "Pendulum-v1"})
    assert same(read_npz(path), recorded(9))
    assert read_metadata(path) == {"env_id": "Pendulum-v1"}
    assert [file.name for file in path.parent.iterdir()] == ["data.npz"]


def test_the_same_data_makes_the_same_file(tmp_path):
    one, other = (write_npz(tmp_path / name, recorded(9)) for name in ("a.npz", "b.npz"))
    assert one.read_bytes() == other.read_bytes()


def test_a_file_of_somebody_else_has_no_metadata(tmp_path):
    np.savez(tmp_path / "data.npz", **arrays())
    assert read_metadata(tmp_path / "data.npz") == {}
    assert same(read_npz(tmp_path / "data.npz"), recorded())


def test_an_existing_file_is_never_overwritten(tmp_path):
    (tmp_path / "data.npz").write_bytes(b"precious")
    with pytest.raises(DatasetError, match="exists already"):
        write_npz(tmp_path / "data.npz", recorded())
    assert (tmp_path / "data.npz").read_bytes() == b"precious"


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pkl", ".pickle", ".joblib"])
def test_pickles_are_refused_unopened(suffix, tmp_path):
    path = tmp_path / f"data{suffix}"
    path.write_bytes(b"\x80\x04.")
    with pytest.raises(DatasetError, match="unsafe for untrusted datasets"):
        read_npz(path)


def test_a_pickle_that_is_there_under_another_name_is_refused(tmp_path):
    torch.save({"observations": torch.zeros(3)}, tmp_path / "data.npz")
    with pytest.raises(DatasetError, match="unsafe for untrusted datasets"):
        read_npz(tmp_path / "data.npz")


class Bomb:
    """Says so if it is ever unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


@pytest.mark.parametrize("name", ["observations", "infos"])
def test_arrays_of_objects_are_refused_unopened(name, tmp_path):
    np.savez(tmp_path / "data.npz", **arrays() | {name: np.array([Bomb()] * 6, dtype=object)})
    with pytest.raises(DatasetError, match=f"{name} is an array of python objects; .*unsafe for untrusted datasets"):
        read_npz(tmp_path / "data.npz")


def archive(path, **members):
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_what_is_no_archive_is_refused(tmp_path):
    path = tmp_path / "data.npz"
    for content in (b"", b"not a zip", b"\x80\x04K\x01."):
        path.write_bytes(content)
        with pytest.raises(DatasetError, match="cannot be read as an npz archive"):
            read_npz(path)


def test_every_truncation_of_a_file_is_refused(tmp_path):
    whole = write_npz(tmp_path / "whole.npz", recorded()).read_bytes()
    path = tmp_path / "data.npz"
    for length in range(0, len(whole) - 1, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(DatasetError):
            read_npz(path)


def test_a_header_that_promises_more_than_there_is_is_refused(tmp_path):
    honest = npy(np.zeros((6, 3), np.float32))
    lying = honest.replace(b"(6, 3), }" + b" " * 9, b"(6000000, 3000), }", 1)
    assert len(lying) == len(honest)
    archive(tmp_path / "data.npz", observations=lying)
    with pytest.raises(DatasetError, match="its size is another; it is damaged"):
        read_npz(tmp_path / "data.npz")


def test_a_missing_file_and_a_strange_ending_are_named(tmp_path):
    with pytest.raises(DatasetError, match="no such file"):
        read_npz(tmp_path / "data.npz")
    with pytest.raises(DatasetError, match=r"a dataset is an \.npz file"):
        read_npz(tmp_path / "data.csv")


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return pytest.importorskip("minari")


def test_a_minari_dataset_is_written_and_opens_in_minari_itself(store):
    data = recorded(9)
    minari_files.write_minari("pendulum/test-v0", data, "Pendulum-v1", algorithm_name="none", scores=(-1200.0, -146.0))
    dataset = store.load_dataset("pendulum/test-v0")
    assert dataset.total_episodes == 3
    assert dataset.total_steps == 9
    episode = dataset[1]
    assert episode.observations[:, 0].tolist() == [3, 4, 5, 6]  # one more than there are rewards
    assert episode.rewards.tolist() == [-3, -4, -5]
    assert episode.truncations.tolist() == [False, False, True]
    assert dataset.recover_environment().spec.id == "Pendulum-v1"
    assert store.get_normalized_score(dataset, np.array([-146.0]))[0] == pytest.approx(1.0)
    assert same(minari_files.read_minari("pendulum/test-v0"), data)
    assert minari_files.reference_scores("pendulum/test-v0") == (-1200.0, -146.0)


def test_a_minari_dataset_that_is_not_there_is_named_and_nothing_is_downloaded(store):
    minari_files.write_minari("pendulum/test-v0", recorded(), "Pendulum-v1")
    with pytest.raises(DatasetError, match="no such dataset on this machine; did you mean 'pendulum/test-v0'"):
        minari_files.read_minari("pendulum/tset-v0")


def test_an_existing_minari_dataset_is_left_alone(store):
    minari_files.write_minari("pendulum/test-v0", recorded(), "Pendulum-v1")
    with pytest.raises(DatasetError, match="exists already"):
        minari_files.write_minari("pendulum/test-v0", recorded(9), "Pendulum-v1")
    with pytest.raises(DatasetError, match="no name for a Minari dataset"):
        minari_files.require_new_minari("no name!")


def test_rows_that_do_not_follow_one_another_cannot_become_minari_episodes(store):
    shuffled = recorded().select(np.array([1, 0, 2]))
    with pytest.raises(DatasetError, match="row 1 does not go on where row 0 led to"):
        minari_files.write_minari("pendulum/test-v0", shuffled, "Pendulum-v1")


def test_without_minari_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    with pytest.raises(MissingExtraError, match=r"rl-training\[offline\]"):
        minari_files.read_minari("pendulum/test-v0")
