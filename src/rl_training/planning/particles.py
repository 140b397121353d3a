"""What plans are worth in imagination: particles carried through the members of an ensemble (trajectory sampling)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.kernels.imagine import Members
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel
from rl_training.planning.known_functions import TransitionFn
from rl_training.planning.plan_values import PlanValues


class AnyEnsemble(Members):
    """A model that only has `predict_distribution`: every member predicts all rows, and those that are its own count."""

    def __init__(self, model: Any) -> None:
        self.model, self.num_members = model, int(model.num_ensembles)

    def __call__(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        rows = obs.shape[1]
        predicted = self.model.predict_distribution(obs.flatten(0, 1), actions.flatten(0, 1))
        members = torch.arange(self.num_members, device=obs.device)
        means, logvars = (x.unflatten(1, (self.num_members, rows))[members, members] for x in predicted)
        return means, logvars


def members_of(model: MLPMOPOEnsembleModel | Any) -> Members:
    """The members that predict; they do not follow later changes of ours."""
    return model.simulator() if isinstance(model, MLPMOPOEnsembleModel) else AnyEnsemble(model)


class ParticleReturns:
    """Values plans from `obs` (starts, obs_dim): the mean return of their particles, with `values` for where they end.

    With `ts1` particles change members at every step, else (TS∞) each keeps its own. The reward is the learnt one's
    mean unless it is known. All plans meet the same noise, so that they differ by their actions alone; the paper draws
    it for each plan apart.
    """

    def __init__(
        self,
        model: MLPMOPOEnsembleModel | Any,
        obs: Tensor,
        *,
        num_particles: int,
        ts1: bool = False,
        reward_fn: TransitionFn | None = None,
        termination_fn: TransitionFn | None = None,
        values: PlanValues | None = None,
        generator: torch.Generator | None = None,
        max_rows: int = 1_024,
    ) -> None:
        self.members = members_of(model)
        # every member has as many particles as the others
        self.particles = -(-num_particles // self.members.num_members) * self.members.num_members
        self.obs, self.ts1, self.generator = obs, ts1, generator
        self.reward_fn, self.termination_fn, self.values = reward_fn, termination_fn, values
        # what a member does at once: its activations then stay in the cache, and memory does not grow with the starts
        self.max_plans = max(1, max_rows * self.members.num_members // self.particles)

    @torch.no_grad()
    def __call__(self, plans: Tensor) -> Tensor:
        starts, candidates, horizon = plans.shape[:3]
        shape = (horizon, self.particles, self.obs.shape[-1])
        noise = torch.randn(shape, dtype=self.obs.dtype, device=plans.device, generator=self.generator)
        orders = self._orders(horizon, plans.device)
        obs = self.obs.repeat_interleave(candidates, dim=0)
        parts = zip(torch.split(obs, self.max_plans), torch.split(plans.flatten(0, 1), self.max_plans), strict=True)
        values = [self._returns(start, part, noise, orders) for start, part in parts]
        return torch.cat(values).view(starts, candidates)

    def _returns(self, start: Tensor, plans: Tensor, noise: Tensor, orders: Tensor | None) -> Tensor:
        """Of plans (plans, horizon, action_dim), each from its own start."""
        obs, total = start, start.new_zeros(self.particles, len(start))  # all particles begin in one place
        alive: Tensor | None = None
        gamma, discount = 1.0 if self.values is None else self.values.gamma, 1.0
        for t, actions in enumerate(plans.unbind(dim=1)):
            if orders is not None and t:
                obs, alive = obs[orders[t]], None if alive is None else alive[orders[t]]
            next_obs, rewards = self.members.particles(obs, actions, noise[t])
            if self.reward_fn is not None:
                rewards = self.reward_fn(*self._for_all(obs, actions), next_obs)
            total.add_(_earned(rewards, alive), alpha=discount)
            discount *= gamma
            if self.termination_fn is not None:
                stays = ~self.termination_fn(*self._for_all(obs, actions), next_obs)
                alive = stays if alive is None else alive & stays
            obs = next_obs
        if self.values is not None:
            total.add_(_earned(self.values(obs), alive), alpha=discount)
        return total.mean(dim=0)

    def _for_all(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """What may hold for all particles, (plans, ·), as known functions take it: (particles, plans, ·)."""
        return obs.expand(self.particles, *obs.shape[-2:]), actions.expand(self.particles, *actions.shape)

    def _orders(self, horizon: int, device: torch.device) -> Tensor | None:
        """For every step, which particle goes on in which place; places belong to members."""
        if not self.ts1:
            return None
        order = torch.rand(horizon, self.particles, dtype=torch.float32, device=device, generator=self.generator)
        return order.argsort(dim=1)


def _earned(rewards: Tensor, alive: Tensor | None) -> Tensor:
    """Nothing after the end; a product would make NaN of what has ended and run away since."""
    return rewards if alive is None else torch.where(alive, rewards, 0.0)
