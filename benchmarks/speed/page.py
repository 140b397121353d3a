"""Make docs/speed.md and its pictures from the committed results: `python benchmarks/speed/page.py [--check]`."""

from __future__ import annotations

import argparse
import json
import statistics
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

NOT_REACHED = """
## What was not reached, and why

All rows ran on one processor with AVX-512 (a 256×256×256 product takes 0.33 ms on one thread, 100 GFLOP/s). *sgemm bound* is measured in the same run as the
rest, by whichever of MKL and OpenBLAS is faster there; it wanders as the machine does. It is a yardstick, not a law: large products of SAC, TD3, DDPG, CQL and RLPD are oneDNN's, which can be faster than both.

- **SAC, TD3, DDPG, one thread**: products alone make SAC {sac_1t}, TD3 {td3_1t} and DDPG {ddpg_1t} times SB3's speed, and SAC on HalfCheetah {sac_halfcheetah_1t} times. So 1.8 times would want {sac_1t_wanted}, {td3_1t_wanted}, {ddpg_1t_wanted} and {sac_halfcheetah_1t_wanted} % of the bound, with environment, acting, batches,
  activations, losses and Adam in what is left; the table says where we are. Products take {sac_products}, {td3_products} and {ddpg_products} % of [a step](#parts-of-a-step). [What was tried](decisions/0007-products-by-openblas.md).
  SBX compiles the whole update with XLA, and runs at our speed within a few percent: a little ahead on Pendulum, level on HalfCheetah.
- **SAC, two threads**: the bound is {sac_2t} times SB3 and {sac_halfcheetah_2t} times on HalfCheetah; 2.2 times would want {sac_2t_wanted} and {sac_halfcheetah_2t_wanted} % of it. A second thread shortens the large products; what is between them, and the environment, stays as it is. Handing whole passes to threads of our own
  was [slower](decisions/0008-threads-that-take-whole-parts.md). Ours is ahead of SBX in the median and behind in some repeats.
  Two threads have two speeds on this host, whichever program they are of: on HalfCheetah ours made {ours_2t_range} steps a second within one row, SB3 {sb3_2t_range}. [Neither binding threads to cores nor letting them wait without sleep](decisions/0007-products-by-openblas.md) changes that.
- **CQL with two threads**: the products alone are {cql_2t} times d3rlpy, so that twice its speed would want {cql_2t_wanted} % of them: it cannot be had by making the same products.
- **RLPD, one thread**: the products alone are {rlpd_1t} times as fast as the loop over separate networks; 1.5 times would want {rlpd_1t_wanted} % of that bound. What is not a product (layer norm, Adam over ten critics, their targets) takes {rlpd_besides} % of [ours](#parts-of-a-step).
- **PETS**: products alone are {pets_plan_1t} times as fast as mbrl-lib on one thread and {pets_plan_2t} times on two; 2.5 times would want {pets_plan_1t_wanted} and {pets_plan_2t_wanted} % of them. mbrl-lib's own time moved between {mbrl_2t_range} ms on two threads, and with it the ratio: it is there in the median, with a bound that has room for it.
- **MOPO's rollouts** with networks of 4×200 would make {mopo_bound} transitions a second if they were nothing but matrix products; with the preset's networks they make more than the 100,000 asked for.
"""

PARTS = """
### Parts of a step

Rows of the table above, trained on one thread for longer, with timers around our own functions in every second stretch of some turns; by processor time, each moment counted for the innermost
timed call. A product counts with its bias where the library adds both in one call; acting's own products, over one row, count as acting, but for ES, where they are the work. What a timer takes around an empty
function is taken off; between large products it takes more. So the parts come to {least} to {most} % of what the same work took without timers, in the stretches between. Processor: {cpu}, {avx512} AVX-512, {cores} cores with a load average of {load} when it began, {date}.

{tables}
"""


PROFILE = """
## Where the time goes

A run of the first preset of each algorithm listed, sampled every millisecond of processor time: what the innermost of our functions was at. The last column is the share of the
wall's time spent inside torch's operators, where it was measured; what numpy computes is not in it.

![Shares of one training run by what is done](images/speed_profile.svg)

{table}
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
Made by `make bench` (and `parts.py`, `profiles.py`, `scaling.py`, `memory.py` beside it); this page by `python benchmarks/speed/page.py`. Processor: {cpu}, {cores} cores. {versions}.

What makes the difference: parameters as one flat vector with one fused Adam call, all critics in that vector, gradients of the losses written down
instead of an autograd graph, denormal numbers flushed to zero, memory kept from one update to the next, an environment loop without copies, and no number read from a tensor
before it is logged. [Why it is built so](decisions/0003-flat-parameter-vectors-and-explicit-backward.md).
"""


# times the peer, of the rows that have a bound and are not reached
ASKED = {
    **dict.fromkeys(("sac_1t", "sac_halfcheetah_1t", "td3_1t", "ddpg_1t"), 1.8),
    **dict.fromkeys(("sac_2t", "sac_halfcheetah_2t"), 2.2),
    **dict.fromkeys(("pets_plan_1t", "pets_plan_2t"), 2.5),
    "rlpd_1t": 1.5,
    "cql_2t": 2.0,
}


def results() -> list[dict[str, Any]]:
    """In the order of the rows, one thread before two."""
    found = [json.loads(path.read_text()) for path in (HERE / "results").glob("*_[0-9]t.json")]
    order = list(ROWS)
    return sorted(found, key=lambda record: (order.index(record["row"]), record["threads"]))


def extra(name: str) -> dict[str, Any] | None:
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def measure_of(name: str) -> dict[str, Any]:
    measure: dict[str, Any] = json.loads((HERE / "results" / f"{name}.json").read_text())["measures"][0]
    return measure


def values_of(name: str, who: str) -> list[float]:
    """What a contestant reached in each repeat of a row."""
    values: list[float] = measure_of(name)["values"][who]
    return values


def span(name: str, who: str, between: str) -> str:
    """The least and the most of a contestant's repeats."""
    return f" {between} ".join(f"{edge(values_of(name, who)):,.0f}" for edge in (min, max))


def room(name: str) -> float:
    """How many times faster than the peer the matrix products alone are, as the median over the repeats."""
    measure = measure_of(name)
    values, peer = measure["values"], next(who for who in ("sb3", "d3rlpy", "mbrl", "separate") if who in measure["values"])
    pairs = zip(values["sgemm"], values[peer], strict=True)
    return statistics.median(bound / theirs if measure["higher"] else theirs / bound for bound, theirs in pairs)


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


def products_shares(record: dict[str, Any]) -> dict[str, str]:
    """Of each row's parts, in percent: the products, and what is beside them."""
    shares = {name: row["parts"]["matrix products"] / sum(row["parts"].values()) for name, row in record["rows"].items()}
    products = {f"{name}_products": f"{100 * share:.0f}" for name, share in shares.items()}
    return products | {f"{name}_besides": f"{100 - 100 * share:.0f}" for name, share in shares.items()}


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
    rooms = {name: room(name) for name in ASKED}
    wanted = {f"{name}_wanted": f"{100 * asked / rooms[name]:.0f}" for name, asked in ASKED.items()}
    parts = json.loads((HERE / "results" / "parts.json").read_text())
    bounds = {name: f"{times:.1f}" for name, times in rooms.items()}
    told = {
        "ours_2t_range": span("sac_halfcheetah_2t", "ours", "to"),
        "sb3_2t_range": span("sac_halfcheetah_2t", "sb3", "to"),
        "mbrl_2t_range": span("pets_plan_2t", "mbrl", "and"),
        "mopo_bound": f"{round(statistics.median(values_of('mopo_rollouts_1t', 'sgemm')), -3):,.0f}",
    }
    text += NOT_REACHED.format(**bounds, **wanted, **told, **products_shares(parts)) + parts_text(parts)
    files = {}
    if profile := extra("profile"):
        entries = profile["algorithms"]
        shares = [[name, *map(percent, [*e["shares"].values(), e.get("math")])] for name, e in entries.items()]
        head = ["algorithm", *next(iter(entries.values()))["shares"], "in torch's operators"]
        text += PROFILE.format(table=table(head, shares))
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
