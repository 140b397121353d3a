"""The life of a dataset on the command line: collected, looked into, learnt from."""

import json

import numpy as np
import pytest
from offline_helpers import arrays
from small_runs import small_config, train

from rl_training.cli import main
from rl_training.data.dataset_files import read_metadata, read_npz, write_npz
from rl_training.data.dataset_report import inspect_data
from rl_training.data.recorded_data import RecordedData
from rl_training.envs.source import EnvSource


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {name: str(train(small_config(name, folder, eval_episodes=0)).run_dir) for name in ("sac", "ppo")}


def collect(run, path, *more):
    return main(["collect", "--checkpoint", run, "--steps", "70", "--out", str(path), *more])


def test_what_a_policy_does_is_recorded_in_the_environments_own_terms(runs, tmp_path, capsys):
    assert collect(runs["sac"], tmp_path / "data.npz") == 0
    assert "dataset=" in capsys.readouterr().out
    data = read_npz(tmp_path / "data.npz")
    assert len(data) == 70
    assert np.flatnonzero(data.truncations).tolist() == [29, 59, 69]  # two time limits, and where the recording ends
    assert not data.terminations.any()
    assert np.array_equal(data.obs[1:30], data.next_obs[:29])
    assert 1.0 < np.abs(data.actions).max() <= 2.0
    # Pendulum's reward from the recorded observation and action
    angle, speed, torque = np.arctan2(data.obs[:, 1], data.obs[:, 0]), data.obs[:, 2], data.actions[:, 0]
    np.testing.assert_allclose(data.rewards, -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2), atol=1e-4)
    assert read_metadata(tmp_path / "data.npz")["env_id"] == "Pendulum-v1"


def test_what_the_end_of_the_recording_cut_is_no_episode(runs, tmp_path, capsys):
    assert collect(runs["sac"], tmp_path / "data.npz") == 0
    data = read_npz(tmp_path / "data.npz")
    assert data.unfinished == 10
    found = inspect_data(data)
    assert found.lengths.tolist() == [30, 30]
    assert found.returns == pytest.approx([data.rewards[:30].sum(), data.rewards[30:60].sum()])
    assert main(["dataset", "inspect", str(tmp_path / "data.npz")]) == 0
    told = capsys.readouterr().out
    assert told.count("the last 10 rows: the recording ended first") == 2
    assert "2, 30.0 steps on average" in told


def test_a_recording_that_ends_with_an_episode_has_nothing_unfinished(runs, tmp_path):
    assert main(["collect", runs["sac"], "--steps", "60", "--out", str(tmp_path / "whole.npz")]) == 0
    data = read_npz(tmp_path / "whole.npz")
    assert (data.unfinished, inspect_data(data).lengths.tolist()) == (0, [30, 30])


def test_a_file_that_says_nonsense_of_its_end_is_taken_by_its_rows(tmp_path):
    data = RecordedData.from_arrays(arrays(60), "data")
    for number, said in enumerate([7, -1, "3", [3], None, 61]):
        path = write_npz(tmp_path / f"{number}.npz", data, metadata={"unfinished_rows": said})
        assert read_npz(path).unfinished == 0


def test_the_same_command_records_the_same_data_and_another_seed_other_data(runs, tmp_path):
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert collect(runs["sac"], tmp_path / f"{name}.npz", "--seed", seed, "--noise", "0.1") == 0
    a, b, c = ((tmp_path / f"{name}.npz").read_bytes() for name in "abc")
    assert a == b != c


def test_a_share_of_random_actions_and_noise_make_the_data_broader(runs, tmp_path):
    options = {"plain": [], "noisy": ["--noise", "0.3"], "random": ["--random-share", "1.0"]}
    spread = {}
    for name, more in options.items():
        assert collect(runs["sac"], tmp_path / f"{name}.npz", "--deterministic", *more) == 0
        spread[name] = read_npz(tmp_path / f"{name}.npz").actions.std()
    assert spread["plain"] < spread["noisy"] < spread["random"]
    assert spread["random"] == pytest.approx(4 / 12**0.5, abs=0.15)  # uniform on [-2, 2]


def test_discrete_policies_are_recorded_too(runs, tmp_path, capsys):
    assert collect(runs["ppo"], tmp_path / "data.npz", "--random-share", "0.5") == 0
    data = read_npz(tmp_path / "data.npz")
    assert set(data.actions.tolist()) == {0, 1}
    assert data.terminations.any()
    assert collect(runs["ppo"], tmp_path / "noisy.npz", "--noise", "0.5") == 2
    assert "discrete" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--random-share", "1.5"], "from 0 to 1"),
        (["--noise", "-1"], "from 0 to 1"),
        (["--seed", "-1"], "at least 0"),
    ],
    ids=str,
)
def test_nonsense_is_refused_and_nothing_is_written(more, message, runs, tmp_path, capsys):
    assert collect(runs["sac"], tmp_path / "data.npz", *more) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_not_overwritten(runs, tmp_path, capsys):
    (tmp_path / "data.npz").write_bytes(b"precious")
    assert collect(runs["sac"], tmp_path / "data.npz") == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "data.npz").read_bytes() == b"precious"


def test_from_collecting_to_learning_with_minari(runs, tmp_path, monkeypatch, capsys):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    assert main(["collect", "--checkpoint", runs["sac"], "--steps", "60", "--minari", "pendulum/mine-v0"]) == 0
    dataset = minari.load_dataset("pendulum/mine-v0")
    assert (dataset.total_steps, dataset.total_episodes) == (60, 2)
    assert dataset.recover_environment().spec.max_episode_steps == 30
    assert main(["dataset", "inspect", "minari:pendulum/mine-v0"]) == 0
    assert "score" in capsys.readouterr().out
    config = small_config("rlpd", tmp_path / "runs", algo_kwargs={"dataset_kind": None, "dataset_id": "pendulum/mine-v0"})
    assert train(config).metrics["offline_dataset_size"] == 60


def test_inspecting_tells_sizes_returns_scores_and_draws_a_picture(runs, tmp_path, capsys):
    collect(runs["sac"], tmp_path / "data.npz")
    assert main(["dataset", "inspect", str(tmp_path / "data.npz"), "--out", str(tmp_path / "picture.png")]) == 0
    told = capsys.readouterr().out
    for words in ("Pendulum-v1", "70", "3 truncations", "action 0", "where -1200.0 is 0", "nothing looks wrong"):
        assert words in told
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_dataset_that_is_not_there_is_bad_input(tmp_path, capsys):
    assert main(["dataset", "inspect", str(tmp_path / "absent.npz")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_the_packaged_data_is_found_by_its_name(capsys):
    assert main(["dataset", "inspect", "data/pendulum-medium.npz"]) == 0
    assert "Pendulum-v1" in capsys.readouterr().out


def report(spec=None, **changes):
    return inspect_data(RecordedData.from_arrays(arrays(60) | changes, "data.npz"), spec)


def test_returns_are_those_of_the_finished_episodes():
    done = report(truncations=np.arange(60) % 25 == 24)
    assert done.returns.tolist() == [-sum(range(25)), -sum(range(25, 50))]
    assert done.lengths.tolist() == [25, 25]
    assert done.unfinished == 10


def test_coverage_is_the_share_of_the_space_that_was_tried():
    spec = EnvSource("Pendulum-v1").spec()
    assert report(spec, actions=np.linspace(-2, 2, 60)[:, None]).actions[0].covered == 1.0
    assert report(spec, actions=np.linspace(0, 2, 60)[:, None]).actions[0].covered == 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": np.zeros((60, 3)), "next_observations": np.zeros((60, 3))}, "never change: obs 0, obs 1, obs 2"),
        ({"rewards": np.ones(60)}, "every reward is 1"),
        ({"truncations": np.zeros(60, bool)}, "no episode ends"),
        ({"actions": np.full((60, 1), 3.0)}, "100.0% of the rows have an action outside"),
        ({"actions": np.where(np.arange(60) % 2, 2.0, -2.0)[:, None]}, "100% of the rows have an action on a bound"),
        ({"next_observations": np.zeros((60, 3))}, "do not go on where the row before led to"),
        (
            {name: np.tile(values[:30], (2,) + (1,) * (values.ndim - 1)) for name, values in arrays(60).items()},
            "30 rows (50.0%)",
        ),
        ({"observations": np.zeros((60, 4)), "next_observations": np.zeros((60, 4))}, "it is of another environment"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_looks_wrong_is_said(changes, message):
    warnings = report(EnvSource("Pendulum-v1").spec(), **changes).warnings
    assert any(message in warning for warning in warnings), warnings


def test_metrics_of_training_on_a_collected_file_are_json(runs, tmp_path, capsys):
    collect(runs["sac"], tmp_path / "data.npz")
    words = ["train", "cql/pendulum", f"dataset_path={tmp_path / 'data.npz'}", "batch_size=16", "--total-timesteps", "5"]
    assert main([*words, "--eval-episodes", "0", "--output-dir", str(tmp_path / "runs"), "--quiet"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("metrics="))
    assert json.loads(line.removeprefix("metrics="))["offline_dataset_size"] == 70
