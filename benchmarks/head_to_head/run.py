"""Our presets against the peers' own programs: same task, same steps, same seeds, one run.

    python benchmarks/head_to_head/run.py [--contest sac_pendulum] [--seeds 1 2 3 4 5]

For every seed both contestants train at once, one thread each, so that what else the machine does meets both. Finished
seeds are kept: the same command goes on where it ended. Peers live in the environments that `make bench` makes. After a
change of a preset `--ours-again` trains ours anew and leaves the peers' runs as they are; the page then says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from contests import CONTESTS, SCRIPTS, Contest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "speed"))
import run as speed  # noqa: E402


def started(python: str, script: str, contest: Contest, seed: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [python, script, contest.name, str(seed)]
    return subprocess.Popen(words, cwd=HERE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result_of(process: subprocess.Popen[str], who: str) -> dict[str, Any]:
    out, err = process.communicate()
    if process.returncode:
        sys.exit(f"{who} failed:\n{err}")
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def contend(contest: Contest, seeds: list[int], peers: Path) -> None:
    path = HERE / "results" / f"{contest.name}.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    runs: dict[str, Any] = record.get("runs", {})
    for seed in seeds:
        if str(seed) in runs:
            continue
        peer = started(speed.interpreter(SCRIPTS[contest.peer], peers), SCRIPTS[contest.peer], contest, seed)
        ours = started(sys.executable, "ours.py", contest, seed)
        runs[str(seed)] = {"ours": result_of(ours, "rl_training"), "peer": result_of(peer, contest.peer)}
        print(contest.name, seed, json.dumps(runs[str(seed)]), flush=True)
        record = {
            "contest": contest.name,
            "task": contest.env_id,
            "steps": contest.steps,
            "peer": contest.peer,
            "note": contest.note,
            "versions": speed.library_versions(),
            "machine": {"cpu": speed.cpu_model(), "cores": os.cpu_count(), "system": platform.system()},
            "date": datetime.now(timezone.utc).date().isoformat(),
            "command": f"python benchmarks/head_to_head/run.py --contest {contest.name}",
            "runs": runs,
        }
        path.write_text(json.dumps(record, indent=1) + "\n")


def contend_again(contest: Contest, seeds: list[int]) -> None:
    path = HERE / "results" / f"{contest.name}.json"
    record = json.loads(path.read_text())
    for seed in seeds:
        ours = result_of(started(sys.executable, "ours.py", contest, seed), "rl_training")
        print(contest.name, seed, json.dumps(ours), flush=True)
        record["runs"][str(seed)]["ours"] = ours
    record["ours_again"] = datetime.now(timezone.utc).date().isoformat()
    path.write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contest", action="append", choices=sorted(CONTESTS), help="all without it")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--peers", type=Path, default=speed.PEERS, help="a folder of virtual environments that have the peers")
    parser.add_argument("--ours-again", action="store_true", help="train ours alone, for seeds that the peer has made")
    args = parser.parse_args()
    for name in args.contest or CONTESTS:
        if args.ours_again:
            contend_again(CONTESTS[name], args.seeds)
        else:
            contend(CONTESTS[name], args.seeds, args.peers)


if __name__ == "__main__":
    main()
