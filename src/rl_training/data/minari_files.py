"""Datasets in Minari's local store, read and written with Minari itself. Nothing is ever downloaded."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.data.recorded_data import RecordedData
from rl_training.errors import DatasetError, MissingExtraError, RLTrainingError, did_you_mean

log = logging.getLogger(__name__)

# what Minari raises where something is wrong, or where somebody has written into a dataset what it did not expect
FAILURES = (OSError, ValueError, TypeError, LookupError, AssertionError, RuntimeError, MemoryError, gym.error.Error)


def read_minari(dataset_id: str) -> RecordedData:
    """The transitions of a local dataset, episode after episode."""
    origin = f"minari:{dataset_id}"
    with _minari() as minari:
        dataset = _open(minari, dataset_id)
        episodes = [_episode(episode, origin) for episode in dataset.iterate_episodes()]
    if not episodes:
        raise DatasetError(f"{origin}: the dataset is empty; there is nothing to learn from")
    return RecordedData.from_arrays({name: np.concatenate([e[name] for e in episodes]) for name in episodes[0]}, origin)


def reference_scores(dataset_id: str) -> tuple[float, float] | None:
    """The returns that count as 0 and as 100 in normalised scores, where the dataset names them."""
    with _minari() as minari:
        metadata = _open(minari, dataset_id).storage.metadata
    scores = metadata.get("ref_min_score"), metadata.get("ref_max_score")
    if None in scores:
        return None
    try:
        low, high = map(float, scores)
    except (TypeError, ValueError) as error:
        raise DatasetError(f"minari:{dataset_id}: ref_min_score and ref_max_score must be numbers; given {scores}") from error
    return low, high


def environment_id(dataset_id: str) -> str | None:
    """The environment the dataset was recorded in, where it says so."""
    with _minari() as minari:
        env_spec = _open(minari, dataset_id).env_spec
    return None if env_spec is None else str(env_spec.id)


def write_minari(
    dataset_id: str,
    data: RecordedData,
    env: Any,
    *,
    algorithm_name: str | None = None,
    description: str | None = None,
    scores: tuple[float, float] | None = None,
) -> None:
    """A new local dataset of `env`'s; `scores` are the returns that count as 0 and as 100."""
    with _minari() as minari:
        _require_new(minari, dataset_id)
        low, high = scores if scores is not None else (None, None)
        minari.create_dataset_from_buffers(
            dataset_id,
            _buffers(data),
            env=env,
            algorithm_name=algorithm_name,
            description=description,
            ref_min_score=low,
            ref_max_score=high,
        )


def require_new_minari(dataset_id: str) -> None:
    """DatasetError where a dataset cannot be written; asked before the work of making one is done."""
    with _minari() as minari:
        _require_new(minari, dataset_id)


def _require_new(minari: Any, dataset_id: str) -> None:
    try:
        minari.dataset.minari_dataset.parse_dataset_id(dataset_id)
    except ValueError as error:
        raise DatasetError(f"{dataset_id!r} is no name for a Minari dataset: {error}") from None
    if dataset_id in minari.list_local_datasets():
        raise DatasetError(f"minari:{dataset_id} exists already and is left alone; choose another name or version")


def _buffers(data: RecordedData) -> list[Any]:
    from minari.data_collector import EpisodeBuffer

    return [
        EpisodeBuffer(
            id=number,
            observations=np.append(data.obs[rows], data.next_obs[rows][-1:], axis=0),
            actions=data.actions[rows],
            rewards=list(data.rewards[rows]),
            terminations=list(data.terminations[rows]),
            truncations=list(data.truncations[rows]),
        )
        for number, rows in enumerate(_chained(data))
    ]


def _chained(data: RecordedData) -> Sequence[slice]:
    """Minari keeps one chain of observations per episode, so that each row must go on where the one before led to."""
    episodes = data.episodes()
    for rows in episodes:
        breaks = np.flatnonzero((data.obs[rows][1:] != data.next_obs[rows][:-1]).any(axis=1))
        if len(breaks):
            row = rows.start + int(breaks[0]) + 1
            raise DatasetError(
                f"{data.origin}: row {row} does not go on where row {row - 1} led to; Minari needs whole episodes"
            )
    return episodes


def _episode(episode: Any, origin: str) -> dict[str, np.ndarray]:
    observations = episode.observations
    if not isinstance(observations, np.ndarray) or not isinstance(episode.actions, np.ndarray):
        raise DatasetError(f"{origin}: observations and actions must be flat arrays; those of episode {episode.id} are nested")
    rows = len(episode.rewards)
    if len(observations) != rows + 1:
        raise DatasetError(
            f"{origin}: episode {episode.id} has {len(observations)} observations for {rows} rewards, not one more"
        )
    return {
        "obs": observations[:-1].reshape(rows, -1),
        "actions": episode.actions,
        "rewards": episode.rewards,
        "next_obs": observations[1:].reshape(rows, -1),
        "terminations": episode.terminations,
        "truncations": episode.truncations,
        "episode_id": np.full(rows, episode.id),
    }


def _open(minari: Any, dataset_id: str) -> Any:
    local = minari.list_local_datasets()
    if dataset_id not in local:
        known = did_you_mean(dataset_id, local) if local else "; there are none"
        advice = "`minari download` fetches a public one"
        raise DatasetError(f"minari:{dataset_id}: there is no such dataset on this machine{known}; {advice}")
    folder = minari.storage.get_dataset_path(dataset_id) / "data"
    _require_sound(f"minari:{dataset_id}", minari.dataset.minari_storage.MinariStorage.read_raw_metadata(folder), folder)
    return minari.load_dataset(dataset_id, download=False)


def _require_sound(origin: str, metadata: Any, folder: Path) -> None:
    """DatasetError for metadata that Minari must not see."""
    if not isinstance(metadata, dict):
        raise DatasetError(f"{origin}: its metadata are no mapping")
    for key in ("observation_space", "action_space"):
        # without it Minari makes the environment that the data names, by whatever entry point the data gives for it
        if not isinstance(metadata.get(key), str):
            raise DatasetError(f"{origin}: its metadata do not say its {key}, and no environment is made to find it out")
    episodes, size = metadata.get("total_episodes"), sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if type(episodes) is not int or not 0 <= episodes <= size:  # Minari makes a list of their numbers
        raise DatasetError(f"{origin}: total_episodes is {str(episodes)[:40]}, and there are {size:,} bytes of data")


@contextmanager
def _minari() -> Iterator[Any]:
    """Minari, with what it warns of in the log; its own failures become DatasetError."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            import minari
        except ImportError as error:
            raise MissingExtraError("minari", extra="offline", purpose="a Minari dataset") from error
        try:
            yield minari
        except RLTrainingError:
            raise
        except FAILURES as error:
            raise DatasetError(f"Minari could not do it: {type(error).__name__}: {error}") from error
    for warning in caught:
        log.debug("minari: %s", warning.message)
