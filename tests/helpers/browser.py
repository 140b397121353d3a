"""A real Chromium without a window, driven over its DevTools protocol: what a reader's browser does, and nothing mocked."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_BROWSER = "no browser: install Debian's chromium, or name one in RL_TRAINING_CHROMIUM"
PATIENCE = 20.0  # seconds; the machine may be busy


def find_browser() -> str | None:
    """The program, if there is one."""
    named = os.environ.get("RL_TRAINING_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One process for all pages of a test module."""

    def __init__(self, program: str, folder: Path) -> None:
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-port=0",
            "--no-first-run",
            "--disable-extensions",
        ]
        flags += [
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--hide-scrollbars",
            f"--user-data-dir={folder}",
        ]
        self._process = subprocess.Popen([program, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        address = _when_written(folder / "DevToolsActivePort", self._process)
        port, path = address.splitlines()[:2]
        self._open = ExitStack()
        connecting = connect(f"ws://127.0.0.1:{port}{path}", max_size=None, open_timeout=PATIENCE, proxy=None)
        self._socket = self._open.enter_context(connecting)
        self._number = 0
        self._events: dict[str, list[dict[str, Any]]] = {}

    def close(self) -> None:
        try:
            self._open.close()
        finally:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def open(self, address: str, *, width: int = 1280, height: int = 900, scheme: str = "light", touch: bool = False) -> Page:
        """A new tab, loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        page.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.go(address)
        return page

    def call(self, method: str, session: str | None = None, **arguments: Any) -> dict[str, Any]:
        """Ask and wait for the answer; what happens meanwhile is kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        self._socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        while (answer := self._receive()).get("id") != self._number:
            pass
        assert "error" not in answer, f"{method}: {answer['error']}"
        return dict(answer["result"])

    def await_event(self, session: str, method: str, *, after: int) -> None:
        """Until something happens that is not among the first `after` events of a tab."""
        deadline = time.monotonic() + PATIENCE
        while not any(event["method"] == method for event in self.events(session)[after:]):
            assert time.monotonic() < deadline, f"in vain: {method}"
            self._receive()

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(timeout=PATIENCE))
        if "id" not in message:
            self._events.setdefault(message.get("sessionId", ""), []).append(message)
        return message

    def events(self, session: str) -> list[dict[str, Any]]:
        return self._events.get(session, [])


class Page:
    """One tab: asked in JavaScript, moved in with a real pointer."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **arguments)

    def go(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def reload(self) -> None:
        """Wait to be told that the new page is in: a question that finds the old one leaving is an error."""
        before = len(self._browser.events(self._session))
        self.call("Page.reload")
        self._browser.await_event(self._session, "Page.frameNavigated", after=before)
        self.wait("document.readyState === 'complete'")

    def ask(self, expression: str) -> Any:
        """The value of an expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until a condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not self.ask(condition):
            assert time.monotonic() < deadline, f"in vain: {condition}"
            time.sleep(0.02)

    def box(self, selector: str) -> dict[str, float]:
        """Where an element is, scrolled into sight."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.ask(f"{found}.scrollIntoView({{block: 'center'}})")
        return dict(self.ask(f"(({{x, y, width, height}}) => ({{x, y, width, height}}))({found}.getBoundingClientRect())"))

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector: str) -> None:
        box = self.box(selector)
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def drag(self, selector: str, *, start: float, end: float) -> None:
        """From one share of an element's width to another."""
        box = self.box(selector)
        y = box["y"] + box["height"] / 2
        places = [box["x"] + box["width"] * share for share in (start, (start + end) / 2, end)]
        self.mouse("mousePressed", places[0], y, button="left", buttons=1, clickCount=1)
        for x in places:
            self.mouse("mouseMoved", x, y, button="left", buttons=1)
        self.mouse("mouseReleased", places[-1], y, button="left", clickCount=1)

    def touch(self, kind: str, points: list[tuple[float, float]]) -> None:
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y} for x, y in points])

    def errors(self) -> list[str]:
        """Everything the console shows in red, exceptions included."""
        self.ask("1")  # whatever was on its way has come
        found = []
        for event in self._browser.events(self._session):
            method, details = event["method"], event["params"]
            red = method == "Runtime.exceptionThrown"
            red |= method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert")
            red |= method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning")
            found += [json.dumps(details)] if red else []
        return found

    def screenshot(self, path: Path) -> None:
        """The whole page, for a person to look at."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)


def _when_written(path: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        if path.is_file() and path.read_text().count("\n"):
            return path.read_text()
        time.sleep(0.02)
    raise AssertionError(f"the browser did not start (exit code {process.poll()})")
