"""Seeds that belong to a path of numbers alone (run seed, stream, environment, episode): numpy's, for one path or for many.

Numpy takes 8 µs to make a generator of a path. A population wants a hundred of them for every generation, so the words of
many paths are worked out together here, by the published algorithm (O'Neill's seed_seq) and with numpy's numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

FEW = 10  # paths that numpy is faster with, one by one
POOL = 4  # words that a path is mixed into


def seed_sequence(*path: int) -> np.random.SeedSequence:
    """Numpy's, of a path of numbers, which it takes as long again to turn into words of 32 bits."""
    return np.random.SeedSequence(np.array(path, dtype=np.uint32) if _one_word_each(path) else path)


def episode_seed(*path: int) -> int:
    """A 31-bit seed that belongs to this path of numbers alone: run seed, stream, environment, episode."""
    return int(seed_sequence(*path).generate_state(1)[0]) >> 1


def episode_seeds(paths: Sequence[tuple[int, ...]]) -> list[int]:
    """The same for paths that are all as long as each other."""
    if len(paths) < FEW or not all(map(_one_word_each, paths)):
        return [episode_seed(*path) for path in paths]
    seeds: list[int] = (state_words(np.array(paths, dtype=np.uint32), 1)[:, 0] >> 1).tolist()
    return seeds


def generators(paths: Sequence[tuple[int, ...]]) -> list[np.random.Generator]:
    """A generator for each of the paths, which are all as long as each other."""
    if len(paths) < FEW or not all(map(_one_word_each, paths)):
        return [np.random.Generator(np.random.PCG64(seed_sequence(*path))) for path in paths]
    states = state_words(np.array(paths, dtype=np.uint32), 8).astype("<u4").view("<u8").astype(np.uint64)
    return [np.random.Generator(np.random.PCG64(_Known(words))) for words in states]  # type: ignore[arg-type] # it may be any


def state_words(paths: np.ndarray, count: int) -> np.ndarray:
    """`SeedSequence(path).generate_state(count)` of each row: [n, length] to [n, count], all of uint32."""
    words = np.zeros((max(POOL, paths.shape[1]), len(paths)), dtype=np.uint32)
    words[: paths.shape[1]] = paths.T
    constants = _constants(0x43B0D7E5, 0x931E8875, 4 * len(words) + 1)
    pool, done = _hashed(words[:POOL], constants[: POOL + 1]), POOL
    for source in range(POOL):
        others = [word for word in range(POOL) if word != source]
        pool[others] = _mixed(pool[others], _hashed(pool[source], constants[done : done + POOL]))
        done += POOL - 1
    for word in words[POOL:]:
        pool = _mixed(pool, _hashed(word, constants[done : done + POOL + 1]))
        done += POOL
    words = _hashed(pool[np.arange(count) % POOL], _constants(0x8B51F9DD, 0x58F38DED, count + 1))
    return np.ascontiguousarray(words.T)


def _hashed(words: np.ndarray, constants: np.ndarray) -> np.ndarray:
    """With one constant more than rows come out."""
    words = (words ^ constants[:-1]) * constants[1:]
    words ^= words >> 16
    return words


def _mixed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    words: np.ndarray = x * np.uint32(0xCA01F9DD) - y * np.uint32(0x4973F715)
    words ^= words >> 16
    return words


@lru_cache(maxsize=16)
def _constants(first: int, factor: int, count: int) -> np.ndarray:
    """first · factor⁰, first · factor¹, ... modulo 2³², one below the other."""
    return np.array([[first * pow(factor, i, 2**32) % 2**32] for i in range(count)], dtype=np.uint32)


def _one_word_each(path: Sequence[int]) -> bool:
    return min(path) >= 0 and max(path) < 2**32


class _Known(ISeedSequence):
    """What a generator is seeded with, worked out beforehand."""

    def __init__(self, words: np.ndarray) -> None:
        self.words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:  # noqa: ARG002 (PCG64 asks for just these)
        return self.words
