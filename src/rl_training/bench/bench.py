"""Running the jobs of a suite side by side, as many as fit, and what they are doing meanwhile. Imports no torch."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import NamedTuple, Protocol

from rl_training.errors import TrainingInterrupted
from rl_training.experiment.files import plain, write_text
from rl_training.experiment.suite_jobs import Job
from rl_training.reports.results import Missing, parse_record
from rl_training.runtime.signals import StopSignals

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
TAIL_BYTES = 65_536  # of a history: enough for its last evaluation
LOG_LINES = 8


class Handle(Protocol):
    """A job that was started."""

    def poll(self) -> int | None: ...  # its exit code, None while it runs
    def stop(self) -> None: ...  # have it save and end
    def kill(self) -> None: ...


class Launcher(Protocol):
    """Starts jobs. Local: processes on this machine; Ray: processes on a cluster that shares its files with us."""

    def start(self, job_file: Path, log_file: Path, *, threads: int) -> Handle: ...
    def close(self) -> None: ...


class LocalHandle:
    """A process. It ends by itself when we do, for it reads a pipe that only we hold."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._asked = process, False

    def poll(self) -> int | None:
        code = self._process.poll()
        if code is not None:
            self._close()
        return code

    def stop(self) -> None:
        if not self._asked:  # a second signal could catch it between saving and ending
            self._asked = True
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()


class LocalLauncher:
    """Every job is a process of its own, with its own number of threads."""

    def start(self, job_file: Path, log_file: Path, *, threads: int) -> LocalHandle:
        return LocalHandle(start_process(job_file, log_file, threads=threads))

    def close(self) -> None:
        """Nothing is left open: every process is a handle's."""


def start_process(job_file: Path, log_file: Path, *, threads: int) -> subprocess.Popen[bytes]:
    """`bench_job` on one job file; whatever it says goes to the log."""
    return start_module("bench.bench_job", str(job_file), log_file=log_file, threads=threads)


def start_module(name: str, *arguments: str, log_file: Path, threads: int) -> subprocess.Popen[bytes]:
    """A module of ours in a process of its own, which ends when we do."""
    source = str(Path(__file__).parents[2])  # found by the child whether it is installed or not
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", f"rl_training.{name}", *arguments, "--with-parent"]
    with FileIO(log_file, "a", opener=plain) as output:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment)  # noqa: S603


@dataclass
class Running:
    """A job under way."""

    job: Job
    handle: Handle
    log_file: Path
    log_begin: int  # where this attempt's part of the log begins
    begun: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun


class Observer(Protocol):
    """Tells a person."""

    def begun(self, job: Job) -> None: ...
    def ended(self, job: Job, failure: str | None) -> None: ...
    def tick(self, schedule: Schedule) -> None: ...


class Schedule:
    """Which jobs wait, run, are done and have failed."""

    def __init__(self, jobs: Iterable[Job], *, work_dir: Path, launcher: Launcher, cores: int, max_jobs: int | None) -> None:
        self.jobs = list(jobs)
        self.done = [job for job in self.jobs if job.result() is not None]
        self.waiting = [job for job in self.jobs if job not in self.done]
        self.running: list[Running] = []
        self.failed: list[Missing] = []
        self.spent: dict[str, list[float]] = {}  # seconds of the jobs that ended here, by entry
        self._work_dir, self._launcher, self._cores, self._max_jobs = work_dir, launcher, cores, max_jobs

    def run(self, observer: Observer) -> None:
        """Until all are done or have failed; a signal is passed on to the jobs, and raised once they have saved."""
        with StopSignals() as signals:
            try:
                while self.running or (self.waiting and signals.received is None):
                    if signals.received is not None:
                        for running in self.running:
                            running.handle.stop()
                    else:
                        self._start_what_fits(observer)
                    time.sleep(POLL_SECONDS)
                    self._collect(observer, stopping=signals.received is not None)
                    observer.tick(self)
            except BaseException:
                for running in self.running:
                    running.handle.kill()
                raise
        if signals.received is not None:
            self._leave(signals.received)

    def _start_what_fits(self, observer: Observer) -> None:
        while self.waiting and self._fits(self.waiting[0]):
            job = self.waiting.pop(0)
            self._work_dir.mkdir(parents=True, exist_ok=True)
            job_file, log_file = (self._work_dir / f"{job.file_stem}.{ending}" for ending in ("json", "log"))
            write_text(job_file, json.dumps(job.to_dict(), indent=1) + "\n")
            begin = log_file.stat().st_size if log_file.exists() else 0
            handle = self._launcher.start(job_file, log_file, threads=job.config.threads)
            self.running.append(Running(job, handle, log_file, begin))
            observer.begun(job)

    def _fits(self, job: Job) -> bool:
        if self._max_jobs is not None:
            return len(self.running) < self._max_jobs
        busy = sum(running.job.config.threads for running in self.running)
        return not self.running or busy + job.config.threads <= self._cores

    def _collect(self, observer: Observer, *, stopping: bool) -> None:
        for running in list(self.running):
            code = running.handle.poll()
            if code is None:
                continue
            self.running.remove(running)
            if code == 0 and running.job.result() is not None:
                self.done.append(running.job)
                self.spent.setdefault(running.job.entry, []).append(running.seconds)
                observer.ended(running.job, None)
            elif stopping:
                self.waiting.append(running.job)
            else:
                failure = f"{exit_words(code)}\n{log_tail(running.log_file, running.log_begin)}".rstrip()
                self.failed.append(Missing(running.job.entry, running.job.seed, reason_line(failure, running.job)))
                observer.ended(running.job, failure)

    def _leave(self, signum: int) -> None:
        counts = f"{len(self.done)} of {len(self.jobs)} jobs are done"
        message = f"interrupted; {counts}, the others are saved. The same command goes on with them"
        raise TrainingInterrupted(message, signum=signum, result=None)


def exit_words(code: int) -> str:
    """What an exit code says."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"killed by {name}" + (" (is there enough memory?)" if name == "SIGKILL" else "")
    if code > 128:
        with suppress(ValueError):
            return f"stopped by {signal.Signals(code - 128).name}; it is saved and the same command goes on with it"
    return "ended without a result" if code == 0 else f"failed (exit code {code})"


def log_tail(path: Path, begin: int = 0, *, lines: int = LOG_LINES) -> str:
    """The last lines of a log, those before `begin` left out."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(begin, end - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-lines:])


def reason_line(text: str, job: Job) -> str:
    """The line of a log that says most, without time and without where on this machine the runs lie."""
    lines = text.strip().splitlines() or [""]
    line = next((line for line in reversed(lines) if "Error" in line), lines[-1])
    return re.sub(r"^[\d:]{8} [A-Z]+ ", "", line.strip()).replace(f"{job.run_dir.parent}/", "")


class JobProgress(NamedTuple):
    """How far a run has come, by its history."""

    step: int
    last_eval: float | None


def progress_of(job: Job) -> JobProgress:
    """Read from the end of the run's history, which may be on a shared file system."""
    step, last_eval = 0, None
    for line in log_tail(job.run_dir / "metrics.jsonl", lines=2000).splitlines():
        record = parse_record(line)  # the first line of the tail and the last may be torn
        if record is not None:
            step, value = record[0], record[1].get("eval_return_mean")
            last_eval = value if value is not None else last_eval
    return JobProgress(step, last_eval)


def seconds_left(schedule: Schedule, steps: dict[str, int]) -> float | None:
    """Until all jobs are done, judged by those that are or are well under way; None while nothing is known.

    `steps` are those made so far, by job's name.
    """
    per_step = _seconds_per_step(schedule, steps)
    if not per_step:
        return None
    usual = sum(per_step.values()) / len(per_step)
    running = [(r.job, max(r.job.config.total_timesteps - steps.get(r.job.name, 0), 0)) for r in schedule.running]
    waiting = [(job, job.config.total_timesteps) for job in schedule.waiting]
    left = [per_step.get(job.entry, usual) * count for job, count in [*running, *waiting]]
    return max(sum(left) / max(len(schedule.running), 1), max(left[: len(running)], default=0.0))


def _seconds_per_step(schedule: Schedule, steps: dict[str, int]) -> dict[str, float]:
    known: dict[str, float] = {}
    for running in schedule.running:
        if steps.get(running.job.name, 0) > 0:
            known[running.job.entry] = running.seconds / steps[running.job.name]
    totals = {job.entry: job.config.total_timesteps for job in schedule.jobs}
    return known | {entry: sum(spent) / len(spent) / totals[entry] for entry, spent in schedule.spent.items()}


def missing_jobs(jobs: Sequence[Job], failed: Sequence[Missing], work_dir: Path) -> list[Missing]:
    """Every job without a result, with the reason that is known."""
    reasons = {(missed.entry, missed.seed): missed for missed in failed}
    missing = []
    for job in jobs:
        if job.result() is None:
            said = reason_line(log_tail(work_dir / f"{job.file_stem}.log"), job)
            missing.append(reasons.get((job.entry, job.seed)) or Missing(job.entry, job.seed, said or "not begun yet"))
    return missing


def machine_cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
