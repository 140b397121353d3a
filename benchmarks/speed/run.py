"""Measure this library beside its peers, interleaved in one run, and write what came out.

    make bench                 every row
    make bench ROW=sac         one row
    python benchmarks/speed/run.py --row ppo --threads 1 2 --repeats 5

Peers live in a virtual environment of their own (.venv-peers), which this script makes. Machines are shared and
noisy: each repeat runs every program once, in turn, and the ratio of neighbours is what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

from rows import ROWS, Row

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PEERS = ROOT / ".venv-peers"
PEER_PACKAGES = ["stable-baselines3==2.9.2", "gymnasium[mujoco]"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", choices=sorted(ROWS), help="a row to measure; all without one")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers", type=Path, default=PEERS, help="a virtual environment that has the peers already")
    args = parser.parse_args()
    python = peer_python(args.peers)
    for name in args.row or sorted(ROWS):
        for threads in args.threads:
            measure(ROWS[name], threads=threads, repeats=args.repeats, peer=python)


def peer_python(folder: Path) -> Path:
    """The peers' interpreter; the environment is made when it is missing, torch first and pinned as ours."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        lock = (ROOT / "requirements.lock").read_text().splitlines()
        torch = next(line for line in lock if line.startswith("torch=="))
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", torch], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEER_PACKAGES], check=True)
    return python


def measure(row: Row, *, threads: int, repeats: int, peer: Path) -> None:
    programs = {"ours": [sys.executable, "ours.py"], "sb3": [str(peer), "peer_sb3.py"]}
    rates: dict[str, list[float]] = {name: [] for name in programs}
    versions: dict[str, str] = {}
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    for repeat in range(repeats):
        for name, command in programs.items():
            arguments = [*command, row.name, str(threads), str(repeat)]
            done = subprocess.run(arguments, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{name} failed on {row.name}:\n{done.stderr}")
            result = json.loads(done.stdout.splitlines()[-1])
            rates[name].append(round(result["steps_per_second"], 1))
            versions[result["program"]] = result["version"]
        ours, theirs = rates["ours"][-1], rates["sb3"][-1]
        print(f"{row.name} {threads}T repeat {repeat + 1}/{repeats}: ours {ours:,.0f}, SB3 {theirs:,.0f}: {ours / theirs:.2f}x")
    ratios = [ours / theirs for ours, theirs in zip(rates["ours"], rates["sb3"], strict=True)]
    record = {
        "row": row.name,
        "title": row.title,
        "threads": threads,
        "goal": row.goal,
        "ratio_median": round(statistics.median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
        "steps_per_second": rates,
        "versions": versions | library_versions(),
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count(), "system": platform.system()},
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": f"python benchmarks/speed/run.py --row {row.name} --threads {threads} --repeats {repeats}",
    }
    path = HERE / "results" / f"{row.name}_{threads}t.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    spread = f"{record['ratio_min']:.2f} to {record['ratio_max']:.2f}"
    print(f"{row.title}, {threads} thread(s): {record['ratio_median']:.2f}x ({spread})")


def library_versions() -> dict[str, str]:
    from importlib.metadata import version

    return {"python": platform.python_version()} | {name: version(name) for name in ("torch", "numpy", "gymnasium")}


def cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
