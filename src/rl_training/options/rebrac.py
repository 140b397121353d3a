"""Settings of ReBRAC (Tarasov et al., 2023, arXiv:2305.09836)."""

from __future__ import annotations

from typing import ClassVar

from rl_training.options._offline import OnlineOptions
from rl_training.options._search import Real, SearchSpace, one_of
from rl_training.options.base import HiddenSizes, option
from rl_training.options.td3 import TD3Config


class ReBRACConfig(OnlineOptions, TD3Config):
    """TD3 on recorded data, actor and critics kept near recorded actions by a penalty each; going on online they are let go."""

    algo: ClassVar[str] = "rebrac"
    summary: ClassVar[str] = (
        "Offline TD3, penalised for leaving the data in actor and critics, and online after it; a preset is TD3+BC"
    )
    paper: ClassVar[str] = "Tarasov et al., 2023, arXiv:2305.09836"
    discrete: ClassVar[bool] = False
    continuous: ClassVar[bool] = True
    images: ClassVar[bool] = False  # datasets hold vectors
    default_num_threads: ClassVar[int] = 1
    hindsight: ClassVar[tuple[str, ...]] = ("next_actions",)
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": Real(1e-5, 1e-2, log=True),
        "gamma": one_of(0.9, 0.95, 0.98, 0.99, 0.995, 0.999),
        "batch_size": one_of(128, 256, 512, 1024),
        "hidden_sizes": one_of([64, 64], [128, 128], [256, 256], [256, 256, 256]),
        "actor_penalty_coef": Real(1e-3, 1.0, log=True),
        "critic_penalty_coef": one_of(0.0, 0.001, 0.01, 0.1, 0.5),
    }

    actor_penalty_coef: float = option(
        0.05, "Weight of the actor's distance to recorded actions; online it falls linearly to 0.", ge=0
    )
    critic_penalty_coef: float = option(
        0.01, "Weight of the next action's distance to the recorded one in the critics' targets; online it is 0.", ge=0
    )
    hidden_sizes: HiddenSizes = option((256, 256, 256), "Width of each hidden layer of actor and critics.")
    layer_norm: bool = option(True, "Normalise the critics' hidden layers.")
    batch_size: int = option(1024, "Transitions per gradient step.", ge=1)
    exploration_noise: float = option(
        0.03, "Standard deviation of the Gaussian noise on actions online; actions lie in [-1, 1].", ge=0
    )

    def scheduled_values(self, step: int, total_steps: int, *, reached: int | None = None) -> dict[str, float]:
        """Both penalties hold offline alone: of where it may go, the environment tells it afterwards."""
        values, online = super().scheduled_values(step, total_steps, reached=reached), self.online_timesteps
        left = min(1.0, max(0.0, (total_steps - step) / online)) if online else 1.0
        offline = not online or step < total_steps - online
        penalties = {
            "actor_penalty_coef": self.actor_penalty_coef * left,
            "critic_penalty_coef": self.critic_penalty_coef if offline else 0.0,
        }
        return values | penalties
