"""Live progress while training runs. It watches: no random number is drawn and nothing of it is saved."""

from __future__ import annotations

import math
import sys
from collections import deque
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rl_training.cli.results import duration, number, spread
from rl_training.cli.tables import is_terminal, make_console, say
from rl_training.runtime.callbacks import Callback
from rl_training.types import Collected, TrainResult

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rl_training.runtime.session import Session

BAR_SECONDS = 0.2  # between two drawings of the bar; one takes half a millisecond
LINE_SECONDS = 5.0  # between two lines in a log
WINDOW_SECONDS = 10.0  # over which speeds are taken


class Best(NamedTuple):
    """The best evaluation so far; without a step when it is of an earlier part of the run."""

    value: float
    step: int | None


@dataclass(frozen=True, slots=True)
class Status:
    """All that a display shows."""

    title: str
    step: int
    total: int
    steps_per_second: float
    updates_per_second: float
    seconds_left: float
    recent_return: float | None
    evaluations: tuple[float, ...]
    best: Best | None

    @property
    def numbers(self) -> list[str]:
        parts = [f"{self.steps_per_second:,.0f} steps/s", f"{self.updates_per_second:,.0f} updates/s"]
        if self.recent_return is not None:
            parts.append(f"return {number(self.recent_return)}")
        if self.evaluations and self.best is not None:
            parts += [f"eval {number(self.evaluations[-1])}", f"best {number(self.best.value)}"]
        return parts

    @property
    def left(self) -> str:
        return f"{duration(self.seconds_left)} left" if math.isfinite(self.seconds_left) else "? left"


class Display(Protocol):
    """Where a status goes."""

    seconds: float  # the least time between two calls of `show`

    def show(self, status: Status) -> None: ...
    def evaluated(self, status: Status, metrics: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class Bar:
    """Two lines that stay at the bottom of the terminal. Drawn by the training thread itself: no other is started."""

    seconds = BAR_SECONDS

    def __init__(self) -> None:
        from rich.live import Live

        # what is logged meanwhile must appear above the bar; a redirected stderr is left alone
        self._live = Live(console=make_console(), auto_refresh=False, redirect_stderr=sys.stderr.isatty())
        self._live.start()

    def show(self, status: Status) -> None:
        self._live.update(_drawing(status), refresh=True)

    def evaluated(self, status: Status, metrics: dict[str, Any]) -> None:  # noqa: ARG002 (the bar shows the last and the best)
        self.show(status)

    def close(self) -> None:
        self._live.stop()


class Lines:
    """A line every few seconds and one for each evaluation, for logs and pipes."""

    seconds = LINE_SECONDS

    def show(self, status: Status) -> None:
        done = f"step {status.step:,}/{status.total:,} ({status.step / status.total:.0%})"
        say("  ".join([done, *status.numbers, status.left]))

    def evaluated(self, status: Status, metrics: dict[str, Any]) -> None:
        record = " (best so far)" if status.best is not None and status.best.step == status.step else ""
        say(f"step {status.step:,}/{status.total:,}  evaluation {spread(metrics)}{record}")

    def close(self) -> None: ...


class ProgressCallback(Callback):
    """Tells a display how training goes, and remembers what the summary needs. Use it in a `with` block: training may
    end by an error, and the terminal must be put right all the same."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.best: Best | None = None
        self._display: Display | None = None
        self._due = math.inf
        self._evaluations: list[float] = []
        self._samples: deque[tuple[float, int, int]] = deque()
        self._first = self._last = (0.0, 0, 0)

    @property
    def steps_done(self) -> int:
        return self._last[1] - self._first[1]

    @property
    def updates_done(self) -> int:
        return self._last[2] - self._first[2]

    @property
    def seconds(self) -> float:
        return self._last[0] - self._first[0]

    def __enter__(self) -> ProgressCallback:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._call("close")
        self._display = None

    def on_train_start(self, trainer: Session) -> None:
        self._first = self._last = _sample(trainer)
        self._samples.append(self._first)
        if math.isfinite(trainer.run.best_score):
            self.best = Best(trainer.run.best_score, None)
        if not self.quiet:
            self._display = Bar() if is_terminal() else Lines()
            self._due = self._first[0] + self._display.seconds

    def on_collect_end(self, trainer: Session, result: Collected) -> None:  # noqa: ARG002
        if perf_counter() >= self._due:  # called at every step of an off-policy run: this must cost next to nothing
            self._call("show", self._status(trainer))

    def on_eval_end(self, trainer: Session, metrics: dict[str, Any]) -> None:
        self._take(metrics, trainer.global_step)
        self._call("evaluated", self._status(trainer), metrics)

    def on_train_end(self, trainer: Session, result: TrainResult) -> None:  # noqa: ARG002
        status = self._status(trainer)
        self._last = self._samples[-1]
        if isinstance(self._display, Bar):
            self._call("show", status)
        self._call("close")
        self._display, self._due = None, math.inf

    def _take(self, metrics: dict[str, Any], step: int) -> None:
        value = float(metrics["eval_return_mean"])
        self._evaluations.append(value)
        if math.isfinite(value) and (self.best is None or value > self.best.value):
            self.best = Best(value, step)

    def _call(self, method: str, *arguments: Any) -> None:
        if self._display is None:
            return
        try:
            getattr(self._display, method)(*arguments)
        except OSError:  # `train | head`: nobody reads any more, which is no reason to lose a training
            self._display, self._due = None, math.inf
            return
        self._due = perf_counter() + self._display.seconds

    def _status(self, trainer: Session) -> Status:
        now = _sample(trainer)
        self._samples.append(now)
        while len(self._samples) > 2 and self._samples[1][0] < now[0] - WINDOW_SECONDS:
            self._samples.popleft()
        then = self._samples[0]
        seconds = max(now[0] - then[0], 1e-9)
        steps, updates = (now[1] - then[1]) / seconds, (now[2] - then[2]) / seconds
        returns, config = trainer.progress.recent_returns, trainer.config
        return Status(
            title=f"{config.algo} {config.env_id} seed {config.seed}",
            step=trainer.global_step,
            total=config.budget,
            steps_per_second=steps,
            updates_per_second=updates,
            seconds_left=_seconds_left(trainer, steps, updates),
            recent_return=sum(returns) / len(returns) if returns else None,
            evaluations=tuple(self._evaluations),
            best=self.best,
        )


def _sample(trainer: Session) -> tuple[float, int, int]:
    return perf_counter(), trainer.global_step, trainer.progress.updates


def _seconds_left(trainer: Session, steps_per_second: float, updates_per_second: float) -> float:
    """Until the steps or the updates are used up, whichever comes first."""
    budgets = [(trainer.config.budget - trainer.global_step, steps_per_second)]
    if trainer.options.max_updates is not None:
        budgets.append((trainer.options.max_updates - trainer.progress.updates, updates_per_second))
    return min((max(left, 0) / speed for left, speed in budgets if speed > 0), default=math.inf)


def _drawing(status: Status) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    first = Table.grid(padding=(0, 1), expand=True)
    first.add_column(no_wrap=True)
    first.add_column(ratio=1)
    first.add_column(no_wrap=True, justify="right")
    done = f"{status.step:,}/{status.total:,} {min(status.step / status.total, 1):.0%} {status.left}"
    bar = ProgressBar(total=status.total, completed=min(status.step, status.total))
    first.add_row(Text(status.title, style="bold"), bar, done)
    second = Text("  " + "  ".join(status.numbers), style="cyan", no_wrap=True, overflow="ellipsis")
    return Group(first, second.append("  " + sparkline(status.evaluations), style="green"))


def sparkline(values: tuple[float, ...], width: int = 24) -> str:
    """The latest evaluations as a row of small bars."""
    recent = [value for value in values[-width:] if math.isfinite(value)]
    if len(recent) < 2:
        return ""
    low, high = min(recent), max(recent)
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (value - low) / (high - low))] if high > low else "▄" for value in recent)
