"""The settings of every algorithm: one file each, found by its name. Importing this package imports nothing heavy.

`rl-training list` must answer at once, so names and one-line facts are read from the files without running them.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.errors import ConfigError, did_you_mean
from rl_training.options._foreign import algorithm_hint

if TYPE_CHECKING:
    from rl_training.options.base import CommonOptions

__all__ = ["algorithm_names", "class_constants", "load_options_class", "summaries"]

_FOLDER = Path(__file__).parent
_NOT_ALGORITHMS = {"base", "schedules"}


def algorithm_names() -> list[str]:
    """Every algorithm that has an options file; a new file is found without being listed anywhere."""
    stems = (path.stem for path in _FOLDER.glob("*.py"))
    return sorted(stem for stem in stems if not stem.startswith("_") and stem not in _NOT_ALGORITHMS)


def load_options_class(name: str) -> type[CommonOptions]:
    """The typed config of one algorithm, or ConfigError with the nearest name."""
    names = algorithm_names()
    if name not in names:
        if hint := algorithm_hint(str(name)):
            raise ConfigError(hint)
        raise ConfigError(f"there is no algorithm {name!r}{did_you_mean(str(name), names)}")
    from rl_training.options.base import CommonOptions

    module = import_module(f"{__name__}.{name}")
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, CommonOptions) and value.__module__ == module.__name__:
            return value
    raise ConfigError(f"options/{name}.py defines no class below CommonOptions")


def class_constants(name: str) -> dict[str, object]:
    """What `options/<name>.py` writes down as plain class constants (algo, summary, paper, ...), without importing it."""
    tree = ast.parse((_FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    statements = [statement for node in tree.body if isinstance(node, ast.ClassDef) for statement in node.body]
    return {
        statement.target.id: statement.value.value
        for statement in statements
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(statement.value, ast.Constant)
    }


def summaries() -> dict[str, str]:
    """One line per algorithm, by name."""
    return {name: str(class_constants(name).get("summary", "")) for name in algorithm_names()}
