"""MOPO: SAC in rollouts of a learnt model, penalised where the model is unsure (Yu et al., 2020, arXiv:2005.13239)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.sac import SAC, sac_loss
from rl_training.errors import NumericsError
from rl_training.models.encoded_policy import StandalonePolicy
from rl_training.models.mlp_mopo import ImaginedTransition, MLPMOPOEnsembleModel
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.planning.dynamics import DynamicsLearner, dynamics_metrics
from rl_training.planning.known_functions import TransitionFn
from rl_training.types import Batch, EnvSpec, Metrics, UpdateResult

LOSS = "mopo_model_loss"

mopo_loss = sac_loss  # of the policy; the penalty stands in the rewards


def mopo_model_loss(batch: Mapping[str, Tensor]) -> Metrics:
    """The ensemble's negative log-likelihood and its errors, from `predicted_means [E,B,D], predicted_logvars,
    targets [B,D], ensemble_disagreement [B]`."""
    return dynamics_metrics(batch, LOSS)


class MOPO(Algorithm):
    """A SAC and an ensemble of dynamics networks. `update_model` fits the latter to recorded transitions, `imagine` lets
    the policy act in it, `update` trains the policy on whatever transitions it is given.

    `termination_fn` is a known function of (obs, actions in [-1, 1], next_obs); without one imagined episodes never end.
    Further settings are those of `SAC`.
    """

    def __init__(
        self,
        policy_model: MLPSACModel | nn.Module,
        dynamics_model: MLPMOPOEnsembleModel | Any,
        *,
        policy_learning_rate: float,
        model_learning_rate: float,
        gamma: float = 0.99,
        alpha: float | str = "auto",
        tau: float = 0.005,
        penalty_coef: float = 1.0,
        penalty: Literal["max_std", "disagreement"] = "max_std",
        weight_decays: Sequence[float] = (),
        termination_fn: TransitionFn | None = None,
        **sac_settings: Any,
    ) -> None:
        self.sac = SAC(policy_model, learning_rate=policy_learning_rate, gamma=gamma, alpha=alpha, tau=tau, **sac_settings)
        self.dynamics = DynamicsLearner(dynamics_model, learning_rate=model_learning_rate, decays=weight_decays)
        self.penalty, self.penalty_coef, self.termination_fn = penalty, penalty_coef, termination_fn

    @property
    def dynamics_model(self) -> Any:
        return self.dynamics.model

    def act(self, obs: Tensor, *, deterministic: bool = False) -> Tensor:
        return self.sac.act(obs, deterministic=deterministic)

    def policy_network(self, env: EnvSpec) -> StandalonePolicy | None:
        return self.sac.policy_network(env)

    def update_model(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (MOPO needs no clock)
        """One gradient step of the ensemble; rows may be shared by the members or (members, rows)."""
        return UpdateResult(self.dynamics.update(batch, loss_name=LOSS))

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        """One gradient step of the policy and its critics."""
        return self.sac.update(batch, global_step=global_step)

    @torch.no_grad()
    def imagine(self, obs: Tensor, *, horizon: int, bounds: tuple[Tensor, Tensor] | None = None) -> Batch:
        """Rollouts of the current policy from each observation, as rows of a batch with penalised `rewards`.

        Every transition is drawn from a random elite. Beside the usual columns there are `penalties`, before their weight,
        and `disagreement`. Observations stay within `bounds` where they are given; a rollout that ends is not continued.
        """
        steps: list[Batch] = []
        while len(steps) < horizon and len(obs):
            actions = self.act(obs)
            drawn: ImaginedTransition = self.dynamics_model.imagine(obs, actions)
            next_obs = drawn.next_obs if bounds is None else drawn.next_obs.clamp(*bounds)
            penalties: Tensor = getattr(drawn, self.penalty)
            ends = torch.zeros_like(penalties)
            if self.termination_fn is not None:
                ends = self.termination_fn(obs, actions, next_obs).to(penalties.dtype)
            rewards = drawn.rewards - self.penalty_coef * penalties
            steps.append(
                {
                    "obs": obs,
                    "actions": actions,
                    "rewards": rewards,
                    "next_obs": next_obs,
                    "dones": ends,
                    "cuts": ends,
                    "penalties": penalties,
                    "disagreement": drawn.disagreement,
                }
            )
            obs = next_obs if self.termination_fn is None else next_obs[ends == 0]
        batch = {name: torch.cat([step[name] for step in steps]) for name in steps[0]}
        _require_finite(batch)
        return batch

    def schedule(self, name: str, value: float) -> None:
        self.sac.schedule("learning_rate" if name == "policy_learning_rate" else name, value)


def _require_finite(batch: Batch) -> None:
    """NumericsError before a rollout that left all bounds can reach the critics."""
    if not all(bool(batch[name].isfinite().all()) for name in ("rewards", "next_obs")):
        raise NumericsError(
            "the model imagined numbers that are not finite; shorten rollout_horizon, keep rollouts within the data's range "
            "(clip_rollouts: true), or fit the model for longer"
        )


MOPOAlgorithm = MOPO
