"""Reaching a Ray cluster: one that runs already, by its address, or one that is started on this machine and ended again."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError, MissingExtraError, RLTrainingError

CONNECT_SECONDS = 5.0  # for a machine to take a connection at all
HEALTH_SECONDS = 10.0  # for what listens there to say that it is Ray; together well below the 20 s that a user is made to wait
STORE_BYTES = 128 << 20  # of a local cluster's object store, which otherwise claims a third of the memory
ADDRESS = re.compile(r"(?:ray://)?(?P<host>\[[^\]]+\]|[^:/\s]+):(?P<port>\d{1,5})")


class RayConnection:
    """Ray, connected. `close` leaves as it found: it ends a cluster that was started here, and nothing else."""

    def __init__(self, ray: Any, *, ours: bool) -> None:
        self.ray, self._ours = ray, ours

    def close(self) -> None:
        if self._ours:
            self._ours = False
            self.ray.shutdown()


def connect(address: str | None, *, num_cpus: int | None = None) -> RayConnection:
    """To the cluster at `address` (or RAY_ADDRESS), else to a new one on this machine with `num_cpus` cores to give out.

    A connection that the program has made already is used as it is.
    """
    ray = _import_ray()
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", here) and not str(address).startswith("ray://"):
            raise ConfigError(
                f"ray_address: given {address!r}, but this program is connected to the Ray cluster {here!r} already"
            )
        return RayConnection(ray, ours=False)
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    settings: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        settings |= {"num_cpus": num_cpus, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    elif address != "auto":
        require_answer(address)
    try:
        with _found_by_children():
            ray.init(**settings)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise RLTrainingError(_refusal(address, f"ray.init, which said: {_first_line(error)}")) from error
    return RayConnection(ray, ours=True)


@contextmanager
def _found_by_children() -> Iterator[None]:
    """The processes of a cluster that is started here find this package whether it is installed or not."""
    before, source = os.environ.get("PYTHONPATH"), str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def require_answer(address: str) -> None:
    """RLTrainingError, within 15 s, unless a Ray cluster answers there: `ray.init` itself would try for minutes."""
    match = ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 2**16:
        raise ConfigError(f"ray_address: given {address!r}; possible: 'auto', HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((match["host"].strip("[]"), int(match["port"])), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        tried = f"to connect to {match['host']}, port {match['port']}, for up to {CONNECT_SECONDS:g} s: {_first_line(error)}"
        raise RLTrainingError(_refusal(address, tried)) from error
    if not address.startswith("ray://"):
        _require_health(address)


def _require_health(address: str) -> None:
    """Ask Ray's own probe in a process of its own, for something else may listen there and never say a word."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        done = subprocess.run(command, capture_output=True, timeout=HEALTH_SECONDS, check=False)  # noqa: S603 (our own words)
    except subprocess.TimeoutExpired as error:
        tried = f"`ray health-check` for {HEALTH_SECONDS:g} s: something takes connections there, but does not answer"
        raise RLTrainingError(_refusal(address, tried)) from error
    if done.returncode != 0:
        version = _import_ray().__version__
        tried = f"`ray health-check`, which ended with {done.returncode}: what listens there is no Ray {version}"
        raise RLTrainingError(_refusal(address, tried))


def _import_ray() -> Any:
    # a training run has nothing to tell anybody about how it uses Ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", extra="ray", purpose="running on Ray") from error
    return ray


def _refusal(address: str, tried: str) -> str:
    if address == "local":
        return f"Ray could not be started on this machine: {tried}"
    advice = "start one with `ray start --head`, which prints its address, or give none: then one is started here for the run"
    return f"ray_address {address!r}: no Ray cluster answers. Tried: {tried}. To go on: {advice}"


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
