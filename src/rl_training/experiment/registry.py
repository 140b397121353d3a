"""Which algorithms exist. There is no list to edit: `runtime/<name>_trainer.py` with a `SPEC` is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.errors import did_you_mean

if TYPE_CHECKING:
    from rl_training.options.base import CommonOptions


@dataclass(frozen=True)
class AlgorithmSpec:
    """All that the command line, the API, evaluation and resume need to know about an algorithm."""

    name: str
    config: type[CommonOptions]
    build_fn: Callable[..., Any]  # (options, environment spec, device) -> learner
    train_fn: Callable[..., Any]  # (run configuration, ...) -> TrainResult
    evaluate_fn: Callable[..., Any]  # (checkpoint path, ...) -> metrics
    predict_fn: Callable[..., Any]  # (checkpoint path, obs, ...) -> action


def algorithm_names() -> list[str]:
    """Found by looking at the folder; nothing is imported."""
    package = find_spec("rl_training.runtime")
    folders = package.submodule_search_locations if package is not None else None
    files = (path for folder in folders or () for path in Path(folder).glob("*_trainer.py"))
    return sorted(path.stem.removesuffix("_trainer") for path in files)


def get_algorithm_spec(name: str) -> AlgorithmSpec:
    """KeyError with the nearest name when there is none."""
    names = algorithm_names()
    if name not in names:
        raise KeyError(f"there is no algorithm {name!r}{did_you_mean(name, names)}")
    spec: AlgorithmSpec = import_module(f"rl_training.runtime.{name}_trainer").SPEC
    return spec


def list_algorithm_specs() -> list[AlgorithmSpec]:
    return [get_algorithm_spec(name) for name in algorithm_names()]
