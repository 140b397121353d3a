"""Pictures as files: what every drawing command shares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
# after Okabe and Ito, told apart with any kind of colour blindness; the report's page has the same
PALETTE = ("#0072b2", "#d55e00", "#008f68", "#b8508f", "#c48400", "#3a9bd1", "#59606b", "#8a5a2b")
# the date would make two pictures of the same runs two different files
_NO_DATE: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}
_SETTINGS: Any = {"pdf.fonttype": 42, "svg.hashsalt": "rl_training"}  # 42: fonts that journals take and editors can edit


def new_figure(out: str | Path, *, width: float = 8, height: float = 5) -> Figure:
    """An empty picture, once it is certain that it can be drawn and how `out` wants it."""
    if Path(out).suffix.lower() not in FORMATS:
        raise ConfigError(f"--out: given {str(out)!r}; possible endings: {', '.join(FORMATS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", extra="report", purpose="drawing a plot") from error
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, out: str | Path, *, dpi: int = 150) -> Path:
    """Write it, with the folder it goes to."""
    from matplotlib import rc_context

    path = Path(out)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with rc_context(_SETTINGS):
            figure.savefig(path, dpi=dpi, metadata=_NO_DATE[path.suffix.lower()])
    except OSError as error:
        raise ConfigError(f"--out: {path} cannot be written: {error.strerror or error}") from error
    return path
