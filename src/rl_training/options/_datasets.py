"""Settings of the algorithms that learn from data recorded before: where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeAlias

from rl_training.options.base import Options, Problem, option

Kind: TypeAlias = Literal["random", "npz", "minari"]

RANDOM_SIZE = 10_000  # transitions of random behaviour where no number is given


class DatasetPart(Options):
    """One dataset."""

    noun: ClassVar[str] = "a dataset"

    kind: Kind | None = option(None, "As dataset_kind.")
    path: str | None = option(None, "As dataset_path.", min_length=1)
    id: str | None = option(None, "As dataset_id.", min_length=1)
    size: int | None = option(None, "As dataset_size.", ge=1)
    seed: int | None = option(None, "As dataset_seed.", ge=0, lt=2**32)
    weight: float = option(1.0, "Its share of every batch, relative to the other datasets' weights.", gt=0)
    clip_actions: bool = option(False, "As dataset_clip_actions.")
    reward_scale: float = option(1.0, "As dataset_reward_scale.")
    reward_shift: float = option(0.0, "As dataset_reward_shift.")

    @property
    def source(self) -> Kind:
        """The kind, where it is not given the one that path or id imply."""
        return self.kind or ("npz" if self.path is not None else "minari" if self.id is not None else "random")

    def contradictions(self) -> Iterator[Problem]:
        """A file needs its path, a Minari dataset its id, and neither is of use to the others."""
        for kind, key in (("npz", "path"), ("minari", "id")):
            given = getattr(self, key)
            if self.source == kind and given is None:
                yield Problem(("kind", key), f"{kind} data needs its {key}: say which it is")
            if self.source != kind and given is not None:
                yield Problem(("kind", key), f"{given!r} is of no use to {self.source} data; it belongs to {kind} data")


class DatasetOptions(Options):
    """The data an algorithm begins with. The keys of one dataset, or `datasets` for a mix of several."""

    dataset_kind: Kind | None = option(
        None, "Where prior data comes from; none means npz with dataset_path, minari with dataset_id, else random."
    )
    dataset_path: str | None = option(None, "The .npz file; packaged ones are named data/NAME.npz.", min_length=1)
    dataset_id: str | None = option(None, "The id of a dataset in Minari's local store.", min_length=1)
    dataset_size: int | None = option(
        None, f"Transitions: of random behaviour to collect ({RANDOM_SIZE} if none), of others to take at most.", ge=1
    )
    dataset_seed: int | None = option(
        None,
        "Decides the random behaviour; none means the run's seed. Give one to compare runs on the same data.",
        ge=0,
        lt=2**32,
    )
    dataset_clip_actions: bool = option(False, "Clip recorded actions to the action space rather than refuse those outside.")
    dataset_reward_scale: float = option(1.0, "Recorded rewards are multiplied by this.")
    dataset_reward_shift: float = option(0.0, "This is added to recorded rewards after scaling.")
    datasets: tuple[DatasetPart, ...] = option(
        (),
        "A mix of several in place of the keys above: a list of {kind, path, id, size, seed, weight, clip_actions, "
        "reward_scale, reward_shift}, each optional.",
        words="list of datasets",
    )

    hindsight: ClassVar[tuple[str, ...]] = ()  # what its rows are to know of those after them (data/hindsight.py)

    @property
    def needs_data(self) -> bool:
        """Whether anything is ever drawn from it."""
        return True

    def dataset_parts(self) -> tuple[DatasetPart, ...]:
        """Every dataset to load."""
        return self.datasets or (DatasetPart(**self._single()),)

    def dataset_rows_per_batch(self) -> int:
        """Rows of a batch that come from the data."""
        return int(getattr(self, "batch_size", 1))

    def contradictions(self) -> Iterator[Problem]:
        yield from super().contradictions()
        single = self._single()
        if self.datasets and single:
            keys = tuple(f"dataset_{key}" for key in single)
            yield Problem(("datasets", *keys), "give either one dataset or a list of them")
        elif not self.datasets:
            # made without its checks, which would raise; they are passed on under the keys that were given
            part = DatasetPart.model_construct(**single)
            for problem in DatasetPart.contradictions(part):
                yield Problem(tuple(f"dataset_{key}" for key in problem.keys), problem.text)

    def _single(self) -> dict[str, Any]:
        """What is given of a single dataset, by the part's own names."""
        keys = ("kind", "path", "id", "size", "seed", "clip_actions", "reward_scale", "reward_shift")
        values = {key: getattr(self, f"dataset_{key}") for key in keys}
        return {key: value for key, value in values.items() if value != DatasetPart.model_fields[key].default}
