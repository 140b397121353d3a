"""Conservative Q-learning, CQL(H) (Kumar et al., 2020, arXiv:2006.04779).

SAC on recorded data. Besides the Bellman error the critics minimise how far log ∫ exp Q(s, a) da, estimated from
uniform and the policy's own actions, lies above the value of the recorded action.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.algorithms.entry import values_by
from rl_training.algorithms.optim import Adam, polyak_update
from rl_training.algorithms.sac import SAC, Temperature, critic_loss, critic_loss_gradient
from rl_training.models.mlp_sac import MLPSACModel, SACSample
from rl_training.types import Batch, Metrics

MAX_LOG_WEIGHT = math.log(1e6)


def conservative_gap(q_values: Tensor, sampled_q_values: Tensor, sampled_logprobs: Tensor) -> Tensor:
    """log of the mean of exp Q / density over the sampled actions, less Q of the recorded one; per critic.

    `q_values` is (critics, batch), `sampled_q_values` (critics, batch, samples), `sampled_logprobs` the logarithm of the
    density each sample was drawn from, (batch, samples).
    """
    weighted = sampled_q_values - sampled_logprobs
    return (weighted.logsumexp(-1) - math.log(weighted.shape[-1]) - q_values).mean(-1)


def cql_loss(batch: Mapping[str, Any], *, cql_alpha: float | Tensor) -> Metrics:
    """The critics' loss from `q_values, target_q_values, sampled_q_values, sampled_logprobs` (see `conservative_gap`)."""
    bellman = critic_loss(batch["q_values"], batch["target_q_values"].flatten())
    gap = conservative_gap(batch["q_values"], batch["sampled_q_values"], batch["sampled_logprobs"])
    return bellman | {"cql_penalty": gap.mean(), "cql_loss": bellman["critic_loss"] + cql_alpha * gap.sum()}


def cql_loss_gradient(batch: Mapping[str, Any], *, cql_alpha: float | Tensor) -> tuple[Tensor, Tensor]:
    """d cql_loss / d q_values and / d sampled_q_values."""
    q_values = batch["q_values"]
    weight = cql_alpha / q_values.shape[-1]
    d_sampled = (batch["sampled_q_values"] - batch["sampled_logprobs"]).softmax(-1) * weight
    return critic_loss_gradient(q_values, batch["target_q_values"]) - weight, d_sampled


class CQL(SAC):
    """SAC with conservative critics. With `cql_target_gap` the penalty's weight is tuned so that the gap meets it."""

    def __init__(
        self,
        model: MLPSACModel | nn.Module,
        *,
        cql_alpha: float = 5.0,
        num_cql_samples: int = 10,
        cql_target_gap: float | None = None,
        backup_entropy: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(model, backup_entropy=backup_entropy, **settings)
        self.num_cql_samples, self.cql_target_gap = num_cql_samples, cql_target_gap
        self.penalty_weight = Temperature(cql_alpha, device=self.actor_parameters[0].device)
        if cql_target_gap is not None:
            self.penalty_optimizer = Adam([self.penalty_weight.log_alpha], learning_rate=self.learning_rate)

    @property
    def cql_alpha(self) -> Tensor:
        """The weight of the penalty, as a scalar tensor."""
        return self.penalty_weight.alpha

    @cql_alpha.setter
    def cql_alpha(self, value: float) -> None:
        self.penalty_weight.set(value)

    def update_critics(self, batch: Batch, *, next_sample: SACSample | None = None) -> Metrics:
        """One step of the critics towards target and conservatism, and of the target critics after them. The losses are
        always worked out: the weight of the penalty follows them."""
        target, weight = self.targets(batch, next_sample), self.cql_alpha
        actions, logprobs = self.sampled_actions(batch)
        # the recorded action stands first in each state's row
        actions = torch.cat([batch["actions"].unsqueeze(1), actions], dim=1)
        rows = batch["obs"].unsqueeze(1).expand(-1, actions.shape[1], -1)
        tensors = {"target_q_values": target, "sampled_logprobs": logprobs}

        def with_values(outputs: Tensor) -> dict[str, Tensor]:
            q = outputs.view(len(outputs), *actions.shape[:2])
            return tensors | {"q_values": q[..., 0], "sampled_q_values": q[..., 1:]}

        def gradient_at(outputs: Tensor) -> Tensor:  # a critic's depends on its own values alone
            d_q, d_sampled = cql_loss_gradient(with_values(outputs), cql_alpha=weight)
            return torch.cat([d_q.unsqueeze(-1), d_sampled], dim=-1).view_as(outputs)

        if self.explicit:
            outputs = self.model.critics.learn(torch.cat([rows, actions], dim=-1).flatten(0, 1), gradient_at)
            losses = cql_loss(with_values(outputs), cql_alpha=weight)
            self.critic_optimizer.step([self.model.critics.gradient])
        else:
            values = values_by(self.model, rows.flatten(0, 1), actions.flatten(0, 1))
            losses = cql_loss(with_values(values), cql_alpha=weight)
            self.critic_optimizer.descend(losses["cql_loss"], self.critic_parameters)
        polyak_update(self.critic_parameters, self.target_parameters, self.tau)
        self._update_weight(losses["cql_penalty"].detach())
        return losses | {"cql_alpha": weight.clone()}

    @torch.no_grad()
    def sampled_actions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Actions (batch, 3 samples, action_dim), a third each uniform, of π(·|s) and of π(·|s′); and their log-densities."""
        rows, count, dim = len(batch["obs"]), self.num_cql_samples, self.model.action_dim
        states = torch.cat([batch["obs"], batch["next_obs"]])
        if self.explicit:
            drawn, drawn_logprobs = self.model.infer_samples(states, count)
        else:
            sample = self.model.sample_actions(states.repeat_interleave(count, 0))
            drawn, drawn_logprobs = sample.actions.view(2 * rows, count, dim), sample.logprobs.view(2 * rows, count)
        uniform = states.new_empty(rows, count, dim).uniform_(-1, 1)
        density = drawn.new_full((rows, count), -dim * math.log(2.0))
        actions = torch.cat([uniform, drawn[:rows], drawn[rows:]], dim=1)
        return actions, torch.cat([density, drawn_logprobs[:rows], drawn_logprobs[rows:]], dim=1)

    @torch.no_grad()
    def _update_weight(self, gap: Tensor) -> None:
        if self.cql_target_gap is None:
            return
        # the weight w climbs w · (gap - target): up while critics are bolder than they may be, down after
        gradient = -self.cql_alpha * (gap - self.cql_target_gap)
        self.penalty_optimizer.step([gradient.reshape(())])
        self.penalty_weight.log_alpha.clamp_(max=MAX_LOG_WEIGHT)


CQLAlgorithm = CQL
