"""The tables of docs/speed.md, and the sentences that follow from their numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import Any

from about import ROOT
from page_texts import NAMES, VARIANTS
from rows import ROWS

Record = dict[str, Any]
UNITS = {"env steps/s": "step", "critic updates/s": "update", "updates/s": "update", "samples/s": "sample"}
UNITS |= {"transitions/s": "transition", "ms": "plan"}
NO_PROGRAMS = ("sgemm", "modules")  # what our own scripts compute beside a peer
RETURN = ROOT / "benchmarks" / "learning" / "results" / "pets" / "results.json"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in text)


def number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def short(record: Record) -> str:
    return str(record["title"].partition(", 256")[0].partition(": 400")[0])


def mark(goal: Record) -> str:
    return "✓" if goal["reached"] else "✗"


def wish(goal: Record, *, higher: bool) -> str:
    if goal["against"] is None:
        return f"{'at least' if higher else 'at most'} {goal['factor']:,g}"
    return f"{goal['factor']:g} × {NAMES[goal['against']]}"


def summary_table(records: list[Record]) -> str:
    """Each algorithm's first row that has a peer, and how much of what was asked of all its rows was reached."""
    lines = []
    for algo in dict.fromkeys(row.algo for row in ROWS.values() if row.algo):
        of_algo = [record for record in records if ROWS[record["row"]].algo == algo]
        goals = [goal for record in of_algo for measure in record["measures"] for goal in measure["goals"]]
        count = f"{sum(goal['reached'] for goal in goals)} of {len(goals)}"
        if not of_algo:
            continue
        measure = of_algo[0]["measures"][0]
        best, ratio = nearest(measure["ratios"]["ours"])
        asked = [goal for goal in measure["goals"] if goal["who"] == "ours" and goal["against"] == best]
        cells = ("; ".join(wish(goal, higher=True) for goal in asked), " ".join(map(mark, asked)))
        lines.append([short(of_algo[0]), NAMES[best], f"**{ratio:.2f}**", *cells, count])
    return table(["work, one thread", "best of the others", "ratio", "asked", "", "reached"], lines)


def nearest(ratios: dict[str, dict[str, float]]) -> tuple[str, float]:
    """The program that ours is ahead of by least; where no other was measured, what our own scripts compute beside it."""
    peers = [peer for peer in ratios if peer not in ("ours_batched", *NO_PROGRAMS)] or list(ratios)
    best = min(peers, key=lambda peer: ratios[peer]["median"])
    return best, ratios[best]["median"]


def row_lines(record: Record) -> list[str]:
    """One for every measure of every contestant of ours."""
    lines = []
    for measure in record["measures"]:
        for who in [who for who in measure["values"] if who.startswith("ours") and who != "ours_ppo"]:
            ratios = measure["ratios"].get(who, {})
            peers = [peer for peer in ratios if not peer.startswith("ours") or peer == "ours_ppo"]
            others = "; ".join(f"{NAMES[peer]} {value_of(measure, peer)}" for peer in peers)
            shown = "; ".join(ratio(NAMES[peer], ratios[peer], several=len(peers) > 1) for peer in peers)
            goals = [goal for goal in measure["goals"] if goal["who"] == who]
            asked = "; ".join(wish(goal, higher=measure["higher"]) for goal in goals)
            threads = f"{record['threads']}{', cpu' if record['clock'] == 'processor' else ''}"
            title = record["title"] + (", batched env" if who == "ours_batched" else "")
            cells = [title, threads, measure["unit"], value_of(measure, who), others, shown, asked, " ".join(map(mark, goals))]
            lines.append(f"| {' | '.join(cells)} |\n")
    return lines


def value_of(measure: Record, who: str) -> str:
    """The typical one; where it is a mean of runs that differ by their luck, with the range of them."""
    typical, values = number(measure["typical"][who], measure["digits"]), measure["values"][who]
    if measure["how"] != "IQM":
        return typical
    return f"{typical} ({number(min(values), measure['digits'])} to {number(max(values), measure['digits'])})"


def ratio(name: str, spread: dict[str, float], *, several: bool) -> str:
    width = "" if spread["min"] == spread["max"] else f" ({spread['min']:.2f} to {spread['max']:.2f})"
    return f"{name + ' ' if several else ''}**{spread['median']:.2f}**{width}"


def notes(records: list[Record]) -> str:
    """Equal ones once, with the names of their rows."""
    told: dict[str, dict[str, None]] = {}
    for record in records:
        note = pets_note() if record["row"] == "pets_preset" else record["note"]
        if note:
            told.setdefault(note, {})[short(record)] = None
    return "\n".join(f"- {'; '.join(names)}: {note}" for note, names in told.items())


def pets_note() -> str:
    """The preset's return, from the runs that the docs' tables of returns are made of."""
    entry = next(entry for entry in json.loads(RETURN.read_text())["entries"] if entry["preset"] == "pets/pendulum")
    found = entry["summary"]
    return (
        f"the preset's return is {found['mean']:.0f} ± {found['std']:.0f} over {found['n']} seeds after "
        f"{entry['total_timesteps']:,} steps ([PETS](algorithms/pets.md))."
    )


def bounds_table(records: list[Record], peak: Record, parts: Record) -> tuple[str, str]:
    """For every goal of ours that has products to it, what it needs of the peak and what ours take; and those missed."""
    rows, missed = [], []
    for record in records:
        if (work := peak["gflop_of_a_unit"].get(record["row"])) is None:
            continue
        measure, most = record["measures"][0], peak["typical"][str(record["threads"])]
        ours = work_rate(measure, work) / most
        for goal in measure["goals"]:
            if goal["against"] is None:
                needed = work * goal["factor"] / most
            else:  # by the ratios within repeats, as the table
                needed = ours * goal["factor"] / measure["ratios"]["ours"][goal["against"]]["median"]
            title, threads, asked = short(record), record["threads"], wish(goal, higher=measure["higher"])
            gflop = f"{work:.3g} per {UNITS[measure['unit']]}"
            rows.append([title, f"{threads}", gflop, asked, percent(needed), percent(ours), mark(goal)])
            if not goal["reached"]:
                named = f"- **{title}, {threads} thread{'s' * (threads > 1)}** ({asked})"
                shares = f"would need {percent(needed)} of the peak; ours take {percent(ours)}"
                missed.append(f"{named}: {shares}. {reason(record, goal, needed, parts, records)}".rstrip())
    head = ["work", "threads", "GFLOP", "asked", "share of peak needed for the goal", "ours", ""]
    said = "Not reached:\n\n" + "\n".join(missed) if missed else "Everything that was asked for is reached."
    return table(head, rows), said


def work_rate(measure: Record, work: float) -> float:
    """GFLOP a second in the products of what ours did; of plans, by the milliseconds of one."""
    ours: float = measure["typical"]["ours"]
    return work * (ours if measure["higher"] else 1e3 / ours)


def reason(record: Record, goal: Record, needed: float, parts: Record, records: list[Record]) -> str:
    """What the numbers say of a goal that was missed."""
    said = []
    if needed > 1:
        said.append("No program can make these products in that time.")
    if goal["against"] is not None:
        spread = record["measures"][0]["ratios"]["ours"][goal["against"]]
        said += ["Some repeats reach it."] if spread["max"] >= goal["factor"] else []
    if row := parts["rows"].get(record["row"]):
        rest = 1 - row["parts"]["passes in C"] / sum(row["parts"].values())
        said.append(f"What is beside the passes is {percent(rest)} of [a step](#parts-of-a-step).")
    two = next((r for r in records if (r["row"], r["threads"]) == (record["row"], 2)), None)
    if record["threads"] == 1 and two and all(g["reached"] for g in two["measures"][0]["goals"]):
        said.append("With two threads what was asked for is reached.")
    return " ".join(said)


def elsewhere_table(records: list[Record], variants: dict[str, list[Record]]) -> str:
    """Ratios to peers as they are in the table above, and as they are elsewhere."""
    others = [{(r["row"], r["threads"]): r for r in variants[name]} for name in VARIANTS]
    rows = []
    for record in records:
        key, goals = (record["row"], record["threads"]), peer_goals(record)
        if goals and any(key in found for found in others):
            wishes = "; ".join(wish(goal, higher=True) for goal in goals)
            cells = [verdicts(record), *(verdicts(found[key]) if key in found else "" for found in others)]
            rows.append([short(record), str(record["threads"]), wishes, *cells])
    return table(["work", "threads", "asked", "here", *VARIANTS.values()], rows)


def peer_goals(record: Record) -> list[Record]:
    """Those of ours against other programs; bounds and numbers of seconds are not."""
    goals: list[Record] = record["measures"][0]["goals"]
    return [goal for goal in goals if goal["who"] == "ours" and goal["against"] not in (None, "sgemm", "ours_ppo")]


def verdicts(record: Record) -> str:
    ratios = record["measures"][0]["ratios"]["ours"]
    return "; ".join(f"{ratios[goal['against']]['median']:.2f} {mark(goal)}" for goal in peer_goals(record))


def parts_tables(record: Record) -> str:
    """One table for all rows that have the same parts."""
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for row in record["rows"].values():
        digits, total = {"ms": 2, "µs": 1}[row["unit"]], sum(row["parts"].values())
        cells = [f"{number(value, digits)} ({percent(value / total)})" if value else "" for value in row["parts"].values()]
        totals = [number(row[name], digits) for name in ("without_timers", "with_timers")]
        first = f"{row['title'].partition(',')[0]}: {row['per']}, {row['unit']}"
        groups.setdefault(tuple(row["parts"]), []).append([first, *cells, *totals])
    return "\n\n".join(table(["one", *parts, "all without timers", "with them"], rows) for parts, rows in groups.items())


def profile_tables(entries: dict[str, Record]) -> tuple[str, str]:
    """By our functions, and by whose machine code."""
    first = next(iter(entries.values()))
    shares = [[name, *map(percent, entry["shares"].values())] for name, entry in entries.items()]
    codes = [
        [name, percent(entry["math"]), *map(percent, entry["code"].values()), f"{entry['samples']:,}"]
        for name, entry in entries.items()
    ]
    head = ["algorithm", "mathematics, at most", *first["code"], "samples"]
    return table(["algorithm", *first["shares"]], shares), table(head, codes)


def scaling_table(curves: list[Record]) -> tuple[str, str]:
    """With a sentence on those that grow faster than their work does."""
    rows, faster = [], []
    for curve in curves:
        powers = [log(b / a) / log(y / x) for (x, a), (y, b) in pairwise(curve["points"])]
        expected = curve["expected"]
        points = ", ".join(f"{x:,}: {y:,.0f}" for x, y in curve["points"])
        rows.append([curve["title"], curve["axis"], points, f"{powers[-1]:.2f}", f"{max(powers):.2f}", str(expected)])
        if max(powers) > 1.05 * expected:
            faster.append(f"{curve['title']} with {curve['axis']} ({max(powers):.2f}, where {expected} is expected)")
    said = ""
    if faster:
        said = (
            f"Growing faster than that by more than a twentieth: {'; '.join(faster)}. "
            "None does more work for it; that more memory is gone through than caches hold is likely, and was not measured."
        )
    head = ["what", "size", "size: µs", "power at the end", "largest", "expected at most"]
    return table(head, rows), said or "Nothing grows faster than expected by more than a twentieth."


def memory_sentence(presets: dict[str, dict[str, float]]) -> str:
    """Two presets of one algorithm, of which one has a large buffer: a second copy would show."""
    large, small = presets["sac/halfcheetah"], presets["sac/pendulum"]
    buffers, peaks = (large[name] - small[name] for name in ("buffer_mb", "peak_mb"))
    verdict = "is no second copy" if peaks < 1.5 * buffers else "may be a second copy"
    return (
        f"The buffer of `sac/halfcheetah` is {buffers:,.0f} MB larger than that of `sac/pendulum`, its peak (with MuJoCo in "
        f"it as well)\n{peaks:,.0f} MB higher; a second copy would make that {2 * buffers:,.0f}. So there {verdict}."
    )
