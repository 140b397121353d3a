"""d3rlpy's CQL on the recordings that ours learns from: `peer_d3rlpy.py CONTEST SEED`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import d3rlpy
import numpy as np
import structlog
import torch
from contests import CONTESTS
from judge import Stopwatch, mean_return, say

RECORDINGS = Path(__file__).parents[2] / "src/rl_training/assets/data/pendulum-medium.npz"


def recordings() -> d3rlpy.dataset.MDPDataset:
    with np.load(RECORDINGS) as columns:
        names = ("observations", "actions", "rewards", "terminations", "truncations")
        return d3rlpy.dataset.MDPDataset(*(columns[name].astype(np.float32) for name in names))


def main() -> None:
    contest, seed = CONTESTS[sys.argv[1]], int(sys.argv[2])
    torch.set_num_threads(1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    d3rlpy.seed(seed)
    settings = dict(contest.settings)
    encoder = d3rlpy.models.VectorEncoderFactory(settings.pop("hidden"))
    learner = d3rlpy.algos.CQLConfig(
        actor_encoder_factory=encoder,
        critic_encoder_factory=encoder,
        action_scaler=d3rlpy.preprocessing.MinMaxActionScaler(minimum=[-2.0], maximum=[2.0]),
        **settings,
    ).create(device="cpu:0")
    data = recordings()
    watch = Stopwatch()
    learner.fit(
        data,
        n_steps=contest.steps,
        n_steps_per_epoch=contest.steps,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
    )
    took = watch.stop()
    value = mean_return(lambda obs: learner.predict(obs[None].astype(np.float32))[0], contest.env_id)
    say(d3rlpy.__version__, took, value)


if __name__ == "__main__":
    main()
