"""From what happened to an exit code and one readable block on stderr."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Sequence

from rl_training.cli.logs import logging_to_stderr
from rl_training.cli.parser import parse
from rl_training.cli.streams import drop, output_is_lost, prepare_streams, write
from rl_training.cli.tables import say_error
from rl_training.errors import NumericsError, RLTrainingError, RunBusyError, TrainingInterrupted, words_of

FAILURE, BAD_INPUT, BUSY, BY_SIGNAL = 1, 2, 3, 128


def run_command(argv: Sequence[str]) -> int:
    """Parse and run; whatever is raised on the way becomes an exit code."""
    prepare_streams()
    debug = os.environ.get("RL_TRAINING_DEBUG", "0") not in ("", "0")
    try:
        try:
            command, args = parse(list(argv))
        except SystemExit as error:  # argparse leaves this way; whoever else does has not done what was asked
            write("", sys.stdout)
            return _unless_lost(error.code if isinstance(error.code, int) else FAILURE)
        debug = debug or args.debug
        with logging_to_stderr(verbose=args.verbose):
            code = command.run(args)
        write("", sys.stdout)  # here, where a closed pipe is still understood
    except BrokenPipeError:
        return _reader_is_gone()
    except BaseException as error:  # noqa: BLE001 (the outermost frame: nobody else would make it readable)
        if debug:
            traceback.print_exc()
        return _explain(error)
    return _unless_lost(code) if command.result_is_printed else code


def _unless_lost(code: int) -> int:
    return BAD_INPUT if not code and output_is_lost() else code


def _explain(error: BaseException) -> int:
    if isinstance(error, TrainingInterrupted):
        say_error(str(error), label="")
        return BY_SIGNAL + error.signum
    if isinstance(error, KeyboardInterrupt):
        say_error("interrupted; what was saved before is still there", label="")
        return BY_SIGNAL + signal.SIGINT
    if isinstance(error, RLTrainingError):
        say_error(str(error))
        if isinstance(error, RunBusyError):
            return BUSY
        # numbers that stop being finite are the outcome of training, not something that was given
        return FAILURE if isinstance(error, NumericsError) else BAD_INPUT
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # whoever looks for a file may meet it
        name = str(error.filename)
        say_error(f"no file can have this name, it is too long ({len(name):,} characters): {name[:60]}...")
        return BAD_INPUT
    say_error(f"{words_of(error)}\nThis was not expected; --debug shows where it happened.")
    return FAILURE


def _reader_is_gone() -> int:
    """`rl-training list | head -1`: leave silently, and keep python from complaining when it flushes at its end."""
    drop(sys.stdout)
    return BY_SIGNAL + signal.SIGPIPE
