"""Jobs of a benchmark on a Ray cluster whose machines share a file system with this one.

A task starts the very process that would run here, so that threads, logs and endings are the same.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_training.cluster.ray_cluster import connect

log = logging.getLogger(__name__)

STOPPED = 143  # as of a process that SIGTERM ended


class RayHandle:
    """A task, waiting for its cores or running."""

    def __init__(self, ray: Any, reference: Any, stop_file: Path) -> None:
        self._ray, self._reference, self._stop_file = ray, reference, stop_file

    def poll(self) -> int | None:
        ready, _ = self._ray.wait([self._reference], timeout=0)
        if not ready:
            return None
        try:
            return int(self._ray.get(self._reference))
        except self._ray.exceptions.RayError as error:  # its machine was lost, for example
            log.warning("%s", error)
            return 1

    def stop(self) -> None:
        # not by ray.cancel: that does nothing in a cluster which was started in the background of a script
        self._stop_file.touch()

    def kill(self) -> None:
        with suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.cancel(self._reference, force=True)


class RayLauncher:
    """Hands jobs to Ray, which decides where and when they run."""

    def __init__(self, address: str | None = None) -> None:
        self._connection = connect(address)
        ray = self._ray = self._connection.ray
        # a job that failed would fail again, and one that was killed goes on when the benchmark is started again
        self._task = ray.remote(max_retries=0)(run_process)

    def start(self, job_file: Path, log_file: Path, *, threads: int) -> RayHandle:
        stop_file = job_file.with_suffix(".stop")
        stop_file.unlink(missing_ok=True)
        reference = self._task.options(num_cpus=threads).remote(str(job_file), str(log_file), str(stop_file), threads)
        return RayHandle(self._ray, reference, stop_file)

    def close(self) -> None:
        """End the cluster if it was started for this."""
        self._connection.close()


def run_process(job_file: str, log_file: str, stop_file: str, threads: int) -> int:
    """The body of a task: the job's process, which is asked to save and end when there is a stop file."""
    from rl_training.bench.bench import POLL_SECONDS, LocalHandle, start_process

    if Path(stop_file).exists():
        return STOPPED
    with start_process(Path(job_file), Path(log_file), threads=threads) as process:
        handle = LocalHandle(process)
        while (code := handle.poll()) is None:
            if Path(stop_file).exists():
                handle.stop()
            time.sleep(POLL_SECONDS)
        return code
