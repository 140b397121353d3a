"""What MkDocs does beyond Markdown: the order of pages, reference pages made from the code, formulas as MathML.

Every page of docs/ is in the navigation by itself: it belongs to the section of its folder. Pages that stand elsewhere in the
repository (CONTRIBUTING.md, the examples) are taken in too, and links between all of them are made to fit the site.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parents[1]

# folder of docs/: its section; pages that stand in none of these folders belong to the last one
SECTIONS = {
    "howto": "How-to",
    "algorithms": "Algorithms",
    "explanation": "Explanation",
    "reference": "Reference",
    "examples": "Examples",
    "decisions": "Decisions",
    "plans": "Plans",
}
REST = "Project"
FIRST = ["index.md", "tutorial.md"]
# what a newcomer reads first within a section; pages that are not named follow in the order of their names
LEADING = {
    "How-to": [
        "own-environment",
        "images",
        "mixed-spaces",
        "own-networks",
        "own-data",
        "resume-after-a-crash",
        "compare-algorithms",
        "report",
        "tune",
        "new-algorithm",
    ],
    "Reference": ["index", "command-line", "config", "presets"],
}
# pages of the site that stand elsewhere in the repository
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "README.md": "index.md",
    "benchmarks/learning/README.md": "benchmarks.md",
}
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL)

# modules by page of the reference
MODULES = {
    "api": ("The managed classes", ["rl_training.api.managed", "rl_training.api.algorithms"]),
    "runs": (
        "Runs and workflows",
        [
            "rl_training.runtime.workflows",
            "rl_training.experiment.registry",
            "rl_training.experiment.default_manager",
            "rl_training.experiment.run_logger",
            "rl_training.experiment.sinks",
            "rl_training.shipping.export",
            "rl_training.shipping.video",
            "rl_training.experiment.checkpoint",
            "rl_training.reports.statistics",
        ],
    ),
    "training": (
        "Callbacks, session and loops",
        [
            "rl_training.runtime.callbacks",
            "rl_training.runtime.session",
            "rl_training.runtime.opening",
            "rl_training.runtime.loops",
            "rl_training.runtime.offline_loop",
            "rl_training.runtime.evolution",
            "rl_training.runtime.collector",
        ],
    ),
    "learners": ("Learners and losses", ["rl_training.algorithms.base", "rl_training.kernels.differentiable"]),
    "models": ("Networks", []),
    "data": (
        "Data",
        [
            "rl_training.data.replay_buffer",
            "rl_training.data.rollout",
            "rl_training.data.offline_dataset",
            "rl_training.data.mixed_source",
            "rl_training.data.recorded_data",
            "rl_training.data.dataset_files",
            "rl_training.data.minari_files",
        ],
    ),
    "environments": ("Environments", ["rl_training.envs.source", "rl_training.envs.spaces", "rl_training.envs.vector"]),
    "types": ("Types and errors", ["rl_training.types", "rl_training.errors"]),
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The reference is made by this repository's sources, installed or not."""
    sys.path[0:0] = [str(REPOSITORY / "src"), str(REPOSITORY / "benchmarks" / "learning")]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here, then put all of them in order."""
    for source, uri in _elsewhere().items():
        if uri != "index.md":
            files.append(File.generated(config, uri, content=(REPOSITORY / source).read_text(encoding="utf-8")))
    for uri, text in _reference().items():
        files.append(File.generated(config, uri, content=text))
    config.nav = navigation([file.src_uri for file in files.documentation_pages()])
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Links are written for the repository; in the site they lead to its pages."""
    home = {uri: source for source, uri in _elsewhere().items() if uri != "index.md"}
    source = home.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return LINK.sub(lambda match: _fitted(match, source, page.file.src_uri), markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas become MathML, which browsers draw themselves: no script, nothing to fetch."""
    return FORMULA.sub(lambda match: _mathml(match["latex"], block=match["tag"] == "div"), content)


def navigation(uris: list[str]) -> list[Any]:
    """The first pages, then the sections; a page that nobody thought of is in the last section."""
    sections: dict[str, list[str]] = {title: [] for title in [*SECTIONS.values(), REST]}
    for uri in uris:
        if uri not in FIRST:
            sections[SECTIONS.get(uri.split("/")[0], REST) if "/" in uri else REST].append(uri)
    first: list[Any] = [uri for uri in FIRST if uri in uris]
    return first + [{title: _ordered(title, pages)} for title, pages in sections.items() if pages]


def _ordered(title: str, uris: list[str]) -> list[str]:
    leading = ["index", *LEADING.get(title, [])]

    def place(uri: str) -> tuple[int, str]:
        stem = posixpath.basename(uri).removesuffix(".md")
        return leading.index(stem) if stem in leading else len(leading), uri

    return sorted(uris, key=place)


def _elsewhere() -> dict[str, str]:
    readmes = sorted(REPOSITORY.glob("examples/*/README.md"))
    return ELSEWHERE | {path.relative_to(REPOSITORY).as_posix(): f"examples/{path.parent.name}.md" for path in readmes}


def _fitted(match: re.Match[str], source: str, uri: str) -> str:
    """The link as it must be on page `uri`, which was written as `source` of the repository."""
    target = match["target"]
    if re.match(r"[a-z]+:", target):
        return match[0]
    there = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if there.startswith("docs/"):
        page: str | None = there.removeprefix("docs/")
    else:
        page = _elsewhere().get(there)
    if page is not None:
        return f"[{match['text']}]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{match['anchor'] or ''})"
    if (REPOSITORY / there).exists():  # a file that is no page: its name is all the site can say
        return f"{match['text']} (`{there}`)"
    return match[0]  # MkDocs complains


def _mathml(latex: str, *, block: bool) -> str:
    mathml = str(convert(html.unescape(latex), display="block" if block else "inline"))
    unknown = re.findall(r"\\[a-zA-Z]+", mathml)
    if unknown:
        raise PluginError(f"latex2mathml does not know {', '.join(sorted(set(unknown)))} in: {latex}")
    return f'<div class="formula">{mathml}</div>' if block else mathml


def _reference() -> dict[str, str]:
    pages = {"reference/command-line.md": _command_line(), "reference/config.md": _config(), "reference/presets.md": _presets()}
    pages |= {f"reference/{stem}.md": _modules(stem, title, modules) for stem, (title, modules) in MODULES.items()}
    links = "\n".join(f"- [{text.splitlines()[0][2:]}]({posixpath.basename(uri)})" for uri, text in pages.items())
    intro = "Made from the code when the site is built. What users may rely on is what the packages export.\n"
    algorithms = "# Algorithms\n\nOne page each, with the equations, all options, departures from the paper and results.\n\n"
    return pages | {
        "reference/index.md": f"# Reference\n\n{intro}\n{links}\n",
        "algorithms/index.md": algorithms + _algorithms_table(),
    }


def _modules(stem: str, title: str, modules: list[str]) -> str:
    from rl_training.options import algorithm_names

    names = list(modules)
    if stem == "learners":
        names[1:1] = [f"rl_training.algorithms.{name}" for name in algorithm_names()]
    elif stem == "models":
        names += [
            f"rl_training.models.{path.stem}" for path in sorted((REPOSITORY / "src/rl_training/models").glob("[!_]*.py"))
        ]
    return f"# {title}\n\n" + "\n\n".join(f"::: {name}" for name in names) + "\n"


def _command_line() -> str:
    os.environ["COLUMNS"] = "100"  # what argparse wraps its help to
    from rl_training.cli.parser import command_names, load_command

    parts = ["# Command line", "`rl-training COMMAND --help` prints the same."]
    for name in command_names():
        command = load_command(name)
        parts += [f"## {name}", f"```text\n{command.parser().format_help().strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def _config() -> str:
    from tables import config_table

    from rl_training.experiment.config import TrainConfig
    from rl_training.options.base import CommonOptions, EarlyStopping
    from rl_training.options.schedules import Schedule

    parts = [
        "# Configuration",
        "A run is described by a `TrainConfig`: a YAML file, keywords of a managed class, or `key=value` on the command line. "
        "An unknown key or a value out of range is an error before any file is made.",
        "## TrainConfig",
        config_table(TrainConfig),
        "## algo_kwargs of every algorithm",
        "The others stand on [each algorithm's page](../algorithms/index.md); `rl-training show ALGO` prints them.",
        config_table(CommonOptions),
        "## early_stopping",
        config_table(EarlyStopping),
        "## Schedules",
        "An option with an option `NAME_schedule` beside it can change while training runs.",
        config_table(Schedule),
    ]
    return "\n\n".join(parts) + "\n"


def _presets() -> str:
    from rl_training.resources import find_preset, list_presets

    parts = ["# Presets", "Complete configurations. `rl-training train NAME` trains one."]
    for name in list_presets():
        parts += [f"## {name}", f"```yaml\n{find_preset(name).read_text(encoding='utf-8').strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def _algorithms_table() -> str:
    from tables import algorithms_table

    return algorithms_table(REPOSITORY / "docs" / "algorithms" / "index.md") + "\n"
