"""Atari games as most papers play them (Mnih et al., 2015; Machado et al., 2018, arXiv:1709.06009): `atari: true`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.errors import ConfigError

SIZE, SKIP, STACK, MOST_NOOPS = 84, 4, 4, 30
OURS = ("frameskip", "obs_type")  # arguments of the environment that the preprocessing decides


class StandardAtari(gym.Wrapper[np.ndarray, Any, np.ndarray, Any]):
    """Every fourth frame, the brighter of its last two in each place (sprites flicker), in gray, 84 × 84; the last four such
    pictures are the observation, (4, 84, 84) bytes, the newest last. An episode begins with 1 to 30 steps of doing nothing.

    Pictures are made smaller by the mean over areas. Weights and bytes are whole numbers, so that they are the same everywhere.
    """

    def __init__(self, env: gym.Env[np.ndarray, Any]) -> None:
        super().__init__(env)
        height, width = env.observation_space.shape or (0, 0)
        self._rows, self._columns = _overlaps(height, SIZE), _overlaps(width, SIZE).T
        self._total = self._rows[0].sum() * self._columns[:, 0].sum()
        self.observation_space = gym.spaces.Box(0, 255, (STACK, SIZE, SIZE), np.uint8)
        self._pictures = np.zeros((STACK, SIZE, SIZE), dtype=np.uint8)
        self._frame = np.zeros((height, width), dtype=np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        self._frame, info = self.env.reset(seed=seed, options=options)
        for _ in range(int(self.env.unwrapped.np_random.integers(1, MOST_NOOPS + 1))):
            self._frame, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                self._frame, info = self.env.reset(options=options)
        self._pictures[:] = self._small(self._frame)
        return self._pictures.copy(), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        score, brightest = 0.0, self._frame
        for _ in range(SKIP):
            before = self._frame
            self._frame, reward, terminated, truncated, info = self.env.step(action)
            score, brightest = score + float(reward), np.maximum(before, self._frame)
            if terminated or truncated:
                break
        self._pictures = np.concatenate([self._pictures[1:], self._small(brightest)[None]])
        return self._pictures.copy(), score, terminated, truncated, info

    def _small(self, frame: np.ndarray) -> np.ndarray:
        # sums of whole numbers below 2^24, which float32 holds exactly in whatever order they are added
        sums = self._rows @ frame.astype(np.float32) @ self._columns
        picture: np.ndarray = np.rint(sums / self._total).astype(np.uint8)
        return picture


def make_standard_atari(game: Any, *, max_episode_steps: int | None = None, **kwargs: Any) -> gym.Env[Any, Any]:
    """A game of ale-py by its id or specification; `max_episode_steps` counts steps of the learner, not frames."""
    if given := [name for name in OURS if name in kwargs]:
        raise ConfigError(f"env_kwargs: atari: true decides {' and '.join(given)}; leave one or the other out")
    env: gym.Env[Any, Any] = StandardAtari(gym.make(game, frameskip=1, obs_type="grayscale", **kwargs))
    return env if max_episode_steps is None else gym.wrappers.TimeLimit(env, max_episode_steps)


def _overlaps(many: int, few: int) -> np.ndarray:
    """How much of each of `many` equal pieces of a line lies in each of `few`, (few, many), in a unit that makes them whole."""
    unit = np.gcd(many, few)
    many_each, few_each = few // unit, many // unit  # lengths of a piece
    edges_of_few, edges_of_many = np.arange(few)[:, None] * few_each, np.arange(many)[None] * many_each
    ends = np.minimum(edges_of_few + few_each, edges_of_many + many_each)
    overlaps: np.ndarray = np.maximum(ends - np.maximum(edges_of_few, edges_of_many), 0).astype(np.float32)
    return overlaps
