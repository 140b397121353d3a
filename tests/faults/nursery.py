"""Training processes at the price of a fork: a server that has torch imported, and no thread, forks one for every command line.

Each is a process of its own that runs `rl_training.cli.main` and can be killed as any other; what is saved is the two
seconds of imports before it. Run as a script, this file is the server.
"""

from __future__ import annotations

import gc
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parents[2] / "src"


class Nursery:
    """The client's side. One child at a time, which finds modules in `folders` too."""

    def __init__(self, *folders: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCES, *folders)))}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, __file__]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The server leaves when nobody talks to it any more."""
        with self._server:
            pass

    def start(self, arguments: Sequence[object], *, log: Path, **conditions: Any) -> int:
        """Begin `rl-training ARGUMENTS`, with stdout and stderr in `log`; gives the process id.

        Conditions: `aim` for `aiming.aim_into_write`, `file_limit` in bytes for each file that it writes, `group` to lead a
        process group, as a terminal's command does.
        """
        assert self._server.stdin is not None
        request = {"arguments": list(map(str, arguments)), "log": str(log), **conditions}
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return self._answer()

    def run(self, *arguments: object, log: Path, after: float | None = None, signum: int = 0, **conditions: Any) -> int:
        """Its exit code, negative for the signal it died of; `signum` is sent once `after` seconds have passed, to its group
        where it has one."""
        pid = self.start(arguments, log=log, **conditions)
        assert self._server.stdout is not None
        if after is not None and not select.select([self._server.stdout], [], [], after)[0]:
            with suppress(ProcessLookupError):  # it ended this very moment
                (os.killpg if conditions.get("group") else os.kill)(pid, signum)
        return self._answer()

    def wait(self) -> int:
        """The exit code of what `start` began."""
        return self._answer()

    def _answer(self) -> int:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        if not line:
            raise RuntimeError("the nursery is gone")
        return int(line)


def serve() -> None:
    """Answer each request with a process id, and when that process has ended with its exit code."""
    _import_everything()
    assert threading.active_count() == 1, "a fork would leave locks behind"
    gc.freeze()  # children share these pages as long as they do not count references in them
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _live(request)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _import_everything() -> None:
    import torch

    torch.set_num_threads(1)
    from importlib import import_module

    from rl_training.experiment.registry import list_algorithm_specs

    list_algorithm_specs()
    import rl_training.cli.training
    import rl_training.runtime.workflows  # noqa: F401

    for name in (
        "gymnasium.envs.classic_control",
        "gymnasium.envs.mujoco.mujoco_env",
        "tensorboard.summary.writer.record_writer",
    ):
        with suppress(ImportError):
            import_module(name)


def _live(request: dict[str, Any]) -> None:
    """What the child does: the command line, and nothing after it."""
    code = 70
    try:
        out = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((null, 0), (out, 1), (out, 2)):
            os.dup2(old, new)
        from rl_training.cli import main

        sys.argv = ["rl-training", *request["arguments"]]
        if request.get("group"):
            os.setpgid(0, 0)
        _set_conditions(aim=request.get("aim"), file_limit=request.get("file_limit"))
        code = main(request["arguments"])
    except KeyboardInterrupt:  # before or after the command line, which knows what to do with it
        code = 130
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _set_conditions(*, aim: dict[str, Any] | None, file_limit: int | None) -> None:
    if aim is not None:
        from aiming import aim_into_write

        aim_into_write(**aim)
    if file_limit is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))


if __name__ == "__main__":
    serve()
