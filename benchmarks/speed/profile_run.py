"""Where the time of one run goes: `profile_run.py PRESET STEPS`, called by profiles.py in a process of its own."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from rl_training import native
from rl_training.cli import load_config
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.resources import find_packaged_asset
from rl_training.runtime.callbacks import Callback

INTERVAL = 0.001
# what a frame of the stack, from the innermost outwards, says of what is done; the first that says something counts
PLACES = (
    ("environment", ("/gymnasium/", "/mujoco/", "rl_training/envs/")),
    ("optimiser", ("algorithms/optim.py",)),
    ("planning", ("algorithms/planning.py", "algorithms/particles.py")),
    ("batches", ("rl_training/data/",)),
    ("records", ("rl_training/experiment/", "/tensorboard/")),
)
PHASES = {
    "_explore": "acting",
    "explore": "acting",
    "_act": "acting",
    "refresh": "acting",
    "collect": "environment",
    "update": "networks and losses",
    "update_round": "networks and losses",
    "learn": "networks and losses",
    "_fit": "networks and losses",
    "save_checkpoint": "records",
    "_log": "records",
}
KINDS = ("environment", "acting", "planning", "batches", "networks and losses", "optimiser", "records")


class Sampler(Callback):
    """Looks at the stack every millisecond of processor time, from the first turn after `skip` seconds on."""

    def __init__(self) -> None:
        self.samples: Counter[str] = Counter()

    def on_train_start(self, trainer: Any) -> None:  # noqa: ARG002
        signal.signal(signal.SIGPROF, self.look)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)

    def on_train_end(self, trainer: Any, result: Any) -> None:  # noqa: ARG002
        signal.setitimer(signal.ITIMER_PROF, 0.0)

    def look(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002
        while frame is not None:
            path, name = frame.f_code.co_filename, frame.f_code.co_name
            kind = next((kind for kind, places in PLACES if any(place in path for place in places)), None)
            if kind is None and "rl_training/" in path:
                kind = PHASES.get(name)
            if kind is not None:
                self.samples[kind] += 1
                return
            frame = frame.f_back

    def shares(self) -> dict[str, float]:
        total = sum(self.samples.values())
        return {kind: round(self.samples[kind] / total, 4) for kind in KINDS}


def train(preset: str, steps: int, callback: Callback | None = None) -> None:
    asset = find_packaged_asset(f"configs/{preset}.yaml")
    assert asset is not None
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(asset).replace(output_dir=folder, total_timesteps=steps, eval_episodes=0, num_threads=1)
        get_algorithm_spec(config.algo).train_fn(config, callbacks=[callback] if callback else [])


class Window(Callback):
    """Profiles torch's operators and our functions in C over the last turns alone: a record of all would fill the memory."""

    def __init__(self, steps: int) -> None:
        self.first, self.profiler = int(0.8 * steps), profile(activities=[ProfilerActivity.CPU])
        self.began: float | None = None
        self.seconds = self.in_c = 0.0

    def on_collect_end(self, trainer: Any, result: Any) -> None:  # noqa: ARG002
        if self.began is None and trainer.global_step >= self.first:
            self.profiler.start()
            if (library := native.library()) is not None:
                for name in native.CALLS:
                    setattr(library, name, self._timed(getattr(library, name)))
            self.began = time.perf_counter()  # the profiler counts by the wall as well

    def on_train_end(self, trainer: Any, result: Any) -> None:  # noqa: ARG002
        if self.began is not None:
            self.seconds = time.perf_counter() - self.began
            self.profiler.stop()

    def share(self) -> float:
        in_torch = sum(event.self_cpu_time_total for event in self.profiler.key_averages()) / 1e6
        return (in_torch + self.in_c) / self.seconds

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            began = time.perf_counter()
            result = function(*args)
            self.in_c += time.perf_counter() - began
            return result

        return timed


def main() -> None:
    preset, steps = sys.argv[1], int(sys.argv[2])
    sampler, window = Sampler(), Window(steps)
    torch.manual_seed(0)
    train(preset, steps, sampler)
    train(preset, steps, window)
    print(json.dumps({"shares": sampler.shares(), "math": round(window.share(), 4)}))


if __name__ == "__main__":
    main()
