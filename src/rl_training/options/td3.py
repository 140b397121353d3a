"""Settings of TD3 (Fujimoto et al., 2018, arXiv:1802.09477)."""

from __future__ import annotations

from typing import ClassVar

from rl_training.options._deterministic import DeterministicActorOptions
from rl_training.options._search import Real, SearchSpace, Whole
from rl_training.options.base import option


class TD3Config(DeterministicActorOptions):
    """Twin delayed DDPG: two critics of which the lower counts, smoothed targets, and a policy that moves less often."""

    algo: ClassVar[str] = "td3"
    summary: ClassVar[str] = "Twin delayed DDPG: a deterministic actor with critics that do not overestimate"
    paper: ClassVar[str] = "Fujimoto et al., 2018, arXiv:1802.09477"
    discrete: ClassVar[bool] = False
    continuous: ClassVar[bool] = True
    images: ClassVar[bool] = True
    search_space: ClassVar[SearchSpace] = {
        **DeterministicActorOptions.search_space,
        "policy_noise": Real(0.05, 0.5),
        "noise_clip": Real(0.1, 1.0),
        "policy_delay": Whole(1, 4),
    }

    policy_noise: float = option(0.2, "Standard deviation of the noise on the target actor's actions.", ge=0)
    noise_clip: float = option(0.5, "How far that noise moves an action at most.", ge=0)
    policy_delay: int = option(2, "Updates of the critics for one of the actor and of all targets.", ge=1)
