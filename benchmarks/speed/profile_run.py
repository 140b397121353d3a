"""Where the time of one run goes: `profile_run.py PRESET STEPS`, called by profiles.py in a process of its own."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from types import FrameType
from typing import Any

import torch
from whereabouts import Whereabouts

from rl_training.cli import load_config
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.resources import find_packaged_asset
from rl_training.runtime.callbacks import Callback

INTERVAL = 0.001
# what a frame of the stack, from the innermost outwards, says of what is done; the first that says something counts
PLACES = (
    ("environment", ("/gymnasium/", "/mujoco/", "rl_training/envs/")),
    ("optimiser", ("models/optim.py",)),
    ("planning", ("planning/cem.py", "planning/particles.py")),
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
    """Looks at the stack at every tick of processor time; the kernel's come every 4 ms or so, whatever is asked for."""

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


class Watch(Callback):
    """In whose machine code the processor is over the last four fifths of a run, when it is past its beginnings."""

    def __init__(self, steps: int) -> None:
        self.first, self.whereabouts, self.watching = int(0.2 * steps), Whereabouts(), ExitStack()
        self.began = False

    def on_collect_end(self, trainer: Any, result: Any) -> None:  # noqa: ARG002
        done = trainer.global_step or trainer.progress.updates
        if not self.began and done >= self.first:
            self.began = True
            self.watching.enter_context(self.whereabouts.watched())

    def on_train_end(self, trainer: Any, result: Any) -> None:  # noqa: ARG002
        self.watching.close()


def main() -> None:
    preset, steps = sys.argv[1], int(sys.argv[2])
    sampler, watch = Sampler(), Watch(steps)
    torch.manual_seed(0)
    train(preset, steps, sampler)
    train(preset, steps, watch)
    print(json.dumps({"shares": sampler.shares(), **watch.whereabouts.shares()}))


if __name__ == "__main__":
    main()
