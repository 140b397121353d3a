"""How a benchmark goes, on a terminal as a table that stays, elsewhere as lines."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from rl_training.bench.bench import JobProgress, Running, Schedule, progress_of, seconds_left
from rl_training.cli.results import duration, number
from rl_training.cli.tables import is_terminal, make_console, say, say_error

if TYPE_CHECKING:
    from rich.table import Table

    from rl_training.experiment.suite_jobs import Job

TABLE_SECONDS = 1.0
LINE_SECONDS = 15.0


class SilentDisplay:
    """An observer that says nothing."""

    def __enter__(self) -> SilentDisplay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing to put right."""

    def begun(self, job: Job) -> None: ...
    def ended(self, job: Job, failure: str | None) -> None: ...
    def tick(self, schedule: Schedule) -> None: ...


class BenchDisplay:
    """An observer of the schedule. Use it in a `with` block, so that the terminal is put right at the end."""

    def __init__(self) -> None:
        self._live = None
        self._due = time.monotonic()
        if is_terminal():
            from rich.live import Live

            self._live = Live(console=make_console(), auto_refresh=False, redirect_stderr=sys.stderr.isatty())
            self._live.start()

    def __enter__(self) -> BenchDisplay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def begun(self, job: Job) -> None:
        if self._live is None:
            say(f"begun: {job.name}")

    def ended(self, job: Job, failure: str | None) -> None:
        if self._live is not None:
            self._due = time.monotonic()  # the table must not end with a job that is over
        if failure is not None:
            indented = "\n  ".join(failure.splitlines())
            say_error(f"{job.name}: {indented}", label="failed")
            return
        result = job.result() or {}
        mean, std = result["return_mean"], result["return_std"]
        say(f"done: {job.name}  " + ("not evaluated" if mean is None else f"return {number(mean)} ± {number(std)}"))

    def tick(self, schedule: Schedule) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + (LINE_SECONDS if self._live is None else TABLE_SECONDS)
        progress = {running.job.name: progress_of(running.job) for running in schedule.running}
        overall = _overall(schedule, progress)
        if self._live is not None:
            self._live.update(_drawing(schedule, progress, overall), refresh=True)
            return
        for running in schedule.running:
            say("  ".join([f"  {running.job.name}", *_cells(running, progress[running.job.name])]))
        say(overall)


def _overall(schedule: Schedule, progress: dict[str, JobProgress]) -> str:
    left = seconds_left(schedule, {name: state.step for name, state in progress.items()})
    parts = [f"{len(schedule.done)} of {len(schedule.jobs)} jobs done", f"{len(schedule.running)} running"]
    parts += [f"{len(schedule.failed)} failed"] if schedule.failed else []
    return ", ".join([*parts, "? left" if left is None else f"about {duration(left)} left"])


def _cells(running: Running, state: JobProgress) -> list[str]:
    total = running.job.config.budget
    last = "no evaluation yet" if state.last_eval is None else f"eval {number(state.last_eval)}"
    return [f"step {state.step:,}/{total:,} ({min(state.step / total, 1):.0%})", last, duration(running.seconds)]


def _drawing(schedule: Schedule, progress: dict[str, JobProgress], overall: str) -> Table:
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0), caption=overall, caption_justify="left")
    for running in schedule.running:
        grid.add_row(running.job.name, *_cells(running, progress[running.job.name]))
    return grid
