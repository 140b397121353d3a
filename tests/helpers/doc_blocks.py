"""The code blocks of README and docs, and how each kind is run: all in one process, in a folder of their own.

- `python` is executed, the blocks of a page one after another in one namespace; `bash` is run line by line.
- A block with `title="NAME"` is the file NAME, which later blocks use.
- `yaml` must be readable, and right where it is a whole configuration. `text` is what somebody sees; it is not run.
- `<!-- not run: REASON -->` on the line before a block leaves it out; a python block must still compile.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import REPOSITORY
from rl_training.cli import main
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.yaml_loader import parse_yaml

FENCE = re.compile(
    r"(?:^[ ]*<!-- not run: (?P<reason>[^\n]+?) -->\n+)?"
    r"^(?P<indent>[ ]*)```(?P<kind>[\w-]*)(?P<rest>[^\n]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
KINDS = ("python", "bash", "yaml", "text")
SOURCES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/*/README.md", "benchmarks/*/README.md")
EXTRAS = set(re.findall(r"^([a-z0-9]+) = \[", (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE))
TARGETS = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block, as it stands in its page."""

    where: str  # page:line
    kind: str
    text: str
    title: str | None = None
    reason: str | None = None  # why it is not run


def pages() -> list[Path]:
    """Everything a user reads that may hold code."""
    return sorted({path for pattern in SOURCES for path in REPOSITORY.glob(pattern)})


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page from top to bottom."""
    return list(parse_blocks(page.read_text(encoding="utf-8"), page.relative_to(REPOSITORY).as_posix()))


def parse_blocks(text: str, name: str) -> Iterator[Block]:
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("indent")) + 1
        body = "".join(part.removeprefix(match["indent"]) for part in match["text"].splitlines(keepends=True))
        title = re.search(r'title="([^"]+)"', match["rest"])
        yield Block(f"{name}:{line}", match["kind"], body, title[1] if title else None, match["reason"])


class Runner:
    """Runs the blocks of one page in the current folder."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {"__name__": "page"}

    def run(self, block: Block) -> None:
        if block.kind == "python":
            code = compile(block.text, block.where, "exec")
        if block.reason is not None or block.kind == "text":
            return
        if block.title is not None:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf-8")
        if block.kind == "yaml":
            check_yaml(block)
        elif block.kind == "bash":
            for line in block.text.replace("\\\n", " ").splitlines():
                run_line(shlex.split(line, comments=True), f"{block.where}: {line}")
        elif block.title is None:
            exec(code, self.namespace)


def check_yaml(block: Block) -> None:
    """Readable, and a configuration that is complete is right."""
    values = parse_yaml(block.text, source=block.where)
    if isinstance(values, dict) and "algo" in values and "env_id" in values:
        TrainConfig.from_dict(values)


def run_line(words: list[str], where: str) -> None:
    """One line of a bash block; what is not understood here wants a marker."""
    if not words:
        return
    program, *arguments = words
    assert not {"|", "&&", ";", ">"} & set(words), f"{where}: plain commands only, or mark the block as not run"
    if program == "rl-training":
        code = main(arguments)
        assert code == 0, f"{where}: exit code {code}"
    elif program == "make":
        assert arguments[0] in TARGETS, where
    elif words[:2] == ["pip", "install"]:
        extras = {extra.strip() for group in re.findall(r"\[([^\]]+)\]", " ".join(words)) for extra in group.split(",")}
        assert extras <= EXTRAS, f"{where}: there are no extras {extras - EXTRAS}"
    elif program == "python" and arguments[0].endswith(".py"):
        run_script(arguments)
    else:
        raise AssertionError(f"{where}: {program!r} is not run by this test; mark the block with <!-- not run: REASON -->")


def run_script(arguments: list[str]) -> None:
    """A script in this process: starting another would cost more than most scripts do."""
    path = Path(arguments[0]) if Path(arguments[0]).exists() else REPOSITORY / arguments[0]
    before, paths = sys.argv, list(sys.path)
    sys.argv = [str(path), *arguments[1:]]
    sys.path.insert(0, str(path.parent))
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as error:
        if error.code:
            raise AssertionError(f"{path} ended with {error.code}") from error
    finally:
        sys.argv, sys.path[:] = before, paths
