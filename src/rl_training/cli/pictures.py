"""Pictures as files: what every drawing command shares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def new_figure(out: str | Path, *, width: float = 8, height: float = 5) -> Figure:
    """An empty picture, once it is certain that it can be drawn and how `out` wants it."""
    if Path(out).suffix.lower() not in FORMATS:
        raise ConfigError(f"--out: given {str(out)!r}; possible endings: {', '.join(FORMATS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", extra="report", purpose="drawing a plot") from error
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, out: str | Path) -> Path:
    """Write it, with the folder it goes to."""
    path = Path(out)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise ConfigError(f"--out: {path} cannot be written: {error.strerror or error}") from error
    return path
