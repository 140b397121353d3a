"""Settings that TD3 and DDPG share: both learn a deterministic actor from replay."""

from __future__ import annotations

from typing import ClassVar, Literal

from rl_training.options._networks import NetworkOptions
from rl_training.options._search import Real, SearchSpace, one_of
from rl_training.options.base import HiddenSizes, OffPolicyOptions, Schedule, option


class DeterministicActorOptions(NetworkOptions, OffPolicyOptions):
    """An actor without randomness of its own: what it tries out comes from noise added to its actions."""

    schedulable: ClassVar[tuple[str, ...]] = ("learning_rate", "exploration_noise")
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": Real(1e-5, 1e-2, log=True),
        "gamma": one_of(0.9, 0.95, 0.98, 0.99, 0.995, 0.999),
        "tau": Real(1e-3, 5e-2, log=True),
        "batch_size": one_of(64, 128, 256, 512),
        "exploration_noise": Real(0.02, 0.5, log=True),
        "learning_starts": one_of(100, 500, 1_000, 5_000),
        "gradient_updates_per_step": one_of(1, 2, 4),
        "hidden_sizes": one_of([64, 64], [128, 128], [256, 256], [400, 300]),
    }

    hidden_sizes: HiddenSizes = option(
        (256, 256), "Width of each hidden layer of actor and critics; they follow another network than mlp."
    )
    activation: Literal["tanh", "relu"] = option("relu", "Nonlinearity of the hidden layers.")
    learning_rate: float = option(1e-3, "Adam's step size, for the critics and an actor that has no rate of its own.", gt=0)
    actor_learning_rate: float | None = option(None, "The actor's own step size; none means learning_rate.", gt=0)
    tau: float = option(0.005, "Share of the networks that moves into their targets at a time.", gt=0, le=1)
    exploration_noise: float = option(
        0.1, "Standard deviation of the Gaussian noise on actions while collecting; actions lie in [-1, 1].", ge=0
    )
    exploration_noise_schedule: Schedule | None = option(None, "How exploration_noise changes; none means it does not.")
