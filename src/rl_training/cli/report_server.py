"""The report on localhost, made anew when a run has written something."""

from __future__ import annotations

import hashlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

from rl_training.errors import ConfigError, words_of
from rl_training.experiment.files import reason
from rl_training.experiment.lock import is_locked
from rl_training.reports.recorded_runs import RecordedRun, find_runs, read_run
from rl_training.reports.report_page import live_json, report_html
from rl_training.reports.run_groups import GroupBy, RunGroup, group_runs

log = logging.getLogger(__name__)

HOST = "127.0.0.1"  # nobody else's browser is served
Stamp: TypeAlias = tuple[object, ...]
"""Equal as long as nothing in a run directory that the report reads has changed."""
_READ = ("metrics.jsonl", "config.yaml", "metadata.json", "result.json", "videos", ".")


class ReportSource:
    """The groups that lie below some paths now; a run is read again only when one of its files has changed."""

    def __init__(self, paths: Sequence[str], *, by: GroupBy) -> None:
        self._paths, self._by = list(paths), by
        self._runs: dict[Path, tuple[Stamp, RecordedRun]] = {}

    def look(self) -> list[tuple[Path, Stamp]]:
        """See what has changed; equal answers mean that nothing has."""
        try:
            directories = find_runs(self._paths)
        except ConfigError:  # the first run has not begun yet
            directories = []
        self._runs = {directory: self._fresh(directory) for directory in directories}
        return [(directory, stamp) for directory, (stamp, _) in self._runs.items()]

    def groups(self) -> list[RunGroup]:
        """As they were at the last look."""
        return group_runs([run for _, run in self._runs.values()], self._by)

    def _fresh(self, directory: Path) -> tuple[Stamp, RecordedRun]:
        # a run may end without another line: whether it is going belongs to the stamp
        stamp = (is_locked(directory), *(_changed(directory / name) for name in _READ))
        known = self._runs.get(directory)
        return known if known is not None and known[0] == stamp else (stamp, read_run(directory))


def _changed(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class ReportServer(ThreadingHTTPServer):
    """Answers `/` and `/live.json`, to this machine alone."""

    daemon_threads = True

    def __init__(self, source: ReportSource, *, port: int, title: str, seconds: float) -> None:
        self._source, self._title, self._seconds = source, title, seconds
        self._lock = threading.Lock()  # two tabs do not make the same page twice at once
        self._made: tuple[list[tuple[Path, Stamp]], bytes] | None = None
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"--port: {port} cannot be used: {reason(error)}; give another, or 0 for any that is free"
            ) from error

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (the base class's arguments)
        """A reader who leaves while being answered is nobody's news; anything else is one line."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, ConnectionError):
            log.warning("a question to the report was not answered: %s", words_of(error))

    def page(self) -> bytes:
        with self._lock:
            self._source.look()
            return report_html(self._source.groups(), title=self._title, live_seconds=self._seconds).encode()

    def news(self) -> bytes:
        """What `live.json` gives; made once for each state of the runs."""
        with self._lock:
            state = self._source.look()
            if self._made is None or self._made[0] != state:
                self._made = state, live_json(self._source.groups()).encode()
            return self._made[1]


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer

    def do_GET(self) -> None:
        pages: dict[str, tuple[str, Callable[[], bytes]]] = {
            "/": ("text/html; charset=utf-8", self.server.page),
            "/live.json": ("application/json", self.server.news),
        }
        # a page elsewhere whose name was made to mean this machine must not read the report
        if self.headers.get("Host", "").rpartition(":")[0] not in (HOST, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN, "ask for 127.0.0.1 or localhost")
        elif self.path not in pages:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            kind, make = pages[self.path]
            self._answer(kind, make())

    def _answer(self, kind: str, body: bytes) -> None:
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        unchanged = self.headers.get("If-None-Match") == tag
        self.send_response(HTTPStatus.NOT_MODIFIED if unchanged else HTTPStatus.OK)
        headers = {
            "ETag": tag,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        for name, value in ({} if unchanged else {"Content-Type": kind, "Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if not unchanged:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Requests are nobody's news."""


def serve(server: ReportServer, announce: Callable[[], None]) -> None:
    """Until Ctrl-C or SIGTERM, from the moment it is announced."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        announce()
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        server.server_close()
