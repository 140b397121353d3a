"""Make docs/speed.md and its pictures from the committed results: `python benchmarks/speed/page.py [--check]`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import page_tables as tables
import page_texts as texts
from about import HERE, ROOT
from pictures import bars, curves
from rows import ROWS

DOCS = ROOT / "docs"
EXTRAS = ("peak", "parts", "profile", "scaling", "memory")


def results(variant: str = "") -> list[dict[str, Any]]:
    """In the order of the rows, one thread before two."""
    found = [json.loads(path.read_text()) for path in (HERE / "results" / variant).glob("*_[0-9]t.json")]
    order = list(ROWS)
    return sorted(found, key=lambda record: (order.index(record["row"]), record["threads"]))


def extra(name: str) -> dict[str, Any]:
    path = HERE / "results" / f"{name}.json"
    if not path.exists():
        sys.exit(f"{path.name} is missing: make bench makes it")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def refuse_several_processors(found: dict[str, dict[str, Any]]) -> None:
    """Numbers of two machines in one table would be compared."""
    processors: dict[str, list[str]] = {}
    for name, record in found.items():
        machine = record.get("machine", {})
        design = [f"{fact} {machine.get(fact, 'not recorded')}" for fact in ("family", "model", "avx512")]
        processors.setdefault(", ".join([machine.get("cpu", "unknown"), *design]), []).append(name)
    if len(processors) > 1:
        kinds = "\n".join(f"  {kind}: {', '.join(sorted(names))}" for kind, names in processors.items())
        sys.exit(f"results are of several processors; measure all on one:\n{kinds}")


def made() -> dict[Path, str]:
    """Every file this page consists of."""
    records, extras = results(), {name: extra(name) for name in EXTRAS}
    variants = {name: results(name) for name in texts.VARIANTS}
    here = [record for name, found in variants.items() if name != "earlier" for record in found]
    named = {f"{r.get('variant') or ''} {r['row']} {r['threads']}T".strip(): r for r in (*records, *here)}
    refuse_several_processors(named | {f"{name}.json": record for name, record in extras.items()})
    text = "".join(
        [
            head_text(records, extras["peak"]),
            elsewhere_text(records, variants),
            bounds_text(records, extras["peak"], extras["parts"]),
            parts_text(extras["parts"]),
            costs_text(extras),
            tail_text([*records, *here, *extras.values()]),
        ]
    )
    return {
        DOCS / "images" / "speed_profile.svg": bars({n: e["shares"] for n, e in extras["profile"]["algorithms"].items()}),
        DOCS / "images" / "speed_scaling.svg": curves(extras["scaling"]["curves"]),
        DOCS / "speed.md": text,
    }


def head_text(records: list[dict[str, Any]], peak: dict[str, Any]) -> str:
    clocks = texts.CLOCKS if any(record["clock"] == "processor" for record in records) else ""
    head = texts.HEAD.format(machine=machine_line(peak), summary=tables.summary_table(records), clocks=clocks)
    return head + "".join(line for record in records for line in tables.row_lines(record)) + f"\n{tables.notes(records)}\n"


def machine_line(peak: dict[str, Any]) -> str:
    machine = peak["machine"]
    design = f"family {machine.get('family', '?')}, model {machine.get('model', '?')}"
    vectors = f"with{'' if machine['avx512'] else 'out'} AVX-512"
    return f"Processor: {machine['cpu']} ({design}, {vectors}), {peak['typical']['1']:.0f} GFLOP/s a core, {machine['cores']} cores."


def elsewhere_text(records: list[dict[str, Any]], variants: dict[str, list[dict[str, Any]]]) -> str:
    earlier = json.loads((HERE / "results" / "earlier" / "peak.json").read_text())
    narrow = f"{earlier['typical']['1']:.0f}"
    return texts.ELSEWHERE.format(narrow=narrow, table=tables.elsewhere_table(records, variants))


def bounds_text(records: list[dict[str, Any]], peak: dict[str, Any], parts: dict[str, Any]) -> str:
    one, two = (f"{peak['typical'][cores]:.0f}" for cores in ("1", "2"))
    half = ""
    if {"64", "32"} <= peak["typical_of_width"].keys():
        narrow = peak["typical_of_width"]["32"]
        half = texts.HALF.format(one=f"{narrow['1']:.0f}", two=f"{narrow['2']:.0f}")
    table, missed = tables.bounds_table(records, peak, parts)
    return texts.BOUNDS.format(one=one, two=two, half=half, table=table, missed=missed)


def parts_text(parts: dict[str, Any]) -> str:
    shares = [100 * sum(row["parts"].values()) / row["without_timers"] for row in parts["rows"].values()]
    return texts.PARTS.format(
        least=f"{min(shares):.0f}",
        most=f"{max(shares):.0f}",
        load=parts["load"],
        date=parts["date"],
        tables=tables.parts_tables(parts),
    )


def costs_text(extras: dict[str, dict[str, Any]]) -> str:
    """Where time goes, how it grows, and memory."""
    shares, code = tables.profile_tables(extras["profile"]["algorithms"])
    growth, said = tables.scaling_table(extras["scaling"]["curves"])
    presets = extras["memory"]["presets"]
    rows = [[name, f"{entry['buffer_mb']:,.0f}", f"{entry['peak_mb']:,.0f}"] for name, entry in presets.items()]
    memory = tables.table(["preset", "buffer, MB", "peak, MB"], rows)
    return (
        texts.PROFILE.format(table=shares, code=code)
        + texts.SCALING.format(table=growth, said=said)
        + texts.MEMORY.format(said=tables.memory_sentence(presets), table=memory)
    )


def tail_text(found: list[dict[str, Any]]) -> str:
    versions = {name: version for record in found for name, version in record.get("versions", {}).items()}
    named = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    commits = {f"{r['commit']}{' with changes' if r['changed'] else ''}": None for r in found if "commit" in r}
    return texts.TAIL.format(code=f"Code of commit {', '.join(sorted(commits))}", versions=named)


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
