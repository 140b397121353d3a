"""What a result has to say of how it came about: code, versions, machine, day and command."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MEASURED = ("src", "benchmarks/speed/*.py")  # what numbers depend on


def circumstances(command: str) -> dict[str, Any]:
    """To be asked before measuring: the load is that of others."""
    return {
        "versions": library_versions(),
        "machine": machine(),
        "load": round(os.getloadavg()[0], 1),
        **code(),
        "date": f"{datetime.now(timezone.utc):%F}",
        "command": command,
    }


def computing() -> dict[str, str]:
    """What this process computes with: our passes and torch's instructions."""
    import torch

    from rl_training.kernels import library

    return {"passes": library.in_use(), "torch_capability": torch.backends.cpu.get_cpu_capability()}


def code() -> dict[str, Any]:
    """The commit, and whether what is measured has been changed since; nothing outside a clone."""
    try:
        commit = git("rev-parse", "--short", "HEAD")
        return {"commit": commit.strip(), "changed": bool(git("status", "--porcelain", "--", *MEASURED))}
    except (OSError, subprocess.CalledProcessError):
        return {}


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def library_versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in ("torch", "numpy", "gymnasium")}


def machine() -> dict[str, Any]:
    """Hypervisors may hide a processor's name; family and model tell which design it is."""
    design = {name: int(value) for name in ("cpu family", "model") if (value := cpu_fact(name)) is not None}
    return {
        "cpu": cpu_model(),
        **{name.removeprefix("cpu "): value for name, value in design.items()},
        "avx512": avx512(),
        "cores": os.cpu_count(),
        "system": platform.system(),
    }


def cpu_model() -> str:
    return cpu_fact("model name") or platform.processor()


def avx512() -> bool:
    """Machines of one name differ in whether they show it to their guests."""
    return any(line.startswith("flags") and "avx512f" in line.split() for line in cpu_facts())


def cpu_fact(name: str) -> str | None:
    pairs = (line.partition(":") for line in cpu_facts())
    return next((value.strip() for key, _, value in pairs if key.strip() == name), None)


def cpu_facts() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
