"""PETS: plan every action through an ensemble of learnt dynamics (Chua et al., 2018, arXiv:1805.12114)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm, EpisodePolicy
from rl_training.models.entry import of_any_obs
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel
from rl_training.planning.cem import CEM, Plan
from rl_training.planning.dynamics import DynamicsLearner, dynamics_metrics
from rl_training.planning.known_functions import TransitionFn
from rl_training.planning.particles import ParticleReturns, members_of
from rl_training.planning.plan_values import PlanValues
from rl_training.types import Batch, Metrics, UpdateResult

LOSS = "pets_model_loss"


def pets_loss(batch: Mapping[str, Tensor]) -> Metrics:
    """The ensemble's negative log-likelihood and its errors, from `predicted_means [E,B,D], predicted_logvars,
    targets [B,D], ensemble_disagreement [B]`."""
    return dynamics_metrics(batch, LOSS)


class PETS(Algorithm):
    """Learns from batches of `obs, actions, rewards, next_obs`; acts by searching for a plan at every observation.

    `dynamics_model` is an `MLPMOPOEnsembleModel`, or any object with `obs_dim, action_dim, num_ensembles,
    ensemble_parameters()` and `predict_distribution(obs, actions)`. `reward_fn` and `termination_fn` are known functions
    of (obs, actions in [-1, 1], next_obs). With `values` a plan is also worth what they say of where it ends. The learner
    remembers no plan: whoever acts in episodes hands the last one in, unless `warm_start` is off.
    """

    def __init__(
        self,
        dynamics_model: MLPMOPOEnsembleModel | Any,
        learning_rate: float,
        *,
        weight_decays: Sequence[float] = (),
        planner: CEM | None = None,
        num_particles: int = 20,
        ts1: bool = False,
        warm_start: bool = True,
        reward_fn: TransitionFn | None = None,
        termination_fn: TransitionFn | None = None,
        values: PlanValues | None = None,
    ) -> None:
        self.dynamics = DynamicsLearner(dynamics_model, learning_rate=learning_rate, decays=weight_decays)
        self.dtype = self.dynamics.dtype
        self.planner = planner or CEM()
        self.num_particles, self.ts1, self.warm_start = num_particles, ts1, warm_start
        self.reward_fn, self.termination_fn, self.values = reward_fn, termination_fn, values

    @property
    def dynamics_model(self) -> Any:
        return self.dynamics.model

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (PETS needs no clock)
        """One gradient step of the ensemble; rows may be shared by the members or (members, rows)."""
        return UpdateResult(self.dynamics.update(batch, loss_name=LOSS))

    @of_any_obs
    def act(self, obs: Tensor, *, deterministic: bool = False) -> Tensor:
        """Plan from scratch. Deterministic planning is a function of the observation; else it draws from torch's stream,
        and the action from the last distribution of the search."""
        if deterministic:
            return self.plan(obs, generator=fixed_generator(obs.device)).actions
        return _drawn(self.plan(obs), -1.0, 1.0)

    @of_any_obs
    def explore(self, obs: Tensor) -> Tensor:
        """The first action of a plan from scratch, as in the paper without noise of its own."""
        return self.plan(obs).actions

    def plan(self, obs: Tensor, *, start: Tensor | None = None, generator: torch.Generator | None = None) -> Plan:
        """Search from each observation in a batch, in [-1, 1], around `start` where there is one."""
        bound = obs.new_ones(self.dynamics_model.action_dim)
        return self._plan(
            obs, start, self.planner, num_particles=self.num_particles, bounds=(-bound, bound), generator=generator
        )

    def plan_action(
        self,
        obs: Any,
        *,
        action_low: Any,
        action_high: Any,
        horizon: int,
        num_candidates: int,
        num_iterations: int,
        num_topk: int,
        num_particles: int = 20,
        deterministic: bool = True,
    ) -> np.ndarray:
        """One action for one observation, with bounds and a search of the caller's own; the model is given actions
        within these bounds."""
        device = next((parameter.device for parameter in self.dynamics.parameters), torch.device("cpu"))
        start = torch.as_tensor(obs, dtype=torch.float32, device=device).reshape(1, -1)
        if not bool(start.isfinite().all()):
            raise ValueError(f"there is no planning from an observation that is not finite: {start[0].tolist()}")
        dims = (self.dynamics_model.action_dim,)
        bounds = (torch.as_tensor(bound, dtype=torch.float32, device=device) for bound in (action_low, action_high))
        low, high = (bound.expand(dims) for bound in bounds)
        if not bool((low < high).all()):
            raise ValueError(f"action_low must lie below action_high; given {low.tolist()} and {high.tolist()}")
        planner = CEM(horizon=horizon, candidates=num_candidates, iterations=num_iterations, topk=num_topk)
        generator = fixed_generator(start.device) if deterministic else None
        plan = self._plan(start, None, planner, num_particles=num_particles, bounds=(low, high), generator=generator)
        action = plan.actions if deterministic else _drawn(plan, low, high)
        chosen: np.ndarray = action[0].cpu().numpy()
        return chosen

    def _plan(
        self,
        obs: Tensor,
        start: Tensor | None,
        planner: CEM,
        *,
        num_particles: int,
        bounds: tuple[Tensor, Tensor],
        generator: torch.Generator | None,
    ) -> Plan:
        low, high = bounds
        returns = ParticleReturns(
            self.dynamics_model,
            obs,
            num_particles=num_particles,
            ts1=self.ts1,
            reward_fn=self.reward_fn,
            termination_fn=self.termination_fn,
            values=self.values,
            generator=generator,
        )
        if start is None:
            start = planner.fresh((low + high) / 2).expand(len(obs), -1, -1, -1)
        return planner.search(returns, start, low=low, high=high, generator=generator)

    @torch.no_grad()
    def fit_values(self, transitions: Batch, *, updates: int, seed: int) -> Metrics:
        """Let the values follow the model, from the states in `transitions`. Members follow their means."""
        assert self.values is not None
        members = members_of(self.dynamics_model)
        # known functions are promised two leading axes, as particles and plans have
        obs, actions, next_obs = (transitions[name].unsqueeze(0) for name in ("obs", "actions", "next_obs"))

        def imagined(obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
            reached, rewards = members.particles(obs, actions, None)
            rewards = rewards if self.reward_fn is None else self.reward_fn(obs, actions, reached)
            return reached, rewards, None if self.termination_fn is None else self.termination_fn(obs, actions, reached)

        rewards = transitions["rewards"] if self.reward_fn is None else self.reward_fn(obs, actions, next_obs)
        return self.values.fit(imagined, obs[0], rewards, members=members.num_members, updates=updates, seed=seed)

    def episode_policy(self) -> EpisodePolicy:
        return EpisodePlans(self)

    def schedule(self, name: str, value: float) -> None:
        if name in {"model_learning_rate", "learning_rate"}:
            self.dynamics.optimizer.learning_rate = value
        else:
            super().schedule(name, value)


class EpisodePlans:
    """Plans in a number of episodes side by side, each from what was left of its last plan; always the same way."""

    def __init__(self, learner: PETS) -> None:
        self.learner = learner
        self.plans: dict[int, Tensor] = {}
        self.generator: torch.Generator | None = None

    def __call__(self, obs: Tensor, episodes: list[int]) -> Tensor:
        self.generator = self.generator or fixed_generator(obs.device)
        middle = obs.new_zeros(self.learner.dynamics_model.action_dim)
        fresh = self.learner.planner.fresh(middle)
        start = torch.stack([self.plans.get(episode, fresh) for episode in episodes])
        plan = self.learner.plan(obs, start=start, generator=self.generator)
        if self.learner.warm_start:
            self.plans = dict(zip(episodes, plan.shifted(middle), strict=True))  # of those that ended nothing is kept
        return plan.actions


def fixed_generator(device: torch.device) -> torch.Generator:
    """The same stream every time."""
    return torch.Generator(device=device).manual_seed(0)


def _drawn(plan: Plan, low: Tensor | float, high: Tensor | float) -> Tensor:
    """A first action from the last distribution of the search."""
    mean, std = plan.mean[:, 0], plan.std[:, 0]
    return torch.clamp(torch.addcmul(mean, std, torch.randn_like(mean)), low, high)  # type: ignore[arg-type]


PETSAlgorithm = PETS
