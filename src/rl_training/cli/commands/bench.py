"""Train a suite of presets on many seeds and compare them.

SUITE.yaml names entries (presets or config files, with changes) and seeds. Every entry × seed is a job in a process of its
own, as many at once as fit the machine's cores. Started again, the same command runs only what is missing: finished jobs
are kept, killed ones go on from their newest checkpoint, those whose configuration changed are begun in a new place.
With --known, runs of earlier results count as done though their folders are gone: their settings are compared, the code
that made them is not.
At the end stand results.json, results.md and curves.png in the folder --out. On Ray the machines must share that folder.
"""

from __future__ import annotations

import argparse
import shlex
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.cli.parser import Parser
from rl_training.cli.tables import facts, say, say_error, table
from rl_training.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from rl_training.experiment.suite import Suite
    from rl_training.experiment.suite_jobs import Job
    from rl_training.reports.results import Missing

USAGE = "rl-training bench SUITE.yaml [options]"
EXAMPLES = """\
  rl-training bench benchmarks/learning/suites/ppo.yaml
  rl-training bench suite.yaml --only ppo/cartpole --seeds 1,2 --out /tmp/bench
  rl-training bench suite.yaml --dry-run
  rl-training bench suite.yaml --report-only
  rl-training bench suite_with_more_seeds.yaml --known results.json
  rl-training bench suite.yaml --execution-backend ray --address auto"""


def add_arguments(parser: Parser) -> None:
    """What, where, how many at once."""
    parser.add_argument("suite", metavar="SUITE.yaml", help="the file that names entries and seeds")
    parser.add_argument("--out", metavar="DIR", help="folder of runs and results (default: bench/<name of the suite>)")
    parser.add_argument("--jobs", type=int, metavar="N", help="jobs at once (default: as many as there are cores for)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this entry; may be given several times")
    parser.add_argument("--seeds", metavar="N,N,...", help="these seeds in place of the suite's")
    parser.add_argument(
        "--known", metavar="FILE", help="a results.json; runs it holds with the same settings are not made again"
    )
    parser.add_argument("--execution-backend", default="local", choices=("local", "ray"), help="where jobs run")
    parser.add_argument("--address", metavar="ADDRESS", help="of a running Ray cluster; without it one is started here")
    parser.add_argument("--dry-run", action="store_true", help="print the jobs and leave")
    parser.add_argument("--report-only", action="store_true", help="train nothing; make the tables from what is there")


def run(args: argparse.Namespace) -> int:
    """Check everything, run what is missing, report."""
    from rl_training.experiment.suite import load_suite
    from rl_training.experiment.suite_jobs import known_runs, plan_jobs

    _check(args)
    suite = load_suite(args.suite)
    out = Path(args.out) if args.out is not None else Path("bench") / suite.name
    known = None if args.known is None else known_runs(Path(args.known))
    jobs = plan_jobs(suite, suite_path=Path(args.suite), out=out, only=args.only, seeds=_seeds(args.seeds), known=known)
    if args.dry_run:
        _print_jobs(jobs)
        return 0
    failed = [] if args.report_only else _run_jobs(jobs, out, args)
    return _report(suite, jobs, failed, out, args)


def _check(args: argparse.Namespace) -> None:
    if args.jobs is not None and args.jobs < 1:
        raise ConfigError(f"--jobs: given {args.jobs}; possible: at least 1")
    if args.address is not None and args.execution_backend != "ray":
        raise ConfigError("--address: belongs to --execution-backend ray")


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        seeds = [int(word) for word in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds: given {text!r}; possible: integers with commas between, like 1,2,3") from None
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ConfigError(f"--seeds: given {text}; each seed once, and none below 0")
    return seeds


def _print_jobs(jobs: list[Job]) -> None:
    rows = [
        (job.entry, str(job.seed), f"{job.config.budget:,}", str(job.config.threads), _state(job), str(job.run_dir))
        for job in jobs
    ]
    table(("entry", "seed", "steps", "threads", "state", "run"), rows)


def _state(job: Job) -> str:
    if job.result() is not None:
        return "done"
    return "goes on" if list((job.run_dir / "checkpoints").glob("step_*.safetensors")) else "new"


def _run_jobs(jobs: list[Job], out: Path, args: argparse.Namespace) -> list[Missing]:
    from rl_training.bench.bench import LocalLauncher, Schedule, machine_cores
    from rl_training.cli.bench_display import BenchDisplay
    from rl_training.experiment.lock import RunLock
    from rl_training.experiment.suite_jobs import replaced_words

    launcher: Any = LocalLauncher()
    if args.execution_backend == "ray":
        from rl_training.bench.bench_ray import RayLauncher

        launcher = RayLauncher(args.address)
        say(f"jobs run on Ray; all its machines must see {out.absolute()}")
    out.mkdir(parents=True, exist_ok=True)
    for job in jobs:
        if job.replaces is not None:
            say(replaced_words(job))
    # Ray itself knows what fits
    cores = 2**31 if args.execution_backend == "ray" else machine_cores()
    with closing(launcher), RunLock(out):
        schedule = Schedule(jobs, work_dir=out.absolute() / "jobs", launcher=launcher, cores=cores, max_jobs=args.jobs)
        say(f"{len(jobs)} jobs, {len(schedule.done)} of them done already; below {out}/")
        with BenchDisplay() as display:
            schedule.run(display)
    return schedule.failed


def _report(suite: Suite, jobs: list[Job], failed: list[Missing], out: Path, args: argparse.Namespace) -> int:
    from datetime import datetime, timezone

    from rl_training.bench.bench import missing_jobs
    from rl_training.experiment.files import write_text
    from rl_training.reports.result_tables import to_markdown
    from rl_training.reports.results import build_results, dump_results

    runs = [(job, result) for job in jobs if (result := job.result()) is not None]
    missing = missing_jobs(jobs, failed, out / "jobs")
    date = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    results = build_results(suite, runs, missing=missing, command=_command(args), date=date)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "results.json", dump_results(results))
    write_text(out / "results.md", to_markdown(results))
    _print_table(results)
    rows = [("results", f"{out / 'results.json'}, {out / 'results.md'}"), *_draw(results, out)]
    facts(rows)
    for missed in missing:
        say_error(f"{missed.entry} seed {missed.seed}: {missed.reason}", label="missing")
    return 1 if missing and not args.report_only else 0


def _draw(results: dict[str, Any], out: Path) -> list[tuple[str, str]]:
    from rl_training.reports.result_curves import draw_result_curves

    try:
        return [("curves", str(draw_result_curves(results, out / "curves.png")))]
    except (MissingExtraError, ConfigError) as error:  # the numbers are there all the same
        return [("curves", f"none: {error}")]


def _print_table(results: dict[str, Any]) -> None:
    from rl_training.reports.result_tables import result_row

    header = ("entry", "task", "IQM [95 %]", "worst", "seeds", "steps", "minutes", "reference")
    say()
    table(header, [(entry["name"], *result_row(entry)[1:]) for entry in results["entries"]])
    say()


def _command(args: argparse.Namespace) -> str:
    """What to type for the same results: the suite, and all that changes what is run."""
    path = Path(args.suite)
    if path.is_absolute():  # where the repository lies on this machine is nobody's concern
        path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(path.name)
    words = ["rl-training", "bench", str(path)]
    for name in args.only:
        words += ["--only", name]
    words += ["--seeds", args.seeds] if args.seeds is not None else []
    words += ["--jobs", str(args.jobs)] if args.jobs is not None else []
    return shlex.join(words)
