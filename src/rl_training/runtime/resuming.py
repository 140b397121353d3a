"""What is looked at when a run goes on from a checkpoint, and what is written down about it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.checkpoint import Saved
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.metadata import environment_differences, numeric_environment
from rl_training.experiment.run import Run
from rl_training.experiment.suite_jobs import flat_settings
from rl_training.experiment.yaml_loader import load_config_file
from rl_training.runtime.networks import source_differences
from rl_training.types import EnvSpec

log = logging.getLogger(__name__)


def require_same_task(config: TrainConfig, spec: EnvSpec, saved: Saved) -> None:
    """CheckpointError when a checkpoint is of another algorithm or of an environment with other spaces."""
    algo = saved.config.get("algo")
    if algo != config.algo:
        raise CheckpointError(f"the checkpoint is of {algo!r}, the configuration of {config.algo!r}")
    if not saved.trainer_state:
        raise CheckpointError(
            "the checkpoint holds only a policy; training goes on from one of the step_* checkpoints beside it"
        )
    was = EnvSpec.from_dict(saved.metadata["env_spec"])
    if was != spec:
        raise CheckpointError(f"the checkpoint is of an environment with other spaces: {was} then, {spec} now")


def require_budget(config: TrainConfig, before: Any, *, step: int) -> None:
    """ConfigError for a new budget that is spent already: a slip, which would be written down as the run's own."""
    if config.budget < step and config.total_timesteps != before:
        raise ConfigError(f"total_timesteps: given {config.total_timesteps}, but the run is at step {step}; possible: more")


def note_resume(run: Run, config: TrainConfig, saved: Saved, *, in_its_own: bool) -> None:
    """Tell what is not as it was and write it down, in the run's metadata and, if it goes on `in_its_own` directory, in its
    config.yaml."""
    differences = environment_differences(saved.metadata.get("environment", {}), numeric_environment())
    differences += source_differences(saved.metadata.get("network_sources", {}), config.options)
    for difference in differences:
        log.warning("resuming may not be exact: %s", difference)
    changes = {
        name: [saved.config.get(name), value] for name, value in config.to_dict().items() if saved.config.get(name) != value
    }
    path = run.directory / "config.yaml"
    edits = _edits(path, config, TrainConfig.from_dict(saved.config)) if in_its_own else []
    if edits:
        log.warning("%s: %s. The checkpoint counts, and the file is put right", path, "; ".join(edits))
    step = saved.trainer_state["progress"]["global_step"]
    run.note_resume(config, step=step, changes=changes, differences=differences, rewrite=bool(edits))


def _edits(path: Path, config: TrainConfig, saved: TrainConfig) -> list[str]:
    """In which settings a run's config.yaml is neither as its checkpoint nor as it is to be; what changes no number is the
    user's to edit."""
    if not path.is_file():
        return ["was lost"]
    try:
        there, known, wanted = map(flat_settings, (load_config_file(path), saved, config))
    except ConfigError as error:
        return [f"cannot be read ({str(error).splitlines()[0].removeprefix(f'{path}: ')})"]
    edited = [name for name in known if there.get(name) not in (known[name], wanted.get(name))]
    return [f"says {name}: {there.get(name)}, and the run was trained with {known[name]}" for name in edited]
