"""One training run of a suite: where it lies on disk, whether it is done, and what came out of it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.suite import Entry, Suite
from rl_training.experiment.yaml_loader import load_config_file

SUFFIX = "bench"
# what cannot change a number in the results
WITHOUT_EFFECT = (
    *("sinks", "sink_kwargs", "output_dir", "tags", "benchmark", "checkpoint_interval", "keep_checkpoints"),
    *("ray_address", "ray_workers"),
)


Known: TypeAlias = Mapping[tuple[str, int], Mapping[str, Any]]
"""Results by the fingerprint of their configuration with seed 0, and their seed."""


@dataclass(frozen=True)
class Job:
    """One entry with one seed. Everything a process needs to run it fits into a small JSON file."""

    entry: str
    slug: str
    config: TrainConfig
    eval_episodes: int
    run_dir: Path
    replaces: Path | None = None  # the run of another configuration that stands where this one would
    known: Mapping[str, Any] | None = None  # its result, where other results hold it

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def name(self) -> str:
        return f"{self.entry} seed {self.seed}"

    @property
    def file_stem(self) -> str:
        """For the files that belong to the job but not to its run."""
        return f"{self.slug}__seed{self.seed}"

    @property
    def suffix(self) -> str:
        """The last part of the run directory's name."""
        return self.run_dir.name.rpartition("__")[2]

    def to_dict(self) -> dict[str, Any]:
        values = {"entry": self.entry, "slug": self.slug, "config": self.config.to_dict()}
        return {**values, "eval_episodes": self.eval_episodes, "run_dir": str(self.run_dir)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Job:
        config, run_dir = TrainConfig.from_dict(values["config"]), Path(values["run_dir"])
        return cls(values["entry"], values["slug"], config, values["eval_episodes"], run_dir)

    def result(self) -> dict[str, Any] | None:
        """What the finished job left, or what is known of it; None when it has not finished, or was evaluated on
        another number of episodes."""
        try:
            result = json.loads((self.run_dir / "result.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            result = None
        wanted = self.eval_episodes, fingerprint(self.config)
        for found in (result, self.known):
            if isinstance(found, Mapping) and (found.get("eval_episodes"), found.get("fingerprint")) == wanted:
                return dict(found)
        return None


def plan_jobs(
    suite: Suite,
    *,
    suite_path: Path,
    out: Path,
    only: Iterable[str] = (),
    seeds: Iterable[int] | None = None,
    known: Known | None = None,
) -> list[Job]:
    """Every run of the suite, entry by entry; `only` some entries, and `seeds` in place of all others.

    Those whose result is `known` need not be run.
    """
    chosen = [suite.entry(name) for name in only] or list(suite.entries)
    wanted = None if seeds is None else tuple(seeds)
    # all configurations are checked before the first is placed
    resolved = [(entry, entry.resolve(beside=suite_path.parent)) for entry in chosen]
    jobs = [
        _place(entry, config.replace(seed=seed), suite.eval_episodes, out.absolute() / "runs" / entry.slug)
        for entry, config in resolved
        for seed in wanted or suite.seeds_of(entry)
    ]
    return [_informed(job, known) for job in jobs] if known else jobs


def known_runs(path: Path) -> Known:
    """The runs in a results.json."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        shared = {name: results[name] for name in ("eval_episodes", "versions", "machine")}
        return {
            (entry["fingerprint"], run["seed"]): {**run, **shared, "entry": entry["name"], "taken_from": results["date"]}
            for entry in results["entries"]
            for run in entry["runs"]
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: cannot be read as the results.json of a benchmark: {type(error).__name__}: {error}"
        ) from error


def _informed(job: Job, known: Known) -> Job:
    found = known.get((fingerprint(job.config.replace(seed=0)), job.seed))
    return job if found is None else replace(job, known={**found, "fingerprint": fingerprint(job.config)})


def _place(entry: Entry, config: TrainConfig, eval_episodes: int, folder: Path) -> Job:
    """The first directory that is free or of this very configuration; runs of other configurations are left alone."""
    config = config.replace(output_dir=folder)
    replaces: Path | None = None
    for number in count(1):
        run_dir = folder / run_name(config, SUFFIX if number == 1 else f"{SUFFIX}-{number}")
        if _fingerprint_in(run_dir) in (None, fingerprint(config)):
            fresh = not run_dir.exists()
            return Job(entry.label, entry.slug, config, eval_episodes, run_dir, replaces if fresh else None)
        replaces = run_dir
    raise AssertionError("count ends never")


def run_name(config: TrainConfig, suffix: str) -> str:
    """The name that `Run.create` gives to the run's directory."""
    env_id = re.sub(r"[^A-Za-z0-9._-]+", "-", config.env_id)[:100]
    return f"{config.algo}__{env_id}__seed{config.seed}__{suffix}"


def fingerprint(config: TrainConfig) -> str:
    """Equal for two configurations that make the same run."""
    values = config.resolved().to_dict()
    kept = {name: value for name, value in values.items() if name not in WITHOUT_EFFECT}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def changes(old: TrainConfig, new: TrainConfig) -> list[str]:
    """One line for each setting that two configurations differ in, those without effect left out."""
    before, after = flat_settings(old), flat_settings(new)
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return [f"{key}: {before.get(key)} then, {after.get(key)} now" for key in keys]


def replaced_words(job: Job) -> str:
    """What to say about a job that begins anew beside a run of another configuration."""
    assert job.replaces is not None
    try:
        differences = changes(load_config_file(job.replaces / "config.yaml"), job.config)
    except ConfigError:
        differences = ["the old one can no longer be read"]
    listed = "".join(f"\n  {line}" for line in differences)
    return f"{job.name}: its configuration has changed; {job.replaces.name} stays, {job.run_dir.name} is begun{listed}"


def flat_settings(config: TrainConfig) -> dict[str, Any]:
    """Every setting that can change a number, defaults written out, the algorithm's as `algo_kwargs.name`."""
    values = config.resolved().to_dict()
    inner = {f"algo_kwargs.{name}": value for name, value in values.pop("algo_kwargs").items()}
    return {name: value for name, value in (values | inner).items() if name not in WITHOUT_EFFECT}


def _fingerprint_in(run_dir: Path) -> str | None:
    """That of the configuration a run was begun with; None where no run is, empty for one that no longer loads."""
    path = run_dir / "config.yaml"
    if not path.is_file():
        return None
    try:
        return fingerprint(load_config_file(path))
    except ConfigError:
        return ""
