"""What `train` and `config` have in common: a preset or a file, changed by key=value and by options."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rl_training.cli.parser import Parser
from rl_training.errors import ConfigError, nearest
from rl_training.resources import find_preset, list_presets

if TYPE_CHECKING:
    from pathlib import Path

    from rl_training.experiment.config import TrainConfig

# fields of TrainConfig that are options too; the checks are TrainConfig's own
FLAGS = {
    "output_dir": ("DIR", "folder in which the run makes its own directory"),
    "total_timesteps": ("N", "environment steps of the whole run"),
    "seed": ("N", "everything random in the run follows from it"),
    "num_envs": ("N", "environments stepped side by side"),
    "eval_episodes": ("N", "episodes in each evaluation; 0 means no evaluation"),
    "execution_backend": ("NAME", "where environments run: local_sync, local_async, batched (classic control) or ray"),
    "device": ("NAME", "where networks live: auto, cpu, cuda or cuda:N"),
    "sinks": ("NAME,...", "where metrics go beside metrics.jsonl: tensorboard (default), wandb, package.module:Class; or none"),
}
_TEXTS = {"output_dir", "execution_backend", "device", "sinks"}


def add_config_arguments(parser: Parser) -> None:
    """PRESET or `--config PATH`, and any number of key=value."""
    parser.takes_settings = True
    help_text = (
        "a preset (`rl-training list`), or an algorithm with env_id=NAME; then settings to change, by full name "
        "(algo_kwargs.gamma=0.9) or short (gamma=0.9)"
    )
    parser.add_argument("words", nargs="*", metavar="PRESET | key=value", help=help_text)
    parser.add_argument("--config", metavar="PATH", help="a YAML file in place of a preset")


def add_flags(parser: Parser, *names: str) -> None:
    """Options for some fields of TrainConfig."""
    for name in names:
        metavar, help_text = FLAGS[name]
        parser.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, help=help_text)


def given_flags(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of TrainConfig that were given as options; numbers are read as in YAML, so 1e5 and 60_000 are fine."""
    from rl_training.experiment.yaml_loader import parse_yaml

    given = {name: text for name in FLAGS if (text := getattr(args, name, None)) is not None}
    values = {name: text if name in _TEXTS else parse_yaml(text, source=name) for name, text in given.items()}
    if "sinks" in values:
        values["sinks"] = [] if values["sinks"] == "none" else [name.strip() for name in values["sinks"].split(",")]
    return values


def resolve_config(args: argparse.Namespace) -> TrainConfig:
    """The configuration that is meant, completely checked. Options count more than key=value, that more than the file."""
    from rl_training.experiment.config import TrainConfig
    from rl_training.experiment.overrides import apply_overrides
    from rl_training.experiment.yaml_loader import load_config_file, load_config_values

    names = [word for word in args.words if "=" not in word]
    pairs = [word for word in args.words if "=" in word]
    flags = given_flags(args)
    if args.config is None and (bare := _without_preset(names, pairs)):
        return TrainConfig.from_dict(apply_overrides(bare, pairs) | flags)
    path = _source(names, args.config)
    if not pairs and not flags:
        return load_config_file(path)
    return TrainConfig.from_dict(apply_overrides(load_config_values(path), pairs) | flags)


def _without_preset(names: list[str], pairs: list[str]) -> dict[str, Any] | None:
    """`ppo env_id=CartPole-v1`, or `algo=ppo env_id=CartPole-v1`: the algorithm's defaults, whatever no preset says."""
    from rl_training.experiment.config import WITHOUT_PRESET
    from rl_training.options import algorithm_names

    given = dict(pair.split("=", 1) for pair in pairs)
    named = names[0] in algorithm_names() if names else "algo" in given
    if len(names) > 1 or not named or "env_id" not in given:
        return None
    return {"algo": names[0] if names else given["algo"], "env_id": given["env_id"], **WITHOUT_PRESET}


def _source(names: list[str], config: str | None) -> Path | str:
    if len(names) + (config is not None) > 1:
        given = ", ".join([*names, *filter(None, [config])])
        raise ConfigError(f"one preset or one --config, not {given}; settings are written key=value, with no space between")
    if config is not None:
        return config
    if not names:
        raise ConfigError(f"name a preset or give --config PATH; the presets are: {', '.join(list_presets())}")
    return names[0] if names[0].endswith((".yaml", ".yml")) else preset_path(names[0])


def preset_path(name: str) -> Path:
    """The preset's file; a name that is only an algorithm's is answered with the presets it has."""
    from rl_training.options._foreign import algorithm_hint

    own = [preset for preset in list_presets() if preset.startswith(f"{name}/")]
    if own:
        raise ConfigError(f"{name!r} is an algorithm; its presets are: {', '.join(own)}; without one: {name} env_id=NAME")
    if "/" not in name and (hint := algorithm_hint(name)):
        raise ConfigError(hint)
    if "/" not in name and (match := nearest(name, {preset.partition("/")[0] for preset in list_presets()})):
        raise ConfigError(f"there is no preset or algorithm {name!r}; did you mean {match!r}?")
    return find_preset(name)


def add_checkpoint_argument(parser: Parser, purpose: str) -> None:
    """`--checkpoint PATH`, or the path alone."""
    parser.add_argument("path", nargs="?", metavar="PATH", help=argparse.SUPPRESS)
    parser.add_argument(
        "--checkpoint", metavar="PATH", help=f"{purpose}: a run directory (its newest good checkpoint) or a file"
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="let a checkpoint that is not known to be yours import what it names: that runs code",
    )


def given_checkpoint(args: argparse.Namespace) -> str:
    paths = [path for path in (args.checkpoint, args.path) if path is not None]
    if args.path is not None and "=" in args.path:
        raise ConfigError(f"{args.path}: a run keeps its settings; what may change has an option of its own, see --help")
    if len(paths) != 1:
        raise ConfigError("give one run directory or checkpoint file: --checkpoint PATH")
    return str(paths[0])
