"""Every fault an environment can have, put to every algorithm: `python benchmarks/faults/environments.py [--each 3]`.

Small runs by the command line, each in a process of its own, whose environments break once they have been at work for a
while: in this process (local_sync) and in workers (local_async). A fault has held if the run names the environment, ends
with the exit code that belongs to it, leaves a checkpoint that verifies, says nothing of a traceback, and no process of it
is left. Written to results/environments.json; exit code 1 if one has not held.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[0:0] = [str(ROOT / "src"), str(ROOT / "tests" / "helpers"), str(ROOT / "tests"), str(ROOT / "tests" / "faults")]

from nursery import Nursery  # noqa: E402
from record import write_record  # noqa: E402
from small_runs import ALGORITHMS, small_config  # noqa: E402
from toy_envs import EXCEPTIONS  # noqa: E402

from rl_training.errors import CheckpointError  # noqa: E402
from rl_training.experiment.checkpoint import verify_checkpoint  # noqa: E402
from rl_training.options import load_options_class  # noqa: E402
from rl_training.options._evolution import EvolutionOptions  # noqa: E402
from rl_training.options._offline import OfflineOptions  # noqa: E402

SEED = 20261119
# by what they are; with the exit code that belongs to them
FAULTS = {
    "exceptions, sys.exit() and others that are no Exception among them": (["raise", *EXCEPTIONS], 2),
    "shapes, types and texts that are no observation": (["shape", "shape_broadcast", "complex", "text"], 2),
    "rewards and flags that are none, tuples of another length": (
        ["reward_array", "reward_none", "flag_int", "flag_none", "four_values"],
        2,
    ),
    "tensors with a graph, objects that cannot say what they are": (
        ["graph_obs", "graph_reward", "speechless_obs", "speechless_reward", "speechless_flag", "speechless_all"],
        2,
    ),
    "NaN and infinity": (["nan_obs", "inf_obs", "nan_reward"], 1),
}
IN_WORKERS = {"a process that hangs or dies": (["hang", "exit", "kill"], 2)}
TIMEOUT = 1.0  # of a worker's answer, in seconds: an environment here takes no time at all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, help="so many algorithms for each fault in each place, drawn anew (default: all)")
    args = parser.parse_args()
    begin, kinds, lost = time.monotonic(), defaultdict(lambda: defaultdict(int)), []
    with Nursery(ROOT / "tests" / "helpers") as nursery, tempfile.TemporaryDirectory() as folder:
        for number, attempt in enumerate(tries(args.each)):
            words = put(attempt, nursery, Path(folder) / str(number))
            kinds[attempt.kind][f"tried in {attempt.backend}"] += 1
            kinds[attempt.kind]["held"] += words is None
            if words is not None:
                lost.append(f"{attempt.name}, {attempt.fault}, {attempt.backend}: {words}")
                print(lost[-1], flush=True)
    values = {
        "kinds": {kind: dict(counts) for kind, counts in kinds.items()},
        "algorithms": ALGORITHMS,
        "lost": lost,
        "seed": SEED,
    }
    values["minutes"] = round((time.monotonic() - begin) / 60, 1)
    each = f" --each {args.each}" if args.each else ""
    print(
        "written:",
        write_record("environments", values, command=f"python benchmarks/faults/environments.py{each}").relative_to(ROOT),
    )
    sys.exit(1 if lost else 0)


class Try(NamedTuple):
    """One run, and the exit code it should have."""

    backend: str
    kind: str
    fault: str
    code: int
    name: str


def tries(each: int | None) -> list[Try]:
    """Every fault in every place, for all algorithms or so many of them."""
    chance, found = random.Random(SEED), []
    for backend, kinds in (("local_sync", FAULTS), ("local_async", FAULTS | IN_WORKERS)):
        # offline algorithms have environments in this process only, where they are evaluated
        names = [name for name in ALGORITHMS if backend == "local_sync" or not is_a(name, OfflineOptions)]
        for kind, (faults, code) in kinds.items():
            for fault in faults:
                chosen = names if each is None else sorted(chance.sample(names, min(each, len(names))))
                found += [Try(backend, kind, fault, code, name) for name in chosen]
    return found


def is_a(name: str, kind: type) -> bool:
    return issubclass(load_options_class(small_config(name, Path("unused")).algo), kind)


def put(attempt: Try, nursery: Nursery, folder: Path) -> str | None:
    """What was wrong with how a run bore a fault; None if nothing was."""
    folder.mkdir()
    config, log = folder / "config.yaml", folder / "log"
    config.write_text(configuration(attempt, folder / "runs").to_yaml())
    others = processes()
    code = nursery.run("train", "--config", config, "--quiet", log=log)
    said = log.read_text()
    if code != attempt.code:
        return f"exit code {code} in place of {attempt.code}: {said[-300:]}"
    if "Traceback" in said or "is saved" not in said or not ("environment" in said or "generation" in said):
        return f"not told as it should be: {said[-300:]}"
    files = list((folder / "runs").glob("*/checkpoints/step_*.safetensors"))
    if not files:
        return "no checkpoint"
    try:
        for file in files:
            verify_checkpoint(file)
    except CheckpointError as error:
        return str(error)
    return left_behind(others)


def configuration(attempt: Try, output_dir: Path) -> Any:
    """Every environment breaks at step 3 of an episode that comes in training; of offline algorithms, in an evaluation."""
    name, fault = attempt.name, attempt.fault
    evolves, offline = is_a(name, EvolutionOptions), is_a(name, OfflineOptions)
    options: dict[str, Any] = {"num_steps": 4, "minibatch_size": 4} if name in ("ppo", "ppg") else {}
    if offline:  # four episodes are recorded in peace, and six evaluations wanted
        options = {"dataset_size": 18, "eval_interval": 10}
    elif name == "rlpd":
        options = {"dataset_size": 12}
    return small_config(
        name,
        output_dir,
        env_id="toy_envs:ToyBrokenContinuous-v0",
        env_kwargs={"fault": fault, "at": 3, "episode": 1 if evolves else 4 if offline else 3},
        algo_kwargs=options,
        eval_episodes=1 if offline else 0,
        execution_backend=attempt.backend,
        **({"env_timeout": TIMEOUT} if fault == "hang" else {}),
    )


def processes() -> set[int]:
    """Those of this session that run; workers are in groups of their own, but stay in it."""
    ours, found = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[3], set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if session == ours and state != "Z":
                found.add(int(stat.parent.name))
    return found


def left_behind(others: set[int]) -> str | None:
    deadline = time.monotonic() + 5
    while (left := processes() - others) and time.monotonic() < deadline:
        time.sleep(0.05)
    return f"processes left behind: {sorted(left)}" if left else None


if __name__ == "__main__":
    main()
