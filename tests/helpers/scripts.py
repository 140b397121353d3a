"""Running the reference scripts as a user would: from another folder, without the package installed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from conftest import REPOSITORY


def run_reference(script: str, tmp_path: Path, *, total_timesteps: int) -> dict[str, str]:
    """What a short run of `examples/<script>.py` prints, as key and value."""
    packages = sysconfig.get_paths()["purelib"]
    path = str(REPOSITORY / "examples" / f"{script}.py")
    command = [sys.executable, "-S", "-c", _WITHOUT_INSTALLATION, packages, path]
    arguments = ["--total-timesteps", str(total_timesteps), "--eval-episodes", "1", "--output-dir", str(tmp_path)]
    done = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


# the site's packages without its .pth files: what is installed in editable form is then not found
_WITHOUT_INSTALLATION = """
import runpy, sys
packages, *sys.argv = sys.argv[1:]
sys.path[0:0] = [sys.argv[0].rpartition("/")[0]]
sys.path.append(packages)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
