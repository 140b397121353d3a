"""The long kill test: `make faults`, or one part of it by `python benchmarks/faults/kill.py --part writes`.

    kills     SIGKILL at random moments, so many per family of algorithms, each run resumed until it ends
    writes    SIGKILL aimed into the writing of a checkpoint
    signals   SIGTERM and SIGINT at random moments
    groups    SIGINT to the whole process group, as a terminal sends it, of runs with environments in workers
    tasks     SIGKILL at random moments on other people's environments: Box2D, and of others those that are installed
    ends      SIGKILL at random moments and after every single save, in runs that early stopping ends before their time

Every run that comes to its end is compared, byte for byte, with one that nobody disturbed. The first difference ends the
script with exit code 1, and nothing is written; otherwise results/PART.json is.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[0:0] = [str(ROOT / "src"), str(ROOT / "tests" / "helpers"), str(ROOT / "tests"), str(ROOT / "tests" / "faults")]

from kills import Tally, Victim  # noqa: E402
from nursery import Nursery  # noqa: E402
from record import write_record  # noqa: E402
from small_runs import ENDS_EARLY, NAMES, small_config  # noqa: E402

from rl_training.options import load_options_class  # noqa: E402
from rl_training.options._dynamics import DynamicsOptions  # noqa: E402
from rl_training.options._evolution import EvolutionOptions  # noqa: E402
from rl_training.options._offline import OfflineOptions  # noqa: E402
from rl_training.options.base import OffPolicyOptions, OnPolicyOptions  # noqa: E402

# the first that fits
FAMILIES = {
    "on-policy": OnPolicyOptions,
    "offline": OfflineOptions,
    "off-policy": OffPolicyOptions,
    "planning": DynamicsOptions,
    "evolution": EvolutionOptions,
}
SEED = 20261116
# environment: small configuration, arguments, the package that brings it
TASKS: dict[str, tuple[str, dict[str, Any], str]] = {
    "LunarLander-v3": ("ppo", {}, "Box2D"),
    "LunarLanderContinuous-v3": ("sac", {"enable_wind": True}, "Box2D"),
    "BipedalWalker-v3": ("td3", {}, "Box2D"),
    "gymnasium_robotics:AdroitHandDoor-v1": ("sac", {}, "gymnasium_robotics"),
    "gymnasium_robotics:PointMaze_UMaze-v3": ("td3", {}, "gymnasium_robotics"),
    "highway_env:highway-fast-v0": ("ppo", {}, "highway_env"),
    "highway_env:parking-v0": ("sac", {}, "highway_env"),
}
PROJECTS = {"Box2D": "box2d", "gymnasium_robotics": "gymnasium-robotics", "highway_env": "highway-env"}
IN_WORKERS = ["ars", "ddpg", "openai_es", "pets", "ppg", "ppo", "rlpd", "sac", "td3"]  # that have environments all the time
EVERY_TURN = {"log_interval": 1, "checkpoint_interval": 10**6}  # each turn has a line, and no checkpoint but a signal's


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--part", action="append", choices=["kills", "writes", "signals", "ends", "groups", "tasks"], help="all without one"
    )
    parser.add_argument("--kills", type=int, default=100, help="per family (default: 100)")
    parser.add_argument("--writes", type=int, default=200, help="kills in a write, in all (default: 200)")
    parser.add_argument("--signals", type=int, default=50, help="of each kind, in all (default: 50)")
    parser.add_argument("--ends", type=int, default=100, help="random kills in runs that end early, in all (default: 100)")
    parser.add_argument("--groups", type=int, default=50, help="signals to groups, in all (default: 50)")
    parser.add_argument("--tasks", type=int, default=20, help="kills for each environment (default: 20)")
    args = parser.parse_args()
    parts: dict[str, Callable[[Nursery], dict[str, Any]]] = {
        "kills": lambda nursery: {"families": kills(nursery, args.kills)},
        "writes": lambda nursery: {"configurations": NAMES, **writes(nursery, args.writes)},
        "signals": lambda nursery: {"configurations": NAMES, "signals": signals(nursery, args.signals)},
        "ends": lambda nursery: {"configurations": NAMES, **ends(nursery, args.ends)},
        "groups": lambda nursery: {"configurations": IN_WORKERS, **groups(nursery, args.groups)},
        "tasks": lambda nursery: tasks(nursery, args.tasks),
    }
    folders = map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    with Nursery(ROOT / "tests" / "helpers", *folders) as nursery:
        for part in args.part or parts:
            begin = time.monotonic()
            values = parts[part](nursery)
            command = f"python benchmarks/faults/kill.py --part {part} --{part} {getattr(args, part)}"
            values = {"differences": 0, **values, "seed": SEED, "minutes": round((time.monotonic() - begin) / 60, 1)}
            print("written:", write_record(part, values, command=command).relative_to(ROOT))


def kills(nursery: Nursery, per_family: int) -> dict[str, Any]:
    members: dict[str, list[str]] = defaultdict(list)
    for name in NAMES:
        members[family_of(name)].append(name)
    return {
        family: {"configurations": names, **over(names, per_family, nursery, lambda victim, times: victim.kill(times))}
        for family, names in members.items()
    }


def family_of(name: str) -> str:
    options = load_options_class(small_config(name, Path("unused")).algo)
    return next((family for family, kind in FAMILIES.items() if issubclass(options, kind)), "other")


def writes(nursery: Nursery, times: int) -> dict[str, Any]:
    return over(NAMES, times, nursery, lambda victim, share: victim.kill_in_writes(share))


def signals(nursery: Nursery, times: int) -> dict[str, Any]:
    return {
        signum.name: over(NAMES, times, nursery, lambda victim, share, s=signum: victim.interrupt(share, s), **EVERY_TURN)
        for signum in (signal.SIGTERM, signal.SIGINT)
    }


def groups(nursery: Nursery, times: int) -> dict[str, int]:
    changes = {**EVERY_TURN, "execution_backend": "local_async"}
    return over(IN_WORKERS, times, nursery, lambda victim, share: victim.interrupt(share, signal.SIGINT, group=True), **changes)


def tasks(nursery: Nursery, times: int) -> dict[str, Any]:
    done: dict[str, Any] = {}
    for env_id, (name, arguments, package) in TASKS.items():
        if find_spec(package) is not None:
            changes = {"env_id": env_id, "env_kwargs": {"max_episode_steps": 30, **arguments}}
            done[env_id] = {
                "algorithm": name,
                **over([name], times, nursery, lambda victim, share: victim.kill(share), **changes),
            }
    packages = sorted({package for _, _, package in TASKS.values()})
    found = {package: version(PROJECTS[package]) for package in packages if find_spec(package) is not None}
    return {"tasks": done, "packages": found, "not installed": [name for name in packages if name not in found]}


def ends(nursery: Nursery, times: int) -> dict[str, Any]:
    def fault(victim: Victim, share: int) -> Tally:
        saves = victim.kill_after_every_save()
        saves["kills after a save"] = saves["kills"]
        saves += victim.kill(share)
        return saves

    return over(NAMES, times, nursery, fault, algo_kwargs=ENDS_EARLY)


def over(
    names: list[str], times: int, nursery: Nursery, fault: Callable[[Victim, int], Tally], **changes: Any
) -> dict[str, int]:
    """A fair share of the faults to each configuration."""
    total = Tally()
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            tally = fault(Victim(name, Path(folder) / name, nursery, seed=SEED, **changes), math.ceil(times / len(names)))
        print(f"{name}: {dict(sorted(tally.counts.items()))}", flush=True)
        total += tally
    return dict(sorted(total.counts.items()))


if __name__ == "__main__":
    main()
