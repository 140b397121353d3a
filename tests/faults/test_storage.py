"""What disks, directories and other processes do to a run: told in words, exit code 2, and the last good checkpoint is safe."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from disks import small_disk
from kills import checkpoints
from nursery import Nursery
from small_runs import StopAt, history, small_config, state_difference, train

from rl_training.cli import main
from rl_training.errors import RLTrainingError
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.workflows import resume_training

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run to compare with."""
    return train(small_config("ppo", tmp_path_factory.mktemp("whole"), checkpoint_interval=40)).run_dir


def half_a_run(folder: Path, **changes: Any) -> Path:
    settings = {"checkpoint_interval": 40, **changes}
    return train(small_config("ppo", folder, **settings), callbacks=[StopAt(120)]).run_dir


def said(capsys: Capture) -> str:
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return text


def same_end(run: Path, whole: Path) -> bool:
    return state_difference(checkpoints(whole)[0], checkpoints(run)[0]) is None and history(run) == history(whole)


# --- a disk without room


def test_a_disk_that_fills_up_ends_the_run_and_keeps_every_checkpoint(tmp_path: Path, whole: Path, capsys: Capture):
    config = small_config("ppo", tmp_path / "disk", checkpoint_interval=20, keep_checkpoints=100)
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    with small_disk(tmp_path / "disk", size="128k") as disk:
        assert main(["train", "--config", str(tmp_path / "config.yaml"), "--quiet", "--run-suffix", "a"]) == 2
        text = said(capsys)
        assert "No space left on device" in text
        run = disk.path / "ppo__CartPole-v1__seed3__a"
        assert str(run) in text
        kept = {path: path.read_bytes() for path in checkpoints(run)}
        assert kept
        assert not list(run.rglob("*.partial"))
        disk.fill()
        assert main(["resume", "--checkpoint", str(run), "--quiet"]) == 2  # still no room
        assert "No space left on device" in said(capsys)
        assert {path: path.read_bytes() for path in checkpoints(run)} == kept
        disk.remount("size=8m")
        assert main(["resume", "--checkpoint", str(run), "--quiet"]) == 0
        assert same_end(run, whole)


def test_a_run_that_cannot_begin_for_lack_of_room_says_so(tmp_path: Path, capsys: Capture):
    (tmp_path / "config.yaml").write_text(small_config("ppo", tmp_path / "disk").to_yaml())
    with small_disk(tmp_path / "disk", size="64k") as disk:
        disk.fill()
        assert main(["train", "--config", str(tmp_path / "config.yaml"), "--quiet"]) == 2
        text = said(capsys)
    assert "No space left on device" in text
    assert str(tmp_path / "disk") in text


def test_a_quota_on_the_size_of_files_ends_the_run_and_keeps_every_checkpoint(tmp_path: Path, whole: Path, nursery: Nursery):
    """Needs no rights: the system refuses to let any file of this process grow beyond the limit."""
    run = half_a_run(tmp_path)
    kept = {path: path.read_bytes() for path in checkpoints(run)}
    log = tmp_path / "log"
    assert nursery.run("resume", "--checkpoint", run, "--quiet", log=log, file_limit=8_000) == 2
    assert "File too large" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert {path: path.read_bytes() for path in checkpoints(run)} == kept
    assert not list(run.rglob("*.partial"))
    assert nursery.run("resume", "--checkpoint", run, "--quiet", log=log) == 0
    assert same_end(run, whole)


# --- a directory that cannot be written, or is gone


def test_a_read_only_run_is_refused_by_resume_and_used_by_eval(tmp_path: Path, capsys: Capture):
    with small_disk(tmp_path / "disk", size="8m") as disk:
        run = half_a_run(disk.path)
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        disk.remount("ro")
        assert main(["resume", "--checkpoint", str(run), "--quiet"]) == 2
        text = said(capsys)
        assert "Read-only file system" in text
        assert str(run) in text
        assert main(["eval", "--checkpoint", str(run), "--num-episodes", "1"]) == 0
        assert main(["train", "--config", str(run / "config.yaml"), "--quiet"]) == 2
        assert "Read-only file system" in said(capsys)
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
        disk.remount("rw")


def test_a_run_directory_removed_under_its_feet_ends_the_run_and_is_not_made_again(tmp_path: Path):
    class Remove(Callback):
        def on_collect_end(self, trainer: Any, result: Any) -> None:
            if trainer.global_step == 120:
                shutil.rmtree(trainer.run.directory)

    with pytest.raises(RLTrainingError, match="removed"):
        train(small_config("ppo", tmp_path, checkpoint_interval=40), callbacks=[Remove()])
    assert list(tmp_path.iterdir()) == []


# --- two processes


def test_a_second_process_resuming_the_same_run_is_refused_and_the_first_goes_on(
    tmp_path: Path, whole: Path, nursery: Nursery, capsys: Capture
):
    run = half_a_run(tmp_path)
    log = tmp_path / "log"
    pid = nursery.start(["resume", "--checkpoint", str(run), "--quiet"], log=log)
    os.kill(pid, signal.SIGSTOP)  # wherever it is
    lock = run / ".lock"
    while f"process {pid} " not in lock.read_text():  # let it go on until it holds the run
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.005)
        os.kill(pid, signal.SIGSTOP)
    before = history(run)
    assert main(["resume", "--checkpoint", str(run), "--quiet"]) == 3
    assert f"in use by process {pid}" in said(capsys)
    assert history(run) == before
    os.kill(pid, signal.SIGCONT)
    assert nursery.wait() == 0
    assert same_end(run, whole)


# --- checkpoints of a run that were damaged


def test_a_cut_checkpoint_is_named_and_the_one_before_it_offered(tmp_path: Path, capsys: Capture):
    run = half_a_run(tmp_path)
    newest, older, *_ = checkpoints(run)
    raw = newest.read_bytes()
    for sixteenth in range(16):
        newest.write_bytes(raw[: len(raw) * sixteenth // 16])
        for command in ("resume", "eval"):
            assert main([command, "--checkpoint", str(newest)]) == 2
            text = said(capsys)
            assert f"{newest}: " in text
            assert f"The newest good checkpoint beside it: {older}" in text


def test_flipped_bytes_are_found_and_the_run_goes_on_from_the_checkpoint_before(tmp_path: Path, whole: Path, capsys: Capture):
    run = half_a_run(tmp_path)
    newest, older, *_ = checkpoints(run)
    raw = newest.read_bytes()
    header = 8 + int.from_bytes(raw[:8], "little")
    for position in (0, 9, header - 40, header + 3, (header + len(raw)) // 2, len(raw) - 1):
        damaged = bytearray(raw)
        damaged[position] ^= 0x10
        newest.write_bytes(damaged)
        assert main(["resume", "--checkpoint", str(newest), "--quiet"]) == 2
        text = said(capsys)
        assert f"{newest}: " in text
        assert str(older) in text
    assert main(["resume", "--checkpoint", str(run), "--quiet"]) == 0
    assert f"skipped, an older checkpoint is used: {newest}" in said(capsys)
    assert same_end(run, whole)


def test_a_run_ended_before_its_first_checkpoint_is_told_how_to_begin_again(tmp_path: Path, capsys: Capture):
    run = half_a_run(tmp_path)
    for path in checkpoints(run):
        path.unlink()
    assert main(["resume", "--checkpoint", str(run)]) == 2
    assert f"begin again with: rl-training train --config {run / 'config.yaml'}" in said(capsys)


def test_a_resumed_run_does_not_mind_rubbish_beside_its_checkpoints(tmp_path: Path, whole: Path):
    run = half_a_run(tmp_path)
    for name in ("step_999999999.safetensors.7.partial", "step_abc.safetensors", "notes.txt"):
        (run / "checkpoints" / name).write_bytes(b"rubbish")
    (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text() + '{"step": 5, "met')
    resume_training(run)
    assert same_end(run, whole)


# --- a file system without locks


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_without_locks_there_is_a_warning_and_the_run_ends_well(
    number: int, tmp_path: Path, whole: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    def no_locks(handle: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    config = tmp_path / "config.yaml"
    config.write_text(small_config("ppo", tmp_path / "runs", total_timesteps=120, checkpoint_interval=40).to_yaml())
    assert main(["train", "--config", str(config), "--quiet", "--run-suffix", "a"]) == 0
    assert "this file system has no locks; see to it that only one process works here" in said(capsys)
    run = tmp_path / "runs" / "ppo__CartPole-v1__seed3__a"
    assert main(["resume", "--checkpoint", str(run), "--total-timesteps", "240", "--quiet"]) == 0
    assert "no locks" in said(capsys)
    assert history(run)[-1]["step"] == 240


def test_a_lock_that_cannot_be_had_for_another_reason_is_named(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    def broken(handle: int, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", broken)
    (tmp_path / "config.yaml").write_text(small_config("ppo", tmp_path / "runs").to_yaml())
    assert main(["train", "--config", str(tmp_path / "config.yaml"), "--quiet"]) == 2
    assert "cannot be locked: Input/output error" in said(capsys)
