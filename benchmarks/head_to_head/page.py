"""Make docs/head-to-head.md from the committed results: `python benchmarks/head_to_head/page.py [--check]`."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "head-to-head.md"
sys.path[:0] = [str(ROOT / "src"), str(HERE)]

from contests import CONTESTS  # noqa: E402

from rl_training.cli import load_config  # noqa: E402
from rl_training.reports.result_tables import markdown_table  # noqa: E402
from rl_training.reports.statistics import (  # noqa: E402
    interquartile_mean,
    probability_of_improvement,
    stratified_bootstrap_interval,
)

TEXT = """# Head to head

Our presets against the peers' own programs: the same task, the same number of steps, the same seeds. For every seed both train at once on one thread each, so whatever else the machine
does meets both. Theirs have the settings that RL Baselines3 Zoo publishes for the task unless the notes say otherwise; ours are the packaged presets, with logging and
checkpoints on. Neither evaluates while it trains. Then one judge plays {episodes} episodes with the **last** policy of each, from the same starts.

{table}

Returns are interquartile means over seeds with a 95 % bootstrap interval; P is the probability that a run of ours ends better than one of theirs, a tie counting half;
times are the medians of one training, in seconds on the wall and, in brackets, of processor time; the ratio is theirs over ours by processor time, the median over seeds with its range,
because other work shared the two cores. These are programs with the settings people use, not the same work: that comparison is on the [speed page](speed.md).

{notes}
{missing}
Made by `python benchmarks/head_to_head/run.py` ({dates}; {machine}; {versions}); this page by `python benchmarks/head_to_head/page.py`.
"""


def spread(values: list[float]) -> str:
    low, high = stratified_bootstrap_interval([values], rng=np.random.default_rng(0))
    return f"{interquartile_mean(values):.1f} [{low:.1f}, {high:.1f}]"


def row(record: dict[str, Any]) -> tuple[str, ...]:
    pairs = list(record["runs"].values())
    ours, peer = ([pair[who]["return"] for pair in pairs] for who in ("ours", "peer"))
    ratios = [pair["peer"]["cpu_seconds"] / pair["ours"]["cpu_seconds"] for pair in pairs]
    return (
        f"{CONTESTS[record['contest']].preset}, {record['task']}",
        f"{record['steps']:,}",
        str(len(pairs)),
        record["peer"],
        spread(ours),
        spread(peer),
        f"{probability_of_improvement(ours, peer):.2f}",
        *(taken([pair[who] for pair in pairs]) for who in ("ours", "peer")),
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
    )


def taken(runs: list[dict[str, float]]) -> str:
    wall, cpu = (statistics.median(run[name] for run in runs) for name in ("seconds", "cpu_seconds"))
    return f"{wall:.1f} ({cpu:.1f})"


def own_steps(record: dict[str, Any]) -> str:
    """A word where a contest is not as long as the preset itself would train."""
    own = load_config(CONTESTS[record["contest"]].preset).total_timesteps
    return "" if own == record["steps"] else f" Our preset would train for {own:,} steps."


def made_again(record: dict[str, Any]) -> str:
    if "ours_again" not in record:
        return ""
    return f" Ours was trained again ({record['ours_again']}) after its preset had changed; theirs ran beside the runs before."


def page() -> str:
    found = [HERE / "results" / f"{name}.json" for name in CONTESTS]
    records = [json.loads(path.read_text()) for path in found if path.exists()]
    missing = [contest.preset for contest, path in zip(CONTESTS.values(), found, strict=True) if not path.exists()]
    header = ("preset and task", "steps", "seeds", "peer", "our return", "their return", "P", "our s", "their s", "ratio")
    versions = {record["peer"]: next(iter(record["runs"].values()))["peer"]["version"] for record in records}
    versions |= {"rl_training": next(iter(records[0]["runs"].values()))["ours"]["version"]} | records[0]["versions"]
    return TEXT.format(
        episodes=50,
        table=markdown_table(header, [row(record) for record in records]),
        notes="\n".join(
            f"- {CONTESTS[record['contest']].preset}: {record['peer']} has {record['note']}.{own_steps(record)}{made_again(record)}"
            for record in records
        ),
        missing=f"\nNot contested yet: {', '.join(missing)}.\n" if missing else "",
        dates=", ".join(sorted({record["date"] for record in records})),
        machine=f"{records[0]['machine']['cpu']}, {records[0]['machine']['cores']} cores",
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
    )


def main() -> int:
    text = page()
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if "--check" in sys.argv:
        return int(text != old)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
