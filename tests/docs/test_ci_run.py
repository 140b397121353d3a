"""Continuous integration goes on to the tests whatever becomes of the browser."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conftest import REPOSITORY

TOOLS = ("bash", "dirname", "tail", "timeout", "cat")


def run_ci(folder: Path, *, user: str = "0", apt: str | None = "exit 0", chromium: bool = False) -> tuple[str, str]:
    """What was called, and what was said, with stand-ins for every program that would do something."""
    programs = {"make": 'echo "make $*" >> $CALLS', "id": f"echo {user}"}
    programs |= {} if apt is None else {"apt-get": f'echo "apt-get ${{@: -1}}" >> $CALLS\n{apt}'}
    programs |= {"chromium": "exit 0"} if chromium else {}
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    for tool in TOOLS:
        found = next(path for place in ("/usr/bin", "/bin") if (path := Path(place) / tool).exists())
        (folder / tool).symlink_to(found)
    calls = folder / "calls.txt"
    environment = {"PATH": str(folder), "CALLS": str(calls), "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(
        [str(folder / "bash"), str(REPOSITORY / ".ci" / "run")], env=environment, capture_output=True, text=True, check=True
    )
    return calls.read_text(), done.stderr


@pytest.mark.parametrize(
    ("settings", "calls", "words"),
    [
        ({}, "apt-get update\napt-get chromium\n", ""),
        ({"chromium": True}, "", ""),
        ({"apt": "echo no network; exit 100"}, "apt-get update\n", "no network\nchromium could not be installed"),
        ({"apt": None}, "", "without root and apt-get"),
        ({"user": "1000"}, "", "without root and apt-get"),
    ],
)
def test_the_tests_are_run_with_a_browser_or_without(settings: dict, calls: str, words: str, tmp_path: Path):
    called, said = run_ci(tmp_path, **settings)
    assert called == calls + "make test\n"
    assert words in said
    assert bool(said) == bool(words)
