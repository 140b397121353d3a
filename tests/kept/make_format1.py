"""How the checkpoints in tests/kept/format1 were made: `python tests/kept/make_format1.py ALGO...`, once for each algorithm.

They are kept for ever. A new algorithm adds its own; an existing file is never made again, since what it proves is that
files of that age can be read.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0:0] = [str(ROOT / "src"), str(ROOT / "tests" / "helpers")]

import numpy as np  # noqa: E402
from small_runs import StopAt, small_config, train  # noqa: E402

from rl_training.experiment.checkpoint import load_checkpoint  # noqa: E402
from rl_training.runtime.workflows import predict_checkpoint  # noqa: E402

FOLDER = ROOT / "tests" / "kept" / "format1"
SMALLER = {"hidden_sizes": [4], "model_hidden_sizes": [4], "buffer_capacity": 40, "dataset_size": 30}
SMALLER |= {"synthetic_buffer_capacity": 20, "rollout_batch_size": 5, "num_critics": 2}


def main() -> None:
    for name in sys.argv[1:]:
        target = FOLDER / f"{name}.safetensors"
        if target.exists():
            sys.exit(f"{target.name} is there already, and is kept for ever")
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)  # so that no path of this machine is in the file
            options = small_config(name, Path("runs")).options
            fewer = {key: value for key, value in SMALLER.items() if hasattr(options, key)}
            config = small_config(name, Path("runs"), eval_episodes=0, algo_kwargs=fewer)
            done = train(config, callbacks=[StopAt(config.total_timesteps // 3)], run_suffix="x")
            target.write_bytes(done.checkpoint_path.read_bytes())
        describe(name, target)


def describe(name: str, file: Path) -> None:
    """Two observations, and what the policy did with them on the day the file was made."""
    state = load_checkpoint(file)
    obs = np.random.default_rng(1).uniform(-1, 1, (2, state.metadata["env_spec"]["obs_dim"])).astype(np.float32).tolist()
    known = {
        "obs": obs,
        "actions": np.asarray(predict_checkpoint(file, obs)).tolist(),
        "global_step": state.trainer_state["progress"]["global_step"],
    }
    file.with_suffix(".json").write_text(json.dumps(known, indent=1) + "\n")
    print(name, file.stat().st_size)


if __name__ == "__main__":
    main()
