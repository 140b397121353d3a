"""sys.exit() in an environment, and whatever else is no Exception: a fault like any other, never a training that ended well."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import toy_envs
from small_runs import ALGORITHMS, OFFLINE, small_config, train

from rl_training.cli import main
from rl_training.envs.faults import EnvFault
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import make_envs
from rl_training.errors import EnvError
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.policy import load_policy
from rl_training.shipping.video import record_video

ACTING = [name for name in ALGORITHMS if name not in OFFLINE]
WORDS = {
    "sys_exit": "SystemExit: 0",
    "sys_exit_text": "SystemExit: the window was closed",
    "generator_exit": "GeneratorExit",
    "cancelled": "CancelledError",
    "outlaw": "Outlaw: mine",
    "mute": "Mute",
    "stop_iteration": "StopIteration",
}


def command_line(name, folder, *, fault, **changes):
    """The words that train a small run whose environments break at step 3 of their fourth episode."""
    kwargs = {"fault": fault, "at": 3, "episode": 3}
    config = small_config(name, folder, env_id="toy_envs:ToyBrokenContinuous-v0", env_kwargs=kwargs, eval_episodes=0, **changes)
    file = folder / "config.yaml"
    file.write_text(config.to_yaml())
    return ["train", "--config", str(file), "--quiet"]


def saved_steps(folder):
    (run_dir,) = (path for path in folder.iterdir() if path.is_dir())
    newest = max((run_dir / "checkpoints").glob("step_*.safetensors"))
    return load_checkpoint(newest).trainer_state["progress"]["global_step"]


def test_every_kind_that_the_environment_can_raise_has_its_words():
    assert WORDS.keys() == toy_envs.EXCEPTIONS.keys()


@pytest.mark.parametrize(
    ("name", "fault"), [*((name, "sys_exit") for name in ACTING), *(("sac", fault) for fault in WORDS if fault != "sys_exit")]
)
def test_what_an_environment_raises_in_a_step_is_named_and_the_run_saved(name, fault, tmp_path, capsys):
    options = {"num_steps": 4, "minibatch_size": 4} if name in ("ppo", "ppg") else {}
    options |= {"dataset_size": 12} if name == "rlpd" else {}  # three episodes are recorded in peace
    assert main(command_line(name, tmp_path, fault=fault, algo_kwargs=options)) == 2
    said = capsys.readouterr().err
    assert f"step raised {WORDS[fault]}" in said
    assert f"step {saved_steps(tmp_path)} is saved" in said
    # the first episodes of a population are its first turn
    assert saved_steps(tmp_path) > 0 or name in ("ars", "openai_es")


@pytest.mark.parametrize("fault", WORDS)
def test_a_worker_names_it_too_and_goes_on_living(fault, capfd):
    source = EnvSource("toy_envs:ToyBroken-v0", {"fault": fault, "at": 2, "episode": 0})
    envs = make_envs(source, source.spec(), num_envs=2, backend="local_async", num_workers=1)
    try:
        envs.reset([0, 1], [5, 6])
        envs.step_some([1], np.zeros(1))
        with pytest.raises(EnvFault, match=f"environment 1: step raised {WORDS[fault]}"):
            envs.step_some([1], np.zeros(1))
        assert envs.step_some([0], np.zeros(1)).rewards.tolist() == [1.0]
    finally:
        envs.close()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("backend", ["local_sync", "local_async"])
@pytest.mark.parametrize("fault", ["sys_exit", "mute"])
def test_a_reset_may_raise_anything_too(fault, backend):
    source = EnvSource("toy_envs:ToyBroken-v0", {"fault": fault, "at": 0})
    envs = make_envs(source, source.spec(), num_envs=1, backend=backend)
    try:
        with pytest.raises(EnvFault, match=rf"environment 0: reset\(seed=5\) raised {WORDS[fault]}"):
            envs.reset([0], [5])
    finally:
        envs.close()


class Late:
    """A factory whose environments leave as told, once training has begun: that is, only those that evaluate."""

    def __init__(self, place):
        self.place, self.begun = place, False

    def __call__(self):
        if not self.begun:
            return toy_envs.Counting(continuous=True)
        if self.place == "constructor":
            raise SystemExit(0)
        return toy_envs.Broken(fault="sys_exit", at=0 if self.place == "reset" else 2, continuous=True)

    def on_begin(self):
        factory = self

        class Begin(Callback):
            def on_train_start(self, trainer):
                factory.begun = True

        return Begin()


@pytest.mark.parametrize("place", ["constructor", "reset", "step"])
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ("ars", "openai_es")])
def test_an_evaluation_may_be_left_by_it_too(name, place, tmp_path):
    make = Late(place)
    with pytest.raises(EnvError, match=r"SystemExit: 0(.|\n)*is saved"):
        train(small_config(name, tmp_path, env_kwargs={}), env=make, callbacks=[make.on_begin()])
    assert saved_steps(tmp_path) >= 0


class Closing(toy_envs.Counting):
    """Leaves the program when it is closed, and another way before, if told to."""

    def __init__(self, *, steps: int | None = None) -> None:
        super().__init__(continuous=True)
        self.most = steps

    def step(self, action):
        if self.most == self.steps:
            raise ZeroDivisionError("the motor is gone")
        return super().step(action)

    def close(self):
        raise SystemExit(0)


def test_one_that_leaves_when_it_is_closed_changes_neither_a_good_end_nor_a_bad_one(tmp_path, caplog):
    result = train(small_config("td3", tmp_path / "well", env_kwargs={}), env=Closing)
    assert result.checkpoint_path.exists()
    assert "Closing: close raised SystemExit: 0" in caplog.text
    with pytest.raises(EnvError, match=r"the motor is gone(.|\n)*is saved"):
        train(small_config("td3", tmp_path / "badly", env_kwargs={}, eval_episodes=0), env=lambda: Closing(steps=3))


@pytest.mark.parametrize("backend", ["local_sync", "batched"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_constructor_that_leaves_is_named_and_nothing_is_made(number, backend, tmp_path):
    made = []

    def make():
        made.append(1)
        if len(made) == number:
            raise SystemExit(0)
        return gym.make("Pendulum-v1")

    with pytest.raises(EnvError, match="the environment factory failed: SystemExit: 0"):
        train(small_config("sac", tmp_path, env_kwargs={}, execution_backend=backend), env=make)
    assert list(tmp_path.iterdir()) == []


class Unmakable(toy_envs.Counting):
    """Can be made in one process only."""

    def __init__(self, *, home: int) -> None:
        import os

        if os.getpid() != home:
            raise SystemExit(0)
        super().__init__(continuous=True)


def test_a_constructor_that_leaves_in_a_worker_is_named():
    import os

    gym.register("Unmakable-v0", entry_point="faults.test_leaving:Unmakable", kwargs={"home": os.getpid()})
    try:
        source = EnvSource("Unmakable-v0")
        with pytest.raises(EnvFault, match="environment 0: could not be made in a worker process: SystemExit: 0"):
            make_envs(source, source.spec(), num_envs=1, backend="local_async")
    finally:
        del gym.registry["Unmakable-v0"]


class Undescribed(toy_envs.Counting):
    """Leaves when it is asked for its spaces."""

    @property
    def observation_space(self):
        raise SystemExit(0)

    @observation_space.setter
    def observation_space(self, space):
        pass


def test_a_space_that_leaves_is_named_and_nothing_is_made(tmp_path):
    with pytest.raises(EnvError, match="Pendulum-v1 could not be looked at: SystemExit: 0"):
        train(small_config("sac", tmp_path, env_kwargs={}), env=Undescribed)
    assert list(tmp_path.iterdir()) == []


class Film(toy_envs.Counting):
    """Draws once or not at all."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (as gymnasium has it)

    def __init__(self, place: str) -> None:
        super().__init__(continuous=True)
        self.render_mode, self.place, self.drawn = "rgb_array", place, 0

    def reset(self, *, seed=None, options=None):
        if self.place == "reset":
            raise SystemExit(0)
        return super().reset(seed=seed, options=options)

    def render(self):
        self.drawn += 1
        if self.place == "render" or self.drawn == 3:
            raise SystemExit(0)
        return np.zeros((2, 2, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("reset", "Pendulum-v1 could not be drawn: SystemExit: 0"),
        ("render", "Film could not be drawn: SystemExit: 0"),
        ("later", "evaluation episode 0, step 2: step raised EnvError: Film could not be drawn: SystemExit: 0"),
    ],
)
def test_a_drawing_that_leaves_is_named_and_leaves_no_film(place, said, tmp_path):
    result = train(small_config("sac", tmp_path / "runs", env_kwargs={}, eval_episodes=0), env=lambda: Film("none"))
    with pytest.raises(EnvError, match=said):
        record_video(load_policy(result.checkpoint_path), tmp_path / "film.gif", env=lambda: Film(place))
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_nothing_but_a_command_itself_decides_the_exit_code(tmp_path, monkeypatch, capsys):
    from rl_training.cli.commands import list as listing

    monkeypatch.setattr(listing, "run", lambda args: (_ for _ in ()).throw(SystemExit(0)))
    assert main(["list"]) == 1
    assert "SystemExit: 0\nThis was not expected" in capsys.readouterr().err
