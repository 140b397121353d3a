"""Show the options of an algorithm, or a preset.

For an algorithm: every option with what it takes, its default and its meaning; these are the keys of algo_kwargs in a
YAML file and of key=value on the command line. For a preset: what it is for and its YAML.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rl_training.cli.parser import Parser
from rl_training.cli.tables import heading, say, table
from rl_training.errors import ConfigError, nearest
from rl_training.options import algorithm_names
from rl_training.resources import find_packaged_asset, list_presets

if TYPE_CHECKING:
    from rl_training.options.base import Options

RESULT_IS_PRINTED = True
EXAMPLES = """\
  rl-training show ppo
  rl-training show sac/pendulum"""


def add_arguments(parser: Parser) -> None:
    """One word."""
    parser.add_argument("name", metavar="ALGORITHM | PRESET", help="a name from `rl-training list`")


def run(args: argparse.Namespace) -> int:
    """Print it."""
    if args.name in algorithm_names():
        _show_algorithm(args.name)
        return 0
    if args.name in list_presets():
        _show_preset(args.name)
        return 0
    match = nearest(args.name, [*algorithm_names(), *list_presets()])
    hint = f"did you mean {match!r}?" if match else "`rl-training list` prints all names"
    raise ConfigError(f"there is no algorithm or preset {args.name!r}; {hint}")


def _show_algorithm(name: str) -> None:
    from rl_training.experiment.config import TrainConfig
    from rl_training.options import load_options_class

    options = load_options_class(name)
    heading(f"{name}: {options.summary}")
    say(f"Paper: {options.paper}. Written key=value, or below algo_kwargs in YAML.\n")
    _options_table(options)
    for group in dict.fromkeys(options.nested().values()):
        keys = [key for key, kind in options.nested().items() if kind is group]
        say()
        heading(f"Within {', '.join(keys)}")
        _options_table(group)
    say()
    heading("Settings of every run")
    _options_table(TrainConfig)
    presets = [preset for preset in list_presets() if preset.startswith(f"{name}/")]
    say(f"\nPresets: {', '.join(presets) or 'none'}")


def _options_table(options: type[Options]) -> None:
    rows = [
        (info.name, f"{info.type}, {info.range}" if info.range else info.type, default_words(info.default), info.description)
        for info in options.describe()
    ]
    table(("option", "takes", "default", "meaning"), rows)


def default_words(value: Any) -> str:
    """As one would write it in YAML."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(str, value))}]"
    if (given := getattr(value, "model_fields_set", None)) is not None:  # a group of settings: what it says itself
        return f"{{{', '.join(f'{name}: {default_words(getattr(value, name))}' for name in sorted(given))}}}"
    return (
        f"{value:,}".replace(",", "_") if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
    )


def _show_preset(name: str) -> None:
    path = find_packaged_asset(name)
    assert path is not None
    say(path.read_text(encoding="utf-8").rstrip())
    say(f"\n# file: {path}\n# train it: rl-training train {name}")
