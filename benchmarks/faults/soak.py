"""Train for a long time and watch the process from outside: memory, open files and throughput must stay flat.

    python benchmarks/faults/soak.py [--minutes 60] [--only sac]      (`make soak`, `make soak SOAK_MINUTES=2`)

Each algorithm is trained by the command line in a process of its own, both at once. Every few seconds its resident memory,
its open files, its steps and its processor time are read from /proc and metrics.jsonl. The first quarter is warm-up. SAC's
replay buffer is small enough to be full by then: pages of it that were never written take no memory.

Machines are shared, and their speed moves by more in an hour than throughput may. So throughput is judged side by side: when
the time is over, a young process begins the same training, and after its own warm-up the two take turns of some seconds each
while the other one is stopped (SIGSTOP). What is judged is the old one's steps per second of its own processor time over the
young one's, turn by turn. The change within the hour is recorded too, beside a fixed piece of work timed at every reading.
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
YOUTH = 60.0  # seconds of processor time that the young process has to itself
TURNS, TURN = 30, 8.0  # pairs of turns, and the seconds of one
TICKS = os.sysconf("SC_CLK_TCK")
MATRIX = np.random.default_rng(0).standard_normal((256, 256), dtype=np.float32) / 16
STOPPED = threading.Event()  # by SIGTERM or SIGINT: the trainings are ended, nothing is judged


def reading(pid: int, run_dir: Path) -> dict[str, float] | None:
    """One look at the process; None while it has not logged anything."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        handles = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        step = last_step(run_dir / "metrics.jsonl")
    except (OSError, IndexError, ValueError):
        return None
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    cpu = (int(fields[11]) + int(fields[12])) / TICKS
    return {"time": time.time(), "rss_kib": memory, "open_files": handles, "step": step, "cpu_seconds": cpu}


def last_step(history: Path) -> int:
    """From the file's end, since this is asked often while the process is timed."""
    with history.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
        return int(json.loads(file.read().splitlines()[-1])["step"])


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


class Training:
    """A training by the command line in a folder of its own; ended by SIGTERM, as a person would."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Training:
        self.folder = tempfile.TemporaryDirectory()
        words = ["train", *RUNS[self.name], *COMMON, "--output-dir", self.folder.name, "--run-suffix", "soak"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rl_training", *words], env=environment, stdout=subprocess.DEVNULL
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.send_signal(signal.SIGCONT)
        self.process.wait()
        self.folder.cleanup()

    def reading(self) -> dict[str, float] | None:
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name}: training ended by itself with exit code {self.process.returncode}")
        found = next(iter(Path(self.folder.name).iterdir()), None)
        return None if found is None else reading(self.process.pid, found)

    def cpu_seconds(self) -> float:
        """To the nanosecond, where /proc/PID/stat counts hundredths."""
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[0]) / 1e9

    def logged(self) -> tuple[int, float]:
        """The step of the next line of its history, and the processor time when it is written."""
        before = self.reading()
        while not STOPPED.wait(0.01):
            now = self.reading()
            if now is not None and (before is None or now["step"] > before["step"]):
                return int(now["step"]), self.cpu_seconds()
        raise SystemExit("stopped before the time was over: nothing is recorded")

    def turn(self, seconds: float) -> float:
        """Let it go on for so long; its steps per second of processor time between two lines of its history."""
        self.process.send_signal(signal.SIGCONT)
        first, began = last, ended = self.logged()
        end = time.time() + seconds
        while time.time() < end or last == first:
            last, ended = self.logged()
        self.process.send_signal(signal.SIGSTOP)
        return (last - first) / (ended - began)


def watch(name: str, seconds: float) -> tuple[list[dict[str, float]], list[tuple[float, float]]]:
    """Train `name` for so long and collect readings, then let it take turns with a young process."""
    readings: list[dict[str, float]] = []
    with Training(name) as old:
        end = time.time() + seconds
        while time.time() < end and not STOPPED.wait(max(1.0, seconds / 400)):
            if seen := old.reading():
                readings.append(seen | {"fixed_work": fixed_work()})
        old.process.send_signal(signal.SIGSTOP)
        return readings, [] if STOPPED.is_set() else taken_turns(name, old)


def taken_turns(name: str, old: Training) -> list[tuple[float, float]]:
    """Throughput of the old process and of a young one, turn by turn; who begins alternates."""
    with Training(name) as young:
        young.logged()
        while young.cpu_seconds() < YOUTH:
            young.logged()
        young.process.send_signal(signal.SIGSTOP)
        turns = []
        for number in range(TURNS):
            both = [who.turn(TURN) for who in ((young, old) if number % 2 else (old, young))]
            turns.append((both[number % 2], both[1 - number % 2]))
        return turns


def turns_judged(turns: list[tuple[float, float]]) -> dict[str, Any]:
    """The old process's throughput over the young one's: the median of all turns and its 95 % bootstrap interval."""
    ratios = np.array([old / young for old, young in turns])
    drawn = np.random.default_rng(0).choice(ratios, size=(10_000, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return {
        "turns_of_old_and_young": [[round(rate, 1) for rate in both] for both in turns],
        "steps_per_cpu_second_old_and_young": [round(median(rates), 1) for rates in zip(*turns, strict=True)],
        "old_over_young": round(float(np.median(ratios)), 4),
        "old_over_young_interval": [round(float(low), 4), round(float(high), 4)],
        "quartiles_of_turns": [round(float(x), 4) for x in np.quantile(ratios, (0.25, 0.75))],
    }


def judged(readings: list[dict[str, float]], turns: list[tuple[float, float]]) -> dict[str, Any]:
    """Memory and files: the first third after the warm-up against the last third; throughput: by turns."""
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
    growth, change, beside = memory[1] / memory[0] - 1, paces[1] / paces[0] - 1, turns_judged(turns)
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
        **beside,
        "flat": growth < MEMORY_GROWTH and handles[0] == handles[1] and beside["old_over_young"] > 1 - SLOWDOWN,
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
    results = {name: judged(*seen) for name, seen in zip(names, watched, strict=True)}
    print(json.dumps(results, indent=1))
    record = {
        "made": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, python {platform.python_version()}",
        "limits": {
            "memory_growth_percent": 100 * MEMORY_GROWTH,
            "slowdown_percent": 100 * SLOWDOWN,
            "warm_up": WARM_UP,
            "turn_seconds": TURN,
        },
        "commands": {name: " ".join([*RUNS[name], *COMMON]) for name in results},
        "results": results,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(result["flat"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
