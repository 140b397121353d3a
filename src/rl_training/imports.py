"""Classes and functions that settings name by their import path, `package.module:Name`: the one place that imports them.

A path may come out of a stranger's file, and importing runs code: who may name one is decided by whoever calls.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError, did_you_mean

IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def is_import_path(text: str) -> bool:
    """Whether it is written as one."""
    return IMPORT_PATH.fullmatch(text) is not None


def imported(path: str, *, option: str) -> Any:
    """What stands at the path; ConfigError says what is missing."""
    module_name, _, attributes = path.partition(":")
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{option}: {path!r} could not be imported: {_missing(module_name, error)}") from error
    except Exception as error:
        text = f"{module_name} raised {type(error).__name__}: {error}"
        raise ConfigError(f"{option}: {path!r} could not be imported: {text}") from error
    for name in attributes.split("."):
        if not hasattr(found, name):
            public = [known for known in vars(found) if not known.startswith("_")]
            raise ConfigError(
                f"{option}: {path!r} could not be imported: there is no {name!r} in it{did_you_mean(name, public)}"
            )
        found = getattr(found, name)
    return found


def import_path_of(kind: type) -> str:
    """Where a class can be imported from; ConfigError for one that no later process could import."""
    module, name = kind.__module__, kind.__qualname__
    if module == "__main__" or "<locals>" in name:
        where = "the script or notebook itself" if module == "__main__" else "a function"
        raise ConfigError(
            f"{kind.__name__} is defined in {where}, from where no later process can import it to resume or predict; put it "
            f"into a module, as my_nets.py, and give it as 'my_nets:{kind.__name__}'"
        )
    return f"{module}:{name}"


def _missing(module: str, error: ModuleNotFoundError) -> str:
    """The module itself, or something that it imports."""
    if error.name is not None and not f"{module}.".startswith(f"{error.name}."):
        return f"{module} needs {error.name!r}, which is not installed"
    where = f"neither in the current folder ({Path.cwd()}) nor among the installed packages"
    return f"there is no module {error.name or module!r}, {where}; run from the folder that it is in, or install it"


def source_hash(found: Any) -> str | None:
    """SHA-256 of the file that defines a class or function; None where it comes from no file, as in a notebook."""
    try:
        source = inspect.getsourcefile(found)
        return None if source is None else hashlib.sha256(Path(source).read_bytes()).hexdigest()
    except (OSError, TypeError):
        return None
