"""The card beside an exported policy: what it is, how good it was, how to use it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rl_training.experiment.checkpoint import read_header
from rl_training.experiment.locate import run_directory_of, step_of
from rl_training.experiment.metadata import numeric_environment
from rl_training.options import load_options_class
from rl_training.options._words import counted
from rl_training.reports.results import evaluation_curve, read_history
from rl_training.rows import layout_of

if TYPE_CHECKING:
    from rl_training.models.encoded_policy import StandalonePolicy
    from rl_training.runtime.policy import Policy
    from rl_training.shipping.export import Exported
    from rl_training.types import ObsPart

USES = {
    "onnx": """\
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("{file}", providers=["CPUExecutionProvider"])
obs = {{  # one row per observation, as the environment gives it
{arrays}}}
actions = session.run(None, obs)[0]  # as the environment takes them
""",
    "torchscript": """\
import torch

policy = torch.jit.load("{file}")
# one row per observation, as the environment gives it
actions = policy({tensors})  # as the environment takes them
""",
    "safetensors": """\
import torch

from rl_training.shipping.export import load_exported

policy = load_exported("{file}")
# one row per observation, as the environment gives it
actions = policy({tensors})  # as the environment takes them
""",
}


def model_card(policy: Policy, network: StandalonePolicy, exported: Exported, checkpoint: Path | None) -> str:
    """Markdown; what is not known is left out."""
    config, spec = policy.config, policy.spec
    versions = ", ".join(f"{name} {version}" for name, version in numeric_environment()["versions"].items() if version)
    rows = [
        ("algorithm", f"{config.algo} ({load_options_class(config.algo).paper})"),
        ("environment", f"{config.env_id}{f' with {config.env_kwargs}' if config.env_kwargs else ''}"),
        ("observations", f"{_observations(policy)}{', normalised inside the file' if network.normalizes else ''}"),
        ("actions", _actions(policy)),
        ("network", network.in_words()),
        ("seed", str(config.seed)),
        *_training(policy, checkpoint),
        ("checked", f"{_difference(policy, exported)} on {exported.num_observations:,} random observations"),
        ("made with", versions),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    parts = layout_of(spec).parts
    arrays = "".join(f'    "{part.name}": {_example(part, "np", "array")},\n' for part in parts)
    tensors = ", ".join(_example(part, "torch", "tensor") for part in parts)
    if network.masked:  # here everything is allowed
        shape = (1, sum(network.choices))
        arrays += f'    "action_masks": np.ones({shape}, dtype=bool),  # what is allowed\n'
        tensors += f", torch.ones({shape}, dtype=torch.bool)"
    use = USES[exported.format].format(file=exported.path.name, arrays=arrays, tensors=tensors)
    return f"""\
# {config.algo} on {config.env_id}

The deterministic policy as {exported.format}, with its observation normaliser (where it has one) and its action scaling.

| | |
| --- | --- |
{table}

## Use

```python
{use}```

## What it is not

It was trained and evaluated in this environment alone; nothing is known of how it acts elsewhere. Actions are the policy's
best; those it explored with are not in the file, nor can training go on from it: keep the checkpoint for that.

## Configuration

```yaml
{config.to_yaml().rstrip()}
```
"""


def _example(part: ObsPart, library: str, constructor: str) -> str:
    """One observation of a part as code: the first of its choices, or nothing but zeros."""
    if part.choices:
        return f"{library}.{constructor}({np.reshape(part.start, (1, *part.shape)).tolist()})"
    return f"{library}.zeros({(1, *part.shape)}, dtype={library}.{part.input_dtype})"


def _observations(policy: Policy) -> str:
    """What goes in, part by part."""
    spec = policy.spec
    if not spec.observation:
        return counted(spec.obs_dim, "number")
    return "; ".join(
        f"{part.name}: {' × '.join(map(str, part.shape)) or 'one number'}, {part.input_dtype}" for part in spec.observation
    )


def _actions(policy: Policy) -> str:
    spec = policy.spec
    if spec.nvec:
        return f"one choice in each part, of {', '.join(map(str, spec.nvec))}, counted from {', '.join(map(str, spec.starts))}"
    if spec.discrete:
        return f"one of {spec.action_dim}, counted from {spec.action_start}"
    bounds = [f"[{low:g}, {high:g}]" for low, high in zip(spec.low, spec.high, strict=True)]
    return f"{counted(spec.action_dim, 'number')} in {bounds[0] if len(set(bounds)) == 1 else ' × '.join(bounds)}"


def _difference(policy: Policy, exported: Exported) -> str:
    if policy.spec.discrete:
        return f"{exported.max_difference:.0f} actions differ from `predict`"
    return f"largest difference to `predict` {exported.max_difference:.2g}"


def _training(policy: Policy, checkpoint: Path | None) -> list[tuple[str, str]]:
    """Steps trained and what evaluations said, as far as the run tells."""
    if checkpoint is None:
        return []
    metadata = read_header(checkpoint).metadata
    step = metadata.get("step", step_of(checkpoint))
    rows = [("trained", f"{step:,} of {policy.config.budget:,} steps")] if step >= 0 else []
    run_dir = run_directory_of(checkpoint)
    if run_dir is None or not (run_dir / "metrics.jsonl").is_file():
        return rows
    curve = evaluation_curve(read_history(run_dir / "metrics.jsonl"))
    told = [value for at, value in zip(curve.steps, curve.returns, strict=True) if at == step]
    if told:
        episodes = counted(policy.config.eval_episodes, "evaluation episode")
        rows.append(("return", f"{told[-1]:.6g}, the mean of {episodes} at this step"))
    return rows
