"""Settings of PPG (Cobbe et al., 2021, arXiv:2009.04416)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from rl_training.options._search import Real, SearchSpace, Whole, one_of
from rl_training.options.base import Problem, option
from rl_training.options.ppo import PPOConfig


class PPGConfig(PPOConfig):
    """Phasic policy gradient: PPO, and every few rollouts a phase that teaches the policy's network to predict values."""

    algo: ClassVar[str] = "ppg"
    summary: ClassVar[str] = "Phasic policy gradient: PPO, and a second phase that teaches the policy network to predict values"
    paper: ClassVar[str] = "Cobbe et al., 2021, arXiv:2009.04416"
    discrete: ClassVar[bool] = True
    in_parts: ClassVar[bool] = True
    continuous: ClassVar[bool] = True
    images: ClassVar[bool] = True
    masks: ClassVar[bool] = True
    default_num_threads: ClassVar[int] = 1
    search_space: ClassVar[SearchSpace] = {
        **PPOConfig.search_space,
        "aux_frequency": one_of(2, 4, 8, 16, 32),
        "aux_epochs": Whole(1, 9),
        "behavior_clone_coef": Real(0.1, 3.0, log=True),
    }

    architecture: Literal["shared", "dual"] = option(
        "shared", "One trunk whose features the value head takes as given in the policy phase, or a separate value network."
    )
    value_epochs: int | None = option(
        None,
        "Passes over each rollout for the value function (E_V), where update_epochs are those for the policy (E_pi); "
        "none means as many, in the same gradient steps.",
        ge=1,
    )
    aux_learning_rate: float | None = option(
        None, "Adam's step size in the auxiliary phase; none means learning_rate. A schedule scales both.", gt=0
    )
    aux_frequency: int = option(8, "Policy phases before each auxiliary phase (N_pi); each policy phase is one rollout.", ge=1)
    aux_epochs: int = option(6, "Passes over the kept rollouts in an auxiliary phase (E_aux).", ge=1)
    aux_minibatch_size: int = option(256, "Rows per gradient step of the auxiliary phase.", ge=1)
    aux_buffer_rollouts: int | None = option(
        None, "Newest rollouts kept for the auxiliary phase, which clears them; none means all, that is aux_frequency.", ge=1
    )
    aux_value_coef: float = option(1.0, "Weight of the auxiliary value head's regression.", ge=0)
    behavior_clone_coef: float = option(1.0, "Weight of the divergence from the policy before the phase (beta_clone).", ge=0)
    value_clone_coef: float = option(1.0, "Weight of the value function's regression in the auxiliary phase.", ge=0)

    def contradictions(self) -> Iterator[Problem]:
        """A trunk is shared or it is not."""
        yield from super().contradictions()
        for key in ("actor_network", "critic_network"):
            if self.architecture == "shared" and getattr(self, key) is not None:
                yield Problem(("architecture", key), "a shared trunk is one network; set network, or architecture: dual")
