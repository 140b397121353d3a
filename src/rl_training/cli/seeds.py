"""Many seeds of one configuration: trained side by side as the jobs of a benchmark are, and summed up at the end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.cli.results import closing_lines, number
from rl_training.cli.tables import facts, say, say_error, table
from rl_training.errors import ConfigError, TrainingInterrupted

if TYPE_CHECKING:
    from rl_training.bench.bench import Launcher, Schedule
    from rl_training.experiment.config import TrainConfig
    from rl_training.experiment.suite_jobs import Job


def train_side_by_side(configs: Sequence[TrainConfig], *, run_suffix: str | None, max_jobs: int | None, quiet: bool) -> int:
    """Every seed as a process here or on a Ray cluster. Each run is the one that it would be alone in `local_sync`."""
    from rl_training.bench.bench import Schedule, machine_cores
    from rl_training.cli.bench_display import BenchDisplay, SilentDisplay

    if configs[0].ray_workers is not None:
        raise ConfigError(
            f"ray_workers: given {configs[0].ray_workers}; it spreads the population of one run. With --seeds each run is a "
            "task of its own, and Ray begins as many as have cores; --jobs N limits them"
        )
    ray = configs[0].execution_backend == "ray"
    suffix = run_suffix or f"{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    jobs = [_job(config, suffix) for config in configs]
    _require_free(jobs)
    launcher = _launcher(configs[0]) if ray else _local_launcher()
    cores = 2**31 if ray else machine_cores()  # Ray itself knows what fits
    with closing(launcher):
        work_dir = jobs[0].run_dir.parent / f"jobs__{suffix}"
        schedule = Schedule(jobs, work_dir=work_dir, launcher=launcher, cores=cores, max_jobs=max_jobs)
        if not quiet:
            where = "Ray, whose machines must all see" if ray else "this machine, in"
            say(f"{len(jobs)} seeds of {jobs[0].entry}, on {where} {jobs[0].run_dir.parent}; what they say goes to {work_dir}")
        try:
            with SilentDisplay() if quiet else BenchDisplay() as display:
                schedule.run(display)
        except TrainingInterrupted as interrupt:
            _report(jobs, quiet=True)
            raise TrainingInterrupted(_left_words(schedule), signum=interrupt.signum, result=None) from interrupt
    _report(jobs, quiet=quiet)
    for missed in schedule.failed:
        say_error(f"seed {missed.seed}: {missed.reason}", label="failed")
    return 1 if schedule.failed else 0


def summarize_seeds(runs: Sequence[tuple[int, Mapping[str, Any], Path]]) -> None:
    """A row for each seed, and what they are together."""
    import numpy as np

    from rl_training.reports.statistics import summarize

    returns = [metrics["eval_return_mean"] for _, metrics, _ in runs if metrics.get("eval_episodes")]
    rows = [
        (
            str(seed),
            number(metrics["eval_return_mean"]) if metrics.get("eval_episodes") else "none",
            f"{metrics['global_step']:,}",
            str(run_dir),
        )
        for seed, metrics, run_dir in runs
    ]
    say()
    table(("seed", "return", "steps", "run"), rows)
    if len(returns) > 1 and np.isfinite(returns).all():
        told = summarize([returns], rng=np.random.default_rng(0))
        ends = f"from {number(min(returns))} to {number(max(returns))}"
        spread = f"mean {number(told.mean)}, standard deviation {number(told.std)}, {ends}"
        say()
        facts([("all seeds", spread), ("IQM [95 %]", told.format())])
    say()


def _job(config: TrainConfig, suffix: str) -> Job:
    from rl_training.experiment.run_folder import output_folder
    from rl_training.experiment.suite_jobs import Job, run_name

    output_dir = output_folder(config)
    alone = {"execution_backend": "local_sync"} if config.execution_backend == "ray" else {}
    config = config.replace(**alone, ray_address=None, ray_workers=None, output_dir=output_dir).resolved()
    entry = f"{config.algo} on {config.env_id}"
    return Job(entry, config.algo, config, config.eval_episodes, output_dir / run_name(config, suffix))


def _require_free(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.run_dir.exists():
            raise ConfigError(f"{job.run_dir}: exists and is never overwritten; resume it or give another run suffix")


def _launcher(config: TrainConfig) -> Launcher:
    from rl_training.bench.bench_ray import RayLauncher

    return RayLauncher(config.ray_address)


def _local_launcher() -> Launcher:
    from rl_training.bench.bench import LocalLauncher

    return LocalLauncher()


def _report(jobs: Sequence[Job], *, quiet: bool) -> None:
    """The summary, then the closing lines of every seed that is done, in the order they were given."""
    from rl_training.types import TrainResult

    done: list[tuple[int, TrainResult]] = []
    for job in jobs:
        if job.result() is not None:
            left = json.loads((job.run_dir / "trained.json").read_text(encoding="utf-8"))
            result = TrainResult(job.run_dir, job.run_dir / "checkpoints" / left["checkpoint"], left["metrics"])
            done.append((job.seed, result))
    if len(done) > 1 and not quiet:
        summarize_seeds([(seed, result.metrics, result.run_dir) for seed, result in done])
    for _, result in done:
        closing_lines(result)


def _left_words(schedule: Schedule) -> str:
    begun = [job for job in schedule.waiting if list((job.run_dir / "checkpoints").glob("step_*.safetensors"))]
    never = [str(job.seed) for job in schedule.waiting if job not in begun]
    lines = [f"interrupted; {len(schedule.done)} of {len(schedule.jobs)} seeds are done."]
    lines += ["Go on with:"] if begun else []
    lines += [f"  rl-training resume --checkpoint {shlex.quote(str(job.run_dir))}" for job in begun]
    lines += [f"not begun: seed {', '.join(never)}"] if never else []
    return "\n".join(lines)
