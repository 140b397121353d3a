"""Config files: YAML without its surprises. Every error names file, line and column.

PyYAML reads 3e-4 as text, `on` as true and 012 as ten, keeps the last of two equal keys, and follows aliases and tags;
a config must mean what it says, so all of that is settled or refused here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from rl_training.errors import ConfigError, did_you_mean, nearest
from rl_training.experiment.config import TrainConfig
from rl_training.resources import find_packaged_asset, list_presets

MAX_DEPTH = 32
MAX_BYTES = 1_000_000
MERGED_KEYS = ("algo_kwargs", "env_kwargs", "benchmark")  # these are merged key by key, all others replaced as a whole

_DIGITS = "(?:0|[1-9](?:_?[0-9])*)"
_TAG = "tag:yaml.org,2002:"
_PATTERNS = {
    "null": (r"~|null|Null|NULL|", "~nN"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (rf"[-+]?{_DIGITS}", "-+0123456789"),
    "float": (
        rf"[-+]?(?:{_DIGITS}(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
}
# int stands before float, so that what is an integer is not read as a float
_RESOLVERS: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
for _kind, (_pattern, _first) in _PATTERNS.items():
    for _character in [*_first, ""] if _kind == "null" else _first:
        _RESOLVERS.setdefault(_character, []).append((_TAG + _kind, re.compile(rf"(?:{_pattern})\Z")))


class _StrictLoader(yaml.SafeLoader):
    yaml_implicit_resolvers = _RESOLVERS
    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call] # PyYAML's stubs leave it open
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            _refuse(event.start_mark, "anchors and aliases are not used in configs; write the value out")
        if getattr(event, "tag", None) is not None:
            _refuse(event.start_mark, f"tags are not used in configs, and {event.tag!r} was given")
        if self.depth >= MAX_DEPTH:
            _refuse(event.start_mark, f"nested deeper than {MAX_DEPTH} levels")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag != f"{_TAG}str":
                _refuse(
                    key.start_mark, "a key must be text" + (f"; write '{key.value}'" if isinstance(key, ScalarNode) else "")
                )
            if key.value in lines:
                _refuse(key.start_mark, f"the key {key.value!r} stands in line {lines[key.value]} already")
            lines[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node: ScalarNode) -> int | float:
        text = node.value.replace("_", "").lower()
        if node.tag == f"{_TAG}int" and len(text) <= 40:
            return int(text)
        number = float(text.replace(".inf", "inf").replace(".nan", "nan"))
        if (number in (float("inf"), float("-inf")) and ".inf" not in text) or node.tag == f"{_TAG}int":
            _refuse(node.start_mark, f"the number {text[:20]}{'...' if len(text) > 20 else ''} is too large")
        return number


for _kind in ("int", "float"):
    _StrictLoader.add_constructor(_TAG + _kind, _StrictLoader.construct_number)


class _StrictDumper(yaml.SafeDumper):
    """Quotes exactly what the loader above would not read back as text."""

    yaml_implicit_resolvers = _RESOLVERS

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (the same list twice is written out twice)
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> ScalarNode:
    # left to itself PyYAML writes unusual line breaks (U+0085, U+2028) bare, and they come back as spaces
    return dumper.represent_scalar(f"{_TAG}str", text, style=None if text.isprintable() else '"')


_StrictDumper.add_representer(str, _represent_text)
_StrictDumper.add_representer(list, lambda dumper, data: dumper.represent_sequence(f"{_TAG}seq", data, flow_style=True))


def dump_yaml(values: dict[str, Any]) -> str:
    """YAML that `load_yaml` reads as the same values, in the same order."""
    return yaml.dump(values, Dumper=_StrictDumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=120)


def _refuse(mark: Any, problem: str) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def parse_yaml(text: str, *, source: str) -> Any:
    """The value of one YAML document; errors begin with `source:line:column`."""
    try:
        loader = _StrictLoader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{source}:{place}: {reason}") from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = f"{before.count(chr(10)) + 1}:{error.position - before.rfind(chr(10))}"
        raise ConfigError(f"{source}:{place}: the character U+{ord(text[error.position]):04X} is not allowed in YAML") from None


def load_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}:1:1: larger than {MAX_BYTES:,} bytes; a config is small")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        place = f"{before.count(10) + 1}:{error.start - before.rfind(10)}"
        raise ConfigError(f"{path}:{place}: the byte 0x{data[error.start]:02X} is not UTF-8") from None
    values = parse_yaml(text, source=str(path))
    if not isinstance(values, dict):
        given = "nothing" if values is None else f"a {type(values).__name__}"
        raise ConfigError(f"{path}:1:1: a config is a mapping of keys to values; the file holds {given}")
    return values


def load_config_values(path: str | os.PathLike[str], *, _trail: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The values of a config file, not yet checked; `config: <path>` is replaced by the values of that file."""
    found = _find(Path(path), beside=_trail[-1].parent if _trail else None)
    if found.resolve() in [step.resolve() for step in _trail]:
        raise ConfigError(f"configs lead in a circle: {' -> '.join(str(step) for step in (*_trail, found))}")
    values = load_yaml(found)
    if "config" not in values:
        return values
    base_path = values.pop("config")
    if "algo" in values:
        raise ConfigError(
            f"{found}: config, algo: a file either names another with config or is one itself with algo, not both"
        )
    if not isinstance(base_path, str) or not base_path:
        raise ConfigError(f"{found}: config: given {base_path!r}; possible: the path of a config file or the name of a preset")
    base = load_config_values(base_path, _trail=(*_trail, found))
    for key in MERGED_KEYS:
        if isinstance(base.get(key), dict) and isinstance(values.get(key), dict):
            values[key] = base[key] | values[key]
    return base | values


def is_config_name(text: str) -> bool:
    """Whether this is what `load_config_file` takes: a preset's name or a YAML file's."""
    return text in list_presets() or text.endswith((".yaml", ".yml"))


def load_config_file(path: str | os.PathLike[str]) -> TrainConfig:
    """The checked config in a file; the path may also be that of a packaged preset."""
    values = load_config_values(path)
    try:
        return TrainConfig.from_dict(values)
    except ConfigError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


def _find(path: Path, *, beside: Path | None) -> Path:
    """A file beside the one that names it, or in the working directory, or packaged."""
    local = path if beside is None else beside / path
    if local.is_file():
        return local
    packaged = find_packaged_asset(path.as_posix())
    if packaged is not None:
        return packaged
    # by name alone: whole paths in one folder all look alike
    neighbours = [file.name for file in local.parent.glob("*.y*ml")] if local.parent.is_dir() else []
    neighbour = nearest(path.name, neighbours)
    hint = f"; did you mean {str(path.parent / neighbour)!r}?" if neighbour else did_you_mean(str(path), list_presets())
    raise ConfigError(f"there is no config file {str(path)!r}{f' beside or below {beside}' if beside else ''}{hint}")
