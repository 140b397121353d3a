"""What TD3 and DDPG have in common: a deterministic actor that climbs a learnt Q function (Silver et al., 2014)."""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.entry import of_any_obs, type_of, values_by
from rl_training.algorithms.lean_losses import bellman_targets, mean
from rl_training.algorithms.optim import Adam, polyak_update
from rl_training.algorithms.sac import critic_loss, fill_critic_gradient
from rl_training.models.deterministic import DeterministicActorCritic, blurred
from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import Batch, EnvSpec, Metrics


def actor_loss(q_values: Tensor) -> Metrics:
    """Minus the mean value of the actor's actions."""
    return {"actor_loss": -mean(q_values)}


def actor_loss_gradient(rows: int) -> float:
    """d actor_loss / d q_values, which is the same for each of so many."""
    return -1.0 / rows


class DeterministicActorAlgorithm(Algorithm):
    """The pieces of an update; what the target is, and which pieces move when, is each algorithm's own.

    `model` is a `DeterministicActorCritic`, or any module with submodules `actor` (observations to actions in
    [-1, 1]) and `critics`, and `q_values(obs, actions)` of shape (critics, batch) or one of (batch,) for each critic; the
    latter is differentiated by autograd.
    """

    def __init__(
        self,
        model: DeterministicActorCritic | nn.Module,
        *,
        learning_rate: float,
        gamma: float,
        tau: float,
        exploration_noise: float,
        actor_learning_rate: float | None,
    ) -> None:
        self.model = cast("Any", model)
        self.explicit = isinstance(model, DeterministicActorCritic)
        self.learning_rate, self.gamma, self.tau, self.exploration_noise = learning_rate, gamma, tau, exploration_noise
        # unlike SAC's, the next action of the target is the target actor's, so the copy is of both
        self.target = copy.deepcopy(self.model).requires_grad_(False)
        self.actor_parameters = list(self.model.actor.parameters())
        self.critic_parameters = list(self.model.critics.parameters())
        self.dtype = type_of(self.actor_parameters)
        self.target_parameters = [*self.target.actor.parameters(), *self.target.critics.parameters()]
        self.actor_optimizer = Adam(self.actor_parameters, learning_rate=actor_learning_rate or learning_rate)
        self.critic_optimizer = Adam(self.critic_parameters, learning_rate=learning_rate)

    @of_any_obs
    def act(self, obs: Tensor, *, deterministic: bool = False) -> Tensor:  # noqa: ARG002 (there is no other way to act)
        return self._actions(self.model, obs)

    def policy_network(self, env: EnvSpec) -> PolicyNetwork | None:
        return self.model.actor.policy_network(env, squash=True) if self.explicit else None

    @of_any_obs
    def explore(self, obs: Tensor) -> Tensor:
        """The actor's actions with Gaussian noise, brought back into [-1, 1]."""
        return self._blurred_actions(self.model, obs, std=self.exploration_noise)

    @property
    def target_blur(self) -> dict[str, float]:
        """`std` and `clip` of the noise on what the target assumes will be done next; without them there is none."""
        return {}

    def next_actions(self, next_obs: Tensor) -> Tensor:
        """What the target assumes will be done next: what the target actor would do, blurred or not."""
        if blur := self.target_blur:
            return self._blurred_actions(self.target, next_obs, **blur)
        return self._actions(self.target, next_obs)

    def targets(self, batch: Batch) -> Tensor:
        """r + γ (1 − done) min Q̄(s′, a′); with one critic the minimum is that critic."""
        next_obs = batch["next_obs"]
        if self.explicit:
            at_once: Tensor | None = self.target.targets(batch, gamma=self.gamma, **self.target_blur)
            if at_once is not None:
                return at_once
            next_q = self.target.own_values(next_obs, **self.target_blur)
        else:
            with torch.no_grad():
                next_q = values_by(self.target, next_obs, self.next_actions(next_obs))
        return bellman_targets(batch, next_q, gamma=self.gamma)

    def update_critics(self, batch: Batch) -> Metrics:
        """One step of the critics towards the target."""
        target = self.targets(batch)
        if self.explicit:
            losses = fill_critic_gradient(self.model.critics, batch, target)
            self.critic_optimizer.step([self.model.critics.gradient])
        else:
            losses = critic_loss(values_by(self.model, batch["obs"], batch["actions"]), target)
            self.critic_optimizer.descend(losses["critic_loss"], self.critic_parameters)
        return losses

    def update_actor(self, batch: Batch) -> Metrics:
        """One step of the actor up the first critic, which stays as it is."""
        obs = batch["obs"]
        if self.explicit:
            losses = actor_loss(self.model.climb(obs, actor_loss_gradient(len(obs))))
            self.actor_optimizer.step([self.model.actor.gradient])
        else:
            losses = actor_loss(values_by(self.model, obs, self.model.actor(obs))[0])
            self.actor_optimizer.descend(losses["actor_loss"], self.actor_parameters)
        return losses

    def move_targets(self) -> None:
        """Both target copies follow a little."""
        polyak_update([*self.actor_parameters, *self.critic_parameters], self.target_parameters, self.tau)

    def _blurred_actions(self, networks: Any, obs: Tensor, *, std: float, clip: float = math.inf) -> Tensor:
        if self.explicit:
            actions: Tensor = networks.actor.infer_blurred(obs, std=std, clip=clip)  # explicit passes know no autograd
            return actions
        with torch.no_grad():
            actions = networks.actor(obs)
            return blurred(actions, torch.randn_like(actions), std=std, clip=clip)

    def _actions(self, networks: Any, obs: Tensor) -> Tensor:
        with torch.no_grad():
            actions: Tensor = networks.actor.infer(obs) if self.explicit else networks.actor(obs)
        return actions
