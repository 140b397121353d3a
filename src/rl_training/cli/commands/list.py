"""List the algorithms and the presets.

A preset is a complete, tried configuration; `rl-training show PRESET` prints it and `rl-training train PRESET` runs it.
"""

from __future__ import annotations

import argparse

from rl_training.cli.parser import Parser
from rl_training.cli.tables import heading, say, table

RESULT_IS_PRINTED = True
EXAMPLES = """\
  rl-training list
  rl-training list | grep cartpole"""


def add_arguments(parser: Parser) -> None:
    """None."""


def run(args: argparse.Namespace) -> int:  # noqa: ARG001
    """From the files alone: neither torch nor pydantic is imported, so it answers at once."""
    from rl_training.options import algorithm_names, class_constants
    from rl_training.resources import find_preset, list_presets

    heading("Algorithms")
    facts_of = {name: class_constants(name) for name in algorithm_names()}
    table(
        ("name", "actions", "what it is"),
        [(name, _actions(facts), str(facts.get("summary", ""))) for name, facts in facts_of.items()],
    )
    say()
    heading("Presets")
    table(
        ("name", "what it is for"), [(name, purpose(find_preset(name).read_text(encoding="utf-8"))) for name in list_presets()]
    )
    say()
    say("More: rl-training show ALGORITHM, rl-training show PRESET; begin with: rl-training train ppo/cartpole")
    return 0


def _actions(facts: dict[str, object]) -> str:
    return " and ".join(kind for kind in ("discrete", "continuous") if facts.get(kind))


def purpose(text: str) -> str:
    """What a preset is for: the comment it begins with."""
    lines = text.splitlines()
    end = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return " ".join(line.lstrip("# ").rstrip() for line in lines[:end])
