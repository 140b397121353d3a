"""Profile one run of each algorithm's first preset: `python benchmarks/speed/profiles.py [ALGORITHM ...]`.

With algorithms named it prints theirs and writes no file.
"""

from __future__ import annotations

import json
import subprocess
import sys

from about import HERE, circumstances, computing

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
    about, found = circumstances("python benchmarks/speed/profiles.py"), {}
    for name in sys.argv[1:] or RUNS:
        preset, steps = RUNS[name]
        command = [sys.executable, "profile_run.py", preset, str(steps)]
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{preset} failed:\n{done.stderr}")
        found[name] = {"preset": preset, "steps": steps, **json.loads(done.stdout.splitlines()[-1])}
        print(name, found[name], flush=True)
    if not sys.argv[1:]:
        record = {"algorithms": found, **about, "computed_with": computing()}
        (HERE / "results" / "profile.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
