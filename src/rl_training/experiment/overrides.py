"""`key=value` on the command line: a change to a config, named by its path or by its short name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, get_origin

from rl_training.errors import ConfigError, did_you_mean, nearest
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.yaml_loader import parse_yaml
from rl_training.options import load_options_class
from rl_training.options._foreign import foreign_hint
from rl_training.options._words import members
from rl_training.options.base import Options

FREE_KEYS = ("env_kwargs", "benchmark", "sink_kwargs")  # mappings whose keys are not ours to know


def apply_overrides(values: Mapping[str, Any], pairs: Iterable[str]) -> dict[str, Any]:
    """A copy of `values` with every `key=value` put where it belongs; of two for one key the later counts."""
    changed = deepcopy(dict(values))
    problems: list[str] = []
    # the algorithm decides what the other keys mean, so it is set first
    for pair in sorted(pairs, key=lambda pair: not pair.startswith("algo=")):
        problems += _apply(changed, pair)
    if problems:
        raise ConfigError("\n".join(problems))
    return changed


def _apply(values: dict[str, Any], pair: str) -> list[str]:
    """Put one pair into `values`; gives the problem with it, if there is one."""
    try:
        key, value = _parse(pair)
        algo = values.get("algo")
        if key == "algo":
            load_options_class(value)
        _put(values, resolve_key(key, algo), value, algo)
    except ConfigError as error:
        return [f"override {pair!r}: {error}"]
    return []


def nest(values: Mapping[str, Any], algo: str) -> dict[str, Any]:
    """Flat keywords sorted into a config: those of TrainConfig at the top, the algorithm's options below algo_kwargs."""
    return change({"algo": algo}, values)


def change(config: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a config's values with flat keywords put where they belong."""
    changed = deepcopy(dict(config))
    algo = changed.get("algo")
    for key in sorted(settings, key=lambda key: key != "algo_kwargs"):  # first, so that it does not replace a single option
        _put(changed, resolve_key(key, algo), settings[key], algo)
    return changed


def resolve_key(key: str, algo: Any) -> tuple[str, ...]:
    """The full path of a key; a field of TrainConfig comes before an option of the algorithm."""
    options = load_options_class(algo) if algo is not None else None
    path = tuple(key.split("."))
    if path[0] not in TrainConfig.model_fields and options is not None and path[0] in options.model_fields:
        path = ("algo_kwargs", *path)
    if path[0] in FREE_KEYS and all(path):
        return path
    if not _exists(path, options):
        owner = algo if options else "the config"
        raise ConfigError(f"{owner} has no option {key!r}{_suggestion(key, options)}")
    return path


def _exists(path: tuple[str, ...], options: type[Options] | None) -> bool:
    group: type[Options] | None = TrainConfig
    for depth, part in enumerate(path):
        if group is None or part not in group.model_fields:
            return False
        if group is not TrainConfig and _is_mapping(group, part):
            return all(path[depth:])  # its keys are not ours to know
        group = options if group is TrainConfig and part == "algo_kwargs" else group.nested().get(part)
    return True


def _is_mapping(group: type[Options], name: str) -> bool:
    return any(get_origin(part) is dict for part in members(group.model_fields[name].annotation))


def _suggestion(key: str, options: type[Options] | None) -> str:
    """The nearest of all possible names; when nothing is near, the short ones."""
    short = {*TrainConfig.model_fields, *(options.model_fields if options else ())}
    groups = options.nested() if options else {}
    dotted = {f"{name}.{inner}" for name, group in groups.items() for inner in group.model_fields}
    name = key.removeprefix("algo_kwargs.")
    match = nearest(name, short | dotted)
    return foreign_hint(name, short) or (f"; did you mean {match!r}?" if match else did_you_mean(name, short))


def _parse(pair: str) -> tuple[str, Any]:
    key, equals, text = pair.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError("write key=value")
    if not text.strip():
        raise ConfigError(f"no value was given; write {key}=null for none or {key}='\"\"' for an empty text")
    return key, parse_yaml(text, source=key)


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any, algo: Any) -> None:
    """Set the value at the path; a shorthand on the way (a schedule written as `linear`) is opened."""
    group = load_options_class(algo).nested() if algo is not None and path[0] == "algo_kwargs" else {}
    for depth, part in enumerate(path[:-1]):
        inner = values.get(part)
        if depth == 1 and part in group:
            inner = group[part].expand(inner)
        if inner is not None and not isinstance(inner, Mapping):
            raise ConfigError(f"{'.'.join(path[: depth + 1])} is {inner!r}, so it has no {'.'.join(path[depth + 1 :])}")
        values[part] = dict(inner or {})
        values = values[part]
    values[path[-1]] = value
