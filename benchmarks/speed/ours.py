"""One timed run of this library, by its public API, with its logging and checkpoints on: `ours.py ROW THREADS SEED`."""

from __future__ import annotations

import json
import sys
import tempfile
import time

from rows import ROWS

import rl_training
from rl_training import TrainConfig
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.runtime.callbacks import Callback


class Clock(Callback):
    """The time at the first turn past `skip`, and at the last."""

    def __init__(self, skip: int) -> None:
        self.skip = skip
        self.begin: tuple[int, float] | None = None
        self.end = (0, 0.0)

    def on_collect_end(self, trainer, result) -> None:  # noqa: ARG002
        self.end = (trainer.global_step, time.perf_counter())
        if self.begin is None and trainer.global_step >= self.skip:
            self.begin = self.end


def main() -> None:
    name, threads, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    row = ROWS[name]
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(
            algo=row.algo,
            env_id=row.env_id,
            seed=seed,
            total_timesteps=row.total,
            output_dir=folder,
            num_envs=row.num_envs,
            num_threads=threads,
            eval_episodes=0,
            algo_kwargs=row.settings,
        )
        clock = Clock(row.skip)
        get_algorithm_spec(row.algo).train_fn(config, callbacks=[clock])
    steps, seconds = clock.end[0] - clock.begin[0], clock.end[1] - clock.begin[1]
    print(json.dumps({"program": "rl_training", "version": rl_training.__version__, "steps_per_second": steps / seconds}))


if __name__ == "__main__":
    main()
