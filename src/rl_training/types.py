"""The few nouns every layer shares. Imports nothing from this package, and torch only for type checkers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Batch: TypeAlias = "dict[str, Tensor]"
"""Columns of equal length. `dones` is 1 where the episode truly ended and the future is worth nothing;
`cuts` is 1 where it ended for any reason, a time limit included."""

Metrics: TypeAlias = "dict[str, Tensor]"
"""Named scalars. They stay tensors until they are logged."""

State: TypeAlias = dict[str, Any]
"""What a checkpoint can hold: nested dicts and lists of tensors, numpy arrays and plain JSON values."""


class Stateful(Protocol):
    """Anything that changes while training runs. The checkpoint is a tree of these."""

    def state_dict(self) -> State: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class StoredState(Protocol):
    """A state that is still in its file. What is asked for is read then; a tensor can be read straight to where it belongs."""

    def shape(self, key: str) -> tuple[int, ...]: ...
    def read_into(self, key: str, target: Tensor) -> None: ...


class Source(Stateful, Protocol):
    """Anything a learner can draw a batch from."""

    def __len__(self) -> int: ...
    def sample(self, batch_size: int) -> Batch: ...


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What one `update` did."""

    metrics: Metrics
    num_gradient_steps: int = 1


class Collected(NamedTuple):
    """What the collecting half of a turn did: environment steps made, and the episodes that ended in it."""

    timesteps: int
    episode_returns: list[float]
    episode_lengths: list[int]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Where a run ended: its directory, its last checkpoint, its final metrics."""

    run_dir: Path
    checkpoint_path: Path
    metrics: dict[str, Any] = field(default_factory=dict)

    if not TYPE_CHECKING:  # or a type checker would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            text = f"a TrainResult has no {name!r}"
            if name in ("evaluate", "export", "learn", "load", "policy", "predict", "record_video", "save"):
                text += ", only run_dir, checkpoint_path and metrics: the agent is the object whose learn() gave it, so call "
                text += f"agent.{name}" if name != "policy" else "agent.predict"
            raise AttributeError(text)


@dataclass(frozen=True, slots=True)
class ObsPart:
    """One Box, Discrete, MultiDiscrete or MultiBinary of an observation space, as the environment declares it."""

    path: tuple[str | int, ...]  # the keys of Dict and places of Tuple that lead to it; () where it is the whole observation
    kind: str  # "box", "discrete", "multi_discrete" or "multi_binary"
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    high: float = 1.0  # the highest number of an image that is kept in bytes
    choices: tuple[int, ...] = ()  # how many there are, of Discrete and MultiDiscrete
    start: tuple[int, ...] = ()  # where these begin to count

    @property
    def name(self) -> str:
        """As messages and exported files have it: `obs`, `obs.camera`, `obs.0.goal`."""
        return ".".join(["obs", *map(str, self.path)])

    @property
    def image(self) -> bool:
        """Whether a network for images reads it: a Box of three axes, of two in bytes, or of four, a stack of frames."""
        axes = len(self.shape)
        return self.kind == "box" and (axes in (3, 4) or (axes == 2 and self.in_bytes))

    @property
    def in_bytes(self) -> bool:
        """Whether a row keeps it in bytes."""
        return self.kind == "box" and self.dtype in ("uint8", "bool") and len(self.shape) in (2, 3, 4)

    @property
    def input_dtype(self) -> str:
        """The type in which an exported policy takes it."""
        return "int64" if self.choices else "uint8" if self.in_bytes else "float32"

    def to_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ObsPart:
        known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        return cls(**known)


LATER = ("observation", "nvec", "masked")  # of an EnvSpec, which the first checkpoints had not


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """Shapes and bounds a learner needs to know. Stored in the checkpoint, so predicting needs no environment."""

    env_id: str
    obs_dim: int  # how wide a row is that holds an observation (`rows.py`)
    action_dim: int  # numbers that decide: one for each choice when discrete
    discrete: bool = False
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    action_start: int | tuple[int, ...] = 0  # where a Discrete space, or each part of a MultiDiscrete one, begins to count
    observation: tuple[ObsPart, ...] = ()  # what a row holds; () where it is a flat vector of numbers
    nvec: tuple[int, ...] = ()  # choices in each part of a MultiDiscrete action; a MultiBinary one has parts of two
    # whether it says at every step what is allowed; None: to be seen at the first reset. Two spaces are the same without it
    masked: bool | None = field(default=False, compare=False)

    @property
    def in_bytes(self) -> bool:
        """Whether rows are of bytes, since there are images in them."""
        return any(part.in_bytes for part in self.observation)

    @property
    def choices(self) -> tuple[int, ...]:
        """How many there are in each part of a discrete action, of which a Discrete one has a single part."""
        return self.nvec or (self.action_dim,)

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each of these parts begins to count."""
        start = self.action_start
        return start if isinstance(start, tuple) else (start,) * len(self.choices)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Of one action, as the environment takes it."""
        if not self.discrete:
            return (self.action_dim,)
        return (len(self.nvec),) if self.nvec else ()

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """From the learner's [-1, 1] (clipped to it) or indices to what the environment was declared with."""
        if self.discrete:
            return actions + np.asarray(self.action_start) if self.action_start else actions
        low, high, middle, half = _bounds(self.low, self.high)
        scaled: np.ndarray = actions * half
        scaled += middle
        # clipped after scaling too: rounding may step one ulp past a bound
        np.maximum(scaled, low, out=scaled)
        np.minimum(scaled, high, out=scaled)
        return scaled

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        """The inverse of `to_env`, for actions somebody else recorded."""
        if self.discrete:
            chosen: np.ndarray = actions - np.asarray(self.action_start)
            return chosen
        _, _, middle, half = _bounds(self.low, self.high)
        learners: np.ndarray = ((actions - middle) / half).astype(np.float32)
        return learners

    def to_dict(self) -> dict[str, Any]:
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        values["observation"] = [part.to_dict() for part in self.observation]
        # nothing is said of what is as it always was, so that checkpoints are too
        return {name: value for name, value in values.items() if value or name not in LATER}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EnvSpec:
        given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        return cls(**{**given, "observation": tuple(ObsPart.from_dict(part) for part in values.get("observation", ()))})


@lru_cache(maxsize=64)
def _bounds(low: tuple[float, ...], high: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Lower and upper bound, their middle and half their distance, made once: this stands in the way of every action."""
    lower, upper = np.asarray(low, dtype=np.float32), np.asarray(high, dtype=np.float32)
    if len({*low}) == len({*high}) == 1:  # one number does for all columns, and operations take half the time
        lower, upper = np.asarray(lower[0]), np.asarray(upper[0])
    return lower, upper, (lower + upper) * np.float32(0.5), (upper - lower) * np.float32(0.5)
