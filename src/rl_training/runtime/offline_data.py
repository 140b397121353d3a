"""From the dataset keys of a configuration to transitions in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rl_training.data.dataset_files import read_npz
from rl_training.data.hindsight import hindsight
from rl_training.data.minari_files import read_minari
from rl_training.data.offline_dataset import OfflineDataset
from rl_training.data.recorded_data import RecordedData
from rl_training.envs.source import EnvSource
from rl_training.errors import DatasetError
from rl_training.experiment.files import at_home
from rl_training.options._datasets import RANDOM_SIZE, DatasetOptions, DatasetPart
from rl_training.resources import find_packaged_asset
from rl_training.runtime.recording import RandomBehavior, record
from rl_training.runtime.rng import Stream
from rl_training.types import EnvSpec


def load_offline_data(
    options: DatasetOptions, source: EnvSource, spec: EnvSpec, *, seed: int, places: Mapping[str, str] | None = None
) -> OfflineDataset:
    """Everything the options name, checked against the environment, in one matrix; `seed` is the run's.

    `places` are those of its files when the run was begun (`data_places`).
    """
    parts = [_found_again(part, places or {}) for part in options.dataset_parts()]
    loaded = [_columns(part, source, spec, seed=seed) for part in parts]
    loaded = [part | hindsight(part, options.hindsight, gamma=getattr(options, "gamma", 1.0)) for part in loaded]
    columns = {name: np.concatenate([part[name] for part in loaded]) for name in loaded[0]}
    shares = [(len(data["rewards"]), part.weight) for data, part in zip(loaded, parts, strict=True)]
    rows, needed = len(columns["rewards"]), options.dataset_rows_per_batch()
    if needed > rows:
        raise DatasetError(
            f"every batch takes {needed} rows of the data, but it has only {rows}; lower batch_size or give more data"
        )
    return OfflineDataset(columns, seed=(seed, Stream.DATASET_SAMPLING), parts=shares)


def read_data(part: DatasetPart, *, time_limit: int | None = None) -> RecordedData:
    """The recorded data of an npz or Minari dataset, as it is; `time_limit` is that of its environment."""
    if part.source == "minari":
        assert part.id is not None
        return read_minari(part.id)
    assert part.path is not None
    return read_npz(data_path(part.path), time_limit=time_limit)


def data_path(path: str) -> Path:
    """The user's file, or the packaged one of that name."""
    given = at_home(path)
    return given if given.exists() else find_packaged_asset(path) or given


def data_places(options: DatasetOptions, places: Mapping[str, str]) -> dict[str, str]:
    """Where the files that the options name lie, for a resume from another folder."""
    given = [part.path for part in options.dataset_parts() if part.path is not None]
    found = {path: data_path(path) for path in given}
    return {path: str(place.absolute()) if place.exists() else places[path] for path, place in found.items()}


def _found_again(part: DatasetPart, places: Mapping[str, str]) -> DatasetPart:
    """The part with its file as it can be reached from here."""
    if part.path is None or part.path not in places or data_path(part.path).exists():
        return part
    place = places[part.path]
    if not Path(place).exists():
        raise DatasetError(
            f"{part.path}: there is no such file here, nor where the run was begun ({place}); say where it is now: "
            "rl-training resume --checkpoint RUN --dataset-path FILE, or resume_training(path, dataset_path=...)"
        )
    return part.replace(path=place)


def _columns(part: DatasetPart, source: EnvSource, spec: EnvSpec, *, seed: int) -> dict[str, np.ndarray]:
    if part.source == "random":
        data = random_data(source, spec, size=part.size or RANDOM_SIZE, seed=seed if part.seed is None else part.seed)
    else:
        data = read_data(part, time_limit=source.time_limit())
    if part.size is not None:
        data = data.select(slice(part.size))
    return data.columns(spec, clip_actions=part.clip_actions, reward_scale=part.reward_scale, reward_shift=part.reward_shift)


def random_data(source: EnvSource, spec: EnvSpec, *, size: int, seed: int) -> RecordedData:
    """`size` transitions of uniformly random behaviour; the seed alone decides them."""
    behavior = RandomBehavior(spec, np.random.default_rng((seed, Stream.DATASET_ACTIONS)))
    return record(source, spec, behavior, num_steps=size, seed=seed, stream=Stream.DATASET_ENVS, origin="random behaviour")
