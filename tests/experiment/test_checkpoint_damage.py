"""No accident damages a checkpoint unnoticed, and none takes away the previous one."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_helpers import SOURCES, same, small_state
from disks import small_disk

from rl_training.errors import CheckpointError
from rl_training.experiment.checkpoint import CheckpointState, load_checkpoint, read_header, save_checkpoint, verify_checkpoint


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_checkpoint(tmp_path / "a.safetensors", small_state())


# --- damage ---


def test_a_file_cut_anywhere_is_refused(saved: Path, tmp_path: Path):
    raw = saved.read_bytes()
    cut = tmp_path / "cut.safetensors"
    for length in sorted({*(len(raw) * i // 16 for i in range(16)), *range(17), len(raw) - 1}):
        cut.write_bytes(raw[:length])
        for read in (load_checkpoint, verify_checkpoint, read_header):
            with pytest.raises(CheckpointError, match=r"cut\.safetensors: \w+"):
                read(cut)


def test_bytes_after_the_end_are_refused(saved: Path):
    with saved.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(CheckpointError, match="announced"):
        load_checkpoint(saved)


def test_every_flipped_bit_and_every_changed_byte_is_found(saved: Path, tmp_path: Path):
    raw = saved.read_bytes()
    length = 8 + int.from_bytes(raw[:8], "little")
    chance = random.Random(0)
    positions = [*range(16), *range(length - 16, len(raw)), *chance.sample(range(len(raw)), 300)]
    flipped = tmp_path / "flipped.safetensors"
    for position in positions:
        for mask in (1 << chance.randrange(8), chance.randrange(1, 256)):
            damaged = bytearray(raw)
            damaged[position] ^= mask
            flipped.write_bytes(damaged)
            with pytest.raises(CheckpointError):
                load_checkpoint(flipped)
            with pytest.raises(CheckpointError):
                verify_checkpoint(flipped)


def test_even_a_tab_in_place_of_a_space_is_found(tmp_path: Path):
    for size in range(8):  # one of these has padding
        path = save_checkpoint(tmp_path / "a.safetensors", CheckpointState(config={"a": "x" * size}))
        raw = path.read_bytes()
        if raw.endswith(b" "):
            path.write_bytes(raw[:-1] + b"\t")
            with pytest.raises(CheckpointError, match="digest"):
                read_header(path)
            return
    pytest.fail("no file with padding was made")


def test_swapped_arrays_of_equal_shape_are_found(tmp_path: Path):
    state = CheckpointState(algorithm_state={"a": torch.zeros(4), "b": torch.ones(4)})
    path = save_checkpoint(tmp_path / "a.safetensors", state)
    raw = path.read_bytes()
    path.write_bytes(raw[:-32] + raw[-16:] + raw[-32:-16])
    with pytest.raises(CheckpointError, match="checksum of algorithm_state/a"):
        load_checkpoint(path)


# --- writing under bad circumstances ---


def test_a_target_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    for target in (tmp_path / "file" / "a.safetensors", Path("/proc/a.safetensors"), tmp_path / ("x" * 300)):
        with pytest.raises(CheckpointError, match="could not be written") as caught:
            save_checkpoint(target, small_state())
        assert str(target) in str(caught.value)


def test_an_error_part_way_leaves_the_previous_file_and_no_partial(saved: Path, monkeypatch: pytest.MonkeyPatch):
    before = saved.read_bytes()

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("rl_training.experiment.files.os.fsync", broken)
    with pytest.raises(CheckpointError, match="Input/output error"):
        save_checkpoint(saved, CheckpointState())
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_an_interrupt_part_way_leaves_the_previous_file_and_no_partial(saved: Path, monkeypatch: pytest.MonkeyPatch):
    before = saved.read_bytes()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rl_training.experiment.checkpoint_file.write_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(saved, CheckpointState())
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path: Path):
    with small_disk(tmp_path / "disk", size="1m") as disk:
        path = save_checkpoint(disk.path / "a.safetensors", small_state())
        before = path.read_bytes()
        with pytest.raises(CheckpointError, match="No space left on device"):
            save_checkpoint(path, CheckpointState(buffer_state={"obs": torch.zeros(1_000_000)}))
        assert path.read_bytes() == before
        assert [entry.name for entry in disk.path.iterdir()] == ["a.safetensors"]
        assert same(load_checkpoint(path).algorithm_state, small_state().algorithm_state)


SAVE_FOR_EVER = f"""
import sys; sys.path.insert(0, {SOURCES!r})
import numpy as np
from rl_training.experiment.checkpoint import CheckpointState, save_checkpoint
rows = np.zeros((400_000, 5), dtype=np.float32)
number = 0
while True:
    number += 1
    rows[:] = number
    save_checkpoint(sys.argv[1], CheckpointState(buffer_state={{"rows": rows}}, trainer_state={{"number": number}}))
    print(number, flush=True)
"""


def test_kills_during_saving_never_lose_the_checkpoint(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    chance = random.Random(0)
    torn = 0
    for _ in range(15):
        process = subprocess.Popen([sys.executable, "-c", SAVE_FOR_EVER, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()  # the first save is done; from here on it is in the middle of one nearly always
        time.sleep(chance.uniform(0.0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        loaded = load_checkpoint(path)
        assert np.all(loaded.buffer_state["rows"] == loaded.trainer_state["number"])
        torn += len(list(tmp_path.glob("*.partial")))
        for partial in tmp_path.glob("*.partial"):
            partial.unlink()
    assert torn > 0, "no kill hit a save; this test proves nothing"


SAVE_LARGE = f"""
import resource, sys; sys.path.insert(0, {SOURCES!r})
import torch
from rl_training.experiment.checkpoint import CheckpointState, load_checkpoint, save_checkpoint
save_checkpoint(sys.argv[1], CheckpointState(buffer_state={{"obs": torch.ones(10)}}))
rows = torch.ones(50_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
save_checkpoint(sys.argv[1], CheckpointState(buffer_state={{"obs": rows}}))
saving = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
load_checkpoint(sys.argv[1], parts=("algorithm_state",))
print(saving // 1024, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 - before // 1024)
"""


def test_saving_200_megabytes_takes_no_second_copy_of_them(tmp_path: Path):
    run = subprocess.run(
        [sys.executable, "-c", SAVE_LARGE, str(tmp_path / "a.safetensors")], capture_output=True, text=True, check=True
    )
    (tmp_path / "a.safetensors").unlink()
    saving, opening = map(int, run.stdout.split())
    assert saving < 20
    assert opening < 20
