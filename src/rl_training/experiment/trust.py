"""What a checkpoint names that would run code here, and whether it may.

A checkpoint is data, but its configuration may name modules to import: an environment `module:Id`, functions, sinks. A name is
followed where this program was told to train with it or to trust the checkpoint, where it is an environment's and its module is
imported already, and where this user has trained with it before in the same folder of runs: that is written down in the user's
home. Built-in names run nothing that is not here anyway.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from rl_training.errors import UntrustedError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.files import read_plain, write_text
from rl_training.experiment.locate import run_directory_of
from rl_training.experiment.sinks import KNOWN

logger = logging.getLogger(__name__)

Trust: TypeAlias = "bool | Collection[str]"
"""Whether all that a checkpoint names may be followed, or the names that may."""

_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_named_here: set[str] = set()  # by a configuration that this program has trained with


class Named(NamedTuple):
    """A setting, and what it names."""

    setting: str
    name: str

    def __str__(self) -> str:
        return f"{self.setting} {self.name!r}"


def named_code(config: TrainConfig) -> list[Named]:
    """All that training by this configuration would import, or connect to as to a part of itself."""
    sinks = [Named("sinks", name) for name in config.sinks if name not in KNOWN]
    # the machines of a cluster send objects that are unpickled here
    cluster = [Named("ray_address", address)] if (address := config.ray_address) not in (None, "auto") else []
    found = [*named_for_envs(config), *_paths_in(config.algo_kwargs, "algo_kwargs"), *sinks, *cluster]
    return [*found, *_paths_in(config.sink_kwargs, "sink_kwargs")]


def named_for_envs(config: TrainConfig) -> list[Named]:
    """What making its environments would import."""
    own = [Named("env_id", config.env_id)] if ":" in config.env_id else []
    return [*own, *_paths_in(config.env_kwargs, "env_kwargs")]


def named_to_act(config: TrainConfig) -> list[Named]:
    """What choosing an action would import: the learner is made of it."""
    kept = {name: value for name, value in config.algo_kwargs.items() if name not in config.options.only_to_learn}
    return list(_paths_in(kept, "algo_kwargs"))


def require_trust(named: Iterable[Named], file: Path, *, trust: Trust = False) -> None:
    """UntrustedError where a checkpoint names what nobody has answered for."""
    if trust is True:
        return
    run_dir = run_directory_of(file)
    known = {*(trust or ()), *_named_here, *(() if run_dir is None else _trained_with(run_dir.parent))}
    if strange := [entry for entry in named if entry.name not in known and not _is_loaded(entry)]:
        raise UntrustedError(
            f"{file}: names code that would run here: {', '.join(map(str, strange))}. If you trust whoever made it, say so: "
            "--trust, in Python trust=True"
        )


def remember(named: Collection[Named], *, run_dir: Path | None = None) -> None:
    """The user has trained with these: this program follows them from here on, and with the directory of a run that was begun
    with them, later programs in its folder."""
    _named_here.update(entry.name for entry in named)
    if run_dir is None or not named:
        return
    before = _trained_with(run_dir.parent)
    names = sorted(before | {entry.name for entry in named})
    path = _record_of(run_dir.parent)
    if path is None or before.issuperset(names):
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_text(path, json.dumps({"folder": str(run_dir.parent.resolve()), "names": names}, indent=1) + "\n")
    except OSError as error:  # then `resume` will ask for --trust
        logger.debug("%s: cannot be written: %s", path, error)


def needs_trust(config: TrainConfig, run_dir: Path) -> bool:
    """Whether another program would have to be told to trust this run."""
    return not _trained_with(run_dir.parent).issuperset(entry.name for entry in named_code(config))


def _trained_with(folder: Path) -> set[str]:
    """What runs in this folder were begun with by this user, on this machine."""
    path = _record_of(folder)
    try:
        names = json.loads(read_plain(path))["names"] if path is not None else []
        return {name for name in names if isinstance(name, str)}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return set()


def _record_of(folder: Path) -> Path | None:
    """Where it is written down; None for a user without a home."""
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        state = Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    digest = blake2b(os.fsencode(folder.resolve()), digest_size=16).hexdigest()
    return state / "rl_training" / "trained_with" / f"{digest}.json"


def _is_loaded(entry: Named) -> bool:
    """Whether making an environment of this id imports nothing more, as the program has imported its module itself."""
    return entry.setting == "env_id" and entry.name.partition(":")[0] in sys.modules


def _paths_in(tree: Any, where: str) -> Iterator[Named]:
    """Texts that are written as import paths, wherever they stand: what a setting means need not be known here."""
    if isinstance(tree, str):
        if _IMPORT_PATH.fullmatch(tree):
            yield Named(where, tree)
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _paths_in(value, f"{where}.{key}")
    elif isinstance(tree, list | tuple):
        for number, value in enumerate(tree):
            yield from _paths_in(value, f"{where}.{number}")
