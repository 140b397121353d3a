"""From logs as people have them, one CSV line per step, to a dataset file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from rl_training.data.dataset_files import write_npz
from rl_training.data.recorded_data import RecordedData


def convert(logs: Path, target: Path) -> RecordedData:
    """Columns: episode, cos, sin, speed, torque, reward, ended. A line tells what was seen, done and got for it.

    What an action led to is the next line of its episode, so an episode's last line is a transition only where it really
    ended; here none does: the recording stops at a limit on steps.
    """
    with logs.open(newline="") as file:
        rows = [{name: float(text) for name, text in row.items()} for row in csv.DictReader(file)]
    obs = np.array([[row["cos"], row["sin"], row["speed"]] for row in rows], dtype=np.float32)
    episode = np.array([row["episode"] for row in rows])
    follows = np.append(episode[1:] == episode[:-1], False)  # whether the next line is of the same episode
    last_kept = follows & ~np.append(follows[1:], False)
    data = RecordedData.from_arrays(
        {
            "obs": obs[follows],
            "actions": np.array([[row["torque"]] for row in rows], dtype=np.float32)[follows],
            "rewards": np.array([row["reward"] for row in rows], dtype=np.float32)[follows],
            "next_obs": obs[np.flatnonzero(follows) + 1],
            "terminations": np.array([row["ended"] > 0 for row in rows])[follows],
            "truncations": last_kept[follows],
        },
        str(logs),
    )
    write_npz(target, data)
    return data
