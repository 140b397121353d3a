"""Where the time of one training step goes: `python benchmarks/speed/parts.py`, by processor time, one thread.

Each row of rows.py is trained as in the table of rates, for longer. Stretches with timers around the functions named here
take turns with stretches without them, so that the file says what the timers cost as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

from about import HERE, circumstances, computing
from ours import config_of, trained
from rows import ROWS
from timers import REST, Timed, Timers

from rl_training.algorithms import CQL, DDPG, RLPD, SAC, TD3, cql, deterministic, sac
from rl_training.data.mixed_source import MixedSource
from rl_training.data.packed_rows import PackedRows
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.envs.batched import BatchedEnvs
from rl_training.kernels import library
from rl_training.kernels.mlp import MLPLayout, _Tape
from rl_training.models.optim import Adam
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.collector import Collector
from rl_training.runtime.evolution import EvolutionLoop
from rl_training.runtime.population import PopulationEvaluator, _Share
from rl_training.runtime.session import Session
from rl_training.types import Collected

PASSES, CALLS = "passes in C", "calling them"
POLICIES = "policies in C"
RECORDS = "log and checkpoints"
LOSSES, OPTIMISER = "losses, targets, drawn actions", "Adam and averages"

SHARED = [*(Timed(Session, name, RECORDS, whole=True) for name in ("_log", "save_checkpoint"))]
OFF_POLICY = [
    *SHARED,
    *(Timed(library.library(), name, PASSES, whole=True) for name in ("forward", "backward", "inputs_back")),
    *(Timed(MLPLayout, name, CALLS) for name in ("__call__", "vjp")),
    *(Timed(_Tape, name, CALLS) for name in ("parameters", "inputs")),
    *(Timed(learner, "update", LOSSES) for learner in (SAC, CQL, TD3, DDPG)),
    Timed(RLPD, "update_round", LOSSES),
    Timed(Adam, "step", OPTIMISER, whole=True),
    *(Timed(module, "polyak_update", OPTIMISER, whole=True) for module in (sac, cql, deterministic)),
    # with the policy's own pass, whose products over one row are not those of an update
    Timed(Collector, "collect", "environment and acting", whole=True),
    Timed(ReplayBuffer, "add", "batches", whole=True),
    *(Timed(source, "sample", "batches", whole=True) for source in (PackedRows, MixedSource)),
]
EVOLUTION = [
    *SHARED,
    Timed(library.library(), "act_as_many", POLICIES, whole=True),
    Timed(_Share, "_act", "acting around them"),
    *(Timed(BatchedEnvs, name, "environment", whole=True) for name in ("step", "step_some", "reset")),
    Timed(PopulationEvaluator, "_evaluate", "loop of episodes"),
    Timed(_Share, "__init__", "perturbing policies"),
    Timed(EvolutionLoop, "generation", "perturbing policies"),
    Timed(EvolutionLoop, "learn", "learning", whole=True),
]


@dataclass(frozen=True)
class Work:
    """What is timed of a row: `stretches` of `turns` turns of the trainer each, every second one with timers."""

    per: str
    turns: int
    stretches: int
    total: int  # timesteps that suffice for them
    who: str = "ours"
    unit: str = "ms"
    steps: int = 1  # timesteps to a unit of work
    counts_updates: bool = False
    functions: list[Timed] = field(default_factory=lambda: OFF_POLICY)

    @property
    def parts(self) -> list[str]:
        return [*dict.fromkeys(timed.part for timed in self.functions if timed.part != RECORDS), RECORDS, REST]


STEP, UPDATE = "environment step with its update", "update"
WORK = {
    **{name: Work(STEP, turns=40, stretches=40, total=2_700) for name in ("sac", "td3", "ddpg")},
    "rlpd": Work("critic update, with a 20th of an actor's", turns=2, stretches=16, total=340, counts_updates=True),
    "cql": Work(UPDATE, turns=10, stretches=32, total=350),
    "openai_es": Work(
        "step of 64 policies",
        turns=1,
        stretches=200,
        total=2_700_000,
        who="ours_batched",
        unit="µs",
        steps=64,
        functions=EVOLUTION,
    ),
}


class Stretches(Callback):
    """Turns the timers on and off, and counts work and processor time with and without them."""

    def __init__(self, work: Work, skip: int) -> None:
        self.work, self.skip, self.timers = work, skip, Timers(work.functions)
        self.seconds, self.done = {True: 0.0, False: 0.0}, {True: 0, False: 0}
        self.turns, self.on = -1, True
        self.begun = (0, 0.0)

    def on_collect_end(self, trainer: Any, result: Collected) -> None:  # noqa: ARG002
        if trainer.global_step < self.skip:
            return
        self.turns += 1
        if self.turns % self.work.turns:
            return
        now = time.process_time()
        done = trainer.progress.updates if self.work.counts_updates else trainer.global_step
        if self.turns:
            if self.on:
                self.timers.stop()
            self.seconds[self.on] += now - self.begun[1]
            self.done[self.on] += done - self.begun[0]
        if self.turns == self.work.turns * self.work.stretches:
            trainer.request_stop("measured")
            return
        self.on = not self.on
        self.begun = (done, time.process_time())
        if self.on:
            self.timers.start()

    def record(self) -> dict[str, Any]:
        """All in the row's unit, for one piece of work."""
        scale = (1e6 if self.work.unit == "µs" else 1e3) * self.work.steps
        timers, own = self.timers, self.timers.own_seconds()
        parts = {part: timers.seconds[part] - own[part] for part in self.work.parts}
        # what the other threads computed: they write checkpoints and TensorBoard's file
        parts[RECORDS] += self.seconds[True] - sum(timers.seconds.values())
        shown = {part: significant(scale * seconds / self.done[True]) for part, seconds in parts.items()}
        return {
            "per": self.work.per,
            "unit": self.work.unit,
            "parts": shown,
            "timers": significant(scale * sum(own.values()) / self.done[True]),
            "with_timers": significant(scale * self.seconds[True] / self.done[True]),
            "without_timers": significant(scale * self.seconds[False] / self.done[False]),
            "timed_calls": round(timers.entries.total() * self.work.steps / self.done[True], 1),
            "measured": {
                "with_timers": self.done[True] // self.work.steps,
                "without_timers": self.done[False] // self.work.steps,
            },
        }


def significant(value: float) -> float:
    return float(f"{value:.4g}")


def measured(name: str) -> dict[str, Any]:
    work, row = WORK[name], ROWS[name]
    stretches = Stretches(work, row.skip)
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(row, work.who, threads=1, seed=0, folder=folder).replace(total_timesteps=work.total)
        reason = trained(config, stretches).get("stop_reason")
    assert reason == "measured", f"{name}: {work.total} timesteps are too few"
    return {"title": row.title, **stretches.record()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", nargs="?", choices=list(WORK), help="measure it in this process and print it; write no file")
    args = parser.parse_args()
    if args.row:
        print(json.dumps(measured(args.row), ensure_ascii=False))
        return
    about, found = circumstances("python benchmarks/speed/parts.py"), {}
    for name in WORK:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "parts.py", name]
        done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{name} failed:\n{done.stderr}")
        found[name] = json.loads(done.stdout.splitlines()[-1])
        print(name, found[name], flush=True)
    record = {"rows": found, **about, "computed_with": computing()}
    (HERE / "results" / "parts.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
