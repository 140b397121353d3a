"""Profile one run of each algorithm's first preset: `python benchmarks/speed/profiles.py [ALGORITHM ...]`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNS = {
    "ppo": ("ppo/cartpole", 80_000),
    "ppg": ("ppg/cartpole", 80_000),
    "sac": ("sac/pendulum", 3_000),
    "td3": ("td3/pendulum", 3_000),
    "ddpg": ("ddpg/pendulum", 3_000),
    "rlpd": ("rlpd/pendulum", 400),
    "cql": ("cql/pendulum", 300),
    "mopo": ("mopo/pendulum", 1_500),
    "pets": ("pets/pendulum", 400),
    "openai_es": ("openai_es/pendulum", 3_000_000),
    "ars": ("ars/pendulum", 3_000_000),
}


def main() -> None:
    path = HERE / "results" / "profile.json"
    found = json.loads(path.read_text())["algorithms"] if path.exists() else {}
    for name in sys.argv[1:] or RUNS:
        preset, steps = RUNS[name]
        command = [sys.executable, "profile_run.py", preset, str(steps)]
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{preset} failed:\n{done.stderr}")
        found[name] = {"preset": preset, "steps": steps, **json.loads(done.stdout.splitlines()[-1])}
        print(name, found[name], flush=True)
        ordered = {name: found[name] for name in RUNS if name in found}
        path.write_text(json.dumps({"algorithms": ordered}, indent=1) + "\n")


if __name__ == "__main__":
    main()
