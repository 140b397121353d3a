"""Shared by all tests: one torch thread, so that parallel workers do not fight over the cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Any]:
    """Forks training processes to be killed; one for all tests of a worker, since its imports take seconds.

    It stands here because a second file of this name would hide this one from those who import from it.
    """
    from faults.nursery import Nursery

    with Nursery() as made:
        yield made


@pytest.fixture(scope="session", autouse=True)
def _state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What runs were begun with is remembered in the user's home: not in that of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def half_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a run that stopped half-way, of any small configuration; made once, and not to be written to."""
    from small_runs import StopAt, small_config, train

    @cache
    def made(name: str) -> Path:
        config = small_config(name, tmp_path_factory.mktemp("half"), checkpoint_interval=40)
        return Path(train(config, callbacks=[StopAt(config.total_timesteps // 2)], run_suffix="half").run_dir)

    return made


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Tests left out for want of a browser are easily taken for tests that passed: say so at the very end."""
    yield
    skipped = [report for report in terminalreporter.getreports("skipped") if "no browser" in str(report.longrepr)]
    if skipped:
        terminalreporter.section("WARNING", sep="!", red=True, bold=True)
        words = "tests of the report in a real browser WERE NOT RUN: there is no Chromium (apt-get install chromium)"
        terminalreporter.line(f"{len(skipped)} {words}", red=True, bold=True)
