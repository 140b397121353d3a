"""Environments that are drawn as they are stepped, on machines without a screen too."""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.guards import as_env_error, close_env
from rl_training.envs.source import Env, EnvSource
from rl_training.errors import EnvError, MissingExtraError, words_of

GL_ADVICE = (
    "Drawing MuJoCo without a screen needs an OpenGL library. On Debian and Ubuntu: "
    "apt install libegl1 libegl-mesa0 libgl1-mesa-dri, then set MUJOCO_GL=egl; or apt install libosmesa6 and MUJOCO_GL=osmesa"
)


def headless_gl() -> str | None:
    """The way to draw MuJoCo without a screen that this machine has: egl, osmesa or none."""
    libraries = {"egl": "EGL", "osmesa": "OSMesa"}
    return next((name for name, library in libraries.items() if ctypes.util.find_library(library)), None)


@contextmanager
def headless() -> Iterator[None]:
    """Have pygame and MuJoCo draw into memory, unless the user has said how they should draw; put back afterwards."""
    wanted = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
    if (gl := headless_gl()) is not None:
        wanted["MUJOCO_GL"] = gl
    set_here = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(set_here)
    try:
        yield
    finally:
        for name in set_here:
            os.environ.pop(name, None)


class Filmed(gym.Wrapper[Any, Any, Any, Any]):
    """Hands a picture to `on_frame` after every reset and every step: what the policy saw, and where its action led.

    To close it is to `release` the environment.
    """

    def __init__(self, env: Env, on_frame: Callable[[np.ndarray], None], release: Callable[[Env], None] = close_env) -> None:
        super().__init__(env)
        self._on_frame, self._release = on_frame, release

    def close(self) -> None:
        self._release(self.env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=options)
        self._shoot()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._shoot()
        return result

    def _shoot(self) -> None:
        name = self.env.unwrapped.spec.id if self.env.unwrapped.spec is not None else type(self.env.unwrapped).__name__
        try:
            frame = np.asarray(self.env.render())
        except gym.error.DependencyNotInstalled as error:
            raise MissingExtraError("pygame", extra="video", purpose=f"drawing {name}") from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            words = words_of(error)
            advice = f" {GL_ADVICE}" if "mujoco" in f"{type(self.env.unwrapped).__module__} {words}".lower() else ""
            raise EnvError(f"{name} could not be drawn: {words}.{advice}") from error
        if frame.ndim != 3 or frame.shape[-1] != 3:
            raise EnvError(f"{name} drew an array of shape {frame.shape}; a picture has (height, width, 3)")
        self._on_frame(frame.astype(np.uint8, copy=False))


def rehearse(source: EnvSource) -> float | None:
    """Draw one picture, so that whatever stands in the way is said at once; gives the environment's pictures a second."""
    env = source.make()
    try:
        if env.render_mode != "rgb_array":
            known = ", ".join(env.metadata.get("render_modes", ())) or "none"
            raise EnvError(
                f"{source.env_id} cannot be filmed: it was made with render_mode={env.render_mode!r} and needs 'rgb_array' "
                f"(it knows: {known}). One of your own must be made so: gymnasium.make(..., render_mode='rgb_array')"
            )
        with as_env_error(f"{source.env_id} could not be drawn"):
            Filmed(env, lambda _: None).reset(seed=0)
        fps = env.metadata.get("render_fps")
        return float(fps) if fps else None
    finally:
        source.release(env)


def film_source(source: EnvSource, on_frame: Callable[[np.ndarray], None]) -> EnvSource:
    """The same environments, filmed, and given back to `source` where they are closed."""
    return EnvSource(env=lambda: Filmed(source.make(), on_frame, source.release))
