"""From dataset keys to data in memory, and what is refused before a run directory is made."""

import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.wrappers import TimeLimit
from offline_helpers import arrays, recorded
from small_runs import StopAt, small_config, state_difference, train

from rl_training.cli import main
from rl_training.data import minari_files
from rl_training.data.dataset_files import read_npz, write_npz
from rl_training.data.dataset_report import inspect_data
from rl_training.envs.source import EnvSource
from rl_training.errors import CheckpointError, ConfigError, DatasetError, MissingExtraError
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.options.rlpd import RLPDConfig
from rl_training.resources import find_packaged_asset
from rl_training.runtime.offline_data import load_offline_data
from rl_training.runtime.workflows import resume_training


def load(seed=1, env_id="Pendulum-v1", **options):
    source = EnvSource(env_id)
    return load_offline_data(RLPDConfig(batch_size=4, **options), source, source.spec(), seed=seed)


def test_random_behaviour_is_uniform_whole_and_repeatable():
    one, same, other = load(dataset_size=600), load(dataset_size=600), load(dataset_size=600, seed=2)
    assert one.fingerprint == same.fingerprint != other.fingerprint
    rows = one.transitions
    assert rows["actions"].min() < -0.95
    assert rows["actions"].max() > 0.95
    assert rows["actions"].mean().abs() < 0.1
    assert torch.equal(rows["obs"][1:200], rows["next_obs"][:199])  # one episode after another
    assert rows["cuts"].nonzero().flatten().tolist() == [199, 399, 599]
    assert rows["dones"].sum() == 0


def test_a_dataset_seed_keeps_the_data_and_leaves_the_drawing_to_the_run():
    one, other = load(seed=1, dataset_seed=7, dataset_size=50), load(seed=2, dataset_seed=7, dataset_size=50)
    assert one.fingerprint == other.fingerprint
    assert not torch.equal(one.sample(20)["obs"], other.sample(20)["obs"])


def test_a_path_is_enough_to_say_it_is_a_file(tmp_path):
    path = write_npz(tmp_path / "data.npz", recorded(9))
    assert len(load(dataset_path=str(path))) == 9
    assert len(load(dataset_path=str(path), dataset_size=5)) == 5


def test_a_minari_dataset_is_loaded_by_its_id(tmp_path, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    minari_files.write_minari("pendulum/test-v0", recorded(9), "Pendulum-v1")
    assert len(load(dataset_id="pendulum/test-v0")) == 9


def test_a_mix_of_datasets_is_drawn_by_weight(tmp_path):
    path = write_npz(tmp_path / "data.npz", recorded(9))
    parts = [{"path": str(path), "weight": 3, "reward_shift": 100.0}, {"kind": "random", "size": 40}]
    data = load(datasets=parts)
    assert len(data) == 49
    assert (data.sample(100)["rewards"] > 50).sum() == 75


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset_kind": "npz"}, "dataset_kind, dataset_path: npz data needs its path"),
        ({"dataset_kind": "minari", "dataset_path": "a.npz"}, "'a.npz' is of no use to minari data"),
        ({"dataset_kind": "random", "dataset_id": "a-v0"}, "'a-v0' is of no use to random data"),
        ({"dataset_kind": "hdf5"}, "'random', 'npz', 'minari'"),
        ({"dataset_path": "a.npz", "datasets": [{"path": "b.npz"}]}, "give either one dataset or a list"),
        ({"datasets": [{"pth": "b.npz"}]}, "a dataset has no option 'pth'; did you mean 'path'"),
        ({"datasets": [{"kind": "npz"}]}, "datasets.kind, datasets.path: npz data needs its path"),
        ({"offline_batch_ratio": 1.5}, "offline_batch_ratio: given 1.5 .*from 0 to 1"),
        ({"offline_batch_ratio": -0.1}, "offline_batch_ratio"),
        ({"dataset_size": 0}, "dataset_size"),
    ],
    ids=str,
)
def test_dataset_keys_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        RLPDConfig(**options)


def bad_files(folder):
    def saved(name, **changes):
        np.savez(folder / name, **(arrays(40) | changes))
        return str(folder / name)

    (folder / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    (folder / "data.pt").write_bytes(b"\x80\x04.")
    return {
        "observations have 4 numbers": saved("other.npz", observations=np.zeros((40, 4)), next_observations=np.zeros((40, 4))),
        "the dataset is empty": saved("empty.npz", **{name: values[:0] for name, values in arrays().items()}),
        "python objects": saved("objects.npz", observations=np.array([None] * 40, dtype=object)),
        "nan in row 3, column 1": saved("nan.npz", observations=np.where(np.arange(120) == 10, np.nan, 0.0).reshape(40, 3)),
        "actions, row 0, column 0: -9": saved("bounds.npz", actions=np.full((40, 1), -9.0)),
        "cannot be read as an npz archive": str(folder / "broken.npz"),
        "unsafe for untrusted datasets": str(folder / "data.pt"),
        "no such file": str(folder / "absent.npz"),
        "takes 8 rows of the data, but it has only 6": saved("small.npz", **arrays(6)),
    }


def test_data_that_cannot_be_used_is_refused_before_anything_is_made(tmp_path):
    runs = tmp_path / "runs"
    for message, path in bad_files(tmp_path).items():
        config = small_config("rlpd", runs, algo_kwargs={"dataset_kind": "npz", "dataset_path": path, "dataset_size": None})
        with pytest.raises(DatasetError, match=message):
            train(config)
        assert not runs.exists(), message


def test_a_missing_extra_is_named_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    options = {"dataset_kind": "minari", "dataset_id": "pendulum/test-v0"}
    with pytest.raises(MissingExtraError, match=r"rl-training\[offline\]"):
        train(small_config("rlpd", tmp_path / "runs", algo_kwargs=options))
    assert not (tmp_path / "runs").exists()


def test_a_run_goes_on_only_with_the_data_it_was_begun_on(tmp_path):
    path = write_npz(tmp_path / "data.npz", recorded(90))
    options = {"dataset_kind": "npz", "dataset_path": str(path), "dataset_size": None}
    first = train(small_config("rlpd", tmp_path / "runs", total_timesteps=40, algo_kwargs=options))
    path.unlink()
    write_npz(path, recorded(93))
    before = sorted((file.name, file.stat().st_mtime_ns) for file in first.run_dir.rglob("*"))
    with pytest.raises(CheckpointError, match="begun on other data"):
        resume_training(first.run_dir, total_timesteps=60)
    assert sorted((file.name, file.stat().st_mtime_ns) for file in first.run_dir.rglob("*")) == before
    path.unlink()
    write_npz(path, recorded(90))
    assert resume_training(first.run_dir, total_timesteps=60).metrics["global_step"] == 60


def test_a_resume_from_another_folder_finds_the_data_where_the_run_was_begun(tmp_path, monkeypatch):
    begun, elsewhere = tmp_path / "begun", tmp_path / "elsewhere"
    begun.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(begun)
    write_npz("mine.npz", recorded(rows=60))
    config = small_config(
        "cql", begun / "runs", algo_kwargs={"dataset_kind": "npz", "dataset_path": "mine.npz", "dataset_size": None}
    )
    whole = train(config)
    first = train(config, callbacks=[StopAt(10)])
    monkeypatch.chdir(elsewhere)
    rest = resume_training(first.run_dir, total_timesteps=15)
    assert load_checkpoint(rest.checkpoint_path).config["algo_kwargs"]["dataset_path"] == "mine.npz"

    moved = elsewhere / "moved.npz"
    (begun / "mine.npz").rename(moved)
    with pytest.raises(
        DatasetError, match=r"no such file here, nor where the run was begun \(.*begun/mine.npz\).*--dataset-path"
    ):
        resume_training(first.run_dir, total_timesteps=18)
    assert main(["resume", str(first.run_dir), "--dataset-path", str(moved), "--total-timesteps", "18", "--quiet"]) == 0
    rest = resume_training(first.run_dir, total_timesteps=config.total_timesteps)
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None


def test_a_moved_dataset_is_still_checked_and_a_run_without_a_file_has_none_to_move(tmp_path):
    write_npz(tmp_path / "mine.npz", recorded(rows=60))
    write_npz(tmp_path / "other.npz", recorded(rows=66))
    options = {"dataset_kind": "npz", "dataset_path": str(tmp_path / "mine.npz"), "dataset_size": None}
    first = train(small_config("cql", tmp_path, algo_kwargs=options), callbacks=[StopAt(10)])
    with pytest.raises(CheckpointError, match="begun on other data"):
        resume_training(first.run_dir, dataset_path=tmp_path / "other.npz")
    first = train(small_config("cql", tmp_path / "random"), callbacks=[StopAt(10)])
    with pytest.raises(ConfigError, match="dataset_path: this run of cql was begun without one"):
        resume_training(first.run_dir, dataset_path=tmp_path / "other.npz")


@pytest.mark.parametrize(("name", "mean_return"), [("medium", -620.6), ("expert", -165.3)])
def test_the_packaged_recordings_are_small_whole_and_as_good_as_said(name, mean_return):
    path = find_packaged_asset(f"data/pendulum-{name}.npz")
    assert path.stat().st_size < 1_000_000
    report = inspect_data(read_npz(path), EnvSource("Pendulum-v1").spec())
    assert report.rows == 10_000
    assert report.returns.mean() == pytest.approx(mean_return, abs=0.1)
    assert report.warnings == []


def test_random_behaviour_comes_from_an_environment_object_too(tmp_path):
    env = TimeLimit(PendulumEnv(), 30)  # no spec says how to make another
    result = train(small_config("rlpd", tmp_path, env_kwargs={}, num_envs=1, total_timesteps=40), env=env)
    assert result.metrics["offline_dataset_size"] == 90
    assert result.metrics["eval_return_mean"] < 0
