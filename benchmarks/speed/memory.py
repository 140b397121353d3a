"""Peak memory of each preset, with its replay buffer full: `python benchmarks/speed/memory.py [PRESET ...]`.

With presets named it prints theirs and writes no file.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from typing import Any

from about import HERE, ROOT, circumstances, computing

PIECE = 10_000  # rows at a time, so that filling takes no memory to speak of
SHORT = {"pets": 60, "openai_es": 20_000, "ars": 20_000, "mopo": 20, "cql": 10, "rlpd": 20, "ppo": 3_000, "ppg": 3_000}


def one(preset: str) -> dict[str, float]:
    """Of this very process."""
    import numpy as np

    from rl_training.cli import load_config
    from rl_training.experiment.registry import get_algorithm_spec
    from rl_training.resources import find_packaged_asset
    from rl_training.runtime.callbacks import Callback

    class Full(Callback):
        size = 0

        def on_train_start(self, trainer: Any) -> None:
            for buffer in trainer.loop.buffers.values():
                self.size += getattr(buffer, "nbytes", 0)
                if not hasattr(buffer, "capacity"):
                    continue
                for begun in range(0, buffer.capacity, PIECE):
                    rows = min(PIECE, buffer.capacity - begun)
                    spec = trainer.spec
                    widths = {"obs": spec.obs_dim, "actions": spec.action_dim, "next_obs": spec.obs_dim}
                    wide = {name: np.full((rows, width), 0.5, dtype=np.float32) for name, width in widths.items()}
                    buffer.add(wide | {name: np.zeros(rows, dtype=np.float32) for name in ("rewards", "dones", "cuts")})

    asset = find_packaged_asset(f"configs/{preset}.yaml")
    assert asset is not None
    full = Full()
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        config = load_config(asset)
        kwargs = dict(config.algo_kwargs) | ({"model_updates": 20} if config.algo == "mopo" else {})
        # plans first, and only the beginning of a fit: a whole one over a full buffer takes minutes
        kwargs |= {"learning_starts": 20, "initial_random_steps": 20, "max_updates": 30} if config.algo == "pets" else {}
        kwargs |= {"offline_pretrain_updates": 0} if config.algo == "rlpd" else {}
        kwargs |= {"dataset_kind": "random", "dataset_size": 5_000} if kwargs.get("dataset_kind") == "random" else {}
        changed = {
            "output_dir": folder,
            "total_timesteps": SHORT.get(config.algo, 30),
            "eval_episodes": 0,
            "algo_kwargs": kwargs,
        }
        get_algorithm_spec(config.algo).train_fn(config.replace(**changed), callbacks=[full])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"buffer_mb": round(full.size / 2**20, 1), "peak_mb": round(peak, 1)}


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        print(json.dumps(one(sys.argv[2])))
        return
    assets = ROOT / "src" / "rl_training" / "assets" / "configs"
    presets = sys.argv[1:] or sorted(f"{path.parent.name}/{path.stem}" for path in assets.glob("*/*.yaml"))
    about, found = circumstances("python benchmarks/speed/memory.py"), {}
    for preset in presets:
        done = subprocess.run([sys.executable, __file__, "--one", preset], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{preset} failed:\n{done.stderr}")
        found[preset] = json.loads(done.stdout.splitlines()[-1])
        print(preset, found[preset], flush=True)
    if not sys.argv[1:]:
        record = {"presets": found, **about, "computed_with": computing()}
        (HERE / "results" / "memory.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
