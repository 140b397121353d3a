"""The one training loop of the library."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_training.algorithms.base import Algorithm
from rl_training.data.offline_dataset import OfflineDataset
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.envs.pool import EnvPool
from rl_training.envs.population import PopulationEnvs
from rl_training.errors import EnvError, EnvNumericsError, NumericsError, RLTrainingError
from rl_training.experiment.checkpoint import CheckpointState, Saved, must_fit
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.locate import step_of
from rl_training.experiment.run import Run
from rl_training.runtime.callbacks import Callback, callbacks_with_memory
from rl_training.runtime.collector import Collector, Explorer
from rl_training.runtime.evaluation import PolicyEvaluator
from rl_training.runtime.generation import RemotePopulation
from rl_training.runtime.loops import Loop
from rl_training.runtime.numerics import NumericsGuard, copied_checkpoint, not_finite
from rl_training.runtime.progress import Pace, Progress, plain_metrics
from rl_training.runtime.retries import collect_turn
from rl_training.runtime.rng import Stream, TorchRng
from rl_training.runtime.scheduling import Scheduling
from rl_training.runtime.session_state import checkpoint_of, restore
from rl_training.runtime.signals import Abandoned, StopSignals, interruption
from rl_training.types import Collected, EnvSpec, State, TrainResult, UpdateResult

log = logging.getLogger(__name__)


class Session:
    """Drives a loop: counts, evaluates, records, checkpoints, stops. Callbacks know it as `trainer`."""

    def __init__(
        self,
        config: TrainConfig,
        *,
        spec: EnvSpec,
        run: Run,
        pool: EnvPool | PopulationEnvs | RemotePopulation | None,
        evaluator: PolicyEvaluator,
        callbacks: Sequence[Callback] = (),
        resume_from: Saved | None = None,
    ) -> None:
        self.config, self.spec, self.run, self.pool, self.evaluator = config, spec, run, pool, evaluator
        self.callbacks, self.resume_from = list(callbacks), resume_from
        self.absent_memories: dict[str, State] = {}  # of callbacks that the run once had
        self.options = config.options
        self.device = evaluator.device
        self.progress = Progress()
        self.rng = TorchRng()
        self.dataset: OfflineDataset | None = None  # of algorithms with dataset options
        self.origins: dict[str, Any] = {}  # for checkpoints: of what the configuration alone does not say
        self.stop_reason: str | None = None
        self.over = False  # ended for good: a resume honours it
        self.exact = True  # what an uninterrupted run would be
        self.update_metrics: dict[str, Any] = {}
        self.eval_metrics: dict[str, Any] = {}
        self.eval_step = -1
        self.eval_due = False  # one that was cut short is made up for on resume: early stopping counts on it
        self._initial: CheckpointState | None = None  # until the first checkpoint is written
        self.signals, self._pace = StopSignals(), Pace(self.progress)

    @property
    def global_step(self) -> int:
        return self.progress.global_step

    def request_stop(self, reason: str, *, over: bool = True) -> None:
        """End training after the current turn's update; the last evaluation comes too late for that.

        A run that is `over` stays so when it is resumed, until its budget or early_stopping is changed. One that is not,
        because its time on a machine is up for example, goes on as after a signal.
        """
        if self.stop_reason is None and not self._saved_for_good:
            self.stop_reason, self.over = reason, over
            log.info("stopping at step %d: %s", self.global_step, reason)

    def note_inexact(self) -> None:
        """From here on the run is not what an uninterrupted one would have been; once is enough."""
        if self.exact:
            self.exact = False
            self.run.note_inexact()

    def collector(self, algorithm: Explorer) -> Collector:
        """Of this run's training environments."""
        assert isinstance(self.pool, EnvPool)
        return Collector(self.pool, self.spec, algorithm, seed=self.config.seed, device=self.device)

    def replay_buffer(self, capacity: int, make: Callable[..., ReplayBuffer] = ReplayBuffer) -> ReplayBuffer:
        """An empty one for this run's transitions, with the columns of prior data, drawn from a stream of its own."""
        spec, more = self.spec, None if self.dataset is None else self.dataset.more
        widths = {"obs_dim": spec.obs_dim, "action_dim": spec.action_dim}
        return make(capacity, **widths, seed=(self.config.seed, Stream.REPLAY), in_bytes=spec.in_bytes, more=more)

    def prior_data(self) -> OfflineDataset:
        """What the configuration's dataset options name."""
        assert self.dataset is not None
        return self.dataset

    def train(self, algorithm: Algorithm, loop: Loop) -> TrainResult:
        """Turn after turn until the budget is spent, something asks to stop, or a signal comes."""
        self.algorithm, self.loop, self._saved_for_good = algorithm, loop, False
        self._scheduling = Scheduling(self.options, algorithm, total_steps=self.config.budget)
        self.guard = NumericsGuard(algorithm, skips=self.config.on_nan == "skip", max_skips=self.config.max_skips)
        self.guard.skipped_episodes = getattr(self.pool, "passed_over", 0)
        begins = self.resume_from is None
        with must_fit():
            if self.resume_from is not None:
                restore(self, self.resume_from)
                self.resume_from = None
        self._initial = copied_checkpoint(checkpoint_of(self)) if begins else None
        self._pace.start()
        self.evaluator.before_step = self.signals.heed
        with self.signals as signals:
            for callback in self.callbacks:
                callback.on_train_start(self)
            if self.eval_due:
                self._evaluate()
            while self.stop_reason is None and signals.received is None and not self._budget_spent():
                with suppress(Abandoned):  # then all is as it was before the turn
                    self._turn()
            path = self.save_checkpoint()
            self._leave_if_asked(path)
            # what follows leaves no trace in that checkpoint: a run that goes on from it is as if it had never ended
            self._saved_for_good = True
            if self.eval_step != self.global_step:
                self._evaluate()
                self._leave_if_asked(path)
        result = TrainResult(self.run.directory, path, self.final_metrics())
        for callback in self.callbacks:
            callback.on_train_end(self, result)
        return result

    def _budget_spent(self) -> bool:
        left = self._updates_left()
        return self.global_step >= self.config.budget or (left is not None and left <= 0)

    def _updates_left(self) -> int | None:
        return None if self.options.max_updates is None else self.options.max_updates - self.progress.updates

    def _turn(self) -> None:
        before, updates_before = self.global_step, self.progress.updates
        self._scheduling.tell(before, reached=before)  # exploration noise is wanted now
        collected = self._collect()
        self.progress.take(collected)
        for callback in self.callbacks:
            callback.on_collect_end(self, collected)
        scheduled = self._scheduling.tell(before, reached=self.global_step)
        self._after_learning(self._learn(), scheduled)
        if self.config.eval_episodes and self._passed(self.options.eval_interval, before):
            self._evaluate()
        elif self._passed(self.config.log_interval, before, updates_before):
            self._log({})
        if self._passed(self.config.checkpoint_interval, before, updates_before):
            self.save_checkpoint(wait=False)

    def _collect(self) -> Collected:
        try:
            return collect_turn(self.loop, self.guard, self.rng)
        except (EnvError, NumericsError) as error:
            raise self._saved(error) from error

    def _learn(self) -> UpdateResult:
        self.guard.keep()
        learned = self.loop.learn(global_step=self.global_step, max_updates=self._updates_left())
        problem = self.guard.problem(learned)
        if problem is None:
            return learned
        text = f"step {self.global_step}, update {self.progress.updates + learned.num_gradient_steps}: {problem}"
        if not self.guard.skips:
            raise self._stopped(text)
        learned = self.guard.skip(learned)
        if self.guard.exhausted:
            raise self._saved(NumericsError(f"{text}\nSo it was in {self.guard.bad_updates} turns in a row."))
        log.warning("%s; the turn's updates are taken back (on_nan: skip)", text)
        return learned

    def _saved(self, error: RLTrainingError) -> RLTrainingError:
        """The same error, with the place of a checkpoint that is written for it."""
        kind = next(kind for kind in (EnvNumericsError, NumericsError, EnvError) if isinstance(error, kind))
        path = self.save_checkpoint()
        return kind(f"{error}\nThe run up to step {self.global_step} is saved: {path}").resumable_from(path)

    def _stopped(self, text: str) -> NumericsError:
        """The learner itself is spoilt: an earlier checkpoint is what there is to go on from."""
        path = next((path for path in self.run.checkpoints() if step_of(path) <= self.global_step), None)
        if path is None and self._initial is not None:
            path = self.run.save_checkpoint(self._initial, step=0, keep=self.config.keep_checkpoints)
        text += f"\nNothing of it was saved. The newest checkpoint from before: {path or 'the one this run was resumed from'}"
        return NumericsError(text).resumable_from(path)

    def _after_learning(self, learned: UpdateResult, scheduled: dict[str, float]) -> None:
        self.progress.updates += learned.num_gradient_steps
        if learned.metrics:
            self.update_metrics = {**learned.metrics, **scheduled}
        if learned.num_gradient_steps:
            for callback in self.callbacks:
                callback.on_update_end(self, learned)

    def _passed(self, interval: int, before: int, updates_before: int | None = None) -> bool:
        """Whether a multiple of `interval` lies in the turn just made; given updates measure one without environment steps."""
        if updates_before is not None and self.global_step == before:
            return self.progress.updates // interval > updates_before // interval
        return self.global_step // interval > before // interval

    def _evaluate(self) -> None:
        try:
            self.eval_metrics = self.evaluator(self.algorithm, num_episodes=self.config.eval_episodes)
        except Abandoned:
            self.eval_due = not self._saved_for_good
            log.warning("step %d: the evaluation is left; a resume makes up for it", self.global_step)
            return
        except (EnvError, NumericsError) as error:
            self.eval_due = not self._saved_for_good  # the last one is made anew by any resume
            raise self._saved(error) from error
        self.eval_step, self.eval_due = self.global_step, False
        self._log(self.eval_metrics)
        score = self.eval_metrics["eval_return_mean"]
        if not self.config.eval_episodes:
            return
        log.info("step %d of %d: evaluation %.6g", self.global_step, self.config.budget, score)
        if not math.isnan(score) and score > self.run.best_score:
            self.run.save_best(checkpoint_of(self, parts=("algorithm_state",)), score=score, step=self.global_step)
        metrics = self.final_metrics()
        for callback in self.callbacks:
            callback.on_eval_end(self, metrics)

    def _log(self, extra: dict[str, Any]) -> None:
        counts = {**self.progress.metrics(), **self.guard.metrics()}
        merged = {**counts, **self.update_metrics, **self.loop.metrics(), **extra, **self._pace.metrics()}
        self.run.log(merged, step=self.global_step)

    def final_metrics(self) -> dict[str, Any]:
        """Everything known at this step, as plain numbers."""
        counts = {**self.progress.metrics(), **self.guard.metrics()}
        merged = {**self.update_metrics, **counts, **self.loop.metrics(), **self.eval_metrics}
        if self.stop_reason is not None:
            merged["stop_reason"] = self.stop_reason
        return plain_metrics(merged, clock=True)

    def save_checkpoint(self, *, wait: bool = True) -> Path:
        """Write the whole state, if the learner is finite; the newest few stay. Without `wait` its name comes a bit later."""
        if not self.loop.exact:  # environments that were lent for an evaluation may not have come back
            self.note_inexact()
        state = checkpoint_of(self)
        if bad := not_finite(state.algorithm_state):
            raise self._stopped(f"step {self.global_step}: {'; '.join(bad[:4])}")
        path = self.run.save_checkpoint(state, step=self.global_step, keep=self.config.keep_checkpoints, wait=wait)
        self._initial = None
        return path

    def _leave_if_asked(self, path: Path) -> None:
        """A signal came, and what is to be kept is saved: say how to go on."""
        if self.signals.received is None:
            return
        result = TrainResult(self.run.directory, path, self.final_metrics())
        for callback in self.callbacks:
            callback.on_train_end(self, result)
        given = {"env=...": self.origins.get("made_on") is not None, "callbacks=[...]": callbacks_with_memory(self.callbacks)}
        needs = [words for words, wanted in given.items() if wanted]
        raise interruption(self.signals.received, result, self.config, needs=needs)
