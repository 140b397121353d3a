"""Make the tables and pictures of the README and the docs from committed results.

    python benchmarks/learning/tables.py            write them
    python benchmarks/learning/tables.py --check    exit 1 if anything is out of date

What stands between `<!-- results:NAME -->` and `<!-- /results:NAME -->` in README.md and docs/algorithms/*.md is replaced:
    results:README   the presets of every listed suite
    results:ALGO     the presets of one algorithm, from every listed suite, and the suites' pictures
    suite:SUITE      all of one suite: every entry, how soon it learnt, what is better than what, and the picture
    curves:SUITE     the picture of one suite alone
    options:ALGO     the options of one algorithm
    algorithms:all   every algorithm with the spaces it takes, presets and paper
Pictures are drawn into docs/curves/.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(REPOSITORY / "src"))  # runs without installation

from rl_training.cli.commands.show import default_words  # noqa: E402
from rl_training.errors import ConfigError, did_you_mean  # noqa: E402
from rl_training.options import algorithm_names, load_options_class  # noqa: E402
from rl_training.options._networks import NetworkOptions  # noqa: E402
from rl_training.options.base import CommonOptions, Options  # noqa: E402
from rl_training.reports.result_curves import draw_result_curves  # noqa: E402
from rl_training.reports.result_tables import (  # noqa: E402
    HEADER,
    comparison_table,
    markdown_table,
    provenance,
    published_table,
    result_row,
    suite_table,
)
from rl_training.resources import list_presets  # noqa: E402

KINDS = "results|suite|curves|options|algorithms"
BLOCK = re.compile(rf"(<!-- ({KINDS}):(\S+) -->\n).*?(<!-- /\2:\3 -->)", re.DOTALL)
MARK = re.compile(rf"<!-- /?({KINDS}):\S+ -->")


class Tables:
    """All committed results below one root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        files = sorted(root.glob("benchmarks/learning/results/*/results.json"))
        texts = {path.parent.name: path.read_text(encoding="utf-8") for path in files}
        self.suites: dict[str, dict[str, Any]] = {name: json.loads(text) for name, text in texts.items()}
        self.pictures: set[str] = set()  # of these suites, as the pages want them
        self.hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}

    def pages(self) -> list[Path]:
        return [path for path in [self.root / "README.md", *sorted(self.root.glob("docs/algorithms/*.md"))] if path.is_file()]

    def picture(self, suite: str) -> Path:
        return self.root / "docs" / "curves" / f"{suite}.png"

    def new_text(self, page: Path) -> str:
        """The page with every block made anew."""
        text = page.read_text(encoding="utf-8")
        replaced = BLOCK.sub(lambda match: f"{match[1]}\n{self.block(match[2], match[3], page)}\n\n{match[4]}", text)
        if len(MARK.findall(text)) != 2 * len(BLOCK.findall(text)):
            raise ConfigError(f"{page}: a marker is not closed, or not by the same name, or not on a line of its own")
        return replaced

    def block(self, kind: str, name: str, page: Path) -> str:
        """What belongs between two markers."""
        if kind == "options":
            return options_table(name)
        if kind == "algorithms":
            return algorithms_table(page)
        if kind == "curves":
            return self._curves(name, page)
        if kind == "suite":
            return self._whole(name, page)
        if name not in ("README", *algorithm_names()):
            raise ConfigError(f"results:{name} is neither README nor an algorithm; a suite is suite:{name}")
        listed = _listed(self.suites)
        if name == "README":
            return self._rows(listed, page)
        own = {suite: _only(results, name) for suite, results in listed.items() if name in _algorithms(results)}
        published = filter(None, (published_table(results) for results in own.values()))
        return "\n\n".join([self._rows(own, page), *published, *(self._curves(suite, page) for suite in own)])

    def _suite(self, name: str) -> dict[str, Any]:
        if name not in self.suites:
            known = [*self.suites, *algorithm_names(), "README"]
            raise ConfigError(f"there are no results called {name!r}{did_you_mean(name, known)}")
        return self.suites[name]

    def _whole(self, name: str, page: Path) -> str:
        results = self._suite(name)
        compared = comparison_table(results) if results["comparisons"] else ""
        parts = [suite_table(results), published_table(results), compared, _legend([results]), self._curves(name, page)]
        return "\n\n".join(filter(None, parts))

    def _rows(self, suites: Mapping[str, Mapping[str, Any]], page: Path) -> str:
        rows = [self._row(entry, page) for results in suites.values() for entry in results["entries"]]
        return f"{markdown_table(HEADER, rows)}\n\n{_legend(list(suites.values()))}" if rows else "There are no results yet."

    def _row(self, entry: Mapping[str, Any], page: Path) -> tuple[str, ...]:
        label = entry["algo"] if entry["name"] == entry["preset"] else entry["name"]
        target = self.root / "docs" / "algorithms" / f"{entry['algo']}.md"
        linked = f"[{label}]({_relative(target, page)})" if target.is_file() and target != page else label
        return (linked, *result_row(entry)[1:])

    def _curves(self, name: str, page: Path) -> str:
        self._suite(name)
        self.pictures.add(name)
        title = f"Learning curves of the suite {name}: interquartile mean over seeds with its 95 % interval"
        return f"![{title}]({_relative(self.picture(name), page)})"


def _algorithms(results: Mapping[str, Any]) -> set[str]:
    return {entry["algo"] for entry in results["entries"]}


def _listed(suites: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The presets as they are; variants belong to comparisons. One that several suites train is listed once, from the suite
    with the most seeds, of these from one that sets it beside a reference, else from the first."""
    best: dict[str, tuple[int, bool, str]] = {}
    for suite, results in suites.items():
        for entry in results["entries"] if results["listed"] else ():
            place = (-len(entry["runs"]), entry["reference"] is None, suite)
            if entry["name"] == entry["preset"]:
                best[entry["name"]] = min(best.get(entry["name"], place), place)
    chosen = {(suite, name) for name, (*_, suite) in best.items()}
    kept = {name: [e for e in results["entries"] if (name, e["name"]) in chosen] for name, results in suites.items()}
    return {name: {**suites[name], "entries": entries} for name, entries in kept.items() if entries}


def _only(results: Mapping[str, Any], algo: str) -> dict[str, Any]:
    return {**results, "entries": [entry for entry in results["entries"] if entry["algo"] == algo]}


def _legend(sources: list[Mapping[str, Any]]) -> str:
    """How to read the rows, and with what they were made; what all suites share is said once."""
    episodes = " and ".join(str(number) for number in sorted({results["eval_episodes"] for results in sources}))
    made = dict.fromkeys(line for results in sources for line in provenance(results))
    return "\n".join(
        [
            f"Mean return of the last policy on {episodes} episodes: interquartile mean over seeds with a stratified bootstrap",
            "interval, and the worst seed. Minutes: median wall-clock of one run, evaluations included, jobs running side by",
            "side on all cores.",
            "",
            *(f"- {line}" for line in made),
        ]
    )


# what an algorithm takes: the column's head, and whether its options say so
SPACES: dict[str, Callable[[type[CommonOptions]], bool]] = {
    "vectors, choices, Dict, Tuple": lambda _: True,
    "images": lambda options: options.images,
    "own networks": lambda options: issubclass(options, NetworkOptions),
    "Discrete": lambda options: options.discrete,
    "Box": lambda options: options.continuous,
}


def algorithms_table(page: Path) -> str:
    """What there is, from the typed configs and the packaged presets."""
    rows = []
    for name in algorithm_names():
        options = load_options_class(name)
        taken = ["yes" if takes(options) else "" for takes in SPACES.values()]
        presets = ", ".join(f"`{preset}`" for preset in list_presets() if preset.split("/")[0] == name)
        link = _relative(REPOSITORY / "docs" / "algorithms" / f"{name}.md", page)
        rows.append((f"[{name}]({link})", *taken, presets, options.paper))
    return markdown_table(("algorithm", *SPACES, "presets", "paper"), rows)


def options_table(algo: str) -> str:
    """Every option of an algorithm as its typed config describes it."""
    return config_table(load_options_class(algo))


def config_table(config: type[Options]) -> str:
    """Every option of a typed config."""
    rows = [
        (
            f"`{info.name}`",
            f"{info.type}, {info.range}" if info.range else info.type,
            default_words(info.default),
            info.description,
        )
        for info in config.describe()
    ]
    return markdown_table(("option", "takes", "default", "meaning"), rows)


def picture_label(path: Path) -> str | None:
    """The Description in a png, by which one tells what it was drawn from."""
    data = path.read_bytes() if path.is_file() else b""
    at = 8
    while at + 8 <= len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        name, _, text = data[at + 8 : at + 8 + length].partition(b"\0")
        if kind == b"tEXt" and name == b"Description":
            return text.decode("latin-1")
        at += 12 + length
    return None


def stale(tables: Tables) -> dict[Path, str | None]:
    """Every file that is not what the results give, with its new text (None for a picture)."""
    texts = {page: tables.new_text(page) for page in tables.pages()}
    old: dict[Path, str | None] = {page: text for page, text in texts.items() if text != page.read_text(encoding="utf-8")}
    return old | {
        tables.picture(name): None
        for name in sorted(tables.pictures)
        if picture_label(tables.picture(name)) != tables.hashes[name]
    }


def _relative(target: Path, page: Path) -> str:
    return Path(os.path.relpath(target, page.parent)).as_posix()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if something is out of date")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="the repository")
    args = parser.parse_args(argv)
    tables = Tables(args.root)
    try:
        old = stale(tables)
        for path, text in old.items():
            print(f"{'out of date' if args.check else 'written'}: {path.relative_to(args.root)}")
            if args.check:
                continue
            if text is None:
                draw_result_curves(tables.suites[path.stem], path, label=tables.hashes[path.stem])
            else:
                path.write_text(text, encoding="utf-8")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 1 if old and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
