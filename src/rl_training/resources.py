"""Files that come with the package: presets, found by name from any working directory."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from rl_training.errors import ConfigError, did_you_mean

ASSETS = Path(__file__).parent / "assets"


def find_packaged_asset(path: str | os.PathLike[str]) -> Path | None:
    """The packaged file `configs/ppo/cartpole.yaml`, also by `ppo/cartpole.yaml` or `ppo/cartpole`; never one outside."""
    text = os.fspath(path)
    parts = PurePosixPath(text).parts
    if not parts or parts[0] == "/" or ".." in parts or "\\" in text or "\0" in text:
        return None
    for folder in (ASSETS, ASSETS / "configs"):
        for name in (text, f"{text}.yaml"):
            candidate = folder / name
            # resolved, because a symlink inside may point outside
            if _is_file(candidate) and candidate.resolve().is_relative_to(ASSETS.resolve()):
                return candidate
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for the file system names nothing
        return False


def list_presets() -> list[str]:
    """Every preset as `algo/name`."""
    return sorted(f"{path.parent.name}/{path.stem}" for path in (ASSETS / "configs").glob("*/*.yaml"))


def find_preset(name: str) -> Path:
    """The file of a preset, or ConfigError with the nearest name."""
    found = find_packaged_asset(name)
    if found is None:
        raise ConfigError(f"there is no preset {name!r}{did_you_mean(name, list_presets())}")
    return found
