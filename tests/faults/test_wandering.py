"""Paths that are relative, or begin with ~, mean what they meant where the command was given, wherever an environment goes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import toy_envs
from small_runs import ALGORITHMS, StopAt, history, small_config, state_difference, train

from rl_training.cli import main
from rl_training.errors import EnvError
from rl_training.runtime.collecting import collect_data
from rl_training.runtime.policy import load_policy
from rl_training.runtime.workflows import resume_training
from rl_training.shipping.video import record_video

PLACES = ["constructor", "reset", "step", "close"]


class Wanderer(toy_envs.Drift):
    """Changes the current folder, as some simulators do to find their files."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (as gymnasium has it)

    def __init__(self, place: str, elsewhere: Path) -> None:
        super().__init__(continuous=True, length=9)
        self.place, self.elsewhere, self.render_mode = place, elsewhere, "rgb_array"
        self._wander("constructor")

    def reset(self, *, seed=None, options=None):
        self._wander("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self._wander("step")
        return super().step(action)

    def close(self):
        self._wander("close")

    def render(self):
        return np.zeros((2, 2, 3), dtype=np.uint8)

    def _wander(self, place: str) -> None:
        if place == self.place:
            os.chdir(self.elsewhere)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, and beside it one to wander to."""
    for name in ("home", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def wanderers(place: str, home: Path):
    return lambda: Wanderer(place, home.with_name("elsewhere"))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_below_a_relative_folder_stays_there(name: str, place: str, home: Path):
    config = small_config(name, "runs", env_kwargs={}, checkpoint_interval=30)
    make = wanderers(place, home)
    half = train(config, env=make, callbacks=[StopAt(config.total_timesteps // 2)])
    assert Path.cwd() == home
    assert half.run_dir.parent == home / "runs"
    rest = resume_training(Path("runs") / half.run_dir.name, env=make)
    assert Path.cwd() == home
    assert list(home.with_name("elsewhere").iterdir()) == []
    still = train(config.replace(output_dir="still"), env=lambda: toy_envs.Drift(continuous=True, length=9))
    assert state_difference(still.checkpoint_path, rest.checkpoint_path) is None
    assert history(still.run_dir) == history(rest.run_dir)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_done_with_a_policy_leaves_the_folder_as_it_was(place: str, home: Path):
    make = wanderers(place, home)
    run = train(small_config("sac", "runs", env_kwargs={}), env=make).run_dir
    policy = load_policy(Path("runs") / run.name)
    policy.evaluate(num_episodes=1, env=make)
    assert Path.cwd() == home
    assert record_video(policy, "film.gif", env=make).path == home / "film.gif"
    assert Path.cwd() == home
    collect_data(policy, num_steps=20, env=make)
    assert Path.cwd() == home
    assert (home / "film.gif").exists()
    assert list(home.with_name("elsewhere").iterdir()) == []


def dataset(*, reward: float) -> dict[str, np.ndarray]:
    obs = np.zeros((60, 2), np.float32)
    columns = {"observations": obs, "actions": obs[:, :1], "rewards": np.full(60, reward, np.float32)}
    return columns | {"next_observations": obs, "terminals": np.ones(60, bool)}


@pytest.mark.parametrize("place", PLACES)
def test_a_relative_dataset_is_the_one_where_the_run_was_begun(place: str, home: Path):
    np.savez("data.npz", **dataset(reward=0.0))
    np.savez(home.with_name("elsewhere") / "data.npz", **dataset(reward=np.nan))
    options = {"dataset_kind": "npz", "dataset_path": "data.npz", "dataset_size": 60}
    result = train(small_config("cql", "runs", env_kwargs={}, algo_kwargs=options), env=wanderers(place, home))
    assert result.run_dir.parent == home / "runs"


def test_a_run_that_ends_by_an_error_is_saved_where_it_is_too(home: Path):
    class Falls(Wanderer):
        def step(self, action):
            if self.steps == 3:
                raise ValueError("off the edge of the world")
            return super().step(action)

    with pytest.raises(EnvError, match=r"off the edge(.|\n)*is saved"):
        train(
            small_config("sac", "runs", env_kwargs={}, eval_episodes=0), env=lambda: Falls("reset", home.with_name("elsewhere"))
        )
    assert Path.cwd() == home
    assert list(home.glob("runs/*/checkpoints/step_*"))


# --- ~ in a file, where no shell makes a home of it


def test_a_folder_that_begins_with_a_tilde_is_in_the_users_home(home: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    owner = home.with_name("owner")
    owner.mkdir()
    monkeypatch.setenv("HOME", str(owner))
    config = small_config("ppo", "~/runs", total_timesteps=40)
    Path("config.yaml").write_text(config.to_yaml())
    assert main(["train", "--config", "config.yaml", "--quiet", "--run-suffix", "a"]) == 0
    run = owner / "runs" / "ppo__CartPole-v1__seed3__a"
    assert f"run_dir={run}\n" in capsys.readouterr().out
    assert main(["resume", "--checkpoint", str(run), "--output-dir", "~/more", "--total-timesteps", "60", "--quiet"]) == 0
    assert main(["train", "--config", "config.yaml", "--quiet", "--seeds", "1,2", "--jobs", "1", "output_dir=~/many"]) == 0
    assert sorted(path.name for path in owner.iterdir()) == ["many", "more", "runs"]
    assert sorted(path.name for path in home.iterdir()) == ["config.yaml"]
    assert "output_dir: ~/runs" in (run / "config.yaml").read_text()  # whoever resumes has a home of their own


def test_a_dataset_may_lie_in_the_users_home(home: Path, monkeypatch: pytest.MonkeyPatch):
    owner = home.with_name("owner")
    owner.mkdir()
    monkeypatch.setenv("HOME", str(owner))
    np.savez(owner / "data.npz", **dataset(reward=0.0))
    options = {"dataset_kind": "npz", "dataset_path": "~/data.npz", "dataset_size": 60}
    make = lambda: toy_envs.Drift(continuous=True, length=9)  # noqa: E731 (one line says it all)
    assert train(small_config("cql", "runs", env_kwargs={}, algo_kwargs=options), env=make).checkpoint_path.exists()
