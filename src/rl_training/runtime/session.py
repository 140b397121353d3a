"""The one training loop of the library."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_training.algorithms.base import Algorithm
from rl_training.data.offline_dataset import OfflineDataset
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.envs.pool import EnvPool
from rl_training.envs.population import PopulationEnvs
from rl_training.errors import EnvError, EnvNumericsError, NumericsError, RLTrainingError
from rl_training.experiment.checkpoint import CheckpointState, must_fit
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.locate import step_of
from rl_training.experiment.run import Run
from rl_training.runtime.callbacks import Callback, named_callbacks
from rl_training.runtime.checkpoint_form import checked
from rl_training.runtime.collector import Collector, Explorer
from rl_training.runtime.evaluation import PolicyEvaluator, evaluation_state
from rl_training.runtime.generation import RemotePopulation
from rl_training.runtime.loops import Loop
from rl_training.runtime.numerics import NumericsGuard, copied_checkpoint, not_finite
from rl_training.runtime.progress import Pace, Progress, plain_metrics
from rl_training.runtime.retries import collect_turn
from rl_training.runtime.rng import Stream, TorchRng
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
        resume_from: CheckpointState | None = None,
    ) -> None:
        self.config, self.spec, self.run, self.pool, self.evaluator = config, spec, run, pool, evaluator
        self.callbacks, self.resume_from = list(callbacks), resume_from
        self.options = config.options
        self.device = evaluator.device
        self.progress = Progress()
        self.rng = TorchRng()
        self.dataset: OfflineDataset | None = None  # of algorithms with dataset options
        self.origins: dict[str, Any] = {}  # for checkpoints: of what the configuration alone does not say
        self.stop_reason: str | None = None
        self.update_metrics: dict[str, Any] = {}
        self.eval_metrics: dict[str, Any] = {}
        self.eval_step = -1
        self._eval_due = False  # one that a signal cut short is made up for on resume: early stopping counts on it
        self._initial: CheckpointState | None = None  # until the first checkpoint is written
        self.signals, self._pace = StopSignals(), Pace(self.progress)
        self._scheduled: dict[str, float] = {}  # what the learner was last told

    @property
    def global_step(self) -> int:
        return self.progress.global_step

    def request_stop(self, reason: str) -> None:
        """End training after the current turn's update; the last evaluation comes too late for that."""
        if self.stop_reason is None and not self._over:
            self.stop_reason = reason
            log.info("stopping at step %d: %s", self.global_step, reason)

    def collector(self, algorithm: Explorer) -> Collector:
        """Of this run's training environments."""
        assert isinstance(self.pool, EnvPool)
        return Collector(self.pool, self.spec, algorithm, seed=self.config.seed, device=self.device)

    def replay_buffer(self, capacity: int) -> ReplayBuffer:
        """An empty one for this run's transitions, drawn from a stream of its own."""
        spec, seed = self.spec, (self.config.seed, Stream.REPLAY)
        return ReplayBuffer(capacity, obs_dim=spec.obs_dim, action_dim=spec.action_dim, seed=seed)

    def prior_data(self) -> OfflineDataset:
        """What the configuration's dataset options name."""
        assert self.dataset is not None
        return self.dataset

    def train(self, algorithm: Algorithm, loop: Loop) -> TrainResult:
        """Turn after turn until the budget is spent, something asks to stop, or a signal comes."""
        self.algorithm, self.loop, self._scheduled, self._over = algorithm, loop, {}, False
        self.guard = NumericsGuard(algorithm, skips=self.config.on_nan == "skip", max_skips=self.config.max_skips)
        begins = self.resume_from is None
        with must_fit():
            self._restore()
        self._initial = copied_checkpoint(self._state()) if begins else None
        self._pace.start()
        self.evaluator.before_step = self.signals.heed
        with self.signals as signals:
            for callback in self.callbacks:
                callback.on_train_start(self)
            if self._eval_due:
                self._evaluate()
            while self.stop_reason is None and signals.received is None and not self._budget_spent():
                with suppress(Abandoned):  # then all is as it was before the turn
                    self._turn()
            path = self.save_checkpoint()
            self._leave_if_asked(path)
            # what follows leaves no trace in that checkpoint: a run that goes on from it is as if it had never ended
            self._over = True
            if self.eval_step != self.global_step:
                self._evaluate()
                self._leave_if_asked(path)
        result = TrainResult(self.run.directory, path, self.final_metrics())
        for callback in self.callbacks:
            callback.on_train_end(self, result)
        return result

    def _budget_spent(self) -> bool:
        left = self._updates_left()
        return self.global_step >= self.config.total_timesteps or (left is not None and left <= 0)

    def _updates_left(self) -> int | None:
        return None if self.options.max_updates is None else self.options.max_updates - self.progress.updates

    def _turn(self) -> None:
        before, updates_before = self.global_step, self.progress.updates
        scheduled = self.options.scheduled_values(before, self.config.total_timesteps)
        if scheduled != self._scheduled:
            for name, value in scheduled.items():
                self.algorithm.schedule(name, value)
            self._scheduled = scheduled
        collected = self._collect()
        self.progress.take(collected)
        for callback in self.callbacks:
            callback.on_collect_end(self, collected)
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
        """Whether a multiple of `interval` lies in the turn just made, which may be many steps long; one without environment
        steps, as in pretraining, is measured by its updates where they are given."""
        if updates_before is not None and self.global_step == before:
            return self.progress.updates // interval > updates_before // interval
        return self.global_step // interval > before // interval

    def _evaluate(self) -> None:
        try:
            self.eval_metrics = self.evaluator(self.algorithm, num_episodes=self.config.eval_episodes)
        except Abandoned:
            self._eval_due = True
            log.warning("step %d: the evaluation is left; a resume makes up for it", self.global_step)
            return
        except (EnvError, NumericsError) as error:
            raise self._saved(error) from error
        self.eval_step, self._eval_due = self.global_step, False
        self._log(self.eval_metrics)
        score = self.eval_metrics["eval_return_mean"]
        if not self.config.eval_episodes:
            return
        log.info("step %d of %d: evaluation %.6g", self.global_step, self.config.total_timesteps, score)
        if not math.isnan(score) and score > self.run.best_score:
            self.run.save_best(self._state(parts=("algorithm_state",)), score=score, step=self.global_step)
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
        ended = {} if self.stop_reason is None else {"stop_reason": self.stop_reason}
        merged = {**self.update_metrics, **counts, **self.loop.metrics(), **self.eval_metrics, **ended}
        return plain_metrics(merged, clock=True)

    def save_checkpoint(self, *, wait: bool = True) -> Path:
        """Write the whole state, if the learner is finite; the newest few stay. Without `wait` its name comes a bit later."""
        state = self._state()
        if bad := not_finite(state.algorithm_state):
            raise self._stopped(f"step {self.global_step}: {'; '.join(bad[:4])}")
        path = self.run.save_checkpoint(state, step=self.global_step, keep=self.config.keep_checkpoints, wait=wait)
        self._initial = None
        return path

    def _state(self, parts: Sequence[str] = ("algorithm_state", "buffer_state", "trainer_state")) -> CheckpointState:
        makers = {
            "algorithm_state": self.algorithm.state_dict,
            "buffer_state": lambda: {name: buffer.state_dict() for name, buffer in self.loop.buffers.items()},
            "trainer_state": self._trainer_state,
        }
        states = {name: make() if name in parts else {} for name, make in makers.items()}
        metadata = {"env_spec": self.spec.to_dict(), **self.origins, **self.run.checkpoint_metadata()}
        return CheckpointState(config=self.config.to_dict(), metadata=metadata, **states)

    def _trainer_state(self) -> State:
        memories = {name: callback.state_dict() for name, callback in named_callbacks(self.callbacks)}
        return {
            "progress": self.progress.state_dict(),
            "numerics": self.guard.state_dict(),
            "loop": self.loop.state_dict(),
            "torch_rng": self.rng.state_dict(),
            "callbacks": {name: memory for name, memory in memories.items() if memory},
            "history_lines": self.run.history_lines,
            "update_metrics": plain_metrics(self.update_metrics),
            "evaluation": evaluation_state(self.eval_step, self.eval_metrics, due=self._eval_due),
        }

    def _restore(self) -> None:
        if self.resume_from is None:
            return
        saved, self.resume_from = self.resume_from, None
        trainer = checked(saved, self.algorithm, self.loop)
        self.algorithm.load_state_dict(saved.algorithm_state)
        for name, buffer in self.loop.buffers.items():
            buffer.load_state_dict(saved.buffer_state[name])
        self.loop.load_state_dict(trainer["loop"])
        self.progress.load_state_dict(trainer["progress"])
        if "numerics" in trainer:  # checkpoints of the first version have none
            self.guard.load_state_dict(trainer["numerics"])
        for name, callback in named_callbacks(self.callbacks):
            if name in trainer["callbacks"]:
                callback.load_state_dict(trainer["callbacks"][name])
        self.run.continue_history(trainer["history_lines"])
        self.update_metrics = dict(trainer.get("update_metrics", {}))
        self._restore_evaluation(trainer.get("evaluation", {}))
        self.rng.load_state_dict(trainer["torch_rng"])
        if self.pool is not None and not self.pool.exact:
            self.run.note_inexact()

    def _restore_evaluation(self, saved: Mapping[str, Any]) -> None:
        """What is known of the policy at this step need not be found out again, unless other episodes are asked for."""
        self._eval_due = bool(saved.get("due") and self.config.eval_episodes)
        if saved.get("metrics", {}).get("eval_episodes") == self.config.eval_episodes:
            self.eval_step, self.eval_metrics = saved["step"], dict(saved["metrics"])

    def _leave_if_asked(self, path: Path) -> None:
        """A signal came, and what is to be kept is saved: say how to go on."""
        if self.signals.received is None:
            return
        result = TrainResult(self.run.directory, path, self.final_metrics())
        for callback in self.callbacks:
            callback.on_train_end(self, result)
        raise interruption(self.signals.received, result, self.config, made_on=self.origins.get("made_on"))
