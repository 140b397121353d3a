"""Kill a training run, resume it, again and again until it ends, and hold what it leaves against an undisturbed run."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiming import POINTS
from nursery import Nursery
from small_runs import history, small_config, state_difference

from rl_training.experiment.checkpoint import verify_checkpoint
from rl_training.experiment.checkpoint_reader import CheckpointFile
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.locate import step_files, step_of

CHECKPOINTS = 10  # in a whole run, about


class Lost(AssertionError):  # noqa: N818 (the word for it)
    """A promise was broken; the message says by which run."""


@dataclass
class Tally:
    """What was done to the runs of one configuration, and what came of it."""

    counts: Counter[str] = field(default_factory=Counter)

    def __iadd__(self, other: Tally) -> Tally:
        self.counts += other.counts
        return self

    def __getitem__(self, name: str) -> int:
        return self.counts[name]

    def __setitem__(self, name: str, value: int) -> None:
        self.counts[name] = value


class Victim:
    """One small configuration: trained once in peace, then through faults, by the command line and in processes of their own.

    All its runs lie in one output directory, so that even the configuration inside of their checkpoints is the same:
    their last files must agree in every byte.
    """

    def __init__(self, name: str, folder: Path, nursery: Nursery, *, seed: int, **changes: Any) -> None:
        self.name, self.folder, self.nursery = name, folder, nursery
        self.chance = random.Random(f"{name} {seed}")
        self.config = self._configuration(changes)
        folder.mkdir(parents=True)
        self.config_file = folder / "config.yaml"
        self.config_file.write_text(self.config.to_yaml())
        self.log = folder / "log"
        self._begun = 0
        self._partials: set[Path] = set()
        begin = time.monotonic()
        self.whole = self._finish_in_peace(self._begin_arguments("whole"))
        self.seconds = time.monotonic() - begin  # on this machine, at this hour
        self.last_step = step_of(checkpoints(self.whole)[0])

    def _configuration(self, changes: dict[str, Any]) -> TrainConfig:
        config = small_config(self.name, self.folder / "runs", algo_kwargs=changes.pop("algo_kwargs", {}))
        return config.replace(**{"checkpoint_interval": max(config.total_timesteps // CHECKPOINTS, 1), **changes})

    # --- faults

    def kill(self, times: int) -> Tally:
        """SIGKILL at random moments, `times` in all; whenever a run ends before that, another begins."""
        tally = Tally()
        while tally["kills"] < times:
            run = self._begin()
            while True:
                code = self._go_on(run, after=self._moment(run) if tally["kills"] < times else None, signum=signal.SIGKILL)
                if code == 0:
                    break
                self._require(code == -signal.SIGKILL, f"exit code {code} after a kill")
                tally["kills"] += 1
                tally["into a write"] += self._torn(run)
                tally["before the first checkpoint"] += not checkpoints(run)
                self._require_whole(run)
                if not checkpoints(run):
                    run = self._begin()
            self._compare(run)
            tally["runs"] += 1
        return tally

    def kill_in_writes(self, times: int) -> Tally:
        """SIGKILL inside of the writing of a checkpoint: after a byte of it, before and after its sync, after its renaming."""
        tally, run = Tally(), self._begin()
        while True:
            aim = self._aim() if tally["kills"] < times else None
            before = place(run)
            code = self._go_on(run, aim=aim)
            if code == 0:
                self._compare(run)
                tally["runs"] += 1
                if tally["kills"] >= times:
                    return tally
                run = self._begin()
                continue
            self._require(aim is not None and code == -signal.SIGKILL, f"exit code {code} after a kill in a write")
            tally["kills"] += 1
            tally[f"point: {aim['point']}"] += 1
            tally["torn files left"] += self._torn(run)
            tally["before the first checkpoint"] += not checkpoints(run)
            self._require_whole(run)
            self._require(place(run) >= before, f"a kill took the checkpoint of {before}")
            if not checkpoints(run):
                run = self._begin()

    def kill_after_every_save(self) -> Tally:
        """SIGKILL when the first checkpoint file has its name, in another run when the second has it, and so on to the last."""
        tally = Tally()
        while True:
            run = self._begin()
            code = self._go_on(run, aim={"save": tally["kills"], "point": "renamed"})
            if code == 0:  # there are no more saves than that
                self._compare(run)
                return tally
            self._require(code == -signal.SIGKILL, f"exit code {code} after a kill behind a save")
            tally["kills"] += 1
            tally["before the first checkpoint"] += not checkpoints(run)
            run = run if checkpoints(run) else self._begin()
            self._require(self._go_on(run) == 0, "the resumed run failed")
            self._compare(run)
            tally["runs"] += 1

    def interrupt(self, times: int, signum: signal.Signals, *, group: bool = False) -> Tally:
        """SIGTERM or SIGINT at random moments, without any checkpoint but those a signal makes; to the process alone, or to its
        group, as a terminal's Ctrl-C goes to workers that have just been started."""
        tally = Tally()
        while tally["signals"] < times:
            run = self._begin()
            while True:
                after = self._moment(run) if tally["signals"] < times else None
                code = self._go_on(run, after=after, signum=signum, **({"group": True} if group else {}))
                if code == 0:
                    break
                self._require("Traceback" not in self.log.read_text(), f"a traceback after {signum.name}")
                saved = code == 128 + signum and "everything is saved" in self.log.read_text()
                # before training has begun and after it has ended, a signal ends the process as any other
                self._require(saved or code in (-signum, 128 + signum), f"exit code {code} after {signum.name}")
                tally["signals"] += 1
                tally["during training" if saved else "before or after training"] += 1
                self._require_nothing_lost(run)
                if not checkpoints(run):
                    run = self._begin()
            self._compare(run)
            tally["runs"] += 1
        return tally

    # --- one process

    def _begin(self) -> Path:
        """The directory of a run that is not there yet."""
        self._begun += 1
        return self.whole.with_name(self.whole.name.removesuffix("whole") + f"run{self._begun}")

    def _go_on(self, run: Path, **fault: Any) -> int:
        begun = self._begin_arguments(run.name.rpartition("__")[2])
        arguments = ["resume", "--checkpoint", str(run), "--quiet"] if checkpoints(run) else begun
        before = place(run)
        code = self.nursery.run(*arguments, log=self.log, **fault)
        if fault.get("after") is not None:
            # the machine is faster or slower than it was: a kill shall mostly fall into the work, and the work shall get on
            self.seconds *= 0.7 if code == 0 else 1.15 if place(run) == before else 1.0
        return code

    def _begin_arguments(self, suffix: str) -> list[str]:
        return ["train", "--config", str(self.config_file), "--run-suffix", suffix, "--quiet"]

    def _finish_in_peace(self, arguments: list[str]) -> Path:
        self._require(self.nursery.run(*arguments, log=self.log) == 0, "the undisturbed run failed")
        (whole,) = (self.folder / "runs").iterdir()
        return whole

    def _moment(self, run: Path) -> float:
        """Somewhere in what is left of the run."""
        known = checkpoints(run)
        done = step_of(known[0]) / self.last_step if known and self.last_step else 0.0
        return self.chance.uniform(0.0, 0.95) * self.seconds * max(1.0 - done, 0.3)

    def _aim(self) -> dict[str, Any]:
        size = checkpoints(self.whole)[0].stat().st_size
        point = self.chance.choice([*["byte"] * 3, *POINTS[1:]])
        return {"save": self.chance.randrange(4), "point": point, "byte": self.chance.randrange(size)}

    def _torn(self, run: Path) -> int:
        """Partial files that the last kill left; older ones lie about until the next checkpoint is saved."""
        before, self._partials = self._partials, set((run / "checkpoints").glob("*.partial"))
        return len(self._partials - before)

    # --- what must be true

    def _require(self, truth: bool, words: str) -> None:
        if not truth:
            log = self.log.read_text() if self.log.exists() else ""
            raise Lost(f"{self.name}: {words}\n{log}")

    def _require_whole(self, run: Path) -> None:
        """A kill leaves no checkpoint that cannot be read."""
        for path in (run / "checkpoints").glob("*.safetensors"):
            verify_checkpoint(path)

    def _require_nothing_lost(self, run: Path) -> None:
        """Every turn writes a line, and the checkpoint knows how many there are: one that it does not know would be lost."""
        lines = len(history(run)) if (run / "metrics.jsonl").exists() else 0
        known, at_end = 0, False
        if checkpoints(run):
            state = plain_trainer_state(checkpoints(run)[0])
            known, at_end = state["history_lines"], state["progress"]["global_step"] >= self.config.total_timesteps
        # the last evaluation comes after the last checkpoint and is made again
        self._require(lines <= known + at_end, f"{lines} lines of metrics, the newest checkpoint knows {known}")

    def _compare(self, run: Path) -> None:
        self._require_whole(run)
        names = [sorted(path.name for path in (which / "checkpoints").glob("*")) for which in (self.whole, run)]
        ours, theirs = checkpoints(run)[0], checkpoints(self.whole)[0]
        self._require(ours.name == theirs.name, f"ended at {ours.name} and not at {theirs.name}: {names}")
        if ours.read_bytes() != theirs.read_bytes():
            raise Lost(f"{self.name}: the last checkpoint differs: {state_difference(theirs, ours) or 'in its header'}")
        self._require(history(run) == history(self.whole), "the metrics history differs")
        best = [(which / "checkpoints" / "best.safetensors").read_bytes() for which in (self.whole, run)]
        self._require(best[0] == best[1], "the best policy differs")


def checkpoints(run: Path) -> list[Path]:
    """Newest first; none for a run that was never begun."""
    folder = run / "checkpoints"
    return step_files(folder) if folder.is_dir() else []


def place(run: Path) -> tuple[int, int]:
    """How far a run can be resumed: steps and updates (fitting a model takes no step); (-1, -1) for not at all."""
    known = checkpoints(run)
    progress = plain_trainer_state(known[0])["progress"] if known else {"global_step": -1, "updates": -1}
    return progress["global_step"], progress["updates"]


def plain_trainer_state(path: Path) -> dict[str, Any]:
    """Its plain values, from the header alone."""
    with CheckpointFile(path) as file:
        return dict(json.loads(file.texts["trainer_state"]))
