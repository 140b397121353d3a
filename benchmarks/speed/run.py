"""Measure this library beside its peers, interleaved in one run, and write what came out.

    make bench                 every row
    make bench ROW=sac         one row
    python benchmarks/speed/run.py --row ppo --threads 1 --repeats 5

Peers live in virtual environments of their own, which this script makes. Machines are shared and noisy: each repeat
runs every program once, in turn, and the ratio of neighbours is what counts. With one thread a program has one core, so
that nobody's helpers work for it on another; start-up and checkpoints have all.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from about import HERE, ROOT, circumstances
from rows import ROWS, Measure, Row

PEERS = ROOT / ".venv-peers"
PEER_PACKAGES = {  # three environments, as d3rlpy and mbrl-lib want Gymnasiums of their own
    "sb3": ["stable-baselines3==2.9.2", "sb3-contrib==2.9.2", "sbx-rl==0.28.0", "evotorch==0.6.1", "gymnasium[mujoco]==1.4.0"],
    "d3rlpy": ["d3rlpy==2.8.1"],
    "mbrl": ["mbrl==0.2.0"],
}
# the hydra that mbrl-lib names does not import on today's Python; a later one serves it as well (so its lock names none)
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
    parser.add_argument("--peers", type=Path, default=PEERS, help="a folder of virtual environments that have the peers")
    parser.add_argument(
        "--variant", choices=VARIANTS, help="all programs without AVX-512, or ours without what a compiler makes of it"
    )
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall", help="what one-thread rows are timed by")
    args = parser.parse_args()
    for name in args.row or list(ROWS):
        for threads in args.threads or ROWS[name].threads:
            trial = Trial(ROWS[name], threads, args.peers, args.variant, args.clock)
            measure(trial, repeats=args.repeats)


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
    """Ours, or that of the peer's environment, which is made when it is missing or was left half made."""
    if script not in PEER_SCRIPTS:
        return sys.executable
    name = PEER_SCRIPTS[script]
    folder = peers / name
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        lock = HERE / "peers" / f"{name}.lock"
        torch = next(line for line in lock.read_text().splitlines() if line.startswith("torch=="))
        # torch first: unpinned it would bring gigabytes of CUDA to a machine without a GPU
        for packages in filter(None, ([torch], [torch, *PEER_PACKAGES[name]], AFTERWARDS.get(name))):
            install = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(lock)]
            subprocess.run([*install, *packages], check=True)
        ready.touch()
    return str(python)


def measure(trial: Trial, *, repeats: int) -> None:
    row, threads = trial.row, trial.threads
    about = circumstances(f"{trial.command} --repeats {repeats}")
    values: dict[str, dict[str, list[float]]] = {m.key: {who: [] for who in row.contestants} for m in row.measures}
    for repeat in range(repeats):
        for who, script in row.contestants.items():
            result = one_run(who, script, trial, seed=repeat)
            about |= {"versions": with_versions(about["versions"], who, result["versions"])}
            if "computed_with" in result:
                about["computed_with"] = result["computed_with"]
                must_have_passes(result["computed_with"]["passes"], trial.variant)
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
        **about,
    }
    trial.file.parent.mkdir(exist_ok=True)
    trial.file.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    for measured in record["measures"]:
        for goal in measured["goals"]:
            print(f"{row.name} {threads}T: {told(measured, goal)}", flush=True)


def told(measured: dict[str, Any], goal: dict[str, Any]) -> str:
    """What came of a goal, in a line."""
    end = f"asked {goal['factor']:g}, {'reached' if goal['reached'] else 'not reached'}"
    if goal["against"] is None:
        return f"{goal['who']} {measured['typical'][goal['who']]:,g} {measured['unit']}; {end}"
    ratio = measured["ratios"][goal["who"]][goal["against"]]
    return f"{goal['who']} {ratio['median']:.2f} x {goal['against']} ({ratio['min']:.2f} to {ratio['max']:.2f}); {end}"


def must_have_passes(passes: str, variant: str | None) -> None:
    """Sources in C that were changed and not compiled again would be measured as if there were none."""
    if passes == "none" and variant != "no_compiler":
        sys.exit("ours has no compiled passes here: install it again (make setup), or measure --variant no_compiler")


def with_versions(known: dict[str, str], who: str, found: dict[str, str]) -> dict[str, str]:
    """What a contestant uses of another version than ours is named as its own."""
    return known | {name if known.get(name, v) == v else f"{name} of {who}": v for name, v in found.items()}


def one_run(who: str, script: str, trial: Trial, *, seed: int) -> dict[str, Any]:
    row, threads = trial.row, trial.threads
    python = interpreter(script, trial.peers)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONDONTWRITEBYTECODE": "1", "SPEED_CLOCK": trial.clock}
    environment |= VARIANTS.get(trial.variant or "", {})
    if who == "sbx":  # JAX has no setting for it: its pool follows the processors it may use
        flags = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'} intra_op_parallelism_threads={threads}"
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {flags}"
    arguments = [python, script, who, row.name, str(threads), str(seed)]
    if threads == 1 and row.name not in WALL and hasattr(os, "sched_getaffinity"):
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


if __name__ == "__main__":
    main()
