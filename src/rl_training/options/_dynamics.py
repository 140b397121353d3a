"""Settings of the algorithms that learn a model of the environment: the ensemble and how it is fitted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from rl_training.errors import did_you_mean
from rl_training.options.base import HiddenSizes, Options, Problem, option

# written down here because this layer does not import torch; planning/known_functions.py has the functions
KNOWN_REWARDS = ("cartpole", "halfcheetah", "inverted_pendulum", "inverted_pendulum_centered", "pendulum")
KNOWN_TERMINATIONS = ("cartpole", "hopper", "inverted_pendulum", "walker2d")

WeightDecay: TypeAlias = tuple[Annotated[float, Field(ge=0)], ...]

_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class DynamicsOptions(Options):
    """An ensemble of networks that say how the environment answers. MOPO and PETS have it in common."""

    num_ensembles: int = option(5, "Networks in the ensemble, evaluated as one batched network.", ge=1)
    num_elites: int | None = option(None, "Members with the lowest holdout error that predict; none means all of them.", ge=1)
    model_hidden_sizes: HiddenSizes = option((200, 200, 200), "Width of each hidden layer of the dynamics networks.")
    deterministic_model: bool = option(
        False, "Networks that give means alone, fitted by their squared error; nothing is drawn around the means."
    )
    model_learning_rate: float = option(1e-3, "Adam's step size for the dynamics networks.", gt=0)
    model_weight_decay: WeightDecay | None = option(
        None, "L2 penalty of each layer's weights, or one for all; none rises evenly from 2.5e-5 (first layer) to 1e-4 (last)."
    )
    model_holdout_ratio: float = option(
        0.0, "Share of the data that is kept from fitting, to stop early and choose elites.", ge=0, lt=1
    )
    model_max_holdout: int = option(1_000, "Rows kept from fitting at most.", ge=1)
    model_patience: int | None = option(
        None, "Epochs without a gain of 1 % on held-out data after which a fit ends with each member's best weights.", ge=1
    )
    termination_fn: str | None = option(
        None,
        f"Whether a transition ends an episode: {', '.join(KNOWN_TERMINATIONS)}, or package.module:function of "
        "(obs, actions, next_obs); none means imagined episodes never end.",
    )

    def layer_decays(self) -> tuple[float, ...]:
        """The weight decay of every layer."""
        layers, given = len(self.model_hidden_sizes) + 1, self.model_weight_decay
        if given is None:
            return tuple(2.5e-5 + 7.5e-5 * i / max(1, layers - 1) for i in range(layers))
        return given * layers if len(given) == 1 else given

    def contradictions(self) -> Iterator[Problem]:
        yield from super().contradictions()
        if self.num_elites is not None and self.num_elites > self.num_ensembles:
            text = f"{self.num_elites} elites cannot be chosen from {self.num_ensembles} members"
            yield Problem(("num_elites", "num_ensembles"), text)
        layers, decays = len(self.model_hidden_sizes) + 1, self.model_weight_decay
        if decays is not None and len(decays) not in (1, layers):
            text = f"{len(decays)} numbers for {layers} layers (the output layer counts); give {layers}, or one for all"
            yield Problem(("model_weight_decay", "model_hidden_sizes"), text)
        if not self.model_holdout_ratio:
            if self.model_patience is not None:
                text = "early stopping looks at held-out data, and model_holdout_ratio is 0; give it a share, e.g. 0.2"
                yield Problem(("model_patience", "model_holdout_ratio"), text)
            if self.num_elites is not None and self.num_elites < self.num_ensembles:
                text = "elites are chosen by held-out data, and model_holdout_ratio is 0; give it a share, e.g. 0.2"
                yield Problem(("num_elites", "model_holdout_ratio"), text)
        yield from function_problems("termination_fn", self.termination_fn, KNOWN_TERMINATIONS)


def function_problems(key: str, given: Any, known: Sequence[str]) -> Iterator[Problem]:
    """What is wrong with the name of a function, as far as its spelling tells."""
    if given is not None and given not in known and not _IMPORT_PATH.fullmatch(given):
        text = f"given {given!r}, which is neither a known one nor package.module:function{did_you_mean(given, known)}"
        yield Problem((key,), text)
