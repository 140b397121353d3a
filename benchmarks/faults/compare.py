"""Put the same faults to this library and to Stable-Baselines3, and write what came of it to results/peers.json.

    python benchmarks/faults/compare.py [--peers VENV]

The peers live in a virtual environment of their own, which benchmarks/speed/run.py makes. The full disk is a small tmpfs, which
takes the right to mount.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[0:0] = [str(HERE), str(ROOT / "benchmarks" / "speed")]

from record import write_record  # noqa: E402
from run import PEERS, peer_python  # noqa: E402

FAULTS = ("save_load_continue", "full_disk", "kill_during_save", "nan_reward", "hostile_file")
DISK = "1m"  # room for a model of width 64, not for one of 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=PEERS, help="a virtual environment that has the peers already")
    args = parser.parse_args()
    programs = {"ours": [sys.executable, "ours.py"], "sb3": [str(peer_python(args.peers)), "peer_sb3.py"]}
    faults: dict[str, dict[str, Any]] = {}
    versions: dict[str, str] = {}
    for fault in FAULTS:
        for name, command in programs.items():
            reply = put(fault, command)
            faults.setdefault(fault, {})[name] = reply["result"]
            versions[reply["program"]] = reply["version"]
            print(f"{fault}, {name}: {reply['result']}", flush=True)
    path = write_record("peers", {"faults": faults}, command="python benchmarks/faults/compare.py", versions=versions)
    print("written:", path.relative_to(ROOT))


def put(fault: str, command: list[str]) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(ROOT / "src") if command[1] == "ours.py" else ""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "folder"
        folder.mkdir()
        disk = fault == "full_disk"
        if disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)], check=True)
        try:
            words = [*command, fault, str(folder)]
            done = subprocess.run(words, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
        finally:
            if disk:
                subprocess.run(["umount", str(folder)], check=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
