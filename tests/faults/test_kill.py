"""Kill a run anywhere, resume it, and it ends with the very bytes of a run that nobody disturbed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from kills import Victim
from nursery import Nursery
from small_runs import ALGORITHMS, ENDS_EARLY

from rl_training.experiment.registry import algorithm_names

KILLS = 5
VICTIMS = [*ALGORITHMS, "sac_mujoco"]


def test_no_algorithm_is_spared():
    assert sorted(ALGORITHMS) == algorithm_names()


@pytest.mark.parametrize("name", VICTIMS)
def test_a_run_killed_five_times_ends_as_the_undisturbed_one(name: str, tmp_path: Path, nursery: Nursery):
    victim = Victim(name, tmp_path / name, nursery, seed=0)
    tally = victim.kill(KILLS - 2)
    tally += victim.kill_in_writes(2)
    assert tally["kills"] == KILLS
    assert tally["runs"] >= 2


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == "sac" else pytest.mark.slow) for name in ALGORITHMS])
def test_a_run_that_ends_early_and_is_killed_after_any_save_ends_as_the_undisturbed_one(
    name: str, tmp_path: Path, nursery: Nursery
):
    """Between the save of the turn that decided the end and the end itself there are two moments to be killed in."""
    victim = Victim(name, tmp_path / name, nursery, seed=0, algo_kwargs=ENDS_EARLY)
    assert victim.last_step < victim.config.total_timesteps
    tally = victim.kill_after_every_save()
    assert tally["kills"] == tally["runs"] >= 3


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_polite_signal_at_any_moment_loses_not_one_step(signum: signal.Signals, tmp_path: Path, nursery: Nursery):
    victim = Victim("sac", tmp_path / "sac", nursery, seed=0, log_interval=1, checkpoint_interval=10**6)
    tally = victim.interrupt(3, signum)
    assert tally["signals"] == 3
    assert tally["during training"] > 0
