"""A trained policy as a file that needs nothing of this library, checked against `predict` before it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rl_training.errors import ConfigError, RLTrainingError, did_you_mean
from rl_training.experiment.files import no_link, reason, replacing, write_all, write_text
from rl_training.models.encoded_policy import EncodedPolicy, StandalonePolicy
from rl_training.models.policy_network import PolicyNetwork
from rl_training.runtime.policy import Policy, load_policy
from rl_training.shipping.export_card import model_card
from rl_training.shipping.export_formats import FORMATS, Act, Format, read_safetensors
from rl_training.shipping.export_traced import as_observations, random_inputs, random_masks
from rl_training.types import EnvSpec

NUM_OBSERVATIONS = 1_024
NUM_IMAGES = 128
TOLERANCE = 1e-4  # of half the range of an action, or of the scores between two discrete ones: float32 in another order


class Exported(NamedTuple):
    """What was written, and how far it was from `predict` on random observations."""

    path: Path
    card_path: Path
    format: str
    max_difference: float  # between actions; of discrete ones, how many were others
    num_observations: int
    discrete: bool = False


def export_checkpoint(checkpoint: str | Path, out: str | Path | None = None, *, format: str | None = None) -> Exported:  # noqa: A002 (the public name)
    """The policy of a checkpoint, or of the newest in a run directory; without `out` below the run's `exports/`."""
    form = chosen_format(out, format)
    policy = load_policy(checkpoint, device="cpu")
    assert policy.file is not None
    path = Path(out) if out is not None else default_path(policy.file, form)
    return export_policy(policy, path, format=form.name, checkpoint=policy.file)


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
    exported = Exported(path, card_path, form.name, difference, len(obs[0]), policy.spec.discrete)
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


def random_observations(network: StandalonePolicy, *, seed: int) -> list[np.ndarray]:
    """As spread as those the normaliser saw (standard normal without one), a quarter of them ten times as far; an array for
    each part of the observation, and behind them masks where the policy takes them."""
    rng = np.random.default_rng(seed)
    if isinstance(network, EncodedPolicy):
        images = any(part.image for part in network.parts)
        return random_inputs(network, rng=rng, count=NUM_IMAGES if images else NUM_OBSERVATIONS)
    shift, scale = (network.get_buffer(name).numpy() for name in ("obs_shift", "obs_scale"))
    noise = rng.standard_normal((NUM_OBSERVATIONS, len(shift)))
    noise[: NUM_OBSERVATIONS // 4] *= 10
    obs = (shift + noise / scale).astype(np.float32)
    return [obs, *([random_masks(network.choices, rng=rng, count=len(obs))] * network.masked)]


def verify(policy: Policy, network: StandalonePolicy, act: Act, inputs: Sequence[np.ndarray]) -> float:
    """The largest difference to `predict`, RLTrainingError where it is more than rounding can explain."""
    obs, masks = (inputs[:-1], inputs[-1]) if network.masked else (inputs, None)
    asked = as_observations(network, obs) if isinstance(network, EncodedPolicy) else obs[0]
    expected, got = np.asarray(policy.predict(asked, action_masks=masks)), act(*inputs)
    if got.shape != expected.shape:
        raise RLTrainingError(f"the exported policy gives actions of shape {got.shape}, predict {expected.shape}")
    single = act(*(array[:1] for array in inputs))
    if policy.spec.discrete:
        others = np.flatnonzero((got != expected).reshape(len(got), -1).any(axis=1))
        wrong = _score_gaps(network, [array[others] for array in obs], policy.spec, expected[others], got[others]) > TOLERANCE
        allowed, found = not wrong.any(), float(len(others))
        if masks is not None:
            allowed &= bool(masks[_places(policy.spec, got)].all())
    else:
        half = (np.asarray(policy.spec.high) - np.asarray(policy.spec.low)) / 2
        gaps = np.abs(got - expected)
        allowed, found = bool((gaps <= TOLERANCE * half).all()), float(gaps.max())
    if not allowed or not np.allclose(single, got[:1], rtol=0, atol=TOLERANCE):
        raise RLTrainingError(f"the exported policy does not act as predict does (difference {found:g}); nothing was written")
    return found


def _places(spec: EnvSpec, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the choices that were made stand among the scores, (rows, parts)."""
    made = actions.reshape(-1, len(spec.starts)) - np.array(spec.starts)
    return np.arange(len(actions))[:, None], made + np.cumsum((0, *spec.choices[:-1]))


@torch.no_grad()
def _score_gaps(
    network: StandalonePolicy, obs: Sequence[np.ndarray], spec: EnvSpec, expected: np.ndarray, got: np.ndarray
) -> np.ndarray:
    """How much better the expected choices scored than those made, relative to the largest score."""
    if not len(expected):
        return np.zeros(0)
    scores = network.outputs(*map(torch.from_numpy, obs)).numpy()
    gaps = np.abs(scores[_places(spec, expected)] - scores[_places(spec, got)])
    relative: np.ndarray = gaps / np.maximum(np.abs(scores).max(axis=-1, initial=0), 1.0)[:, None]
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
