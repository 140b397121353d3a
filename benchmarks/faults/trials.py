"""The faults that are put to every program, each written once: what differs is how the program saves and loads.

Run by compare.py in the interpreter of the program in question: `PROGRAM.py FAULT FOLDER`; the answer is a line of JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import torch

KILLS = 20
NAN_STEP = 150


class Program(Protocol):
    """What a program under test can do."""

    name: str
    version: str

    def continued(self, folder: Path) -> dict[str, dict[str, torch.Tensor]]:
        """Parameters after 2 N steps, in one go and by N + save + load + N."""

    def saver(self, folder: Path, *, width: int = 64) -> tuple[Callable[[Path], None], Callable[[Path], Any]]:
        """How a model with networks of this width is saved and loaded."""

    def train_on(self, env: gym.Env, folder: Path) -> dict[str, torch.Tensor]:
        """Train TD3 past the fault; gives the parameters of what the user is left with."""

    def saved_parameters(self, folder: Path) -> dict[str, torch.Tensor]:
        """Those of the last checkpoint, when `train_on` has ended by an error."""

    def hostile(self, path: Path, payload: object) -> Callable[[], Any]:
        """A file of the program's own kind with something to unpickle in it, and how it is loaded."""


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


class OneNaN(gym.Wrapper):
    """One reward that is not a number."""

    steps = 0

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        return obs, float("nan") if self.steps == NAN_STEP else reward, terminated, truncated, info


def save_load_continue(program: Program, folder: Path) -> dict[str, Any]:
    results = {}
    for algorithm, (whole, parts) in program.continued(folder).items():
        different = sum(int((whole[name] != parts[name]).sum()) for name in whole)
        results[algorithm] = {"parameters": sum(tensor.numel() for tensor in whole.values()), "different": different}
    return results


def full_disk(program: Program, disk: Path) -> dict[str, Any]:
    """Save what fits, then under the same name a larger model that does not; load."""
    save, load = program.saver(disk.parent / "small")
    save_larger, _ = program.saver(disk.parent / "large", width=512)
    path = disk / "model.zip"
    save(path)
    load(path)
    told = _error_of(lambda: save_larger(path))
    lost = _error_of(lambda: load(path))
    return {"told": told, "previous checkpoint": "kept" if lost is None else f"lost: {lost}"}


def kill_during_save(program: Program, folder: Path) -> dict[str, Any]:
    """A process saves the same model under the same name again and again, and is killed in the middle."""
    save, load = program.saver(folder)
    chance, unreadable = random.Random(0), 0
    path = folder / "model.zip"
    for _ in range(KILLS):
        save(path)
        pid = os.fork()
        if pid == 0:
            while True:
                save(path)
        time.sleep(chance.uniform(0.02, 0.2))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        unreadable += _error_of(lambda: load(path)) is not None
    return {"kills": KILLS, "files lost": unreadable}


def nan_reward(program: Program, folder: Path) -> dict[str, Any]:
    env = OneNaN(gym.make("Pendulum-v1"))
    left: dict[str, torch.Tensor] = {}
    told = _error_of(lambda: left.update(program.train_on(env, folder)))
    if not left:
        left = program.saved_parameters(folder)
    broken = sum(not bool(torch.isfinite(tensor).all()) for tensor in left.values())
    return {"told": told, "tensors left": len(left), "of them not finite": broken}


def hostile_file(program: Program, folder: Path) -> dict[str, Any]:
    marker = folder / "executed"
    load = program.hostile(folder / "hostile.zip", Payload(marker))
    told = _error_of(load)
    return {"payload ran": marker.exists(), "told": told}


def _error_of(action: Callable[[], Any]) -> str | None:
    """The kind of what an action raises, with its first words."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 (whatever it is, that is the result)
        words = str(error).splitlines()[0] if str(error) else ""
        return f"{type(error).__name__}: {words}"
    return None


FAULTS = {
    function.__name__: function for function in (save_load_continue, full_disk, kill_during_save, nan_reward, hostile_file)
}


def answer(program: Program) -> None:
    """The main function of a program's script."""
    torch.set_num_threads(1)
    fault, folder = sys.argv[1], Path(sys.argv[2])
    result = FAULTS[fault](program, folder)
    line = json.dumps({"program": program.name, "version": program.version, "result": result})
    print(line.replace(str(folder), "FOLDER"))  # where it happened is nobody's business


def pickled(payload: object) -> bytes:
    return pickle.dumps(payload)
