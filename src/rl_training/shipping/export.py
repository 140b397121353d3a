"""A trained policy as a file that needs nothing of this library, checked against `predict` before it is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rl_training.errors import ConfigError, RLTrainingError, did_you_mean
from rl_training.experiment.files import no_link, reason, replacing, write_all, write_text
from rl_training.experiment.locate import resolve_checkpoint
from rl_training.experiment.trust import Trust
from rl_training.models.policy_network import PolicyNetwork
from rl_training.runtime.policy import Policy, load_policy
from rl_training.shipping.export_card import model_card
from rl_training.shipping.export_formats import FORMATS, Act, Format, read_safetensors

NUM_OBSERVATIONS = 1_024
TOLERANCE = 1e-4  # of half the range of an action, or of the scores between two discrete ones: float32 in another order


class Exported(NamedTuple):
    """What was written, and how far it was from `predict` on random observations."""

    path: Path
    card_path: Path
    format: str
    max_difference: float  # between actions; of discrete ones, how many were others
    num_observations: int
    discrete: bool = False


def export_checkpoint(
    checkpoint: str | Path,
    out: str | Path | None = None,
    *,
    format: str | None = None,  # noqa: A002 (the public name)
    trust: Trust = False,
) -> Exported:
    """The policy of a checkpoint, or of the newest in a run directory; without `out` below the run's `exports/`."""
    file = resolve_checkpoint(checkpoint, parts=("algorithm_state",))
    form = chosen_format(out, format)
    path = Path(out) if out is not None else default_path(file, form)
    return export_policy(load_policy(file, device="cpu", trust=trust), path, format=form.name, checkpoint=file)


def export_policy(
    policy: Policy,
    out: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    checkpoint: Path | None = None,
) -> Exported:
    """Write the file and, beside it, its card; nothing is written unless the file acts as `predict` does."""
    form, path = chosen_format(out, format), Path(out)
    card_path = path.with_name(f"{path.name}.md")  # each format has its own
    if checkpoint is not None and path.absolute() == checkpoint.absolute():
        raise ConfigError(f"{path}: is the checkpoint itself; give the export another name")
    network = policy.algorithm.policy_network(policy.spec)
    if network is None:
        raise ConfigError(
            f"{policy.config.algo} has no policy network to export: it searches for every action anew. Keep the checkpoint and "
            "act with `predict`, or train an algorithm that learns a policy, such as sac or mopo"
        )
    data = form.dump(network.cpu(), _notes(policy))
    obs = random_observations(network, seed=0)
    difference = verify(policy, network, form.load(data), obs)
    exported = Exported(path, card_path, form.name, difference, len(obs), policy.spec.discrete)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            write_all(file, data)
        write_text(card_path, model_card(policy, network, exported, checkpoint))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {reason(error)}") from error
    return exported


def load_exported(path: str | Path) -> PolicyNetwork:
    """The network in a `.safetensors` file that was exported: a torch module from observations to actions."""
    return read_safetensors(Path(path).read_bytes())


def chosen_format(out: str | Path | None, name: str | None) -> Format:
    """By name, else by the ending of the file."""
    if name is not None and name not in FORMATS:
        raise ConfigError(f"format: given {name!r}{did_you_mean(name, FORMATS)}")
    suffixes = {form.suffix: form for form in FORMATS.values()}
    by_suffix = None if out is None else suffixes.get(Path(out).suffix.lower())
    if name is None and by_suffix is None:
        ending = "no format was given" if out is None else f"the ending of {str(out)!r} names no format"
        raise ConfigError(f"{ending}; formats: {', '.join(FORMATS)} (endings {', '.join(suffixes)})")
    chosen = FORMATS[name] if name is not None else by_suffix
    assert chosen is not None
    if by_suffix is not None and by_suffix is not chosen:
        raise ConfigError(f"the ending of {str(out)!r} says {by_suffix.name}, the format {chosen.name}; choose one")
    return chosen


def default_path(checkpoint: Path, form: Format) -> Path:
    """`RUN/exports/step_000060000.onnx`; beside a checkpoint that lies in no run, its name with `-policy`."""
    if checkpoint.parent.name == "checkpoints":
        return no_link(checkpoint.parent.parent / "exports") / f"{checkpoint.stem}{form.suffix}"
    return checkpoint.with_name(f"{checkpoint.stem}-policy{form.suffix}")


def random_observations(network: PolicyNetwork, *, seed: int, count: int = NUM_OBSERVATIONS) -> np.ndarray:
    """As spread as those the normaliser saw (standard normal without one), a quarter of them ten times as far."""
    rng = np.random.default_rng(seed)
    shift, scale = (network.get_buffer(name).numpy() for name in ("obs_shift", "obs_scale"))
    noise = rng.standard_normal((count, len(shift)))
    noise[: count // 4] *= 10
    obs: np.ndarray = (shift + noise / scale).astype(np.float32)
    return obs


def verify(policy: Policy, network: PolicyNetwork, act: Act, obs: np.ndarray) -> float:
    """The largest difference to `predict`, RLTrainingError where it is more than rounding can explain."""
    expected, got = np.asarray(policy.predict(obs)), act(obs)
    if got.shape != expected.shape:
        raise RLTrainingError(f"the exported policy gives actions of shape {got.shape}, predict {expected.shape}")
    single = act(obs[:1])
    if policy.spec.discrete:
        others = np.flatnonzero(got != expected)
        wrong = _score_gaps(network, obs[others], expected[others], got[others]) > TOLERANCE
        allowed, found = not wrong.any(), float(len(others))
    else:
        half = (np.asarray(policy.spec.high) - np.asarray(policy.spec.low)) / 2
        gaps = np.abs(got - expected)
        allowed, found = bool((gaps <= TOLERANCE * half).all()), float(gaps.max())
    if not allowed or not np.allclose(single, got[:1], rtol=0, atol=TOLERANCE):
        raise RLTrainingError(f"the exported policy does not act as predict does (difference {found:g}); nothing was written")
    return found


def _score_gaps(network: PolicyNetwork, obs: np.ndarray, expected: np.ndarray, got: np.ndarray) -> np.ndarray:
    """How much better the expected action scored than the one taken, relative to the largest score."""
    scores = network.outputs(torch.from_numpy(obs)).numpy()
    rows, start = np.arange(len(obs)), network.action_start
    gaps = np.abs(scores[rows, expected - start] - scores[rows, got - start])
    relative: np.ndarray = gaps / np.maximum(np.abs(scores).max(axis=-1, initial=0), 1.0)
    return relative


def _notes(policy: Policy) -> Mapping[str, str]:
    from rl_training.experiment.metadata import numeric_environment

    versions: dict[str, Any] = numeric_environment()["versions"]
    config = policy.config
    return {
        "made_with": f"rl-training {versions['rl_training']}",
        "algo": config.algo,
        "env_id": config.env_id,
        "seed": str(config.seed),
    }
