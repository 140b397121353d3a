"""Files that are not what they say, given to the command line: refused by name with exit code 2, and nothing in them is run."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import StopAt, small_config, train

from rl_training.cli import main
from rl_training.experiment.checkpoint import CheckpointState, load_checkpoint, save_checkpoint

Capture = pytest.CaptureFixture[str]
Change = Callable[[CheckpointState], CheckpointState]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Half a run of each kind of algorithm."""
    folder = tmp_path_factory.mktemp("runs")
    names = ("ppo", "sac", "cql", "ars")
    configs = {name: small_config(name, folder, checkpoint_interval=40, eval_episodes=0) for name in names}
    return {name: train(config, callbacks=[StopAt(config.total_timesteps // 2)]).run_dir for name, config in configs.items()}


@pytest.fixture
def run(runs: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(runs[name], tmp_path / name))


def newest(run: Path) -> Path:
    return max((run / "checkpoints").glob("step_*.safetensors"))


def refused(capsys: Capture, command: str, path: Path) -> str:
    """The words with which a command refuses a file."""
    assert main([command, "--checkpoint", str(path)]) == 2, capsys.readouterr().err
    text = capsys.readouterr().err
    assert "Traceback" not in text
    assert str(path) in text
    return text


# --- sound files with the wrong contents: whoever made them could seal them too


def configured(**changes: Any) -> Change:
    return lambda state: replace(state, config={**state.config, **changes})


def option(**changes: Any) -> Change:
    return lambda state: replace(state, config={**state.config, "algo_kwargs": {**state.config["algo_kwargs"], **changes}})


def without(part: str, key: str) -> Change:
    return lambda state: replace(state, **{part: {name: value for name, value in getattr(state, part).items() if name != key}})


def rubbish(part: str, key: str, value: Any) -> Change:
    return lambda state: replace(state, **{part: {**getattr(state, part), key: value}})


WRONG: dict[str, tuple[str, Change]] = {
    "another algorithm": ("sac", configured(algo="ddpg", algo_kwargs={})),
    "another kind of algorithm": ("sac", configured(algo="openai_es", algo_kwargs={})),
    "an algorithm nobody knows": ("sac", configured(algo="muzero")),
    "another environment": ("sac", configured(env_id="MountainCarContinuous-v0", env_kwargs={})),
    "other networks": ("sac", option(hidden_sizes=[8])),
    "a smaller buffer": ("sac", option(buffer_capacity=20)),
    "more environments": ("sac", configured(num_envs=3)),
    "an option nobody knows": ("sac", option(learning_rte=1.0)),
    "a config without a seed": ("sac", without("config", "seed")),
    "no spaces": ("sac", without("metadata", "env_spec")),
    "spaces of another kind": ("sac", rubbish("metadata", "env_spec", {"obs_dim": "three"})),
    "spaces as a text": ("sac", rubbish("metadata", "env_spec", "box")),
    "no networks": ("ppo", without("algorithm_state", "policy")),
    "no buffer": ("sac", lambda state: replace(state, buffer_state={})),
    "no dataset": ("cql", lambda state: replace(state, buffer_state={})),
    "no progress": ("ppo", without("trainer_state", "progress")),
    "no loop": ("ppo", without("trainer_state", "loop")),
    "no generator": ("ppo", without("trainer_state", "torch_rng")),
    "a loop of rubbish": ("ppo", rubbish("trainer_state", "loop", {"collector": [1, 2]})),
    "a generator of rubbish": ("ppo", rubbish("trainer_state", "torch_rng", {"cpu": np.zeros(3)})),
    "progress as a text": ("ars", rubbish("trainer_state", "progress", "half")),
    "a history that counts in words": ("ars", rubbish("trainer_state", "history_lines", "many")),
    "an environment of rubbish": ("ars", rubbish("metadata", "environment", [1])),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_checkpoint_that_does_not_fit_is_refused_by_name(case: str, run: Callable[[str], Path], capsys: Capture):
    name, change = WRONG[case]
    path = newest(run(name))
    sound = path.read_bytes()
    save_checkpoint(path, change(load_checkpoint(path)))
    assert path.read_bytes() != sound
    refused(capsys, "resume", path)


def test_an_environment_that_is_not_installed_is_named(run: Callable[[str], Path], capsys: Capture):
    path = newest(run("sac"))
    save_checkpoint(path, configured(env_id="Pendulum-v99")(load_checkpoint(path)))
    assert main(["resume", "--checkpoint", str(path)]) == 2
    assert "there is no environment 'Pendulum-v99'" in capsys.readouterr().err


def test_a_policy_that_does_not_fit_is_refused_by_name(run: Callable[[str], Path], capsys: Capture):
    path = newest(run("sac"))
    sound = load_checkpoint(path)
    for case in ("another algorithm", "an algorithm nobody knows", "other networks", "no spaces", "spaces as a text"):
        save_checkpoint(path, WRONG[case][1](sound))
        refused(capsys, "eval", path)


# --- files that are no checkpoint


def test_a_text_file_in_place_of_a_checkpoint_is_named_with_what_was_meant(
    run: Callable[[str], Path], capsys: Capture, tmp_path: Path
):
    directory = run("ppo")
    for name in ("config.yaml", "metrics.jsonl", "metadata.json"):
        text = refused(capsys, "resume", directory / name)
        assert f"{name}: is a text file, not a checkpoint; give the run directory, {directory}, or" in text
    alone = tmp_path / "my run.yaml"
    alone.write_text((directory / "config.yaml").read_text())
    assert f"rl-training train --config '{alone}'" in refused(capsys, "resume", alone)


def test_a_newer_format_a_false_claim_and_a_path_out_of_the_file_are_refused(run: Callable[[str], Path], capsys: Capture):
    path = newest(run("ppo"))
    raw = path.read_bytes()
    claims = {
        raw.replace(b'"format_version":"1"', b'"format_version":"2"', 1): "newer rl_training",
        (10 * 2**30).to_bytes(8, "little") + raw[8:]: "claims 10737418240 bytes",
        raw.replace(b'"algorithm_state/', b'"../../../../tmp/', 1): "damaged",
        b"PK\x03\x04" + raw: "zip or pickle",
    }
    for forged, why in claims.items():
        path.write_bytes(forged)
        text = refused(capsys, "resume", path)
        assert why in text
        assert "The newest good checkpoint beside it" in text


class Payload:
    """Leaves a folder when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("executed",)


def hostile_files(folder: Path) -> list[list[str]]:
    """Command lines, each with a file that would run code in a reader which trusts it."""
    objects = io.BytesIO()
    np.save(objects, np.array([Payload()] * 4, dtype=object), allow_pickle=True)
    bare = folder / "bare.safetensors"
    bare.write_bytes(pickle.dumps(Payload()))
    archive = folder / "torch.safetensors"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Payload()))
    data = folder / "data.npz"
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("observations.npy", objects.getvalue())
    (folder / "object.npz").write_bytes(pickle.dumps(Payload()))
    config = folder / "config.yaml"
    config.write_text("algo: ppo\nenv_id: !!python/object/apply:os.mkdir [executed]\n")
    text = folder / "text.yaml"
    text.write_text("algo: ppo\nenv_id: CartPole-v1\nseed: __import__('os').mkdir('executed')\n")
    return [
        ["resume", "--checkpoint", str(bare)],
        ["eval", "--checkpoint", str(archive)],
        ["dataset", "inspect", str(data)],
        ["dataset", "inspect", str(folder / "object.npz")],
        ["train", "--config", str(config)],
        ["train", "--config", str(text)],
        ["train", "ppo/cartpole", "seed=!!python/object/apply:os.mkdir [executed]"],
        ["train", "cql/pendulum", f"dataset_path={data}", "dataset_kind=npz"],
    ]


def test_nothing_in_a_file_is_ever_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture):
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Payload()))
    assert (tmp_path / "executed").is_dir(), "the payload itself is harmless, so this test would prove nothing"
    (tmp_path / "executed").rmdir()
    for command in hostile_files(tmp_path):
        assert main(command) == 2, command
        text = capsys.readouterr().err
        assert "Traceback" not in text
        assert not (tmp_path / "executed").exists(), command
    assert not (tmp_path / "runs").exists()


def test_metadata_and_history_of_a_stranger_are_only_text(run: Callable[[str], Path], capsys: Capture):
    """A run directory that came by mail: its JSON files may say anything and still decide nothing."""
    directory = run("ppo")
    (directory / "metadata.json").write_text(json.dumps({"resume_history": "x", "history_lines_elsewhere": "9" * 30}))
    (directory / "metrics.jsonl").write_bytes(b"\xff\xfe not json\n" * 3)
    assert main(["resume", "--checkpoint", str(directory), "--quiet"]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err
