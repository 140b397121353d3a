"""A whole fit of a dynamics ensemble: bootstrap, holdout, early stopping, elites; it can stop after any update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rl_training.errors import DatasetError
from rl_training.forms import COUNT, Array, Form, Maybe, Record, Whole, flag, like
from rl_training.planning.dynamics import DynamicsLearner, model_rows
from rl_training.types import Batch, Metrics, State, UpdateResult

MIN_GAIN = 0.01  # the share by which a member's holdout error must fall to count as better


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """When a fit ends and what it keeps back. With neither epochs nor updates given, patience must end it."""

    batch_size: int
    max_epochs: int | None = None
    holdout_ratio: float = 0.0
    max_holdout: int = 1_000
    patience: int | None = None  # epochs in which no member gets better on held-out rows


class _Rows(NamedTuple):
    inputs: Tensor
    targets: Tensor
    held_inputs: Tensor
    held_targets: Tensor
    resample: np.ndarray  # (members, rows): each member's own draw with replacement


class DynamicsFit:
    """One fit after another of the same ensemble; between `begin` and its end it is `running`.

    Split, resamples and orders come from the seed given to `begin`, so that position and seed are all there is to save.
    The transitions must stay the same while a fit runs.
    """

    _saved = (
        "running",
        "fits_done",
        "_seed",
        "_epoch",
        "_batch",
        "_updates",
        "_stale",
        "_max_updates",
        "_best",
        "_best_errors",
    )

    def __init__(self, learner: DynamicsLearner, settings: FitSettings, *, loss_name: str) -> None:
        self.learner, self.settings, self.loss_name = learner, settings, loss_name
        self.running = False
        self.fits_done = 0
        self._seed = self._epoch = self._batch = self._updates = self._stale = 0
        self._max_updates: int | None = None
        self._best: Tensor | None = None  # the parameters of every member when its holdout error was lowest
        self._best_errors: Tensor | None = None
        self._rows: _Rows | None = None
        self._order: tuple[int, Tensor] | None = None

    def begin(self, seed: int, *, max_updates: int | None = None) -> None:
        """Start a new fit, of at most `max_updates` gradient steps."""
        self.running, self._seed, self._max_updates = True, seed, max_updates
        self._epoch = self._batch = self._updates = self._stale = 0
        self._best = self._best_errors = self._rows = self._order = None

    def advance(self, transitions: Batch, *, max_updates: int | None = None) -> UpdateResult:
        """Go on until the fit is over, or for `max_updates` gradient steps if those come first."""
        rows = self._prepared(transitions)
        before = self._updates
        metrics: Metrics = {}
        while self.running and (max_updates is None or self._updates - before < max_updates):
            metrics = self._step_epoch(rows, None if max_updates is None else max_updates - (self._updates - before))
        return UpdateResult(metrics, self._updates - before)

    def _step_epoch(self, rows: _Rows, limit: int | None) -> Metrics:
        """The rest of this epoch, or `limit` updates of it."""
        size, batches = self.settings.batch_size, -(-len(rows.inputs) // self.settings.batch_size)
        ends = [limit, None if self._max_updates is None else self._max_updates - self._updates]
        stop = min([batches, *(self._batch + end for end in ends if end is not None)])
        order = self._ordered(rows)
        for batch in range(self._batch, stop):
            chosen = order[:, batch * size : (batch + 1) * size]
            self.learner.step(rows.inputs[chosen], rows.targets[chosen])
        first = order[0, (stop - 1) * size : stop * size]
        metrics = self.learner.metrics(rows.inputs[first], rows.targets[first], loss_name=self.loss_name)
        self._updates += stop - self._batch
        self._batch = stop
        if self._batch == batches:
            self._epoch, self._batch = self._epoch + 1, 0
            metrics |= self._look_at_holdout(rows)
        return metrics | (self._finish(rows) if self._over() else {})

    def _over(self) -> bool:
        settings = self.settings
        limits = ((self._updates, self._max_updates), (self._epoch, settings.max_epochs), (self._stale, settings.patience))
        return any(limit is not None and count >= limit for count, limit in limits)

    def _ordered(self, rows: _Rows) -> Tensor:
        """Each member's rows in this epoch's order."""
        if self._order is None or self._order[0] != self._epoch:
            order = np.random.default_rng((self._seed, 2, self._epoch)).permuted(rows.resample, axis=1)
            self._order = (self._epoch, torch.from_numpy(order).to(rows.inputs.device))
        return self._order[1]

    def _look_at_holdout(self, rows: _Rows) -> Metrics:
        """Remember the members that have become better."""
        if not len(rows.held_inputs) or self.settings.patience is None:
            return {}
        model = self.learner.model
        errors = self.learner.holdout_errors(rows.held_inputs, rows.held_targets)
        if self._best is None or self._best_errors is None:
            self._best, self._best_errors = model.flat.data.clone(), errors
        else:
            better = errors < self._best_errors * (1 - MIN_GAIN)
            model.copy_members(model.flat.data, better, self._best)
            self._best_errors = torch.where(better, errors, self._best_errors)
            self._stale = 0 if bool(better.any()) else self._stale + 1
        return {"holdout_error": self._best_errors.mean()}

    def _finish(self, rows: _Rows) -> Metrics:
        """Put each member back to where it was best, and let the best of them predict."""
        metrics: Metrics = {}
        if len(rows.held_inputs):
            self._look_at_holdout(rows)  # a fit may end within an epoch
            if self._best is not None:
                self.learner.model.flat.data.copy_(self._best)
            errors = self.learner.holdout_errors(rows.held_inputs, rows.held_targets)
            self.learner.model.choose_elites(errors)
            metrics = {"holdout_error": errors.mean()}
        self.running = False
        self.fits_done += 1
        self._rows = self._order = self._best = self._best_errors = None
        return metrics

    def _prepared(self, transitions: Batch) -> _Rows:
        if self._rows is not None:
            return self._rows
        inputs, targets = model_rows(transitions)
        _require_finite(inputs, targets)
        if self._updates == 0:
            self.learner.model.standardize(inputs, targets)
        count = len(inputs)
        held = min(int(self.settings.holdout_ratio * count), self.settings.max_holdout, count - 1)
        shuffled = torch.from_numpy(np.random.default_rng((self._seed, 0)).permutation(count)).to(inputs.device)
        kept, out = (shuffled[held:].sort().values, shuffled[:held]) if held else (slice(None), slice(0))
        members = self.learner.model.num_ensembles
        resample = np.random.default_rng((self._seed, 1)).integers(count - held, size=(members, count - held))
        self._rows = _Rows(inputs[kept], targets[kept], inputs[out], targets[out], resample)
        return self._rows

    def state_dict(self) -> State:
        return {name.lstrip("_"): getattr(self, name) for name in self._saved}

    def state_form(self, *, max_updates: int) -> Record:
        """What its state must look like, of fits that were begun with at most so many updates or with no limit."""
        flat = self.learner.model.flat
        counts: dict[str, Form] = dict.fromkeys(("fits_done", "epoch", "batch", "updates", "stale"), COUNT)
        return Record(
            {
                **counts,
                "running": flag,
                "seed": Whole(0, 2**63),
                "max_updates": Maybe(Whole(0, max_updates)),
                "best": Maybe(like(flat)),
                "best_errors": Maybe(Array((self.learner.model.num_ensembles,))),
            },
            relation=_batch_fits,
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in self._saved:
            value = state[name.lstrip("_")]
            setattr(self, name, value.clone() if isinstance(value, Tensor) else value)
        self._rows = self._order = None


def _batch_fits(state: Mapping[str, Any]) -> str | None:
    """An epoch's batches are among the updates of its fit."""
    batch, updates = state["batch"], state["updates"]
    return None if batch <= updates else f"it is at batch {batch} of an epoch, after {updates} updates in all"


def _require_finite(inputs: Tensor, targets: Tensor) -> None:
    """DatasetError naming the first row that is not made of numbers."""
    bad = ~(inputs.isfinite().all(-1) & targets.isfinite().all(-1))
    if bool(bad.any()):
        row = int(bad.nonzero()[0, 0])
        raise DatasetError(f"row {row} of {len(inputs)} transitions is not finite; a model cannot be fitted to it")
