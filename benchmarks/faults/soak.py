"""Train for a long time and watch the process from outside: memory, open files and throughput must stay flat.

    python benchmarks/faults/soak.py [--minutes 60] [--only sac]      (`make soak`, `make soak SOAK_MINUTES=2`)

Each algorithm is trained by the command line in a process of its own, both at once. Every few seconds its resident memory,
its open files, its steps and its processor time are read from /proc and metrics.jsonl. Machines are shared: throughput is
steps per second of the run's own processor time, and since even that falls when neighbours fill the caches, the same small
piece of work is timed at every reading, and what is judged is steps in the time that it takes. The first quarter is
warm-up. SAC's replay buffer is small enough to be full by then: pages of it that were never written take no memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
RUNS = {
    "sac": ["sac/pendulum", "buffer_capacity=2000", "learning_starts=500", "log_interval=200", "checkpoint_interval=2000"],
    "openai_es": ["openai_es/pendulum", "log_interval=20000", "checkpoint_interval=200000"],
}
COMMON = ["total_timesteps=1e12", "eval_interval=1e12", "learning_rate_schedule=null", "early_stopping=null", "--quiet"]
WARM_UP = 0.25  # of the time
MEMORY_GROWTH = 0.01  # of what it is after the warm-up
SLOWDOWN = 0.05
TICKS = os.sysconf("SC_CLK_TCK")
MATRIX = np.random.default_rng(0).standard_normal((256, 256), dtype=np.float32) / 16
STOPPED = threading.Event()  # by SIGTERM or SIGINT: the trainings are ended, nothing is judged


def reading(pid: int, run_dir: Path) -> dict[str, float] | None:
    """One look at the process; None while it has not logged anything."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        handles = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        last = (run_dir / "metrics.jsonl").read_bytes().splitlines()[-1]
        step = json.loads(last)["step"]
    except (OSError, IndexError, ValueError):
        return None
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    cpu = (int(fields[11]) + int(fields[12])) / TICKS
    return {"time": time.time(), "rss_kib": memory, "open_files": handles, "step": step, "cpu_seconds": cpu}


def fixed_work() -> float:
    """Seconds of processor time that a piece of work takes now which is always the same: products, tanh, plain Python."""
    began = time.thread_time()
    x = MATRIX
    for _ in range(30):
        x = np.tanh(x @ MATRIX)
    total = 0
    for i in range(200_000):
        total += i & 7
    return time.thread_time() - began


def watch(name: str, seconds: float) -> list[dict[str, float]]:
    """Train `name` for so long and collect readings; the run is ended by SIGTERM, as a person would."""
    readings: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", *RUNS[name], *COMMON, "--output-dir", folder, "--run-suffix", "soak"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen([sys.executable, "-m", "rl_training", *words], env=environment, stdout=subprocess.DEVNULL)
        try:
            end = time.time() + seconds
            while time.time() < end and not STOPPED.wait(max(1.0, seconds / 400)):
                if process.poll() is not None:
                    raise SystemExit(f"{name}: training ended by itself with exit code {process.returncode}")
                found = next(iter(Path(folder).iterdir()), None)
                if found is not None and (seen := reading(process.pid, found)):
                    readings.append(seen | {"fixed_work": fixed_work()})
        finally:
            process.terminate()
            process.wait()
    return readings


def judged(readings: list[dict[str, float]]) -> dict[str, Any]:
    """The first third after the warm-up against the last third."""
    begin = readings[0]["time"] + WARM_UP * (readings[-1]["time"] - readings[0]["time"])
    steady = [seen for seen in readings if seen["time"] >= begin]
    third = len(steady) // 3
    first, last = steady[:third], steady[-third:]
    rates = [
        (part[-1]["step"] - part[0]["step"]) / (part[-1]["cpu_seconds"] - part[0]["cpu_seconds"]) for part in (first, last)
    ]
    fixed = [median(seen["fixed_work"] for seen in part) for part in (first, last)]
    paces = [rate * work for rate, work in zip(rates, fixed, strict=True)]
    memory = [mean(seen["rss_kib"] for seen in part) for part in (first, last)]
    handles = [median(seen["open_files"] for seen in part) for part in (first, last)]
    growth, change = memory[1] / memory[0] - 1, paces[1] / paces[0] - 1
    return {
        "readings": len(readings),
        "minutes": round((readings[-1]["time"] - readings[0]["time"]) / 60, 1),
        "cpu_minutes": round((readings[-1]["cpu_seconds"] - readings[0]["cpu_seconds"]) / 60, 1),
        "steps": int(readings[-1]["step"]),
        "memory_mib": [round(value / 1024, 2) for value in memory],
        "memory_growth_percent": round(100 * growth, 3),
        "open_files": handles,
        "steps_per_cpu_second": [round(rate, 1) for rate in rates],
        "fixed_work_ms": [round(1e3 * work, 3) for work in fixed],
        "steps_per_fixed_work": [round(pace, 3) for pace in paces],
        "throughput_change_percent": round(100 * change, 2),
        "flat": growth < MEMORY_GROWTH and handles[0] == handles[1] and change > -SLOWDOWN,
    }


def main() -> int:
    """Soak the algorithms side by side; exit code 1 where one is not flat."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="for each algorithm (default 60)")
    parser.add_argument("--only", choices=sorted(RUNS))
    parser.add_argument("--out", type=Path, default=RESULTS / "soak.json")
    args = parser.parse_args()
    names = [args.only] if args.only else list(RUNS)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: STOPPED.set())
    with ThreadPoolExecutor(len(names)) as pool:
        watched = list(pool.map(lambda name: watch(name, 60 * args.minutes), names))
    if STOPPED.is_set():
        raise SystemExit("stopped before the time was over: nothing is recorded")
    results = {name: judged(readings) for name, readings in zip(names, watched, strict=True)}
    print(json.dumps(results, indent=1))
    record = {
        "made": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, python {platform.python_version()}",
        "limits": {"memory_growth_percent": 100 * MEMORY_GROWTH, "slowdown_percent": 100 * SLOWDOWN, "warm_up": WARM_UP},
        "commands": {name: " ".join([*RUNS[name], *COMMON]) for name in results},
        "results": results,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(result["flat"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
