"""Make docs/speed.md and its pictures from the committed results: `python benchmarks/speed/page.py [--check]`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from pictures import bars, curves
from rows import ROWS

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent.parent / "docs"

NAMES = {
    "ours": "ours",
    "ours_batched": "ours, batched env",
    "ours_ppo": "our PPO",
    "sb3": "SB3",
    "sbx": "SBX",
    "d3rlpy": "d3rlpy",
    "evotorch": "EvoTorch",
    "mbrl": "mbrl-lib",
    "separate": "separate nets",
    "modules": "modules in turn",
    "sgemm": "sgemm bound",
}

HEAD = """# Speed

This library beside others on the same work: same task, same networks, same batch sizes, same number of updates and of torch threads, Gymnasium's
stock environments unless it says otherwise. Ours is measured through the public API with its logging and checkpoints on (`train_<algo>`, `predict`, the command line),
theirs through `model.learn` and its like with nothing logged; neither evaluates meanwhile. Each repeat runs all programs one after the other, and a ratio is taken
within the repeat: the machine is shared, so rates wander and ratios do so less. A ratio says how many times better ours is: more steps, or less time.
✓ and ✗ say whether what the project asked for was reached in this measurement.{clocks}

| work | threads | measured | ours | others | ratio: median (range) | asked | |
|---|---|---|---|---|---|---|---|
"""

CLOCKS = """ Rows marked *cpu* are timed by the processor time of each program, because other work
ran beside them on the two cores (and took its share of the caches); the others by the clock on the wall."""

BOUNDS = """
## How near the limit

Two yardsticks. *sgemm bound*, in the table above, is the row's matrix products alone, in the same run as the rest, by whichever of MKL and OpenBLAS is faster there; ours can be faster,
because [they are our own](decisions/0010-passes-in-c.md). The other no program can pass: a loop of nothing but fused multiply-adds makes {one} GFLOP/s on one core of this processor
and {two} on both at once (`peak.py`). Below is what share of that the products of a row's work take up, at the speed the project asked for and at ours. What else there is, environment, acting, batches, activations,
losses, Adam and Python, has to fit into the rest; a number near 100 cannot be had by making the same products. (Of a plan's first step PETS makes a quarter of those counted, 4 % of a plan fewer: a member's particles
are still in one place then, and it is asked once.)

{table}

{missed}
"""

ELSEWHERE = """
## On other processors, and without a compiler

How far ahead a program is depends on the processor: our passes use all of its vector units, MKL and OpenBLAS less of those of a wide one. So some rows were measured in other ways as well: with AVX-512 hidden from every
program of a row, which halves what the units can do (`run.py --variant avx2`); with ours as it is where nothing could be compiled (`--variant no_compiler`), so that networks go through torch; and on
a processor whose units are half as wide ({narrow} GFLOP/s on one core; family 25, by code of a day before). Ratios to the peers, median of the repeats.

{table}
"""

PARTS = """
### Parts of a step

Rows of the table above, trained on one thread for longer, with timers around our own functions in every second stretch of some turns; by processor time, each moment counted for the innermost
timed call. *Passes in C* are all that networks do in an update, products, biases, activations and norms; acting's own, over one row, count as acting. What a timer takes around an empty
function is taken off; between passes it takes more. So the parts come to {least} to {most} % of what the same work took without timers, in the stretches between. Processor: {cpu}, {avx512} AVX-512, {cores} cores with a load average of {load} when it began, {date}.

{tables}
"""


PROFILE = """
## Where the time goes

A run of the first preset of each algorithm listed, twice, looked at by a signal at every tick of its processor time. In the first the question is what the innermost of our functions was at:

![Shares of one training run by what is done](images/speed_profile.svg)

{table}

In the second it is whose machine code the processor was in. *Mathematics* is our own C, torch, and numpy with the BLAS and the functions that it calls; the rest is the simulator, Python (with what torch does to read its arguments) and the
system's library, which copies memory and writes files.

{code}
"""

SCALING = """
## How cost grows

![Microseconds per step against size, both logarithmic](images/speed_scaling.svg)

{table}
"""

MEMORY = """
## Memory

Peak resident memory of a short run of each preset, with the replay buffer filled to its capacity at the start and a checkpoint written at the end. A buffer takes its
columns and nothing beside (a test holds it to 1.05 times that), and it is saved from where it lies (another test): the peak is the program (torch, Gymnasium) plus one buffer.

{table}
"""

TAIL = """
Made by `make bench` (and `peak.py`, `parts.py`, `profiles.py`, `scaling.py`, `memory.py` beside it); this page by `python benchmarks/speed/page.py`. Processor: {cpu}, {cores} cores. {versions}.

What makes the difference: networks that go all the way forwards or backwards in [one call](decisions/0010-passes-in-c.md), parameters as one flat vector, all critics in that vector,
gradients of the losses written down instead of an autograd graph, denormal numbers flushed to zero, memory kept from one update to the next, an environment loop without copies, and no number read from a tensor
before it is logged. [Why it is built so](decisions/0003-flat-parameter-vectors-and-explicit-backward.md).
"""


VARIANTS = {"avx2": "AVX2 only", "no_compiler": "without a compiler", "earlier": "an earlier machine"}

# what the page says of goals that were missed, beside the numbers
REASONS = {
    "td3": "Repeats lie on both sides of it, and with the machine at its fastest below it. What is beside the passes (environment, acting, batches, calls "
    "from Python) is [a sixth of a step](#parts-of-a-step).",
    "mopo_rollouts": "No program can make these products in that time on one core. Both cores together make more than the 100,000 asked for, and with the "
    "preset's networks, of 2×128, one does.",
}


def results(variant: str = "") -> list[dict[str, Any]]:
    """In the order of the rows, one thread before two."""
    found = [json.loads(path.read_text()) for path in (HERE / "results" / variant).glob("*_[0-9]t.json")]
    order = list(ROWS)
    return sorted(found, key=lambda record: (order.index(record["row"]), record["threads"]))


def extra(name: str) -> dict[str, Any] | None:
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def work_rate(measure: dict[str, Any], work: float) -> float:
    """GFLOP a second in the products of what ours did; of plans, by the milliseconds of one."""
    ours: float = measure["typical"]["ours"]
    return work * (ours if measure["higher"] else 1e3 / ours)


def bounds_text(records: list[dict[str, Any]], peak: dict[str, Any]) -> str:
    """For every goal that has products to it: what it wants of the vector units, and what ours take."""
    rows, missed = [], []
    for record in records:
        if (work := peak["gflop_of_a_unit"].get(record["row"])) is None:
            continue
        measure, most = record["measures"][0], peak["typical"][str(record["threads"])]
        for goal in measure["goals"]:
            if goal["against"] == "sgemm":
                continue
            title, threads = record["title"].partition(", 256")[0], f"{record['threads']}"
            ours, asked = work_rate(measure, work) / most, wish(goal, higher=measure["higher"])
            if goal["against"] is None:
                wanted = work * goal["factor"] / most
            else:  # by the ratios within repeats, as the table
                wanted = ours * goal["factor"] / measure["ratios"]["ours"][goal["against"]]["median"]
            verdict = "✓" if goal["reached"] else "✗"
            rows.append([title, threads, f"{work:.3g}", asked, percent(wanted), percent(ours), verdict])
            if not goal["reached"]:
                reason = REASONS.get(record["row"], "")
                text = f"- **{title}, {threads} thread{'s' * (threads != '1')}** ({asked}): it would want {percent(wanted)} of the vector units; ours take {percent(ours)}. {reason}"
                missed.append(text.rstrip())
    head = ["work", "threads", "GFLOP of one", "asked", "takes of the units as asked", "ours", ""]
    said = "Not reached:\n\n" + "\n".join(missed) if missed else "Everything asked for is reached."
    one, two = (f"{peak['typical'][cores]:.0f}" for cores in ("1", "2"))
    return BOUNDS.format(one=one, two=two, table=table(head, rows), missed=said)


def elsewhere_text(records: list[dict[str, Any]]) -> str:
    """Ratios to peers as they are in the table above, and as they are elsewhere."""
    others = {name: {(r["row"], r["threads"]): r for r in results(name)} for name in VARIANTS}
    rows = []
    for record in records:
        key, goals = (record["row"], record["threads"]), peer_goals(record)
        if goals and any(key in found for found in others.values()):
            wishes = "; ".join(wish(goal, higher=True) for goal in goals)
            cells = [verdicts(record), *(verdicts(found[key]) if key in found else "" for found in others.values())]
            rows.append([record["title"].partition(", 256")[0], str(record["threads"]), wishes, *cells])
    peak = json.loads((HERE / "results" / "earlier" / "peak.json").read_text())
    head = ["work", "threads", "asked", "here", *VARIANTS.values()]
    return ELSEWHERE.format(narrow=f"{peak['typical']['1']:.0f}", table=table(head, rows))


def peer_goals(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of ours against other programs; bounds and numbers of seconds are not."""
    goals: list[dict[str, Any]] = record["measures"][0]["goals"]
    return [goal for goal in goals if goal["who"] == "ours" and goal["against"] not in (None, "sgemm")]


def verdicts(record: dict[str, Any]) -> str:
    ratios = record["measures"][0]["ratios"]["ours"]
    return "; ".join(
        f"{ratios[goal['against']]['median']:.2f} {'✓' if goal['reached'] else '✗'}" for goal in peer_goals(record)
    )


def parts_text(record: dict[str, Any]) -> str:
    """One table for all rows that have the same parts."""
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for row in record["rows"].values():
        digits, total = {"ms": 2, "µs": 1}[row["unit"]], sum(row["parts"].values())
        cells = [f"{number(value, digits)} ({percent(value / total)})" if value else "" for value in row["parts"].values()]
        totals = [number(row[name], digits) for name in ("without_timers", "with_timers")]
        first = f"{row['title'].partition(',')[0]}: {row['per']}, {row['unit']}"
        groups.setdefault(tuple(row["parts"]), []).append([first, *cells, *totals])
    tables = [table(["one", *parts, "all without timers", "with them"], rows) for parts, rows in groups.items()]
    shares = [100 * sum(row["parts"].values()) / row["without_timers"] for row in record["rows"].values()]
    return PARTS.format(
        least=f"{min(shares):.0f}",
        most=f"{max(shares):.0f}",
        cpu=record["machine"]["cpu"],
        cores=record["machine"]["cores"],
        load=record["load"],
        avx512="with" if record["machine"]["avx512"] else "without",
        date=record["date"],
        tables="\n\n".join(tables),
    )


def number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def lines_of(record: dict[str, Any]) -> list[str]:
    lines = []
    for measure in record["measures"]:
        for who in [who for who in measure["values"] if who.startswith("ours") and who != "ours_ppo"]:
            ratios = measure["ratios"].get(who, {})
            peers = [peer for peer in ratios if not peer.startswith("ours") or peer == "ours_ppo"]
            others = "; ".join(f"{NAMES[peer]} {number(measure['typical'][peer], measure['digits'])}" for peer in peers)
            shown = "; ".join(ratio(NAMES[peer], ratios[peer], several=len(peers) > 1) for peer in peers)
            goals = [goal for goal in measure["goals"] if goal["who"] == who]
            asked = "; ".join(wish(goal, higher=measure["higher"]) for goal in goals)
            verdict = " ".join("✓" if goal["reached"] else "✗" for goal in goals)
            threads = f"{record['threads']}{', cpu' if record['clock'] == 'processor' else ''}"
            title = record["title"] + (", batched env" if who == "ours_batched" else "")
            ours = number(measure["typical"][who], measure["digits"])
            lines.append(f"| {title} | {threads} | {measure['unit']} | {ours} | {others} | {shown} | {asked} | {verdict} |\n")
    return lines


def ratio(name: str, spread: dict[str, float], *, several: bool) -> str:
    width = "" if spread["min"] == spread["max"] else f" ({spread['min']:.2f} to {spread['max']:.2f})"
    return f"{name + ' ' if several else ''}**{spread['median']:.2f}**{width}"


def wish(goal: dict[str, Any], *, higher: bool) -> str:
    if goal["against"] is None:
        return f"{'at least' if higher else 'at most'} {goal['factor']:,g}"
    return f"{goal['factor']:g} × {NAMES[goal['against']]}"


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def table(head: list[str], rows: list[list[str]]) -> str:
    text = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in text)


def made() -> dict[Path, str]:
    """Every file this page consists of."""
    records = results()
    by_processor = any(record["clock"] == "processor" for record in records)
    text = HEAD.format(clocks=CLOCKS if by_processor else "") + "".join(line for record in records for line in lines_of(record))
    notes = [f"- {record['title']}: {record['note']}" for record in records if record["note"] and record["threads"] == 1]
    text += "\n" + "\n".join(notes) + "\n"
    peak, parts = (json.loads((HERE / "results" / f"{name}.json").read_text()) for name in ("peak", "parts"))
    text += elsewhere_text(records) + bounds_text(records, peak) + parts_text(parts)
    files = {}
    if profile := extra("profile"):
        entries = profile["algorithms"]
        shares = [[name, *map(percent, entry["shares"].values())] for name, entry in entries.items()]
        codes = [[name, percent(entry["math"]), *map(percent, entry["code"].values())] for name, entry in entries.items()]
        first = next(iter(entries.values()))
        text += PROFILE.format(
            table=table(["algorithm", *first["shares"]], shares),
            code=table(["algorithm", "mathematics", *first["code"]], codes),
        )
        files[DOCS / "images" / "speed_profile.svg"] = bars(
            {name: entry["shares"] for name, entry in profile["algorithms"].items()}
        )
    if scaling := extra("scaling"):
        rows = [
            [c["title"], ", ".join(f"{x:,}: {y:,.0f}" for x, y in c["points"]), f"{c['exponent']:.2f}"]
            for c in scaling["curves"]
        ]
        text += SCALING.format(
            table=table(["what", "size: µs", "between the last two sizes it grows as size to the power of"], rows)
        )
        files[DOCS / "images" / "speed_scaling.svg"] = curves(scaling["curves"])
    if memory := extra("memory"):
        rows = [[name, f"{entry['buffer_mb']:,.0f}", f"{entry['peak_mb']:,.0f}"] for name, entry in memory["presets"].items()]
        text += MEMORY.format(table=table(["preset", "buffer, MB", "peak, MB"], rows))
    versions = {name: version for record in records for name, version in record["versions"].items()}
    named = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    machine = records[0]["machine"]
    text += TAIL.format(cpu=machine["cpu"], cores=machine["cores"], versions=named)
    return files | {DOCS / "speed.md": text}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 when the page is not what the results give")
    args = parser.parse_args()
    for path, text in made().items():
        if args.check and (not path.exists() or path.read_text() != text):
            sys.exit(f"{path.name} is out of date: run python benchmarks/speed/page.py")
        if not args.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)


if __name__ == "__main__":
    main()
