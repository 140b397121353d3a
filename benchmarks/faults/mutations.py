"""Spoil one leaf after the other in real checkpoints of every algorithm, checksums and all, and go on from them:
`python benchmarks/faults/mutations.py`.

Leaves, and what is put in their place, are drawn from all there are (`tests/faults/spoiling.py`), as many for each algorithm.
What must never come of it, an error without the file's name or a training without end, ends the script with exit code 1, and
nothing is written; otherwise results/mutations.json is.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[0:0] = [str(ROOT / "src"), str(ROOT / "tests" / "helpers"), str(ROOT / "tests"), str(ROOT / "tests" / "faults")]

from record import write_record  # noqa: E402
from small_runs import ALGORITHMS, StopAt, small_config, train  # noqa: E402
from spoiling import Outcomes, Subject  # noqa: E402

SEED = 20261119


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=1_000, help="in all (default: 1000)")
    args = parser.parse_args()
    each, begin = math.ceil(args.mutations / len(ALGORITHMS)), time.monotonic()
    total, algorithms, faults = Counter[str](), {}, []
    for name in ALGORITHMS:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = folder
            found, outcomes = spoil(name, each, Path(folder))
        print(f"{name}: {found}", flush=True)
        algorithms[name] = found
        total += outcomes.counts
        faults += outcomes.faults
    if faults:
        sys.exit("\n\n".join([f"{len(faults)} must not be:", *faults]))
    values = {"outcomes": dict(sorted(total.items())), "algorithms": algorithms, "seed": SEED}
    values["minutes"] = round((time.monotonic() - begin) / 60, 1)
    command = f"python benchmarks/faults/mutations.py --mutations {args.mutations}"
    print("written:", write_record("mutations", values, command=command).relative_to(ROOT))


def spoil(name: str, times: int, folder: Path) -> tuple[dict[str, Any], Outcomes]:
    """One algorithm's share."""
    config = small_config(name, folder, checkpoint_interval=40)
    run_dir = train(config, callbacks=[StopAt(config.total_timesteps // 2)]).run_dir
    subject, outcomes = Subject(run_dir, folder), Outcomes()
    possible = subject.every_mutation()
    for mutation in random.Random(f"{SEED} {name}").sample(possible, min(times, len(possible))):
        outcome, said = subject.put(mutation)
        outcomes.add(outcome, mutation, said)
    return {"possible": len(possible), **dict(sorted(outcomes.counts.items()))}, outcomes


if __name__ == "__main__":
    main()
