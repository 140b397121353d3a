"""Videos of a policy, made without a screen."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from small_runs import small_config, train

from rl_training import PPO
from rl_training.cli import main
from rl_training.envs import filming
from rl_training.envs.filming import Filmed, headless, headless_gl
from rl_training.errors import ConfigError, EnvError, MissingExtraError
from rl_training.runtime.policy import load_policy
from rl_training.shipping import video as video_module
from rl_training.shipping.video import record_video

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
pytest.importorskip("pygame")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return train(small_config("ppo", tmp_path_factory.mktemp("film"), env_kwargs={"max_episode_steps": 12}))


def frames(path: Path) -> list[np.ndarray]:
    """What a player sees, read by ffmpeg itself."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(path), "-fps_mode", "passthrough"]
    raw = [*command, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    data = subprocess.run(raw, capture_output=True, check=True).stdout
    sizes = {600 * 400 * 3: (400, 600, 3), 480 * 480 * 3: (480, 480, 3)}
    size = next(size for size in sizes if len(data) % size == 0)
    return list(np.frombuffer(data, dtype=np.uint8).reshape(-1, *sizes[size]))


def test_an_object_is_filmed_as_it_was_set_and_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    env = gym.make("Pendulum-v1", render_mode="rgb_array", max_episode_steps=5)
    env.unwrapped.g = 3.0
    agent = PPO(env, total_timesteps=32, num_steps=16, eval_episodes=1, output_dir=tmp_path)
    agent.learn()
    monkeypatch.setattr(env.unwrapped, "close", lambda: pytest.fail("the user's object was closed"))
    for name in ("one.gif", "two.gif"):
        assert agent.record_video(tmp_path / name).metrics == agent.evaluate(num_episodes=1)


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_video_shows_every_step_and_the_cart_moves(run: Any, suffix: str, tmp_path: Path):
    done = record_video(load_policy(run.run_dir), tmp_path / f"deep/er/film{suffix}", num_episodes=2)
    shown = frames(done.path)
    steps = done.metrics["eval_length_mean"] * 2 + 2  # and the picture at each episode's beginning
    assert done.num_frames == (steps if suffix == ".mp4" else (steps + 1) // 2)
    still = 0 if suffix == ".mp4" else 2  # in a GIF equal pictures become one that stays longer
    assert done.num_frames - still <= len(shown) <= done.num_frames
    assert shown[0].shape == (400, 600, 3)
    assert np.abs(shown[0].astype(int) - shown[-1]).max() > 50
    assert done.fps == (50 if suffix == ".mp4" else 25)


def test_the_film_is_of_the_episodes_that_are_evaluated(run: Any, tmp_path: Path):
    policy = load_policy(run.run_dir)
    told = policy.evaluate(num_episodes=2)
    assert record_video(policy, tmp_path / "a.gif", num_episodes=2).metrics == told


def test_eval_films_into_the_run_where_the_report_looks(run: Any, capsys: pytest.CaptureFixture[str]):
    assert main(["eval", str(run.run_dir), "--num-episodes", "2", "--video"]) == 0
    text = capsys.readouterr().out
    path = Path(re.search(r"^video=(.*)$", text, re.MULTILINE)[1])
    assert path == run.run_dir / "videos" / f"{run.checkpoint_path.stem}.mp4"
    assert len(frames(path)) > 5
    assert text.splitlines()[-1].startswith("metrics=")


def test_an_ending_that_is_no_video_is_refused_before_the_evaluation(run: Any, capsys: pytest.CaptureFixture[str]):
    assert main(["eval", str(run.run_dir), "--video", "film.avi"]) == 2
    captured = capsys.readouterr()
    assert "possible endings: .mp4, .gif" in captured.err
    assert "return" not in captured.out


def test_a_film_that_fails_leaves_nothing_behind(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def dark(self: Any) -> Any:
        raise RuntimeError("no light")

    monkeypatch.setattr("gymnasium.envs.classic_control.cartpole.CartPoleEnv.render", dark)
    with pytest.raises(EnvError, match=r"CartPole-v1 could not be drawn: RuntimeError: no light"):
        record_video(load_policy(run.run_dir), tmp_path / "film.mp4")
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_named_with_its_extra(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    policy = load_policy(run.run_dir)
    with monkeypatch.context() as patch:
        patch.setattr(video_module, "find_spec", lambda name: None if name == "imageio_ffmpeg" else name)
        with pytest.raises(MissingExtraError, match=r"'imageio_ffmpeg'.*rl-training\[video\]"):
            record_video(policy, tmp_path / "film.mp4")

    def no_pygame(self: Any) -> Any:
        raise gym.error.DependencyNotInstalled("pygame is not installed")

    monkeypatch.setattr("gymnasium.envs.classic_control.cartpole.CartPoleEnv.render", no_pygame)
    with pytest.raises(MissingExtraError, match=r"'pygame'.*rl-training\[video\]"):
        record_video(policy, tmp_path / "film.gif")


class Blind(gym.Wrapper):
    """As MuJoCo without a GL library."""

    def render(self) -> Any:
        raise RuntimeError("mujoco: an OpenGL platform library has not been loaded into this process")


def test_a_missing_gl_library_is_answered_with_what_to_install():
    with pytest.raises(EnvError, match="apt install libegl1"):
        Filmed(Blind(gym.make("CartPole-v1", render_mode="rgb_array")), lambda frame: None).reset(seed=0)


def test_ones_own_environment_must_be_made_to_be_drawn(tmp_path: Path):
    agent = PPO(lambda: gym.make("CartPole-v1"), total_timesteps=64, num_steps=32, eval_episodes=0, output_dir=tmp_path)
    agent.learn()
    with pytest.raises(EnvError, match="render_mode=None and needs 'rgb_array'"):
        agent.record_video(tmp_path / "film.gif")
    drawn = PPO.load(agent.checkpoint_path, env=lambda: gym.make("CartPole-v1", render_mode="rgb_array", max_episode_steps=5))
    assert drawn.record_video(tmp_path / "film.gif").metrics["eval_length_mean"] <= 5


def test_odd_sizes_are_made_even():
    frame = np.arange(5 * 3 * 3, dtype=np.uint8).reshape(5, 3, 3)
    even = video_module._even(frame)
    assert even.shape == (6, 4, 3)
    assert (even[:5, :3] == frame).all()
    assert (even[5] == even[4]).all()


def test_drawing_settings_are_put_back_and_the_users_own_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MUJOCO_GL", "mine")
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    with headless():
        assert os.environ["MUJOCO_GL"] == "mine"
        assert os.environ["SDL_VIDEODRIVER"] == "dummy"
    assert "SDL_VIDEODRIVER" not in os.environ


def test_gl_libraries_are_found_in_order(monkeypatch: pytest.MonkeyPatch):
    there = {"OSMesa"}
    monkeypatch.setattr(filming.ctypes.util, "find_library", lambda name: name if name in there else None)
    assert headless_gl() == "osmesa"
    there.add("EGL")
    assert headless_gl() == "egl"
    there.clear()
    assert headless_gl() is None


def test_a_number_of_episodes_below_one_is_refused(run: Any, tmp_path: Path):
    with pytest.raises(ConfigError, match="at least 1"):
        record_video(load_policy(run.run_dir), tmp_path / "film.gif", num_episodes=0)


@pytest.mark.skipif(headless_gl() is None, reason="no EGL or OSMesa library on this machine")
def test_mujoco_is_drawn_without_a_screen(tmp_path: Path):
    pytest.importorskip("mujoco")
    result = train(small_config("ppo_mujoco", tmp_path, env_kwargs={"max_episode_steps": 4}))
    done = record_video(load_policy(result.run_dir), tmp_path / "film.mp4")
    assert len(frames(done.path)) == 5
    assert frames(done.path)[0].std() > 5  # not black
