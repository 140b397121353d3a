"""What can be done with a checkpoint, whichever algorithm wrote it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.errors import CheckpointError, ConfigError, MisfitError
from rl_training.experiment.checkpoint import CheckpointState, load_checkpoint, must_fit
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.locate import resolve_checkpoint, run_directory_of
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.experiment.sinks import MetricsSink
from rl_training.experiment.trust import Trust, named_code, named_for_envs, require_trust
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.policy import load_policy
from rl_training.types import TrainResult

log = logging.getLogger(__name__)


def evaluate_checkpoint(
    path: str | Path, *, num_episodes: int | None = None, device: str = "auto", env: Any = None, trust: Trust = False
) -> dict[str, Any]:
    """Mean and spread of returns of a saved policy, on episodes of the evaluation stream."""
    return load_policy(path, device=device, trust=trust).evaluate(num_episodes=num_episodes, env=env)


def predict_checkpoint(path: str | Path, obs: Any, *, deterministic: bool = True, trust: Trust = False) -> int | np.ndarray:
    """One action of a saved policy. For many, load it once (`load_policy`)."""
    return load_policy(path, trust=trust).predict(obs, deterministic=deterministic)


def resume_training(
    path: str | Path,
    *,
    total_timesteps: int | None = None,
    output_dir: str | Path | None = None,
    eval_episodes: int | None = None,
    run_suffix: str | None = None,
    callbacks: Sequence[Callback] | None = None,
    env: Any = None,
    sinks: Sequence[MetricsSink] | None = None,
    sink_names: Sequence[str] | None = None,
    dataset_path: str | Path | None = None,
    trust: Trust = False,
) -> TrainResult:
    """Go on from a checkpoint file, or from the newest good checkpoint of a run directory.

    The run continues in its own directory; a given `output_dir` or `run_suffix` begins a new one. `sinks` come beside those
    of the run's configuration, `sink_names` in place of them. `dataset_path` is where its dataset's file lies now. `trust`
    lets it import what it names (True, or the names), where that is not known to be yours (`experiment/trust.py`).
    """
    file = resolve_checkpoint(Path(path))
    state = load_checkpoint(file)
    config = _saved_config(state, file)
    changes = {"total_timesteps": total_timesteps, "output_dir": output_dir, "eval_episodes": eval_episodes}
    config = config.replace(**{name: value for name, value in changes.items() if value is not None})
    if sink_names is not None:
        kept = {name: arguments for name, arguments in config.sink_kwargs.items() if name in sink_names}
        config = config.replace(sinks=tuple(sink_names), sink_kwargs=kept)
    if dataset_path is not None:
        if config.algo_kwargs.get("dataset_path") is None:
            raise ConfigError(f"dataset_path: this run of {config.algo} was begun without one, so there is no file to move")
        config = config.replace(algo_kwargs={**config.algo_kwargs, "dataset_path": str(dataset_path)})
    given = () if env is None else named_for_envs(config)
    named = [entry for entry in named_code(config) if entry not in given and entry.name not in (sink_names or ())]
    require_trust(named, file, trust=trust)
    run_dir = None if output_dir is not None or run_suffix is not None else run_directory_of(file)
    train = get_algorithm_spec(config.algo).train_fn
    try:
        result: TrainResult = train(
            config, run_suffix=run_suffix, checkpoint_state=state, callbacks=callbacks, run_dir=run_dir, env=env, sinks=sinks
        )
    except MisfitError as error:  # raised by those who know the state but not the file
        raise CheckpointError(f"{file}: {error}") from error
    return result


def _saved_config(state: CheckpointState, file: Path) -> TrainConfig:
    try:
        with must_fit():
            return TrainConfig.from_dict(state.config)
    except MisfitError as error:
        raise CheckpointError(f"{file}: {error}") from error
