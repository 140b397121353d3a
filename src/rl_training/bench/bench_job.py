"""One job of a benchmark, in a process of its own: `python -m rl_training.bench.bench_job JOB.json`.

Trains, or goes on where a killed process stopped, evaluates the last policy, and leaves a result.json in the run.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rl_training.errors import CheckpointError, RLTrainingError, RunBusyError, TrainingInterrupted
from rl_training.experiment.files import write_text
from rl_training.experiment.suite_jobs import Job
from rl_training.experiment.trust import named_code

if TYPE_CHECKING:
    from rl_training.experiment.config import TrainConfig

log = logging.getLogger(__name__)

BUSY_SECONDS = 60.0  # how long the process of an earlier, killed benchmark may take to save and end
TRAINED = "trained.json"  # stands in a run whose training is over

T = TypeVar("T")


def run_job(job: Job) -> Path:
    """Do what is left of the job; gives its result.json."""
    checkpoint = _when_free(lambda: _trained(job))
    from rl_training.experiment.metadata import numeric_environment
    from rl_training.reports.results import read_history, run_result

    returns: list[float] = []
    if job.eval_episodes:
        config = job.config
        returns = last_returns(checkpoint, config, num_episodes=job.eval_episodes)
    history = read_history(job.run_dir / "metrics.jsonl")
    result = run_result(job, history=history, returns=returns, environment=numeric_environment(), cores=os.cpu_count())
    path = job.run_dir / "result.json"
    write_text(path, json.dumps(result, allow_nan=False) + "\n")
    return path


def last_returns(checkpoint: Path, config: TrainConfig, *, num_episodes: int) -> list[float]:
    """The return of each evaluation episode of a policy that was trained by this configuration."""
    from rl_training.envs.pool import Evaluator
    from rl_training.runtime.evaluation import PolicyEvaluator
    from rl_training.runtime.policy import load_policy
    from rl_training.runtime.torch_settings import torch_settings

    class Recorder(Evaluator):
        """Keeps what the evaluation sums up."""

        returns: np.ndarray

        def run(self, *arguments: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
            self.returns, lengths = super().run(*arguments, **options)
            return self.returns, lengths

    with torch_settings(config.threads):
        policy = load_policy(checkpoint, device=config.device, trust=_names(config))
        recorder = Recorder(policy.environments(), policy.spec)
        evaluator = PolicyEvaluator(recorder, policy.spec, seed=policy.config.seed, device=policy.device)
        try:
            evaluator(policy.algorithm, num_episodes=num_episodes)
        finally:
            evaluator.close()
    return [float(value) for value in recorder.returns]


def _names(config: TrainConfig) -> list[str]:
    """What a benchmark may import, because whoever asked for it named it: its jobs, wherever they run, need not be asked."""
    return [name for _, name in named_code(config)]


def _trained(job: Job) -> Path:
    """The last checkpoint of the job's run, whose training is finished first if it is not."""
    from rl_training.experiment.registry import get_algorithm_spec
    from rl_training.experiment.run_logger import plain_value
    from rl_training.runtime.workflows import resume_training

    checkpoint = newest_checkpoint(job.run_dir)
    if checkpoint is not None and checkpoint.name == _last_name(job.run_dir):
        return checkpoint
    if checkpoint is not None:
        log.info("going on from %s", checkpoint)
        result = resume_training(checkpoint, trust=_names(job.config))
    else:
        log.info("beginning %s", job.run_dir)
        result = get_algorithm_spec(job.config.algo).train_fn(job.config, run_suffix=job.suffix)
    # a run that stopped early must not go on when only its evaluation is wanted
    metrics = {name: plain_value(value) for name, value in result.metrics.items()}
    write_text(job.run_dir / TRAINED, json.dumps({"checkpoint": result.checkpoint_path.name, "metrics": metrics}) + "\n")
    return Path(result.checkpoint_path)


def _last_name(run_dir: Path) -> str | None:
    """Of the checkpoint with which training ended, if it did."""
    try:
        return str(json.loads((run_dir / TRAINED).read_text(encoding="utf-8"))["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def newest_checkpoint(run_dir: Path) -> Path | None:
    """The newest good one; None where there is none, and then the run's directory is out of the way."""
    from rl_training.experiment.locate import latest_good_checkpoint
    from rl_training.experiment.lock import RunLock

    if not run_dir.exists():
        return None
    with RunLock(run_dir):
        try:
            return latest_good_checkpoint(run_dir)[0]
        except CheckpointError as error:
            if not list((run_dir / "checkpoints").glob("step_*.safetensors")):
                log.info("%s: was killed before its first checkpoint; it is begun anew", run_dir)
                shutil.rmtree(run_dir)
                return None
            aside = next(path for n in count(1) if not (path := run_dir.with_name(f"{run_dir.name}.damaged-{n}")).exists())
            log.warning("%s\nThe run is set aside as %s and begun anew", error, aside.name)
            run_dir.rename(aside)
            return None


def _when_free(action: Callable[[], T]) -> T:
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return action()
        except RunBusyError:  # noqa: PERF203 (waiting is what it does)
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def end_with_parent() -> None:
    """Take the end of stdin, a pipe whose other end the benchmark holds, for a SIGTERM: nobody waits for the result."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main(argv: Sequence[str] | None = None) -> int:
    """0 done, 1 failed, 128 + signal interrupted and saved."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "--with-parent" in words:
        words.remove("--with-parent")
        # Ctrl-C on a terminal reaches this process too, but how to end is the benchmark's to say
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S")
    try:
        run_job(Job.from_dict(json.loads(Path(words[0]).read_text(encoding="utf-8"))))
    except TrainingInterrupted as error:
        log.warning("%s", error)
        return 128 + error.signum
    except RLTrainingError as error:
        log.error("%s: %s", type(error).__name__, error)  # noqa: TRY400 (the message says all; others get their traceback)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
