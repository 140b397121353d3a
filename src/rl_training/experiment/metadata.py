"""Where, when and with what a run was made; what is needed to tell why a resumed run is not the same to the bit."""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import cache
from importlib import metadata as distributions
from pathlib import Path
from typing import Any

from rl_training.errors import RLTrainingError
from rl_training.experiment.files import read_plain, reason, write_text
from rl_training.kernels import library

logger = logging.getLogger(__name__)

_PACKAGES = {"rl_training": "rl-training", "torch": "torch", "numpy": "numpy", "gymnasium": "gymnasium", "mujoco": "mujoco"}
_WORDS = {
    "torch_threads": "the number of torch threads",
    "machine": "the machine type",
    "cpu_model": "the processor",
    "passes": "the kind of compiled passes",
}
_DEFAULT_VERSION = "0.1.0"  # run from a source tree that is not installed


def run_metadata() -> dict[str, Any]:
    """A plain dict for `metadata.json`: the numeric environment, and what only a person wants to know."""
    return {
        "created": _now(),
        "command": list(sys.argv),
        **numeric_environment(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "git": _git_state(),
    }


def numeric_environment() -> dict[str, Any]:
    """What can change the bits of a result. Imports nothing, and asks torch only if it is loaded anyway."""
    torch = sys.modules.get("torch")
    return {
        "versions": {"python": platform.python_version(), **{name: _version(dist) for name, dist in _PACKAGES.items()}},
        "torch_threads": None if torch is None else torch.get_num_threads(),
        "machine": platform.machine(),
        "cpu_model": _cpu_model(),
        "passes": None if torch is None else library.in_use(),
    }


def append_resume(run_dir: str | Path, entry: Mapping[str, Any]) -> None:
    """Add one entry, with time and command, to the `resume_history` of a run's metadata."""
    known = read_metadata(run_dir)
    history = known.get("resume_history")
    entries = [*(history if isinstance(history, list) else []), {"resumed": _now(), "command": list(sys.argv), **entry}]
    write_metadata(run_dir, {**known, "resume_history": entries})


def read_metadata(run_dir: str | Path) -> dict[str, Any]:
    """A run's metadata; empty, with a warning, when they are lost: that must not keep a run from going on."""
    path = Path(run_dir) / "metadata.json"
    try:
        known = json.loads(read_plain(path))
    except (OSError, ValueError, RecursionError) as error:
        logger.warning("%s: cannot be read (%s); a new one is begun", path, error)
        return {}
    return known if isinstance(known, dict) else {}


def write_metadata(run_dir: str | Path, metadata: Mapping[str, Any]) -> None:
    """Replace a run's `metadata.json` in one step."""
    path = Path(run_dir) / "metadata.json"
    try:
        write_text(path, json.dumps(metadata, indent=2, default=str) + "\n")
    except OSError as error:
        raise RLTrainingError(f"{path}: cannot be written: {reason(error)}") from error


def environment_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One sentence for each difference that can make a resumed run depart from an uninterrupted one in its last bits."""
    versions_before, versions_now = dict(old.get("versions") or {}), dict(new.get("versions") or {})
    pairs = [(f"the version of {name}", versions_before[name], versions_now.get(name)) for name in versions_before]
    pairs += [(words, old[key], new.get(key)) for key, words in _WORDS.items() if old.get(key) is not None]
    return [
        f"{words} was {'none' if before is None else before} and is {'none' if now is None else now}"
        for words, before, now in pairs
        if before != now
    ]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@cache
def _version(distribution: str) -> str | None:
    try:
        return distributions.version(distribution)
    except distributions.PackageNotFoundError:
        return _DEFAULT_VERSION if distribution == "rl-training" else None


@cache
def _cpu_model() -> str | None:
    # matrix libraries choose their kernels by it
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _git_state() -> dict[str, Any] | None:
    """Commit of the working directory and whether tracked files differ from it; None for what cannot be found out, or not
    without running what a stranger's repository names."""
    filters = _git("config", "--show-scope", "--get-regexp", r"^filter\.")
    # to compare contents, git runs the filters of its settings; it does so in `diff-index` too, for files as young as the index
    if filters is None or any(line.startswith(("local", "worktree")) for line in filters.splitlines()):
        commit = _git("rev-parse", "--verify", "HEAD")
        return {"commit": commit.strip(), "dirty": None} if commit else None
    status = _git("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=all")
    if status is None:
        return None
    lines = status.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), None)
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines)}


def _git(*words: str) -> str | None:
    """What git says, None where it fails. No lock is taken, no hook of the repository is run, and nothing is fetched."""
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *words]
    environment = {**os.environ, "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(  # noqa: S603 (words of our own)
            command, capture_output=True, text=True, timeout=1.0, check=False, errors="replace", env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return None
    nothing_found = words[0] == "config" and done.returncode == 1
    return done.stdout if done.returncode == 0 or nothing_found else None
