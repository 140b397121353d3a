"""Measure this library beside its peers, interleaved in one run, and write what came out.

    make bench                 every row
    make bench ROW=sac         one row
    python benchmarks/speed/run.py --row ppo --threads 1 --repeats 5

Peers live in virtual environments of their own, which this script makes. Machines are shared and noisy: each repeat
runs every program once, in turn, and the ratio of neighbours is what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rows import ROWS, Measure, Row

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PEERS = ROOT / ".venv-peers"
PEER_PACKAGES = {  # three environments, as d3rlpy and mbrl-lib want Gymnasiums of their own
    "sb3": ["stable-baselines3==2.9.2", "sb3-contrib==2.9.2", "sbx-rl==0.28.0", "evotorch==0.6.1", "gymnasium[mujoco]==1.4.0"],
    "d3rlpy": ["d3rlpy==2.8.1"],
    "mbrl": ["mbrl==0.2.0"],
}
# the hydra that mbrl-lib names does not import on today's Python; a later one serves it as well
AFTERWARDS = {"mbrl": ["hydra-core==1.3.2", "omegaconf==2.3.0"]}
PEER_SCRIPTS = {"peer_sb3.py": "sb3", "peer_evotorch.py": "sb3", "peer_d3rlpy.py": "d3rlpy", "peer_mbrl.py": "mbrl"}

WALL = ("startup", "checkpoint")  # other processes and the disk count as well

NO_AVX512 = {  # for whatever a program multiplies with
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}
# how else than as they are all programs of a row can be run; such results have a folder of their own
VARIANTS = {"avx2": NO_AVX512, "no_compiler": {"RL_TRAINING_NATIVE": "0"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", choices=sorted(ROWS), help="a row to measure; all without one")
    parser.add_argument("--threads", type=int, nargs="+", help="torch threads; without it those that the row asks for")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--append", action="store_true", help="add the repeats to those of the row's file, where a row takes long"
    )
    parser.add_argument("--peers", type=Path, default=PEERS, help="a folder of virtual environments that have the peers")
    parser.add_argument(
        "--variant", choices=VARIANTS, help="all programs without AVX-512, or ours without what a compiler makes of it"
    )
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall", help="what one-thread rows are timed by")
    args = parser.parse_args()
    for name in args.row or list(ROWS):
        for threads in args.threads or ROWS[name].threads:
            trial = Trial(ROWS[name], threads, args.peers, args.variant, args.clock)
            measure(trial, known(trial) if args.append else {}, repeats=args.repeats)


@dataclass(frozen=True)
class Trial:
    """A row, and what it is measured with."""

    row: Row
    threads: int
    peers: Path
    variant: str | None
    asked_clock: str

    @property
    def clock(self) -> str:
        return "wall" if self.threads > 1 or self.row.name in WALL else self.asked_clock

    @property
    def file(self) -> Path:
        return HERE / "results" / (self.variant or "") / f"{self.row.name}_{self.threads}t.json"

    @property
    def command(self) -> str:
        variant = f" --variant {self.variant}" if self.variant else ""
        return f"python benchmarks/speed/run.py --row {self.row.name} --threads {self.threads}{variant} --clock {self.clock}"


def interpreter(script: str, peers: Path) -> str:
    """Ours, or that of the peer's environment, which is made when it is missing: torch first and pinned as ours."""
    if script not in PEER_SCRIPTS:
        return sys.executable
    name = PEER_SCRIPTS[script]
    python = peers / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(peers / name)], check=True)
        lock = (ROOT / "requirements.lock").read_text().splitlines()
        torch = next(line for line in lock if line.startswith("torch=="))
        for packages in filter(None, ([torch], [torch, *PEER_PACKAGES[name]], AFTERWARDS.get(name))):
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    return str(python)


def known(trial: Trial) -> dict[str, dict[str, list[float]]]:
    """What the trial's file has of each measure, if it is of the same contestants."""
    measures = json.loads(trial.file.read_text())["measures"] if trial.file.exists() else []
    return {m["key"]: m["values"] for m in measures if m["values"].keys() == trial.row.contestants.keys()}


def measure(trial: Trial, earlier: dict[str, dict[str, list[float]]], *, repeats: int) -> None:
    row, threads = trial.row, trial.threads
    values = {m.key: earlier.get(m.key) or {who: [] for who in row.contestants} for m in row.measures}
    versions: dict[str, str] = {}
    begun = len(next(iter(values[row.measures[0].key].values())))
    repeats += begun
    for repeat in range(begun, repeats):
        for who, script in row.contestants.items():
            result = one_run(who, script, trial, seed=repeat)
            versions[result["program"]] = result["version"]
            for key, value in result["values"].items():
                values[key][who].append(float(f"{value:.5g}"))
        latest = "; ".join(
            f"{m.key} " + ", ".join(f"{who} {values[m.key][who][-1]:,g}" for who in row.contestants) for m in row.measures
        )
        print(f"{row.name} {threads}T repeat {repeat + 1}/{repeats}: {latest}", flush=True)
    record = {
        "row": row.name,
        "title": row.title,
        "threads": threads,
        "variant": trial.variant,
        "clock": trial.clock,
        "measures": [summary(measure, values[measure.key], threads) for measure in row.measures],
        "note": row.note,
        "versions": versions | library_versions(),
        "machine": machine(),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": f"{trial.command} --repeats {repeats}",
    }
    trial.file.parent.mkdir(exist_ok=True)
    trial.file.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def one_run(who: str, script: str, trial: Trial, *, seed: int) -> dict[str, Any]:
    row, threads = trial.row, trial.threads
    python = interpreter(script, trial.peers)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONDONTWRITEBYTECODE": "1", "SPEED_CLOCK": trial.clock}
    environment |= VARIANTS.get(trial.variant or "", {})
    if who == "sbx":  # JAX has no setting for it: its pool follows the processors it may use
        flags = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'} intra_op_parallelism_threads={threads}"
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {flags}"
    arguments = [python, script, who, row.name, str(threads), str(seed)]
    if who == "sbx" and threads == 1 and hasattr(os, "sched_getaffinity"):
        arguments = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *arguments]
    done = subprocess.run(arguments, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{who} failed on {row.name}:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def summary(measure: Measure, values: dict[str, list[float]], threads: int) -> dict[str, Any]:
    """What one measure came to: all values, how each of ours compares with each peer, and what was asked for."""
    ours = [who for who in values if who.startswith("ours")]
    ratios = {
        who: {
            peer: spread(better(measure, values[who], values[peer])) for peer in values if peer not in ours[:1] and peer != who
        }
        for who in ours
    }
    goals = [vars(goal) | {"reached": reached(measure, goal, values)} for goal in measure.goals if goal.threads == threads]
    kept = {name: getattr(measure, name) for name in ("key", "unit", "higher", "digits", "how")}
    return kept | {
        "values": values,
        "typical": {who: typical(measure, v) for who, v in values.items()},
        "ratios": ratios,
        "goals": goals,
    }


def typical(measure: Measure, values: list[float]) -> float:
    if measure.how == "IQM":
        ordered, cut = sorted(values), len(values) // 4
        return statistics.fmean(ordered[cut : len(ordered) - cut])
    return statistics.median(values)


def better(measure: Measure, ours: list[float], theirs: list[float]) -> list[float]:
    """How many times better ours is, repeat by repeat; where seeds differ in luck, of the typical values."""
    if measure.how == "IQM":
        ours, theirs = [typical(measure, ours)], [typical(measure, theirs)]
    pairs = zip(ours, theirs, strict=True)
    return [a / b if measure.higher else b / a for a, b in pairs]


def spread(ratios: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(ratios), 3), "min": round(min(ratios), 3), "max": round(max(ratios), 3)}


def reached(measure: Measure, goal: Any, values: dict[str, list[float]]) -> bool:
    if goal.against is not None:
        return statistics.median(better(measure, values[goal.who], values[goal.against])) >= goal.factor
    value = typical(measure, values[goal.who])
    return value >= goal.factor if measure.higher else value <= goal.factor


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


if __name__ == "__main__":
    main()
