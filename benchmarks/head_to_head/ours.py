"""One of our presets by the public API, with logging and checkpoints on: `ours.py CONTEST SEED`."""

from __future__ import annotations

import sys
import tempfile

from contests import CONTESTS
from judge import Stopwatch, mean_return, say

import rl_training

CLASSES = {"ppo": "PPO", "sac": "SAC", "td3": "TD3", "ddpg": "DDPG", "ars": "ARS", "cql": "CQL"}


def main() -> None:
    contest, seed = CONTESTS[sys.argv[1]], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        never = 10 * contest.steps  # as the peers do, it trains without evaluating
        settings = {"total_timesteps": contest.steps, "seed": seed, "output_dir": folder, "eval_interval": never}
        agent = getattr(rl_training, CLASSES[contest.algo]).from_preset(contest.preset, **settings)
        watch = Stopwatch()
        agent.learn()
        took = watch.stop()
        say(rl_training.__version__, took, mean_return(agent.predict, contest.env_id))


if __name__ == "__main__":
    main()
