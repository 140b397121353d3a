"""What could come next on a command line: asked by the shell at every Tab, so nothing heavy is imported."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Sequence

from rl_training.cli.parser import Parser, command_names, load_command
from rl_training.options import algorithm_names
from rl_training.resources import list_presets

FILES = "\0files"  # the shell itself completes paths
_PRESET_COMMANDS = ("train", "config", "tune")
_GLOBAL = ("--help", "--version", "--debug", "--verbose")


def candidates(line: str) -> list[str]:
    """Everything that may stand in place of the last word of `line`, a command line up to the cursor; `FILES` for paths."""
    words = split_line(line)[1:]
    current = words.pop() if words else ""
    command = next((word for word in words if not word.startswith("-")), None)
    if command is None:
        return _matching(_GLOBAL if current.startswith("-") else command_names(), current)
    if command not in command_names():
        return []
    parser = load_command(command).parser()
    given = words[words.index(command) + 1 :]
    return _matching(_possible(command, parser, given, current), current)


def split_line(line: str) -> list[str]:
    """The words of a line as the shell would cut them; the last one is empty after a blank, and quotes may be open."""
    for closing in ("", "'", '"'):
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        return [*words, ""] if not closing and (not line or line[-1].isspace()) else words
    return line.split()


def _matching(possible: Iterable[str], current: str) -> list[str]:
    return sorted({word for word in possible if word == FILES or word.startswith(current)})


def _possible(command: str, parser: Parser, given: Sequence[str], current: str) -> Iterable[str]:
    if given and (action := _expects_value(parser, given[-1])) is not None:
        return _searched(given) if action.dest == "search" else _values(action)
    if current.startswith("-"):
        return [flag for flag in parser._option_string_actions if flag.startswith("--")]
    if command in _PRESET_COMMANDS:
        return _settings(given, current)
    if command == "show":
        return [*algorithm_names(), *list_presets()]
    choices = [str(choice) for action in parser._actions if not action.option_strings for choice in action.choices or ()]
    return choices if choices and not set(choices) & set(given) else [FILES]


def _expects_value(parser: Parser, word: str) -> argparse.Action | None:
    action = parser._option_string_actions.get(word)
    return action if action is not None and action.nargs in (None, "?") and action.metavar != argparse.SUPPRESS else None


def _values(action: argparse.Action) -> list[str]:
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    fixed = {"device": ["auto", "cpu", "cuda"], "execution_backend": _choices("execution_backend", None), "sinks": _sinks()}
    return fixed.get(action.dest, [FILES] if action.metavar in ("PATH", "DIR", "FILE", "PICTURE") else [])


def _sinks() -> list[str]:
    from rl_training.experiment.sinks import KNOWN

    return [*KNOWN, "none"]


def _settings(given: Sequence[str], current: str) -> Iterable[str]:
    """A preset or an algorithm first; then key=value, where the keys are those of the algorithm."""
    key, equals, _ = current.partition("=")
    algo = _algorithm(given)
    if equals:
        return [f"{key}={value}" for value in _choices(key.removeprefix("algo_kwargs."), algo)]
    if algo is None and "--config" not in given:
        return [*algorithm_names(), *list_presets()]
    return [f"{name}=" for name in _keys(algo)]


def _algorithm(given: Sequence[str]) -> str | None:
    known = {*algorithm_names(), *list_presets()}
    return next((word.partition("/")[0] for word in given if word in known), None)


def _searched(given: Sequence[str]) -> list[str]:
    """The options for which a range is declared."""
    from rl_training.options import load_options_class

    algo = _algorithm(given)
    return list(load_options_class(algo).search_space) if algo else []


def _keys(algo: str | None) -> list[str]:
    from rl_training.experiment.config import TrainConfig
    from rl_training.options import load_options_class

    options = load_options_class(algo) if algo else None
    groups = options.nested() if options else {}
    dotted = [f"{name}.{inner}" for name, group in groups.items() for inner in group.model_fields]
    return [*TrainConfig.model_fields, *(options.model_fields if options else ()), *dotted]


def _choices(key: str, algo: str | None) -> list[str]:
    """The values of an option that takes one of a few; its default for any other."""
    from rl_training.cli.commands.show import default_words
    from rl_training.experiment.config import TrainConfig
    from rl_training.options import load_options_class
    from rl_training.options._words import choices, members
    from rl_training.options.base import Options

    owners: list[type[Options]] = [TrainConfig, *([load_options_class(algo)] if algo else [])]
    owner = next((owner for owner in owners if key in owner.model_fields), None)
    if owner is None:
        return []
    field = owner.model_fields[key]
    known = choices(field.annotation)
    if bool in members(field.annotation):
        return ["true", "false"]
    return known or ([] if field.is_required() else [default_words(field.default).replace(" ", "")])
