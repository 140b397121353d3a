"""Tiny environments for everybody's tests: what they return can be worked out by hand, and they break when they are told to.

Each is also registered (`ToyBandit-v0`, `ToyCounting-v0`, ...), so that a config or a command line can name it;
a fresh process imports them with the id `toy_envs:ToyBandit-v0`.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import random
import signal
import subprocess
import time
from asyncio import CancelledError
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

Step = tuple[Any, Any, Any, Any, dict[str, Any]]


class Bandit(gym.Env[np.ndarray, Any]):
    """One step per episode. Discrete: reward 1 for the action `best`, else 0. Box: minus the squared distance from `best`."""

    def __init__(self, *, continuous: bool = False, num_actions: int = 3, best: float | None = None) -> None:
        self.continuous = continuous
        self.observation_space = Box(0.0, 1.0, (1,), dtype=np.float32)
        self.action_space = Box(-1.0, 1.0, (1,), dtype=np.float32) if continuous else Discrete(num_actions)
        self.best = best if best is not None else (0.5 if continuous else num_actions - 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.ones(1, dtype=np.float32), {}

    def step(self, action: Any) -> Step:
        reward = -((float(action[0]) - self.best) ** 2) if self.continuous else float(action == self.best)
        return np.ones(1, dtype=np.float32), reward, True, False, {}


class Corridor(gym.Env[np.ndarray, Any]):
    """Walk from the middle to the end that the second number names, by steps of up to 0.25: 1 there, where it terminates.

    Every move costs 0.05 a², so who sees one step ahead stays where it is: only a value that comes back from the end makes
    walking worth it. The end is drawn, so that a network's chance slope is wrong half of the time. Cut after 20 steps.
    """

    def __init__(self) -> None:
        self.observation_space = Box(-1.0, 1.0, (2,), dtype=np.float32)
        self.action_space = Box(-1.0, 1.0, (1,), dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.steps, self.end = 0.0, 0, float(self.np_random.choice([-1.0, 1.0]))
        return self._obs(), {}

    def step(self, action: Any) -> Step:
        move = float(np.clip(action[0], -1.0, 1.0))
        self.place, self.steps = float(np.clip(self.place + 0.25 * move, -1.0, 1.0)), self.steps + 1
        arrived = self.place == self.end
        return self._obs(), float(arrived) - 0.05 * move**2, arrived, self.steps >= 20 and not arrived, {}

    def _obs(self) -> np.ndarray:
        return np.array([self.place, self.end], dtype=np.float32)


class Choosing(gym.Env[np.ndarray, Any]):
    """Draws at every step which choices are allowed and shows it; earns the share of parts in which the highest allowed one was
    made. With masks, `says` tells by what ("info" or "method"), a forbidden choice raises, and at the end nothing is allowed.

    `kind` is "discrete" (4), "multi_discrete" (2, 4 and 3) or "multi_binary" (3, a part of two for each). `fault`, from step 2
    on, is one of: empty, short, missing, numbers, raise.
    """

    SPACES: ClassVar = {
        "discrete": (Discrete(4), (4,)),
        "multi_discrete": (MultiDiscrete([2, 4, 3], start=[0, 5, 0]), (2, 4, 3)),
        "multi_binary": (MultiBinary(3), (2, 2, 2)),
    }

    def __init__(
        self, *, kind: str = "discrete", masked: bool = True, says: str = "info", length: int = 5, fault: str | None = None
    ) -> None:
        self.action_space, self.parts = self.SPACES[kind]
        self.observation_space = Box(0.0, 1.0, (sum(self.parts),), dtype=np.float32)
        self.masked, self.says, self.length, self.fault = masked, says, length, fault
        if masked and says == "method":
            self.action_masks = self._told

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._drawn()

    def step(self, action: Any) -> Step:
        made = np.reshape(action, -1) - getattr(self.action_space, "start", 0)
        if self.masked and not all(flags[choice] for flags, choice in zip(self.allowed, made, strict=True)):
            raise ValueError(f"the action {action} is forbidden: {self.allowed}")
        highest = [np.flatnonzero(flags)[-1] for flags in self.allowed]
        self.steps += 1
        obs, info = self._drawn()
        return obs, float(np.mean(made == highest)), self.steps >= self.length, False, info

    def _drawn(self) -> tuple[np.ndarray, dict[str, Any]]:
        self.allowed = [self.np_random.random(choices) < 0.5 for choices in self.parts]
        for flags in self.allowed:
            flags[self.np_random.integers(len(flags))] |= not flags.any()
        shown = np.concatenate(self.allowed).astype(np.float32)
        return shown, {"action_mask": self._told()} if self.masked and self.says == "info" else {}

    def _told(self) -> Any:
        flags = np.concatenate(self.allowed)
        if self.steps >= self.length:
            return np.zeros_like(flags)
        if self.fault is not None and self.steps >= 2:
            if self.fault == "raise":
                raise RuntimeError("told to give no mask")
            return {"empty": flags & False, "short": flags[:-1], "missing": None, "numbers": flags * 0.5}[self.fault]
        return flags


class Counting(gym.Env[np.ndarray, Any]):
    """Observes [steps in this episode, last action], earns its step number, and ends after `length` steps.

    `ends` is "terminated" or "truncated". `start` is where a Discrete action space begins to count.
    """

    def __init__(self, *, length: int = 5, ends: str = "terminated", continuous: bool = False, start: int = 0) -> None:
        self.length, self.ends, self.continuous = length, ends, continuous
        self.observation_space = Box(-np.inf, np.inf, (2,), dtype=np.float32)
        self.action_space = Box(-2.0, 2.0, (1,), dtype=np.float32) if continuous else Discrete(3, start=start)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, dtype=np.float32), {}

    def step(self, action: Any) -> Step:
        self.steps += 1
        value = float(action[0]) if self.continuous else float(action)
        over = self.steps >= self.length
        obs = np.array([self.steps, value], dtype=np.float32)
        return obs, float(self.steps), over and self.ends == "terminated", over and self.ends == "truncated", {}


class Drift(Counting):
    """Counting, but the second number is a random walk drawn from the episode's seed, pushed by the action."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.np_random.normal()
        return self._obs(), {}

    def step(self, action: Any) -> Step:
        _, _, terminated, truncated, info = super().step(action)
        push = float(action[0]) if self.continuous else float(action)
        self.place += self.np_random.normal() + 0.1 * push
        return self._obs(), -abs(self.place), terminated, truncated, info

    def _obs(self) -> np.ndarray:
        return np.array([self.steps, self.place], dtype=np.float32)


class Unseeded(Counting):
    """Counting, but the second number is drawn from nowhere: no seed brings it back."""

    def step(self, action: Any) -> Step:
        obs, *rest = super().step(action)
        obs[1] = int.from_bytes(os.urandom(2), "little")
        return (obs, *rest)  # type: ignore[return-value]


class Keeping(Counting):
    """Counting, but the second number is drawn from a generator that no seed reaches and that runs on from episode to episode:
    only its state, which it gives away, brings it back. `fault`: dict, raise, forgets, refuses."""

    def __init__(self, *, fault: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fault, self.rng, self.place = fault, np.random.default_rng(0), 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.rng.normal()
        return self._obs(), {}

    def step(self, action: Any) -> Step:
        _, _, terminated, truncated, info = super().step(action)
        self.place += self.rng.normal() + 0.1 * (float(action[0]) if self.continuous else float(action))
        return self._obs(), -abs(self.place), terminated, truncated, info

    def get_state(self) -> Any:
        state = {"steps": self.steps, "place": self.place, "rng": self.rng.bit_generator.state}
        if self.fault == "raise":
            raise RuntimeError("told to give nothing away")
        return state if self.fault == "dict" else json.dumps(state).encode()

    def set_state(self, state: bytes) -> None:
        if self.fault == "refuses":
            raise RuntimeError("told to take nothing")
        if self.fault != "forgets":
            given = json.loads(state)
            self.steps, self.place, self.rng.bit_generator.state = given["steps"], given["place"], given["rng"]

    def _obs(self) -> np.ndarray:
        return np.array([self.steps, self.place], dtype=np.float32)


class Impure(Drift):
    """Drift that is no function of its seed and its actions, by `fault`.

    np_noise, py_noise: noise from a global stream, in the observation or the reward; py_level: how hard it is is drawn from
    there with each episode; wear: it becomes harder with every episode; late_memory: so it does, but from step 11 on only.
    """

    def __init__(self, *, fault: str = "wear", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fault, self.resets, self.level = fault, 0, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.resets += 1
        self.level = random.random() if self.fault == "py_level" else 0.0
        return super().reset(seed=seed)

    def step(self, action: Any) -> Step:
        obs, reward, *rest = super().step(action)
        obs[1] += self.level
        if self.fault == "np_noise":
            obs[1] += np.random.normal()  # noqa: NPY002 (it is the fault)
        if self.fault == "py_noise":
            reward += random.random()
        if self.fault == "wear" or (self.fault == "late_memory" and self.steps > 10):
            obs[1] += self.resets
            reward -= self.resets
        return (obs, reward, *rest)  # type: ignore[return-value]


class Mortal(Counting):
    """Takes its process with it at the first step, as long as there are fewer than `deaths` files in `folder`."""

    def __init__(self, *, folder: str, deaths: int) -> None:
        super().__init__(continuous=True)
        self.folder, self.deaths = Path(folder), deaths

    def step(self, action: Any) -> Step:
        for grave in range(len(list(self.folder.iterdir())), self.deaths):
            try:
                (self.folder / str(grave)).touch(exist_ok=False)
            except FileExistsError:  # another worker's, at the same moment
                continue
            os._exit(1)
        return super().step(action)


class Tiny(Counting):
    """Earns a number too small for full precision."""

    def step(self, action: Any) -> Step:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, np.float64(1e-310) * np.float64(self.steps), terminated, truncated, info


class Broken(Counting):
    """Counting that does something wrong at step `at` (0: in reset) of episode `episode` (None: of every episode).

    `fault` is one of: raise, nan_obs, inf_obs, nan_reward, shape, shape_broadcast, complex, text, reward_array, reward_none,
    flag_int, flag_none, four_values, speechless_(obs | reward | flag | all), graph_(obs | reward), hang, exit, kill; or one of
    `EXCEPTIONS`.
    """

    def __init__(self, *, fault: str = "raise", at: int = 3, episode: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fault, self.at, self.only_episode = fault, at, episode
        self.episode = -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.episode += 1
        obs, info = super().reset(seed=seed)
        if self._due():
            obs = self._spoil((obs, 0.0, False, False, {}))[0]
        return obs, info

    def step(self, action: Any) -> Step:
        result = super().step(action)
        return self._spoil(result) if self._due() else result

    def _due(self) -> bool:
        return self.steps == self.at and self.only_episode in (None, self.episode)

    def _spoil(self, result: Step) -> Any:
        obs, reward, terminated, truncated, info = result
        changed = {
            "nan_obs": (np.array([obs[0], np.nan], dtype=np.float32), reward, terminated, truncated, info),
            "inf_obs": (np.array([-np.inf, obs[1]], dtype=np.float32), reward, terminated, truncated, info),
            "nan_reward": (obs, float("nan"), terminated, truncated, info),
            "shape": (np.zeros(3, dtype=np.float32), reward, terminated, truncated, info),
            "shape_broadcast": (np.zeros(1, dtype=np.float32), reward, terminated, truncated, info),
            "complex": (obs.astype(np.complex64), reward, terminated, truncated, info),
            "text": ("no array", reward, terminated, truncated, info),
            "reward_array": (obs, np.array([1.0]), terminated, truncated, info),
            "reward_none": (obs, None, terminated, truncated, info),
            "flag_int": (obs, reward, 0, truncated, info),
            "flag_none": (obs, reward, terminated, None, info),
            "four_values": (obs, reward, terminated, info),
            "speechless_obs": (Speechless(), reward, terminated, truncated, info),
            "speechless_reward": (obs, Speechless(), terminated, truncated, info),
            "speechless_flag": (obs, reward, Speechless(), truncated, info),
            "speechless_all": Speechless(),
        }
        if self.fault.startswith("graph"):
            import torch

            obs = torch.zeros(2, requires_grad=True)
            return (obs, reward, *result[2:]) if self.fault == "graph_obs" else (result[0], obs.sum(), *result[2:])
        if self.fault in changed:
            return changed[self.fault]
        if self.fault == "hang":
            time.sleep(600)
        if self.fault == "exit":
            os._exit(7)
        if self.fault == "kill":
            os.kill(os.getpid(), 9)
        told = EXCEPTIONS[self.fault]() if self.fault in EXCEPTIONS else ValueError(f"told to break at step {self.at}")
        raise told


class Speechless:
    """Neither an array nor able to say what it is."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise OSError("the device is gone")

    def __repr__(self) -> str:
        raise OSError("no words either")


class Outlaw(BaseException):
    """No Exception, and nobody's that we know."""


class Mute(Exception):  # noqa: N818 (it says nothing, not even that)
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "sys_exit": lambda: SystemExit(0),  # as pygame environments do when their window is closed
    "sys_exit_text": lambda: SystemExit("the window was closed"),
    "generator_exit": GeneratorExit,
    "cancelled": CancelledError,
    "outlaw": lambda: Outlaw("mine"),
    "mute": Mute,
    "stop_iteration": StopIteration,
}


class Helped(Broken):
    """Broken with a helper: a process that it starts at its first reset, writes down in `folder`, and ends when it is closed.

    `how` is one of: fork, popen, popen_with_files (it inherits what it can), multiprocessing, pool.
    """

    def __init__(self, *, how: str, folder: str, tidy: bool = True, fault: str = "none", at: int = -1, **kwargs: Any) -> None:
        super().__init__(fault=fault, at=at, **kwargs)
        self.how, self.folder, self.tidy = how, Path(folder), tidy
        self.helper: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self.helper is None:
            self.helper, pids = self._begin()
            for pid in pids:
                (self.folder / str(pid)).touch()
        return super().reset(seed=seed, options=options)

    def _begin(self) -> tuple[Any, list[int]]:
        if self.how == "fork":
            pid = os.fork()
            if pid == 0:
                time.sleep(600)
                os._exit(0)
            return pid, [pid]
        if self.how.startswith("popen"):
            process = subprocess.Popen(["sleep", "600"], close_fds=self.how == "popen")
            return process, [process.pid]
        context = multiprocessing.get_context("fork")
        if self.how == "pool":
            before = set(multiprocessing.active_children())
            pool = context.Pool(2)
            assert pool.map(abs, [-1, -2, 3]) == [1, 2, 3]
            return pool, [child.pid for child in multiprocessing.active_children() if child not in before]
        child = context.Process(target=time.sleep, args=(600,))
        child.start()
        return child, [child.pid]

    def close(self) -> None:
        if self.helper is None or not self.tidy:
            return
        if self.how == "fork":
            os.kill(self.helper, signal.SIGTERM)
            os.waitpid(self.helper, 0)
        elif self.how == "pool":
            self.helper.terminate()
            self.helper.join()
        else:
            self.helper.terminate()
            self.helper.wait() if self.how.startswith("popen") else self.helper.join()


class Stuck(Broken):
    """At its step it sleeps in C without letting go of the interpreter."""

    def _spoil(self, result: Step) -> Any:
        ctypes.PyDLL(None).sleep(600)
        return result


class Catch(gym.Env[np.ndarray, Any]):
    """A ball falls through an image of 10x10x4, a row a step, drifting by up to one column; a paddle below catches it.

    Plane 0 is the paddle, plane 1 the ball, plane 2 where it was (so that its drift can be seen), plane 3 the row under which
    it is too late. 1 for a catch, -1 for a miss, after nine steps; standing still catches one ball in ten, a policy that sees
    all of them. `dtype` is "uint8" (0 and 255), "bool" or "float32" (0 and 1); `first` puts the channels first. A
    `continuous` action is rounded.
    """

    def __init__(self, *, size: int = 10, dtype: str = "uint8", first: bool = False, continuous: bool = False) -> None:
        self.size, self.dtype, self.first = size, dtype, first
        self.on = 255 if dtype == "uint8" else 1
        shape = (4, size, size) if first else (size, size, 4)
        self.observation_space = Box(0, self.on, shape, dtype=dtype)  # type: ignore[arg-type]
        self.continuous = continuous
        self.action_space = Box(-1.0, 1.0, (1,), dtype=np.float32) if continuous else Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.row, self.paddle = 0, self.size // 2
        self.ball, self.drift = int(self.np_random.integers(self.size)), int(self.np_random.integers(-1, 2))
        self.before = self.ball
        return self._obs(), {}

    def step(self, action: Any) -> Step:
        move = round(float(action[0])) if self.continuous else int(action) - 1
        self.paddle = int(np.clip(self.paddle + move, 0, self.size - 1))
        self.before, self.row = self.ball, self.row + 1
        self.ball += self.drift
        if not 0 <= self.ball < self.size:
            self.ball, self.drift = int(np.clip(self.ball, 0, self.size - 1)), -self.drift
        over = self.row == self.size - 1
        return self._obs(), (1.0 if self.paddle == self.ball else -1.0) if over else 0.0, over, False, {}

    def _obs(self) -> np.ndarray:
        image = np.zeros((self.size, self.size, 4), dtype=self.dtype)
        image[self.size - 1, self.paddle, 0] = self.on
        image[self.row, self.ball, 1] = self.on
        image[max(0, self.row - 1), self.before, 2] = self.on
        image[self.size - 1, :, 3] = self.on
        return np.ascontiguousarray(image.transpose(2, 0, 1)) if self.first else image


class Mixed(gym.Env[Any, Any]):
    """Something of every kind, all of it random but for the clue: 1 for the action that `clue` numbers, episodes of 6 steps.

    The clue stands in a Discrete of 3; with `images` there is a camera beside it, in bytes. A `continuous` action is rounded.
    """

    def __init__(self, *, images: bool = True, as_tuple: bool = False, continuous: bool = False) -> None:
        parts: dict[str, gym.Space[Any]] = {
            "clue": Discrete(3, start=5),
            "position": Box(-np.inf, np.inf, (2,), dtype=np.float32),
            "inner": gym.spaces.Dict({"buttons": gym.spaces.MultiBinary(2), "knobs": gym.spaces.MultiDiscrete([2, 3])}),
        }
        if images:
            parts["camera"] = Box(0, 255, (9, 8, 3), dtype=np.uint8)
        self.as_tuple = as_tuple
        self.observation_space = gym.spaces.Tuple(list(parts.values())) if as_tuple else gym.spaces.Dict(parts)
        self.action_space: gym.Space[Any] = Box(-1.0, 1.0, (1,), dtype=np.float32) if continuous else Discrete(3)
        self.parts, self.continuous = parts, continuous

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        for space in self.parts.values():
            space.seed(int(self.np_random.integers(2**31)))
        self.steps = 0
        return self._obs(), {}

    def step(self, action: Any) -> Step:
        chosen = round(float(action[0])) + 1 if self.continuous else int(action)
        reward, self.steps = float(chosen == int(self.clue) - 5), self.steps + 1
        return self._obs(), reward, self.steps == 6, False, {}

    def _obs(self) -> Any:
        drawn = {name: space.sample() for name, space in self.parts.items()}
        self.clue = drawn["clue"]
        return tuple(drawn.values()) if self.as_tuple else drawn


def make_counting() -> Counting:
    """A factory that a worker process can import."""
    return Counting()


def make_drift() -> Drift:
    """A factory that a worker process can import."""
    return Drift(length=9, continuous=True)


for _class in (Bandit, Counting, Drift, Unseeded, Impure, Broken, Helped, Stuck):
    for _suffix, _continuous in (("", False), ("Continuous", True)):
        if (_id := f"Toy{_class.__name__}{_suffix}-v0") not in gym.registry:
            gym.register(_id, entry_point=f"toy_envs:{_class.__name__}", kwargs={"continuous": _continuous})

for _id, _class, _kwargs in (
    ("ToyCatch-v0", Catch, {}),
    ("ToyCatchContinuous-v0", Catch, {"continuous": True}),
    ("ToyMixed-v0", Mixed, {}),
    ("ToyNumbers-v0", Mixed, {"images": False}),
    ("ToyNumbersContinuous-v0", Mixed, {"images": False, "continuous": True}),
):
    if _id not in gym.registry:
        gym.register(_id, entry_point=f"toy_envs:{_class.__name__}", kwargs=_kwargs)
for _kind in Choosing.SPACES:
    for _masked in ("", "Masked"):
        if (_id := f"Toy{_masked}{_kind.title().replace('_', '')}-v0") not in gym.registry:
            gym.register(_id, entry_point="toy_envs:Choosing", kwargs={"kind": _kind, "masked": bool(_masked)})

if "ToyKeeping-v0" not in gym.registry:  # the limit is a layer around it, which has no state to give
    gym.register("ToyKeeping-v0", entry_point="toy_envs:Keeping", kwargs={"length": 100}, max_episode_steps=9)
