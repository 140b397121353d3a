"""A run on disk: made once, worked in by one process, and a record of where it was made."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from run_helpers import SOURCES, Config, state

from rl_training.errors import CheckpointError, ConfigError, RLTrainingError, RunBusyError
from rl_training.experiment.lock import RunLock
from rl_training.experiment.metadata import append_resume, environment_differences, read_metadata, run_metadata
from rl_training.experiment.run import Run


@pytest.fixture
def run(tmp_path: Path):
    with Run.create(Config(tmp_path), suffix="a") as made:
        yield made


# --- making one ---


def test_a_run_directory_says_what_runs_in_it(run: Run, tmp_path: Path):
    assert run.directory == tmp_path / "sac__Pendulum-v1__seed3__a"
    assert (run.directory / "config.yaml").read_text() == "algo: sac\n"
    assert read_metadata(run.directory)["versions"]["numpy"] == np.__version__
    assert (run.directory / "checkpoints").is_dir()


@pytest.mark.parametrize(
    ("env_id", "name"),
    [("ALE/Pong-v5", "ALE-Pong-v5"), ("mod.sub:Env-v0", "mod.sub-Env-v0"), ("../../x", "..-..-x"), ("a" * 300, "a" * 100)],
)
def test_any_environment_id_becomes_one_folder_name(env_id: str, name: str, tmp_path: Path):
    with Run.create(Config(tmp_path, env_id=env_id), suffix="s") as run:
        assert run.directory == tmp_path / f"sac__{name}__seed3__s"


def test_runs_begun_in_the_same_second_get_names_of_their_own(tmp_path: Path):
    names = set()
    for _ in range(5):
        with Run.create(Config(tmp_path)) as run:
            names.add(run.directory.name)
    assert len(names) == 5


def test_an_existing_run_is_never_overwritten(run: Run, tmp_path: Path):
    run.log({"return": 1.0}, step=1)
    run.save_checkpoint(state(1), step=1, keep=1)
    before = {path: path.read_bytes() for path in run.directory.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="never overwritten"):
        Run.create(Config(tmp_path), suffix="a")
    assert before == {path: path.read_bytes() for path in run.directory.rglob("*") if path.is_file()}


def test_a_run_that_ended_before_its_first_checkpoint_is_out_of_the_way_of_one_of_its_name(run: Run, tmp_path: Path, caplog):
    run.log({"return": 1.0}, step=1)
    with pytest.raises(RunBusyError):  # it may be about to save
        Run.create(Config(tmp_path), suffix="a")
    (
        run.directory / "checkpoints" / "step_000000001.safetensors.7.partial"
    ).touch()  # as a kill within the first save leaves it
    run.close()
    with Run.create(Config(tmp_path), suffix="a") as again:
        assert (again.directory, again.num_lines) == (run.directory, 0)
    aside = run.directory.with_name(f"{run.directory.name}.unsaved-1")
    assert json.loads((aside / "metrics.jsonl").read_text())["step"] == 1
    assert f"it is kept as {aside.name}, and the run begins anew" in caplog.text


def test_a_folder_that_is_no_run_is_left_alone_whatever_its_name(tmp_path: Path):
    (tmp_path / "sac__Pendulum-v1__seed3__a").mkdir()
    with pytest.raises(ConfigError, match="never overwritten"):
        Run.create(Config(tmp_path), suffix="a")


@pytest.mark.parametrize("suffix", ["", "a/b", "../x", "a b", "n\0l", "x" * 101])
def test_a_suffix_that_is_no_folder_name_is_refused(suffix: str, tmp_path: Path):
    with pytest.raises(ConfigError, match="suffix"):
        Run.create(Config(tmp_path), suffix=suffix)
    assert list(tmp_path.iterdir()) == []


def test_an_output_dir_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    for output_dir in (tmp_path / "file", Path("/proc/runs")):
        with pytest.raises(ConfigError, match="output_dir"):
            Run.create(Config(output_dir))


def test_opening_what_is_no_run_is_refused_without_making_a_file(tmp_path: Path):
    with pytest.raises(CheckpointError, match="is not a run directory"):
        Run.open(tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- one process at a time ---

HOLD = f"""
import sys; sys.path.insert(0, {SOURCES!r})
from rl_training.experiment.lock import RunLock
lock = RunLock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""

HOLD_WITH_CHILD = f"""
import os, sys, time; sys.path.insert(0, {SOURCES!r})
from rl_training.experiment.lock import RunLock
lock = RunLock(sys.argv[1])
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(60)
sys.stdin.read()
"""


def test_a_second_process_is_told_who_works_here_and_gets_in_after_a_kill(tmp_path: Path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(RunBusyError, match=rf"in use by process {process.pid} on host \S+\. Wait"):
            RunLock(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait()
    RunLock(tmp_path).release()


def test_a_worker_that_outlives_its_killed_parent_does_not_keep_the_lock(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_WITH_CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        child = int(process.stdout.readline())
        try:
            with pytest.raises(RunBusyError):  # the child closed its copy: the parent still holds it
                RunLock(tmp_path)
            process.send_signal(signal.SIGKILL)
            process.wait()
            RunLock(tmp_path).release()
        finally:
            os.kill(child, signal.SIGKILL)


def test_the_same_process_cannot_open_a_run_twice(run: Run):
    with pytest.raises(RunBusyError, match="this very process"):
        Run.open(run.directory)
    run.close()
    run.close()
    with Run.open(run.directory) as again:
        assert again.directory == run.directory


def test_a_refused_process_changes_nothing(run: Run):
    run.log({"return": 1.0}, step=1)
    before = {path: path.read_bytes() for path in run.directory.rglob("*") if path.is_file()}
    with pytest.raises(RunBusyError):
        Run.open(run.directory)
    assert before == {path: path.read_bytes() for path in run.directory.rglob("*") if path.is_file()}


# --- accidents ---


def test_a_run_directory_removed_under_its_feet_is_told_at_the_next_write(run: Run):
    run.log({}, step=1)
    shutil.rmtree(run.directory)
    with pytest.raises(RLTrainingError, match="removed"):
        run.log({}, step=2)
    with pytest.raises(CheckpointError, match="removed"):
        run.save_checkpoint(state(1), step=2, keep=3)
    with pytest.raises(CheckpointError, match="removed"):
        run.save_best(state(1), score=1.0, step=2)
    assert not run.directory.exists()


# --- metadata ---


def test_metadata_tell_what_is_needed_to_repeat_the_run():
    metadata = run_metadata()
    assert metadata["versions"]["numpy"] == np.__version__
    assert metadata["versions"]["rl_training"] == "0.1.0"
    assert metadata["torch_threads"] == torch.get_num_threads()
    assert metadata["command"] == sys.argv
    assert json.loads(json.dumps(metadata)) == metadata


def test_git_state_knows_commit_and_dirt_and_never_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert run_metadata()["git"] is None
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    (tmp_path / "file").write_text("one")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    for arguments in (["init", "-q"], ["add", "file"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *arguments], check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert run_metadata()["git"] == {"commit": commit, "dirty": False}
    (tmp_path / "file").write_text("two")
    assert run_metadata()["git"] == {"commit": commit, "dirty": True}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_metadata()["git"] is None


def test_every_resume_is_added_to_the_history(run: Run):
    longer = Config(run.directory.parent)
    run.note_resume(longer, step=100, changes={"seed": [1, 2]}, differences=["the version of torch was 1 and is 2"])
    append_resume(run.directory, {"step": 200})
    entries = read_metadata(run.directory)["resume_history"]
    assert [entry["step"] for entry in entries] == [100, 200]
    assert entries[0]["changes"] == {"seed": [1, 2]}
    assert entries[0]["differences"] == ["the version of torch was 1 and is 2"]
    (run.directory / "metadata.json").write_text("{torn")
    append_resume(run.directory, {"step": 300})  # lost metadata do not keep a run from going on
    assert [entry["step"] for entry in read_metadata(run.directory)["resume_history"]] == [300]


def test_an_inexact_resume_stays_on_the_record(run: Run):
    assert read_metadata(run.directory)["exact"] is True
    run.note_inexact()
    run.note_resume(Config(run.directory.parent), step=5, changes={}, differences=[])
    assert read_metadata(run.directory)["exact"] is False


def test_two_checkpoints_of_the_same_state_in_different_runs_are_the_same_file(run: Run, tmp_path: Path):
    with Run.create(Config(tmp_path / "elsewhere"), suffix="later") as other:
        files = [
            here.save_checkpoint(replace(state(1), metadata=here.checkpoint_metadata()), step=1, keep=1)
            for here in (run, other)
        ]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_only_what_can_change_the_bits_counts_as_a_difference():
    old = {
        "versions": {"torch": "2.5", "mujoco": None, "numpy": "2.0"},
        "torch_threads": 1,
        "cpu_model": "A",
        "created": "then",
        "git": {"commit": "x"},
    }
    new = {
        "versions": {"torch": "2.6", "mujoco": "3.1", "numpy": "2.0"},
        "torch_threads": 2,
        "cpu_model": "A",
        "created": "now",
        "git": None,
    }
    assert environment_differences(old, new) == [
        "the version of torch was 2.5 and is 2.6",
        "the version of mujoco was none and is 3.1",
        "the number of torch threads was 1 and is 2",
    ]
    assert environment_differences(old, old) == []
    assert environment_differences({}, new) == []


def test_instructions_and_switches_that_libraries_choose_their_kernels_by_count():
    old = {"cpu_instructions": ["avx", "avx2", "fma"], "switches": {"MKL_CBWR": "AVX2"}, "passes_build": "a1"}
    new = {"cpu_instructions": ["avx", "avx512f", "fma"], "switches": {"OPENBLAS_CORETYPE": "SkylakeX"}, "passes_build": "b2"}
    assert environment_differences(old, new) == [
        "the processor's instructions differ: no avx2, avx512f",
        "the build of the compiled passes was a1 and is b2",
        "MKL_CBWR was AVX2 and is none",
        "OPENBLAS_CORETYPE was none and is SkylakeX",
    ]
    assert environment_differences({"switches": {}}, {"switches": {}}) == []
    assert environment_differences({}, new) == []  # of a version that did not look


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"MKL_CBWR": "COMPATIBLE"}, "MKL_CBWR was none and is COMPATIBLE"),
        ({"OPENBLAS_CORETYPE": "SkylakeX"}, "OPENBLAS_CORETYPE was none and is SkylakeX"),
        ({"ATEN_CPU_CAPABILITY": "default", "RL_TRAINING_NATIVE": "0"}, "the instructions that torch uses was "),
    ],
)
def test_a_process_that_computes_otherwise_knows_it(variables: dict[str, str], said: str):
    """Each of these gives PPO or SAC other bytes on some processor."""
    code = "import json, torch; from rl_training.experiment.metadata import numeric_environment as n; print(json.dumps(n()))"

    def environment(**more: str) -> dict[str, object]:
        settings = {"PYTHONPATH": str(SOURCES), **more}
        return json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=settings).stdout)

    plain = environment()
    assert environment_differences(plain, environment()) == []
    assert any(sentence.startswith(said) for sentence in environment_differences(plain, environment(**variables)))
