"""Scalars for Weights & Biases, online or offline."""

from __future__ import annotations

import logging
import os
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rl_training.errors import ConfigError, MissingExtraError, RLTrainingError
from rl_training.experiment.files import read_plain, write_text
from rl_training.experiment.sinks import BatchingSink, Row

logger = logging.getLogger(__name__)

STEP = "step"  # the x axis there: W&B's own step may not go back, ours may, after a resume


class WandbSink(BatchingSink):
    """One W&B run for each run directory, gone on with when the run is resumed (its id is kept in `RUN/wandb_id.txt`).

    `mode="offline"` writes below `RUN/wandb/`, to be sent later with `wandb sync`; None leaves it to WANDB_MODE. What is left
    out here, W&B takes from its own environment variables (WANDB_ENTITY, WANDB_API_KEY); WANDB_PROJECT counts too.
    """

    def __init__(
        self,
        *,
        project: str | None = None,
        entity: str | None = None,
        group: str | None = None,
        name: str | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
        **batching: Any,
    ) -> None:
        super().__init__(**batching)
        if find_spec("wandb") is None:
            raise MissingExtraError("wandb", extra="wandb", purpose="logging to Weights & Biases")
        if mode not in (None, "online", "offline", "disabled"):
            raise ConfigError(f"sink_kwargs.wandb.mode: given {mode!r}; possible: online, offline, disabled")
        project = project or os.environ.get("WANDB_PROJECT") or "rl-training"
        self._settings = {"project": project, "entity": entity, "group": group, "mode": mode}
        self._name = name
        self._run: Any = None

    def open(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """Begin the W&B run, or go on with the one this directory had."""
        with _quiet():
            import wandb

            quietly = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True, save_code=False)
            given: dict[str, Any] = {key: value for key, value in self._settings.items() if value is not None}
            given |= {"dir": str(run_dir), "config": dict(config), "tags": list(config.get("tags", ())) or None}
            given |= {"id": _run_id(run_dir), "name": self._name or run_dir.name, "resume": "allow"}
            try:
                self._run = wandb.init(**given, settings=quietly)
            except Exception as error:
                raise RLTrainingError(
                    f"Weights & Biases could not be reached or refused: {error}\n"
                    "Log in with `wandb login`, or write to disk with sink_kwargs.wandb.mode=offline"
                ) from error
            self._run.define_metric(STEP, hidden=True)
            self._run.define_metric("*", step_metric=STEP)

    def write(self, rows: Sequence[Row]) -> None:
        with _quiet():
            for row in rows:
                if row.scalars is not None:  # what a rewind undid stays visible there, drawn over by what comes
                    self._run.log({**row.scalars, STEP: row.step})

    def close(self) -> None:
        if self._run is None:
            return
        try:
            super().close()
        finally:
            run, self._run = self._run, None
            with _quiet():
                run.finish()


def _run_id(run_dir: Path) -> str:
    path = run_dir / "wandb_id.txt"
    with suppress(OSError):
        known = read_plain(path).decode(errors="replace").strip()
        if known:
            return known
    fresh = uuid.uuid4().hex[:12]
    write_text(path, f"{fresh}\n")
    return fresh


@contextmanager
def _quiet() -> Iterator[None]:
    """Its deprecations are not our users' concern."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
