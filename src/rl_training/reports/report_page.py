"""One HTML file with everything in it: it needs no network, and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from rl_training.reports.report_data import report_data, to_json
from rl_training.reports.report_tables import report_sections
from rl_training.reports.run_groups import RunGroup
from rl_training.resources import ASSETS

SCRIPTS = ("numbers.js", "chart.js", "page.js")


def report_html(groups: Sequence[RunGroup], *, title: str, live_seconds: float | None = None) -> str:
    """The whole page; with `live_seconds` it asks its server so often for news."""
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(name) for name in SCRIPTS) + "})();\n"
    style = _asset("report.css")
    sections = {name.replace("-", "_"): text for name, text in report_sections(groups).items()}
    return _asset("page.html").format(
        policy=html.escape(_policy(script, style)),
        title=html.escape(title),
        style=style,
        live="" if live_seconds is None else f' data-live="{live_seconds:g}"',
        date=f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        data=to_json(report_data(groups)),
        script=script,
        **sections,
    )


def default_title(groups: Sequence[RunGroup]) -> str:
    """What was trained on what, by name while the names are few: `ppg, ppo on CartPole-v1`."""
    algos, tasks = (list(dict.fromkeys(names)) for names in zip(*((group.algo, group.task) for group in groups), strict=True))
    return f"{_listed(algos, 'algorithms', most=4)} on {_listed(tasks, 'tasks', most=3)}"


def _listed(names: Sequence[str], noun: str, *, most: int) -> str:
    return ", ".join(names) if len(names) <= most else f"{len(names)} {noun}"


def live_json(groups: Sequence[RunGroup]) -> str:
    """What changes on the page while training goes on."""
    news: dict[str, Any] = {"sections": report_sections(groups), "data": report_data(groups)}
    return to_json(news)


def _asset(name: str) -> str:
    return (ASSETS / "report" / name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """Whatever slipped through: only this script and this style are taken, and nothing is sent or fetched elsewhere."""
    allowed = {
        "default-src": "'none'",
        "script-src": f"'{_sha256(script)}'",
        "style-src": f"'{_sha256(style)}'",
        "img-src": "data:",
        "media-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


def _sha256(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
