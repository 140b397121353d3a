"""How fast the first core is while the second is idle and while it works: `python benchmarks/speed/cores.py`.

On a shared host two virtual cores may for a while be the two halves of one real core, and a neighbour's work may be the
other half of ours. Nothing within tells so but the time that the same work takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy comes: one core, one thread

import numpy as np
from run import cpu_model

HERE = Path(__file__).resolve().parent
WINDOW, WINDOWS, TURNS = 0.1, 50, 3  # seconds, and how many of them in a turn
BUSY = """
import os
os.sched_setaffinity(0, {core})
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np
x = np.ones((256, 256), dtype=np.float32)
while True:
    x @ x
"""


def windows() -> list[dict[str, float]]:
    """Microseconds of a 256×256×256 product and of a product of 256 numbers by themselves, window after window."""
    matrix, row = np.ones((256, 256), dtype=np.float32), np.ones(256, dtype=np.float32)
    return [{"product": timed(lambda: matrix @ matrix), "small": timed(lambda: row * row)} for _ in range(WINDOWS)]


def timed(work: Any) -> float:
    began, calls = time.perf_counter(), 0
    while (now := time.perf_counter()) < began + WINDOW / 2:
        for _ in range(20):
            work()
        calls += 20
    return 1e6 * (now - began) / calls


def main() -> None:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {first})
    found: dict[str, list[dict[str, float]]] = {"idle": [], "at work": []}
    for _ in range(TURNS):
        found["idle"] += windows()
        other = subprocess.Popen([sys.executable, "-c", BUSY.format(core={second})])
        try:
            time.sleep(1.0)  # it has begun
            found["at work"] += windows()
        finally:
            other.kill()
            other.wait()
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    shown = {name: spread(rows) for name, rows in found.items()}
    result = {"date": date, "cpu": cpu_model(), "window_seconds": WINDOW, "windows": WINDOWS * TURNS, "second_core": shown}
    (HERE / "results" / "cores.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(shown, indent=1))


def spread(rows: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """The least, the median and the most of the windows, and how many of them are half as long again as the least."""
    shown = {}
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        low, middle, high = (float(f"{value:.3g}") for value in (values.min(), np.median(values), values.max()))
        shown[name] = {"least": low, "median": middle, "most": high, "slow_share": round(float((values > 1.5 * low).mean()), 2)}
    return shown


if __name__ == "__main__":
    main()
