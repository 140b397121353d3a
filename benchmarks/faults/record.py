"""What every committed result says of itself: which software, which commit, which machine, which command."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def write_record(name: str, values: dict[str, Any], *, command: str, versions: dict[str, str] | None = None) -> Path:
    """Put a result where the docs find it."""
    packages = ("torch", "numpy", "gymnasium", "mujoco")
    record = {
        **values,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages} | (versions or {}),
        "machine": {"cpu": _cpu_model(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.release()}"},
        "commit": _commit(),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": command,
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def _commit() -> str:
    """The one that was tried, and whether anything but results differed from it."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=False).stdout.strip()

    changed = [line for line in git("status", "--porcelain").splitlines() if "/results/" not in line]
    return git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
