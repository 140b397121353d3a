"""The compiled library behind the ops (`c/passes.c`), where it was compiled when the package was installed.

`hatch_build.py` does that with whatever C compiler there is; without one, or on a processor it is not made for, every op
is what its definition in torch says. RL_TRAINING_NATIVE=0 leaves the library out of a process.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent / "c"
KINDS = {"AVX512": "avx512", "AVX2": "avx2"}  # what torch calls a processor, and the library for it
MOST_LAYERS = 12
SWITCH = "RL_TRAINING_NATIVE"

Library: TypeAlias = Any
"""The library, whose functions are those of `CALLS`."""

_Layers = ctypes.c_int64 * MOST_LAYERS


class Network(ctypes.Structure):
    """As `passes.c` has it: sizes, and where in a flat vector the parameters of the first member begin."""

    _fields_ = (
        ("layers", ctypes.c_int64),
        ("members", ctypes.c_int64),
        ("activation", ctypes.c_int64),
        ("norm", ctypes.c_int64),
        ("sizes", ctypes.c_int64 * (MOST_LAYERS + 1)),
        *((name, _Layers) for name in ("weights", "biases", "gains", "shifts")),
    )


class Dynamics(ctypes.Structure):
    """As `imagined.h` has it: members of dynamics networks, what is taken off their inputs, bounds of their log-variances."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("net", "flat")),
        ("obs_dim", ctypes.c_int64),
        ("action_dim", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("input_mean", "upper", "lower")),
    )


class Population(ctypes.Structure):
    """As `policies.h` has it: a policy, steps away from it, and what those on both sides of them are shown and answer."""

    _fields_ = (
        ("layers", ctypes.c_int64),
        ("sizes", ctypes.c_int64 * (MOST_LAYERS + 1)),
        ("biased", ctypes.c_int64),
        ("bounded", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("center", "steps")),
        ("apart", ctypes.c_int64),
        ("members", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("count", "rows")),
        *((name, ctypes.c_void_p) for name in ("x", "memory", "to")),
    )


class Objective(ctypes.Structure):
    """As `losses.h` has it: columns of a minibatch, coefficients, and where gradients and losses go."""

    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in ("logprobs", "new_logprobs", "advantages", "returns", "new_values", "entropy", "values")
        ),
        ("count", ctypes.c_int64),
        *((name, ctypes.c_double) for name in ("clip_coef", "ent_coef", "vf_coef")),
        *((name, ctypes.c_void_p) for name in ("d_logprobs", "d_values", "losses")),
    )


_POINTER, _COUNT, _NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
CALLS = {
    "features_at": ([_POINTER, _COUNT], _COUNT),
    "tape_size": ([_POINTER, _COUNT, _COUNT], _COUNT),
    "scratch_size": ([_POINTER, _COUNT, _COUNT, _COUNT], _COUNT),
    "forward": ([*[_POINTER] * 3, _COUNT, _POINTER, _COUNT, _COUNT, *[_POINTER] * 3, _COUNT], None),
    "backward": ([*[_POINTER] * 3, _COUNT, _POINTER, _COUNT, _COUNT, *[_POINTER] * 5, _COUNT], None),
    "inputs_back": ([*[_POINTER] * 3, _COUNT, _COUNT, *[_POINTER] * 2, _COUNT, _COUNT, *[_POINTER] * 2, _COUNT], None),
    "adam": ([*[_POINTER] * 5, _COUNT, *[_NUMBER] * 5, _COUNT], None),
    "squash": ([_POINTER, _POINTER, _COUNT, _COUNT, *[_POINTER] * 3], None),
    "squash_back": ([*[_POINTER] * 5, _COUNT, _COUNT, _POINTER], None),
    "imagine_particles": (
        [_POINTER, _POINTER, _COUNT, _POINTER, _COUNT, _POINTER, _COUNT, _COUNT, *[_POINTER] * 3, _COUNT],
        None,
    ),
    "imagine_rows": ([*[_POINTER] * 5, _COUNT, *[_POINTER] * 5, _COUNT], None),
    "act_as_many": ([_POINTER], None),
    "critic_loss": ([_POINTER, _POINTER, _COUNT, _COUNT, _POINTER, _POINTER], None),
    "soft_actor_loss": ([*[_POINTER] * 3, *[_COUNT] * 3, *[_POINTER] * 3], None),
    "clipped_objective": ([_POINTER], None),
}


@lru_cache(maxsize=1)
def library() -> Library | None:
    """The compiled passes, or None where there are none for this processor."""
    return None if os.environ.get(SWITCH) == "0" else load(kind_of_processor())


def in_use() -> str:
    """Which of them this process computes with, or "none"."""
    return "none" if library() is None else kind_of_processor()


def build() -> str | None:
    """A word for how the library in use was compiled: another compiler, or other flags of it, may give other bits."""
    return None if library() is None else _file_digest(kind_of_processor())


@cache
def _file_digest(kind: str) -> str:
    return hashlib.blake2b(_path(kind).read_bytes(), digest_size=8).hexdigest()


def _path(kind: str) -> Path:
    return FOLDER / f"passes_{kind}.so"


@cache
def load(kind: str) -> Library | None:
    """The passes compiled for one kind of processor, if they are there."""
    path = _path(kind)
    if not path.is_file():
        return None
    try:
        passes = ctypes.CDLL(str(path))
    except OSError:  # of another system or processor
        return None
    if not _is_of_these_sources(passes):
        log.warning(
            "%s was compiled from other sources than those beside it, and is left alone: training is slower. "
            "Install again (pip install -e ., or make setup) to compile it anew.",
            path,
        )
        return None
    for name, (arguments, result) in CALLS.items():
        function = getattr(passes, name)
        function.argtypes, function.restype = arguments, result
    return passes


def digest() -> str:
    """Of the sources in C that lie here. A library that was compiled from others would misread what it is given."""
    found = hashlib.blake2b(digest_size=16)
    for path in sorted([*FOLDER.glob("*.c"), *FOLDER.glob("*.h")]):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _is_of_these_sources(passes: Library) -> bool:
    if not hasattr(passes, "sources"):
        return False
    passes.sources.argtypes, passes.sources.restype = [], ctypes.c_char_p
    return bool(passes.sources().decode() == digest())


def kind_of_processor() -> str:
    import torch

    return KINDS.get(torch.backends.cpu.get_cpu_capability(), "other")
