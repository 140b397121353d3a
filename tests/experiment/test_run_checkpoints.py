"""The checkpoints of a run: kept, found again, and named when they are lost."""

from __future__ import annotations

import errno
import math
import os
import shutil
import struct
from pathlib import Path
from threading import Event, Timer

import pytest
import torch
from run_helpers import Config, state

from rl_training.errors import CheckpointError
from rl_training.experiment import files
from rl_training.experiment.checkpoint import CheckpointState, load_checkpoint
from rl_training.experiment.locate import latest_good_checkpoint, resolve_checkpoint, run_directory_of
from rl_training.experiment.run import Run


def damage(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


@pytest.fixture
def run(tmp_path: Path):
    with Run.create(Config(tmp_path), suffix="a") as made:
        yield made


# --- checkpoints of a run ---


def test_the_last_few_checkpoints_and_the_best_policy_are_kept(run: Run):
    partial = run.directory / "checkpoints" / "step_000000001.safetensors.99999.partial"
    partial.write_text("left by a killed process")
    run.save_best(state(9), score=9.0, step=9)
    for step in (5, 500, 1000, 1_000_000_000, 2_000_000_000):
        run.save_checkpoint(state(step), step=step, keep=3)
    assert [path.name for path in run.checkpoints()] == [
        "step_2000000000.safetensors",
        "step_1000000000.safetensors",
        "step_000001000.safetensors",
    ]
    assert not partial.exists()
    best = load_checkpoint(run.directory / "checkpoints" / "best.safetensors")
    assert best.algorithm_state["w"].tolist() == [9.0] * 4
    assert best.metadata == {"kind": "policy", "score": 9.0, "step": 9}
    assert best.buffer_state == best.trainer_state == {}


def test_an_old_checkpoint_goes_only_when_the_new_name_is_on_the_disk(run: Run, monkeypatch: pytest.MonkeyPatch):
    first = run.save_checkpoint(state(1), step=1, keep=1)
    run.checkpoints()  # waits for what the disk has to do
    seen: list[list[str]] = []

    def watched(folder: Path) -> None:
        seen.append(sorted(path.name for path in folder.glob("step_*")))

    monkeypatch.setattr(files, "sync_directory", watched)
    second = run.save_checkpoint(state(2), step=2, keep=1)
    assert run.checkpoints() == [second]
    assert seen == [[first.name, second.name]]


def test_training_goes_on_while_the_disk_is_busy_and_whoever_needs_the_file_waits(run: Run, monkeypatch: pytest.MonkeyPatch):
    disk_is_free, fsync = Event(), os.fsync
    monkeypatch.setattr(files.os, "fsync", lambda handle: (disk_is_free.wait(60), fsync(handle))[1])
    folder = run.directory / "checkpoints"
    values = {"weights": torch.zeros(3)}
    first = run.save_checkpoint(CheckpointState(algorithm_state=values), step=1, keep=1, wait=False)
    assert [path.suffix for path in folder.iterdir()] == [".partial"]  # no name points to what is not on the disk
    values["weights"].fill_(1.0)  # training goes on; what was saved stays as it was
    later = Timer(0.2, disk_is_free.set)
    later.start()
    assert run.checkpoints() == [first]
    assert disk_is_free.is_set()
    assert load_checkpoint(first).algorithm_state["weights"].tolist() == [0.0, 0.0, 0.0]
    later.join()


def test_a_save_waits_for_the_one_before_and_the_end_for_the_last(run: Run, monkeypatch: pytest.MonkeyPatch):
    disk_is_free = Event()
    monkeypatch.setattr(files, "sync_directory", lambda folder: disk_is_free.wait(60))
    run.save_checkpoint(state(1), step=1, keep=1, wait=False)
    later = Timer(0.2, disk_is_free.set)
    later.start()
    last = run.save_checkpoint(state(2), step=2, keep=1, wait=False)
    assert disk_is_free.is_set()
    later.join()
    run.close()
    assert [path.name for path in last.parent.iterdir()] == [last.name]


def test_history_is_on_the_disk_before_the_checkpoint_that_counts_it_has_a_name(run: Run, monkeypatch: pytest.MonkeyPatch):
    synced, fsync, folder = [], os.fsync, run.directory / "checkpoints"

    def watching(handle: int) -> None:
        name = Path(f"/proc/self/fd/{handle}").readlink().name if Path("/proc/self/fd").exists() else "?"
        synced.append((name, [path.suffix for path in folder.iterdir()]))
        fsync(handle)

    run.log({"loss": 1.0}, step=1)
    monkeypatch.setattr(files.os, "fsync", watching)
    run.save_checkpoint(state(1), step=1, keep=1)
    before = [name for name, suffixes in synced if suffixes == [".partial"]]
    assert len(before) == 2
    assert before == ["?", "?"] or before[1] == "metrics.jsonl"


@pytest.mark.parametrize(
    ("part", "words"),
    [("sync_directory", "may not last: Input/output error"), ("os.fsync", "not be written: Input/output error")],
)
def test_what_goes_wrong_in_the_thread_is_told_once_by_whoever_comes_next(
    run: Run, part: str, words: str, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as broken:

        def failing(_: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        run.save_checkpoint(state(0), step=0, keep=1)
        broken.setattr(f"rl_training.experiment.files.{part}", failing)
        run.save_checkpoint(state(1), step=1, keep=1, wait=False)
        with pytest.raises(CheckpointError, match=words):
            run.save_checkpoint(state(2), step=2, keep=1)
    # nothing was removed, nothing half written
    assert [path.name for path in (run.directory / "checkpoints").iterdir() if path.suffix == ".partial"] == []
    assert load_checkpoint(run.checkpoints()[-1]).trainer_state == {"global_step": 0}
    last = run.save_checkpoint(state(3), step=3, keep=1)
    assert run.checkpoints() == [last]


def test_the_best_score_outlives_the_process_and_a_damaged_best_is_told(run: Run, caplog: pytest.LogCaptureFixture):
    assert run.best_score == -math.inf
    path = run.save_best(state(1), score=-120.5, step=1)
    run.close()
    with Run.open(run.directory) as again:
        assert again.best_score == -120.5
    path.write_bytes(path.read_bytes()[:100])
    with Run.open(run.directory) as again:
        assert again.best_score == -math.inf
    assert "best policy so far is lost" in caplog.text


def test_going_on_from_an_earlier_checkpoint_sets_the_later_ones_aside(run: Run, caplog: pytest.LogCaptureFixture):
    for step in (100, 200, 300):
        run.save_checkpoint(state(step), step=step, keep=3)
    run.save_checkpoint(state(150), step=150, keep=3)  # somebody resumed from step 100
    assert [path.name for path in run.checkpoints()] == ["step_000000150.safetensors", "step_000000100.safetensors"]
    assert latest_good_checkpoint(run.directory)[0].name == "step_000000150.safetensors"
    assert load_checkpoint(run.directory / "checkpoints/step_000000300.safetensors.aside").trainer_state == {"global_step": 300}
    assert "set aside" in caplog.text


def test_the_newest_good_checkpoint_is_found_and_each_loss_is_named(run: Run):
    one, two, three = (run.save_checkpoint(state(step), step=step, keep=5) for step in (1, 2, 3))
    assert latest_good_checkpoint(run.directory) == (three, [])
    damage(three)
    two.write_bytes(two.read_bytes()[:50])
    found, skipped = latest_good_checkpoint(run.directory)
    assert found == one
    assert [line.partition(":")[0] for line in skipped] == [str(three), str(two)]
    damage(one)
    with pytest.raises(CheckpointError, match=r"(?s)none of its 3 checkpoints.*step_000000003.*step_000000002.*step_000000001"):
        latest_good_checkpoint(run.directory)


def test_a_policy_is_found_where_only_the_buffer_is_damaged(run: Run):
    path = run.save_checkpoint(state(1), step=1, keep=1)
    raw = bytearray(path.read_bytes())
    with_buffer = raw.rindex(struct.pack("f", 1.0) * 16)
    raw[with_buffer] ^= 1
    path.write_bytes(raw)
    assert resolve_checkpoint(run.directory, parts=("algorithm_state",)) == path
    with pytest.raises(CheckpointError, match="buffer_state/obs"):
        resolve_checkpoint(run.directory)


def test_a_file_a_run_and_its_folder_all_name_a_checkpoint(run: Run, caplog: pytest.LogCaptureFixture):
    first = run.save_checkpoint(state(1), step=1, keep=5)
    second = run.save_checkpoint(state(2), step=2, keep=5)
    assert resolve_checkpoint(first) == first
    assert resolve_checkpoint(str(run.directory)) == resolve_checkpoint(run.directory / "checkpoints") == second
    assert run_directory_of(first) == run.directory
    damage(second)
    assert resolve_checkpoint(run.directory) == first
    assert f"skipped, an older checkpoint is used: {second}" in caplog.text
    with pytest.raises(CheckpointError, match=rf"step_000000002.*The newest good checkpoint beside it: {first}"):
        resolve_checkpoint(second)


def test_a_missing_checkpoint_names_those_there_are(run: Run, tmp_path: Path):
    with pytest.raises(CheckpointError, match="there is no checkpoint in it"):
        resolve_checkpoint(run.directory)
    run.save_checkpoint(state(1), step=1000, keep=5)
    with pytest.raises(CheckpointError, match=r"did you mean 'step_000001000\.safetensors'"):
        resolve_checkpoint(run.directory / "checkpoints" / "step_00001000.safetensors")
    with pytest.raises(CheckpointError, match="did you mean 'sac__Pendulum-v1__seed3__a'"):
        resolve_checkpoint(tmp_path / "sac__Pendulum-v1__seed3__b")
    with pytest.raises(CheckpointError, match="holds the runs sac__Pendulum-v1__seed3__a"):
        resolve_checkpoint(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="neither a run directory nor"):
        resolve_checkpoint(tmp_path / "empty")


def test_a_copied_checkpoint_belongs_to_no_run(run: Run, tmp_path: Path):
    copied = shutil.copy(run.save_checkpoint(state(1), step=1, keep=1), tmp_path / "copy.safetensors")
    assert run_directory_of(copied) is None
    assert resolve_checkpoint(copied) == Path(copied)
