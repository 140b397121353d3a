"""How a training run is announced and how it ends on the screen: a summary for people, three lines for scripts."""

from __future__ import annotations

import json
import math
import shlex
from typing import TYPE_CHECKING, Any

from rl_training.cli.tables import facts, say

if TYPE_CHECKING:
    from rl_training.cli.progress import Best, ProgressCallback
    from rl_training.experiment.config import TrainConfig
    from rl_training.types import TrainResult


def number(value: float) -> str:
    """As many digits as people write of a return."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def spread(metrics: dict[str, Any]) -> str:
    """Mean ± standard deviation of an evaluation."""
    if not metrics.get("eval_episodes"):
        return "none (eval_episodes is 0)"
    mean, std, count = metrics["eval_return_mean"], metrics["eval_return_std"], metrics["eval_episodes"]
    return f"{number(mean)} ± {number(std)} over {count} episode{'s' if count != 1 else ''}"


def duration(seconds: float) -> str:
    """0:07, 12:30 or 3:05:00."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def announce(config: TrainConfig) -> None:
    """Said before torch is imported, which takes a moment."""
    say(f"{config.algo} on {config.env_id}, seed {config.seed}: {config.budget:,} steps, below {config.output_dir}/")


def summarize(result: TrainResult, progress: ProgressCallback) -> None:
    """What came out, where it is and what can be done with it."""
    metrics, run_dir = result.metrics, shlex.quote(str(result.run_dir))
    steps = progress.steps_done
    trained = f"{steps:,} steps and {progress.updates_done:,} updates in {duration(progress.seconds)}"
    rows = [
        ("evaluation", spread(metrics)),
        *(
            [("best", f"{_best_words(progress.best)}, kept as checkpoints/best.safetensors")]
            if progress.best is not None
            else []
        ),
        ("trained", trained if steps else "nothing was left to do; give more --total-timesteps to go on"),
        *([("stopped", str(metrics["stop_reason"]))] if "stop_reason" in metrics else []),
        ("run", str(result.run_dir)),
        ("evaluate", f"rl-training eval --checkpoint {run_dir}"),
        ("go on", f"rl-training resume --checkpoint {run_dir} --total-timesteps {2 * metrics['global_step']}"),
        ("plot", f"rl-training plot {run_dir} --out curve.png"),
    ]
    say()
    facts(rows)
    say()


def _best_words(best: Best) -> str:
    return f"{number(best.value)} {'in an earlier part of the run' if best.step is None else f'at step {best.step:,}'}"


def closing_lines(result: TrainResult) -> None:
    """For scripts: each at the start of its line, in one piece."""
    say(f"run_dir={result.run_dir}")
    say(f"checkpoint_path={result.checkpoint_path}")
    say(f"metrics={metrics_json(result.metrics)}")


def metrics_json(metrics: dict[str, Any]) -> str:
    from rl_training.experiment.run_logger import plain_value

    return json.dumps({name: plain_value(value) for name, value in metrics.items()}, allow_nan=False)
