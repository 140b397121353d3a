"""Make docs/speed.md from the committed results: `python benchmarks/speed/page.py [--check]`."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "speed.md"

HEAD = """# Speed

Steps per second of this library and of Stable-Baselines3 on the same work: same task, same networks, same batch sizes, same number of
updates and of torch threads, Gymnasium's stock environments. Ours is measured through `train_<algo>` with its logging and checkpoints on, theirs
through `model.learn` with nothing logged; neither evaluates meanwhile. Each repeat runs both programs one after the other, and the ratio is taken within the repeat: the
machine is shared, so rates wander and ratios do not.

| work | threads | ours, steps/s | SB3, steps/s | ratio: median (range) | repeats |
|---|---|---|---|---|---|
"""

TAIL = """
Made by `make bench`; this page by `python benchmarks/speed/page.py`. Processor: {cpu}, {cores} cores. {versions}.

What makes the difference: parameters as one flat vector with one fused Adam call, all critics as one batched network, gradients of the losses written down
instead of an autograd graph, denormal numbers flushed to zero, an environment loop without copies, and no number read from a tensor
before it is logged. [Why it is built so](decisions/0003-flat-parameter-vectors-and-explicit-backward.md).
"""


def page() -> str:
    records: list[dict[str, Any]] = [json.loads(path.read_text()) for path in sorted((HERE / "results").glob("*.json"))]
    lines = []
    for record in records:
        ours, theirs = (statistics.median(record["steps_per_second"][name]) for name in ("ours", "sb3"))
        ratio = f"**{record['ratio_median']:.2f}** ({record['ratio_min']:.2f} to {record['ratio_max']:.2f})"
        repeats = len(record["steps_per_second"]["ours"])
        lines.append(f"| {record['title']} | {record['threads']} | {ours:,.0f} | {theirs:,.0f} | {ratio} | {repeats} |\n")
    versions = ", ".join(f"{name} {version}" for name, version in sorted(records[0]["versions"].items()))
    tail = TAIL.format(cpu=records[0]["machine"]["cpu"], cores=records[0]["machine"]["cores"], versions=versions)
    return HEAD + "".join(lines) + tail


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 when the page is not what the results give")
    args = parser.parse_args()
    if args.check:
        sys.exit(0 if PAGE.read_text() == page() else f"{PAGE.name} is out of date: run python benchmarks/speed/page.py")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
