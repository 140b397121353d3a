"""Settings of behaviour cloning (Pomerleau, 1988, ALVINN)."""

from __future__ import annotations

from typing import ClassVar, Literal

from rl_training.options._offline import OfflineOptions
from rl_training.options._search import Real, SearchSpace, one_of
from rl_training.options.base import HiddenSizes, option


class BCConfig(OfflineOptions):
    """Behaviour cloning: do what was done, whatever it earned."""

    algo: ClassVar[str] = "bc"
    summary: ClassVar[str] = "Behaviour cloning: supervised learning of recorded actions, the measure of all offline learning"
    paper: ClassVar[str] = "Pomerleau, 1988; a survey: Osa et al., 2018, arXiv:1811.06711"
    discrete: ClassVar[bool] = True
    continuous: ClassVar[bool] = True
    default_num_threads: ClassVar[int] = 1
    schedulable: ClassVar[tuple[str, ...]] = ("learning_rate",)
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": Real(1e-5, 1e-2, log=True),
        "batch_size": one_of(64, 128, 256, 512),
        "hidden_sizes": one_of([64, 64], [128, 128], [256, 256], [400, 300]),
        "activation": one_of("relu", "tanh"),
    }

    hidden_sizes: HiddenSizes = option((256, 256), "Width of each hidden layer.")
    activation: Literal["tanh", "relu"] = option("relu", "Nonlinearity of the hidden layers.")
    learning_rate: float = option(3e-4, "Adam's step size.", gt=0)
