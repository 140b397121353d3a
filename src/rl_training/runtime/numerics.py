"""Numbers that are not finite, found in the turn that made them; and numbers that are about to get there."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Algorithm
from rl_training.experiment.checkpoint import CheckpointState
from rl_training.forms import COUNT, NUMBER, Named, Record, Row
from rl_training.types import State, UpdateResult

log = logging.getLogger(__name__)

WATCHED = frozenset({"gradient_norm", "critic_loss", "value_loss", "delta_obs_mae", "update_norm"})  # never negative
EXPLOSION_FACTOR = 100.0  # times the running mean
EXPLOSION_FLOOR = 1.0  # what stays below it is small, however many times its mean it is
SETTLING_TURNS = 20  # before a running mean says anything
MEAN_RATE = 0.01


COUNTED = ("skipped_updates", "skipped_episodes", "explosions", "bad_updates", "bad_episodes")
NUMERICS = Record({**dict.fromkeys(COUNTED, COUNT), "means": Named(Row((NUMBER, COUNT)))})
"""The form of its state."""


class NumericsGuard:
    """Looks at losses and weights after every turn that learnt, and at the learner's whole state before it is saved.

    Kept small, as it stands in every turn: a few numbers are read, and each weight is read once, in one sum.
    """

    saved = COUNTED

    def __init__(self, algorithm: Algorithm, *, skips: bool, max_skips: int) -> None:
        self.algorithm, self.skips, self.max_skips = algorithm, skips, max_skips
        self.skipped_updates = self.skipped_episodes = self.explosions = 0
        self.bad_updates = 0  # turns in a row
        self.bad_episodes = 0  # without one that ended well in between
        self._means: dict[str, list[float]] = {}  # name: running mean, turns it has seen
        self._weights = list(_weights(algorithm))
        self._kept: State | None = None

    def keep(self) -> None:
        """Remember the learner as it is, where a turn may have to be taken back."""
        if self.skips:
            self._kept = copied(self.algorithm.state_dict())

    def problem(self, learned: UpdateResult) -> str | None:
        """What in the turn's losses or in the weights is not finite; also watches for losses that explode."""
        if not learned.num_gradient_steps:
            return None
        losses = {name: value for name, value in learned.metrics.items() if name in WATCHED or "loss" in name}
        weights = [weight.sum() for _, weight in self._weights]
        numbers = _read([*losses.values(), *weights])
        values = dict(zip(losses, numbers, strict=False))
        if not math.isfinite(sum(numbers)):
            bad = [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]
            if bad := [*bad, *not_finite(self.algorithm.state_dict())]:
                return "; ".join(bad[:4]) + (f"; and {len(bad) - 4} more" if len(bad) > 4 else "")
        self._watch(values)
        self.bad_updates = 0
        return None

    def skip(self, learned: UpdateResult) -> UpdateResult:
        """Put the learner back to before the turn's updates; they count, but nothing is left of them."""
        assert self._kept is not None
        self.algorithm.load_state_dict(self._kept)
        self.skipped_updates += learned.num_gradient_steps
        self.bad_updates += 1
        return UpdateResult({}, learned.num_gradient_steps)

    def count_episode(self) -> bool:
        """One more episode to be given up; false when it is one too many."""
        self.skipped_episodes += 1
        self.bad_episodes += 1
        return not self.exhausted

    @property
    def exhausted(self) -> bool:
        """Whether as many turns in a row were skipped as may be."""
        return max(self.bad_updates, self.bad_episodes) > self.max_skips

    def _watch(self, values: Mapping[str, float]) -> None:
        for name in WATCHED & values.keys():
            value, memory = abs(values[name]), self._means.setdefault(name, [0.0, 0])
            mean, turns = memory
            limit = max(EXPLOSION_FACTOR * mean, EXPLOSION_FLOOR)
            if turns >= SETTLING_TURNS and value > limit:
                self.explosions += 1
                self._warn(name, value, mean)
                value = limit  # or one would hide the next
            memory[0] = mean + (value - mean) * max(MEAN_RATE, 1.0 / (turns + 1))
            memory[1] = turns + 1

    def _warn(self, name: str, value: float, mean: float) -> None:
        if self.explosions & (self.explosions - 1):  # a run that explodes all the time need not say so every time
            return
        text = "%s is %.3g, %.0f times its running mean of %.3g (explosion %d of this run); try a lower learning rate"
        log.warning(text, name, value, value / max(mean, 1e-30), mean, self.explosions)

    def metrics(self) -> dict[str, int]:
        return {
            "skipped_updates": self.skipped_updates,
            "skipped_episodes": self.skipped_episodes,
            "gradient_explosions": self.explosions,
        }

    def state_dict(self) -> State:
        return {name: getattr(self, name) for name in self.saved} | {"means": {n: list(m) for n, m in self._means.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in self.saved:
            setattr(self, name, state[name])
        self._means = {name: list(memory) for name, memory in state["means"].items()}


def not_finite(state: State) -> list[str]:
    """A clause for every tensor of a state that holds a number that is not finite."""
    return [clause for path, tensor in _tensors(state) if (clause := _clause(path, tensor))]


def copied(tree: Any) -> Any:
    """A tree of state that does not change when its owner does."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, Mapping):
        return {key: copied(value) for key, value in tree.items()}
    return [copied(value) for value in tree] if isinstance(tree, list | tuple) else tree


def copied_checkpoint(state: CheckpointState) -> CheckpointState:
    """The same for all that a checkpoint holds of a run."""
    parts = ("algorithm_state", "buffer_state", "trainer_state")
    return replace(state, **{part: copied(getattr(state, part)) for part in parts})


def _weights(learner: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """The parameters of the learner's networks, and of the learners it is made of; not of targets, which follow them."""
    for name, part in vars(learner).items():
        if name.startswith("target"):
            continue
        if isinstance(part, nn.Module):
            yield from ((f"{path}{name}.{inner}", weight.detach()) for inner, weight in part.named_parameters())
        elif hasattr(part, "state_dict") and hasattr(part, "__dict__"):
            yield from _weights(part, f"{path}{name}.")


def _tensors(tree: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, Tensor):
        if tree.is_floating_point():
            yield path, tree.detach()
    elif isinstance(tree, Mapping | list | tuple):
        items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
        for key, value in items:
            yield from _tensors(value, f"{path}.{key}" if path else str(key))


def _clause(path: str, tensor: Tensor) -> str | None:
    if math.isfinite(float(tensor.sum())):  # many times as fast as looking at each number
        return None
    bad = ~tensor.isfinite()
    if path.endswith("log_alpha"):
        bad &= ~tensor.isneginf()  # the logarithm of an alpha of 0
    count = int(bad.sum())
    if not count:
        return None
    first = tensor[bad].flatten()[0].item()
    return f"{path} holds {first}" + (f" in {count:,} of {tensor.numel():,} numbers" if tensor.numel() > 1 else "")


def _read(scalars: list[Tensor]) -> list[float]:
    """Their values; from a GPU in one go, so that it is waited for once a turn."""
    if all(scalar.is_cpu for scalar in scalars):
        return [scalar.item() for scalar in scalars]
    device = next(scalar.device for scalar in scalars if scalar.device.type != "cpu")
    stacked = torch.stack([scalar.detach().to(device, torch.float32).reshape(()) for scalar in scalars])
    numbers: list[float] = stacked.tolist()
    return numbers
