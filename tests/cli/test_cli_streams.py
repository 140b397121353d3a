"""Standard streams that are closed or full: a training is neither ended nor called a failure by that, and files stay clean."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import history, small_config, train

from conftest import REPOSITORY
from rl_training.cli import main
from rl_training.cli.streams import output_is_lost

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="there is no full device here")


def command(words: str, streams: str) -> subprocess.CompletedProcess[str]:
    """`rl-training WORDS` in a process whose streams a shell has prepared; stderr, where it is left alone, is kept."""
    shell = f"exec {sys.executable} -m rl_training {words} {streams}"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(["sh", "-c", shell], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(small_config("ppo", tmp_path / "runs", total_timesteps=40, checkpoint_interval=20).to_yaml())
    return file


STREAMS = [">/dev/full", "<&- >&- 2>&-", ">/dev/full 2>/dev/full", "2>&-"]


@pytest.mark.parametrize(("streams", "quiet"), [*((streams, "") for streams in STREAMS), (">/dev/full", "--quiet")])
def test_a_training_that_can_tell_nobody_ends_well_all_the_same(streams: str, quiet: str, config: Path):
    done = command(f"train --config {config} --run-suffix a {quiet}", streams)
    assert done.returncode == 0
    run = config.parent / "runs" / "ppo__CartPole-v1__seed3__a"
    assert [line["step"] for line in history(run)][-1] == 40  # every line is whole: nothing was printed into a file
    assert (run / "checkpoints" / "step_000000040.safetensors").exists()
    if streams == ">/dev/full":
        lost = f"run_dir={run}" if quiet else "ppo on CartPole-v1"
        assert done.stderr.startswith(
            f"warning: stdout cannot be written: No space left on device; the first that is lost: {lost}"
        )
        assert done.stderr.count("\n") == 1
    else:
        assert done.stderr == ""


@pytest.mark.parametrize("words", ["list", "config ppo/cartpole", "--help"])
def test_a_command_that_is_there_to_print_fails_where_it_cannot(words: str):
    done = command(words, ">/dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("warning: stdout cannot be written: No space left on device; the first that is lost: ")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_an_evaluation_nobody_hears_of_has_failed_and_an_error_nobody_hears_of_keeps_its_exit_code(tmp_path: Path):
    run = train(small_config("ppo", tmp_path, total_timesteps=40)).run_dir
    assert command(f"eval {run} --num-episodes 1", ">/dev/full").returncode == 2
    assert command(f"eval {run} --num-episodes 1", ">&-").returncode == 0  # that nobody wants to hear of it was said
    assert command(f"eval {tmp_path}/nothing", "2>/dev/full").returncode == 2
    assert command(f"eval {tmp_path}/nothing", "2>&-").returncode == 2


def test_what_was_lost_before_is_forgotten(capsys: pytest.CaptureFixture[str]):
    assert main(["list"]) == 0
    assert not output_is_lost()
