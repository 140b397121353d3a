"""Checkpoints of strangers: nothing that one names is imported by predicting or exporting, nor by anything else unasked."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from run_helpers import SOURCES
from small_runs import ALGORITHMS, StopAt, small_config, train
from traps import Trap

from rl_training.api import algorithms
from rl_training.cli import main
from rl_training.errors import ConfigError, TrainingInterrupted, UntrustedError
from rl_training.experiment import trust
from rl_training.experiment.checkpoint import CheckpointState, load_checkpoint, save_checkpoint
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.default_manager import DefaultExperimentManager
from rl_training.options import load_options_class
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.policy import load_policy
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint, resume_training
from rl_training.tuning.tune_worker import train_or_resume

Capture = pytest.CaptureFixture[str]
FUNCTIONS = {"termination_fn": "ends", "reward_fn": "reward"}
CLASSES = {cls.algo: cls for cls in (getattr(algorithms, name) for name in vars(algorithms)) if hasattr(cls, "algo")}


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trap:
    monkeypatch.chdir(tmp_path)
    return Trap(tmp_path, monkeypatch)


@pytest.fixture
def sealed(half_run: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """A checkpoint that is right in all but the settings given, as somebody else could have made and sent it."""

    def seal(name: str, *, env_id: str | None = None, algo_kwargs: dict[str, Any] | None = None, **config: Any) -> Path:
        state = load_checkpoint(max((half_run(name) / "checkpoints").glob("step_*")))
        settings = {**state.config, **config, "algo_kwargs": {**state.config["algo_kwargs"], **(algo_kwargs or {})}}
        metadata = dict(state.metadata)
        if env_id is not None:
            settings["env_id"] = env_id
            metadata["env_spec"] = {**metadata["env_spec"], "env_id": env_id}
        return save_checkpoint(tmp_path / "stranger.safetensors", replace(state, config=settings, metadata=metadata))

    return seal


def everything(name: str, trap: Trap) -> dict[str, Any]:
    """All that a checkpoint of this algorithm can name today."""
    options = load_options_class(name).model_fields
    return {
        "env_id": f"{trap.name}:{small_config(name, Path('runs')).env_id}",
        "sinks": [f"{trap.name}:Sink"],
        "algo_kwargs": {key: f"{trap.name}:{function}" for key, function in FUNCTIONS.items() if key in options},
    }


def observation(path: Path) -> np.ndarray:
    return np.zeros(load_checkpoint(path, parts=()).metadata["env_spec"]["obs_dim"], dtype=np.float32)


# --- acting


@pytest.mark.parametrize("name", ALGORITHMS)
def test_predicting_and_exporting_import_nothing_that_a_checkpoint_names(
    name: str, sealed: Callable[..., Path], trap: Trap, capsys: Capture
):
    path = sealed(name, **everything(name, trap))
    agent = CLASSES[name].load(path)
    acting = [
        lambda: predict_checkpoint(path, observation(path)),
        lambda: load_policy(path).predict(observation(path)),
        lambda: agent.predict(observation(path)),
        lambda: agent.export(path.with_name("agent.safetensors"), format="safetensors"),
    ]
    for act in acting:
        if name == "pets":  # it plans with the functions themselves
            with pytest.raises(UntrustedError, match=r"stranger\.safetensors: names code that would run here"):
                act()
        else:
            act()
        assert not trap.sprung
    code = main(["export", str(path), "--out", str(path.with_name("policy.onnx"))])
    assert code == (2 if name == "pets" else 0)
    assert ("--trust" in capsys.readouterr().err) == (name == "pets")
    assert not trap.sprung


def test_a_planner_plans_with_what_it_is_told_to_trust(sealed: Callable[..., Path], trap: Trap):
    path = sealed("pets", algo_kwargs=everything("pets", trap)["algo_kwargs"])
    assert predict_checkpoint(path, observation(path), trust=True).shape == (1,)
    assert trap.sprung


# --- evaluating, recording, training


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_else_imports_unasked_what_a_checkpoint_names(
    name: str, sealed: Callable[..., Path], trap: Trap, tmp_path: Path, capsys: Capture
):
    path = sealed(name, **everything(name, trap))
    before = set(tmp_path.iterdir())
    commands = [
        ["resume", "--checkpoint", str(path)],
        ["resume", "--checkpoint", str(path), "--output-dir", str(tmp_path / "new")],
        ["eval", "--checkpoint", str(path)],
        ["eval", "--checkpoint", str(path), "--video", str(tmp_path / "film.gif")],
        ["collect", "--checkpoint", str(path), "--steps", "5", "--out", str(tmp_path / "data.npz")],
    ]
    for command in commands:
        assert main(command) == 2, command
        text = capsys.readouterr().err
        assert f"error: {path}: names code that would run here: " in text
        assert f"env_id '{trap.name}:" in text or name == "pets"
        assert "--trust" in text
    calls: list[Callable[[], Any]] = [
        lambda: evaluate_checkpoint(path),
        lambda: resume_training(path),
        lambda: CLASSES[name].load(path).evaluate(),
        lambda: CLASSES[name].load(path).learn(),
        lambda: DefaultExperimentManager().resume(path).train(),
    ]
    for call in calls:
        with pytest.raises(UntrustedError, match="names code that would run here"):
            call()
    assert not trap.sprung
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_checkpoint_that_is_trusted_goes_on(name: str, sealed: Callable[..., Path], trap: Trap, tmp_path: Path):
    path = sealed(name, **everything(name, trap))
    assert main(["resume", "--checkpoint", str(path), "--output-dir", str(tmp_path / "new"), "--quiet", "--trust"]) == 0
    assert trap.sprung


# algorithm, settings, and what is said to run
SETTINGS: list[tuple[str, dict[str, Any], str]] = [
    ("sac", {"env_id": "{trap}:Pendulum-v1"}, "env_id '{trap}:Pendulum-v1'"),
    ("sac", {"env_kwargs": {"deep": [{"maker": "{trap}.inner:make"}]}}, "env_kwargs.deep.0.maker '{trap}.inner:make'"),
    ("ppo", {"sinks": ["tensorboard", "{trap}:Sink"]}, "sinks '{trap}:Sink'"),
    ("ppo", {"sink_kwargs": {"tensorboard": {"writer": "{trap}:W"}}}, "sink_kwargs.tensorboard.writer '{trap}:W'"),
    ("mopo", {"algo_kwargs": {"termination_fn": "{trap}:ends"}}, "algo_kwargs.termination_fn '{trap}:ends'"),
    ("pets", {"algo_kwargs": {"termination_fn": "{trap}:ends"}}, "algo_kwargs.termination_fn '{trap}:ends'"),
    ("pets", {"algo_kwargs": {"reward_fn": "os:system"}}, "algo_kwargs.reward_fn 'os:system'"),
    ("ars", {"execution_backend": "ray", "ray_address": "evil.example:6379"}, "ray_address 'evil.example:6379'"),
    ("ars", {"execution_backend": "ray", "ray_address": "ray://evil.example:1"}, "ray_address 'ray://evil.example:1'"),
]


def filled(tree: Any, trap: Trap) -> Any:
    if isinstance(tree, dict):
        return {key: filled(value, trap) for key, value in tree.items()}
    if isinstance(tree, list):
        return [filled(value, trap) for value in tree]
    return tree.replace("{trap}", trap.name)


@pytest.mark.parametrize(("name", "settings", "said"), SETTINGS, ids=[said.split()[0] for *_, said in SETTINGS])
def test_each_setting_that_names_code_asks_for_trust_by_itself(
    name: str, settings: dict[str, Any], said: str, sealed: Callable[..., Path], trap: Trap
):
    with pytest.raises(UntrustedError) as error:
        resume_training(sealed(name, **filled(settings, trap)))
    assert f"stranger.safetensors: names code that would run here: {filled(said, trap)}. If you trust" in str(error.value)
    assert not trap.sprung


def test_built_in_names_need_no_trust():
    values = {"seed": 1, "total_timesteps": 10, "output_dir": "runs", "sinks": ["tensorboard", "wandb"]}
    functions = {"reward_fn": "inverted_pendulum", "termination_fn": "inverted_pendulum"}
    config = TrainConfig(algo="pets", env_id="InvertedPendulum-v5", algo_kwargs=functions, **values)
    assert trust.named_code(config) == []
    config = TrainConfig(algo="ars", env_id="ALE/Pong-v5", execution_backend="ray", ray_address="auto", **values)
    assert trust.named_code(config) == []
    kwargs = {"server": "localhost:8080", "file": "C:\\x", "url": "http://a.b/c", "time": "12:30", "text": "note: this"}
    assert trust.named_code(config.replace(env_kwargs=kwargs)) == []


def test_an_environment_that_is_given_is_not_imported_by_its_name(sealed: Callable[..., Path], trap: Trap, tmp_path: Path):
    path = sealed("sac", env_id=f"{trap.name}:Pendulum-v1", env_kwargs={})
    env = lambda: gym.make("Pendulum-v1", max_episode_steps=30)  # noqa: E731
    assert evaluate_checkpoint(path, env=env)["eval_episodes"] == 1
    assert resume_training(path, env=env, output_dir=tmp_path / "new").metrics["global_step"] == 240
    agent = CLASSES["sac"].load(path, env=env)
    agent.learn(300)
    assert agent.evaluate()["eval_episodes"] == 1
    assert not trap.sprung


# --- what needs no asking


def test_an_environment_whose_module_the_program_has_imported_needs_no_trust(sealed: Callable[..., Path], trap: Trap):
    path = sealed("sac", env_id=f"{trap.name}:Pendulum-v1")
    importlib.import_module(trap.name)
    assert evaluate_checkpoint(path)["eval_episodes"] == 1


def test_the_names_that_may_be_followed_can_be_listed(sealed: Callable[..., Path], trap: Trap, tmp_path: Path):
    path = sealed("pets", algo_kwargs=everything("pets", trap)["algo_kwargs"], sinks=[f"{trap.name}:Sink"])
    names = [f"{trap.name}:{name}" for name in ("Sink", "ends", "reward")]
    with pytest.raises(UntrustedError) as error:
        resume_training(path, output_dir=tmp_path / "new", trust=names[:2])
    assert f"would run here: algo_kwargs.reward_fn '{names[2]}'. If you trust" in str(error.value)
    assert resume_training(path, output_dir=tmp_path / "new", trust=names).metrics["global_step"] == 160


def test_sinks_named_anew_are_the_users_own(sealed: Callable[..., Path], trap: Trap, tmp_path: Path):
    path = sealed("ppo", sinks=[f"{trap.name}:Other"])
    command = ["resume", "--checkpoint", str(path), "--quiet", "--output-dir", str(tmp_path / "new"), "--sinks"]
    assert main([*command, "none"]) == 0
    assert not trap.sprung
    assert main([*command, f"{trap.name}:Sink"]) == 0
    assert trap.sprung


def own_config(trap: Trap, folder: Path, name: str = "ppo") -> TrainConfig:
    config = small_config(name, folder, checkpoint_interval=40, sinks=(f"{trap.name}:Sink",))
    return config.replace(env_id=f"{trap.name}:{config.env_id}")


@pytest.fixture
def another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing had been trained in this one."""
    monkeypatch.setattr(trust, "_named_here", set())


def test_what_a_program_has_trained_with_it_follows_wherever_it_finds_it(trap: Trap, tmp_path: Path):
    agent = CLASSES["ppo"](own_config(trap, tmp_path / "runs"))
    agent.learn()
    path = agent.save(tmp_path / "elsewhere" / "agent.safetensors")
    again = CLASSES["ppo"].load(path)
    assert again.learn(300).metrics["global_step"] >= 300
    assert again.evaluate()["eval_episodes"] == 1


def resumed_elsewhere(directory: Path, trap: Trap, home: str | None = None) -> subprocess.CompletedProcess[str]:
    """By the command line, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SOURCES, str(trap.file.parent)])}
    if home is not None:
        environment["XDG_STATE_HOME"] = home
    command = [sys.executable, "-m", "rl_training", "resume", "--checkpoint", str(directory), "--quiet"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_ones_own_run_goes_on_without_a_word_and_a_copy_elsewhere_asks(trap: Trap, tmp_path: Path):
    config = own_config(trap, tmp_path / "runs")
    directory = train(config, callbacks=[StopAt(120)]).run_dir
    stranger = Path(shutil.copytree(directory, tmp_path / "bundle" / directory.name))
    done = resumed_elsewhere(stranger, trap)
    assert done.returncode == 2
    assert f"names code that would run here: env_id '{trap.name}:CartPole-v1', sinks '{trap.name}:Sink'" in done.stderr
    done = resumed_elsewhere(directory, trap, home=str(tmp_path / "another user"))
    assert done.returncode == 2
    done = resumed_elsewhere(directory, trap)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("another_program")
def test_a_stranger_in_ones_own_folder_names_nothing_new(trap: Trap, tmp_path: Path):
    """What was trained with there are names, and only these are followed."""
    directory = train(own_config(trap, tmp_path / "runs"), callbacks=[StopAt(120)]).run_dir
    path = max((directory / "checkpoints").glob("step_*"))
    state = load_checkpoint(path)
    save_checkpoint(path, replace(state, config={**state.config, "sinks": ["json:dumps"]}))
    trust._named_here.clear()
    with pytest.raises(UntrustedError, match=r"would run here: sinks 'json:dumps'\. If"):
        resume_training(directory)


@pytest.mark.usefixtures("another_program")
def test_a_home_that_cannot_be_written_to_only_asks(trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "no folder").write_text("")
    for home in (str(tmp_path / "no folder"), "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", home)
        monkeypatch.setenv("HOME", str(tmp_path / "no folder"))
        directory = train(own_config(trap, tmp_path / "runs"), callbacks=[StopAt(120)]).run_dir
        trust._named_here.clear()
        with pytest.raises(UntrustedError):
            resume_training(directory)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"names": 5}', '{"names": [1, [2], null]}', "[" * 9000])
@pytest.mark.usefixtures("another_program")
def test_a_record_that_says_nothing_trusts_nothing(text: str, trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    directory = train(own_config(trap, tmp_path / "runs"), callbacks=[StopAt(120)]).run_dir
    (record,) = (tmp_path / "state").rglob("*.json")
    record.write_text(text)
    trust._named_here.clear()
    with pytest.raises(UntrustedError):
        resume_training(directory)


class Interrupt(Callback):
    def on_collect_end(self, trainer: Any, result: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("another_program")
def test_the_way_to_go_on_says_trust_where_it_will_be_asked_for(trap: Trap, tmp_path: Path):
    with pytest.raises(TrainingInterrupted) as own:
        train(own_config(trap, tmp_path / "runs"), callbacks=[Interrupt()], run_suffix="own")
    assert str(own.value).endswith("ppo__" + f"{trap.name}-CartPole-v1__seed3__own")
    stranger = Path(shutil.copytree(own.value.result.run_dir, tmp_path / "bundle" / "run"))
    trust._named_here.clear()
    with pytest.raises(TrainingInterrupted) as foreign:
        resume_training(stranger, callbacks=[Interrupt()], trust=True)
    assert str(foreign.value).endswith(f"rl-training resume --checkpoint {stranger} --trust")


@pytest.mark.usefixtures("another_program")
def test_a_search_goes_on_with_what_its_own_configuration_names_on_any_machine(
    trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = own_config(trap, tmp_path / "runs")
    train(config, callbacks=[StopAt(120)], run_suffix="trial0000")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    trust._named_here.clear()
    assert train_or_resume(config, "trial0000", Callback()).metrics["global_step"] == 240
    trust._named_here.clear()
    shutil.rmtree(tmp_path / "another machine", ignore_errors=True)
    with pytest.raises(UntrustedError, match="sinks"):
        train_or_resume(config.replace(sinks=()), "trial0000", Callback())


# --- what a function by its import path can be


@pytest.mark.parametrize("path", ["os:system", "builtins:print", "torch:atan2", "pathlib:Path", "json:dumps", "os:path"])
@pytest.mark.parametrize(("name", "option"), [("mopo", "termination_fn"), ("pets", "termination_fn"), ("pets", "reward_fn")])
def test_only_a_python_function_of_a_transition_is_one(name: str, option: str, path: str, tmp_path: Path):
    config = small_config(name, tmp_path / "runs", algo_kwargs={option: path})
    with pytest.raises(ConfigError, match=f"{option}: '{path}' is a .*; it must be a Python function of"):
        train(config)
    assert not (tmp_path / "runs").exists()


def test_a_policy_alone_is_a_checkpoint_like_any_other(sealed: Callable[..., Path], trap: Trap, tmp_path: Path):
    state = load_checkpoint(sealed("mopo", **everything("mopo", trap)))
    empty: dict[str, Any] = {}
    policy = CheckpointState(state.algorithm_state, empty, empty, state.config, {**state.metadata, "kind": "policy"})
    path = save_checkpoint(tmp_path / "best.safetensors", policy)
    predict_checkpoint(path, observation(path))
    with pytest.raises(UntrustedError):
        evaluate_checkpoint(path)
    assert not trap.sprung
