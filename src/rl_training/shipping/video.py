"""A policy's episodes as a video file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rl_training.envs.filming import film_source, headless, rehearse
from rl_training.envs.pool import Evaluator
from rl_training.errors import ConfigError, MissingExtraError
from rl_training.experiment.files import no_link, partial_name, reason
from rl_training.runtime.evaluation import PolicyEvaluator
from rl_training.runtime.policy import Policy

SUFFIXES = (".mp4", ".gif")
DEFAULT_FPS = 30
MAX_GIF_FPS = 25  # a GIF counts hundredths of a second and grows quickly: of faster ones some pictures are left out


class Video(NamedTuple):
    """What was filmed. The returns are those of the first episodes of an evaluation."""

    path: Path
    num_frames: int
    fps: float
    metrics: dict[str, Any]


def record_video(policy: Policy, out: str | Path, *, num_episodes: int = 1, env: Any = None) -> Video:
    """The first episodes that `evaluate` plays, as they are drawn by the environment (`env` for one that is no id)."""
    path = require_video(out)
    if num_episodes < 1:
        raise ConfigError(f"episodes to film: given {num_episodes}; possible: at least 1")
    config, spec = policy.config, policy.spec
    source = policy.environments(env, render_mode="rgb_array")
    with headless(), _replacing(path) as partial:
        film = _Film(partial, fps=rehearse(source) or DEFAULT_FPS)
        evaluator = PolicyEvaluator(
            Evaluator(film_source(source, film.add), spec, max_parallel=1), spec, seed=config.seed, device=policy.device
        )
        try:
            metrics = evaluator(policy.algorithm, num_episodes=num_episodes)
        finally:
            evaluator.close()
            film.close()
    return Video(path, film.num_frames, film.fps, metrics)


def require_video(out: str | Path) -> Path:
    """The path, once it is certain that such a file can be written here."""
    path = Path(out)
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"video: given {str(out)!r}; possible endings: {', '.join(SUFFIXES)}")
    needed = ("imageio", "imageio_ffmpeg") if path.suffix.lower() == ".mp4" else ("imageio",)
    for package in needed:
        if find_spec(package) is None:
            raise MissingExtraError(package, extra="video", purpose="writing a video")
    return path


def default_video_path(checkpoint: Path) -> Path:
    """`RUN/videos/step_000060000.mp4`: where `report` looks for them too."""
    folder = checkpoint.parent.parent if checkpoint.parent.name == "checkpoints" else checkpoint.parent
    return no_link(folder / "videos") / f"{checkpoint.stem}.mp4"


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A name with the same ending to write to, which takes the place of `path` only when all went well."""
    partial = path.with_name(f"{partial_name(path).name}{path.suffix}")  # the ending says in which format
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.touch(exist_ok=False)
        yield partial
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"video: {path} cannot be written: {reason(error)}") from error
    finally:
        partial.unlink(missing_ok=True)


class _Film:
    """Writes pictures as they come, so that a long episode does not fill the memory."""

    def __init__(self, path: Path, *, fps: float) -> None:
        self._path = path
        self._every = max(1, round(fps / MAX_GIF_FPS)) if path.suffix.lower() == ".gif" else 1
        self.fps = fps / self._every
        self.num_frames = 0
        self._seen = 0
        self._writer: Any = None

    def add(self, frame: np.ndarray) -> None:
        self._seen += 1
        if (self._seen - 1) % self._every == 0:
            frame = _even(frame)
            if self._writer is None:
                self._writer = self._begin(frame)
            self._write(frame)
            self.num_frames += 1

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _begin(self, frame: np.ndarray) -> Any:
        if self._path.suffix.lower() == ".gif":
            from imageio.v2 import get_writer

            return get_writer(self._path, mode="I", duration=1000 / self.fps, loop=0)
        import imageio_ffmpeg

        height, width = frame.shape[:2]
        writer = imageio_ffmpeg.write_frames(str(self._path), (width, height), fps=self.fps, quality=7, macro_block_size=2)
        writer.send(None)
        return writer

    def _write(self, frame: np.ndarray) -> None:
        if self._path.suffix.lower() == ".gif":
            self._writer.append_data(frame)
        else:
            self._writer.send(np.ascontiguousarray(frame))


def _even(frame: np.ndarray) -> np.ndarray:
    """Most players want even sizes: the last row or column is drawn twice where one is missing."""
    height, width = frame.shape[:2]
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge") if height % 2 or width % 2 else frame
