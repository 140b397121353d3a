"""The grammar: every file in `commands/` is a command, found by its name and imported when it is used.

A command file has a docstring (first line: what `--help` lists; the rest: its description), `EXAMPLES`, an optional
`USAGE`, `add_arguments(parser)` and `run(args) -> int`. Imports that cost time stand inside its functions.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from rl_training.cli.tables import say
from rl_training.errors import did_you_mean, nearest

PROG = "rl-training"
DESCRIPTION = """\
Train, resume, evaluate and compare reinforcement-learning agents. A run begins from a preset or a YAML file, any
setting of which can be changed by key=value; it is stopped by Ctrl-C without losing a step, and resumed exactly."""
EXAMPLES = """\
  rl-training list                                       what there is to train
  rl-training train ppo/cartpole                         the first run to try, under a minute
  rl-training train sac/pendulum learning_rate=3e-4      the same with one setting changed
  rl-training eval --checkpoint runs/RUN                 how good is it?
  rl-training resume --checkpoint runs/RUN               go on where it stopped"""
EXIT_CODES = "0 done, 1 failure, 2 bad input, 3 run directory in use, 129/130/143 interrupted and saved"


class Parser(argparse.ArgumentParser):
    """Options and words may come in any order, and a mistyped one is answered with the nearest."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings)
        self.takes_settings = False  # whether key=value is understood

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        try:
            args, strangers = self.parse_known_intermixed_args(list(argv))
        except TypeError:  # a command with commands of its own cannot mix
            args, strangers = self.parse_known_args(list(argv))
        if strangers:
            self.error(self._about(strangers[0]))
        return args

    def _about(self, stranger: str) -> str:
        flag = stranger.partition("=")[0]
        match = nearest(flag, self._option_string_actions)
        setting = _setting(flag.lstrip("-").replace("-", "_")) if self.takes_settings else None
        if not flag.startswith("-"):
            hint = "; it takes no more words"
        elif setting and f"--{setting.replace('_', '-')}" not in self._option_string_actions:
            hint = f"; settings are written without dashes: {setting}=value"
        elif match:
            hint = f"; did you mean {match!r}?"
        else:
            hint = "; `rl-training config` prints what would be trained" if flag == "--dry-run" else ""
        return f"{self.prog} does not know {flag!r}{hint}"

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n{self.format_usage().rstrip()}\nMore: {self.prog} --help\n")


def _setting(name: str) -> str | None:
    """The setting that is meant: one of ours, or one that has another name in other libraries."""
    from rl_training.experiment.config import TrainConfig
    from rl_training.options import algorithm_names, load_options_class
    from rl_training.options._foreign import name_here

    known = {*TrainConfig.model_fields, *(key for algo in algorithm_names() for key in load_options_class(algo).model_fields)}
    return name if name in known else name_here(name, known)


@dataclass(frozen=True)
class Command:
    """One file in `commands/`."""

    name: str
    module: Any

    @property
    def summary(self) -> str:
        return str(self.module.__doc__ or "").partition("\n")[0]

    @property
    def result_is_printed(self) -> bool:
        """Rather than left in files, which are good whether anybody could be told of them or not."""
        return getattr(self.module, "RESULT_IS_PRINTED", False)

    def run(self, args: argparse.Namespace) -> int:
        return int(self.module.run(args))

    def parser(self) -> Parser:
        parser = Parser(
            prog=f"{PROG} {self.name}",
            usage=getattr(self.module, "USAGE", None),
            description=str(self.module.__doc__ or "").strip(),
            epilog=f"examples:\n{self.module.EXAMPLES}",
        )
        self.module.add_arguments(parser)
        _add_global_flags(parser)
        return parser


def command_names() -> list[str]:
    """Found by looking at the folder; nothing is imported."""
    files = (Path(__file__).parent / "commands").glob("[!_]*.py")
    return sorted(path.stem for path in files)


def load_command(name: str) -> Command:
    return Command(name, import_module(f"rl_training.cli.commands.{name}"))


def parse(argv: list[str]) -> tuple[Command, argparse.Namespace]:
    """The command and its arguments; SystemExit where help was asked for or the words make no sense."""
    # flags before the command take no value, so the first word is the command
    first = next((index for index, word in enumerate(argv) if not word.startswith("-")), len(argv))
    names = command_names()
    top = _top_parser(names)
    before = top.parse(argv[:first])
    if before.version:
        from rl_training import __version__

        say(f"{PROG} {__version__}")
        top.exit(0)
    if first == len(argv):
        top.print_help()
        top.exit(2)
    if argv[first] == "help":  # `help` and `help train` are what people try
        return parse([*argv[first + 1 : first + 2], "--help"])
    if argv[first] not in names:
        top.error(f"there is no command {argv[first]!r}{did_you_mean(argv[first], names)}")
    command = load_command(argv[first])
    args = command.parser().parse(argv[first + 1 :])
    args.debug, args.verbose = args.debug or before.debug, args.verbose or before.verbose
    return command, args


def _top_parser(names: Sequence[str]) -> Parser:
    parser = _TopParser(prog=PROG, usage=f"{PROG} COMMAND [arguments]", description=DESCRIPTION)
    parser.names = names
    parser.add_argument("--version", action="store_true", help="print the version and leave")
    _add_global_flags(parser)
    return parser


class _TopParser(Parser):
    names: Sequence[str] = ()

    def format_help(self) -> str:
        """Only here every command is imported, for its summary."""
        width = max(len(name) for name in self.names)
        commands = "\n".join(f"  {name:<{width}}  {load_command(name).summary}" for name in self.names)
        more = f"`{PROG} COMMAND --help` tells more about one of them.\nExit codes: {EXIT_CODES}."
        self.epilog = f"commands:\n{commands}\n\nexamples:\n{EXAMPLES}\n\n{more}"
        return super().format_help()


def _add_global_flags(parser: Parser) -> None:
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error (also RL_TRAINING_DEBUG=1)")
    parser.add_argument("--verbose", action="store_true", help="tell more on stderr about what is being done")
