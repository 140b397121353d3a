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

from rl_training.algorithms.sac import SAC
from rl_training.algorithms.temperature import Temperature
from rl_training.kernels.differentiable import loss
from rl_training.kernels.losses import critic_loss
from rl_training.models.adapters import several_samples
from rl_training.models.mlp_sac import MLPSACModel, SACSample
from rl_training.models.optim import Adam, polyak_update
from rl_training.types import Batch, Metrics

MAX_LOG_WEIGHT = math.log(1e6)


def conservative_gap(q_values: Tensor, sampled_q_values: Tensor, sampled_logprobs: Tensor) -> Tensor:
    """log of the mean of exp Q / density over the sampled actions, less Q of the recorded one; per critic.

    `q_values` is (critics, batch), `sampled_q_values` (critics, batch, samples), `sampled_logprobs` the logarithm of the
    density each sample was drawn from, (batch, samples).
    """
    weighted = sampled_q_values - sampled_logprobs
    return (weighted.logsumexp(-1) - math.log(weighted.shape[-1]) - q_values).mean(-1)


@loss("cql_loss", wrt=("q_values", "sampled_q_values"))
def cql_loss(batch: Mapping[str, Any], *, cql_alpha: float | Tensor) -> Metrics:
    """The critics' loss from `q_values, target_q_values, sampled_q_values, sampled_logprobs` (see `conservative_gap`)."""
    bellman = critic_loss(batch["q_values"], batch["target_q_values"].flatten())
    gap = conservative_gap(batch["q_values"], batch["sampled_q_values"], batch["sampled_logprobs"])
    return bellman | {"cql_penalty": gap.mean(), "cql_loss": bellman["critic_loss"] + cql_alpha * gap.sum()}


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
        """One step of the critics towards target and conservatism, and of the target critics after them."""
        weight = self.cql_alpha
        tensors = {"target_q_values": self.targets(batch, next_sample)}
        actions, tensors["sampled_logprobs"] = self.sampled_actions(batch)
        # the recorded action stands first in each state's row
        actions = torch.cat([batch["actions"].unsqueeze(1), actions], dim=1)
        obs = batch["obs"].unsqueeze(1).expand(-1, actions.shape[1], -1)
        outputs, pull = self.q_values.vjp(obs.flatten(0, 1), actions.flatten(0, 1))
        q_values = outputs.unflatten(1, actions.shape[:2])
        tensors |= {"q_values": q_values[..., 0], "sampled_q_values": q_values[..., 1:]}
        losses, d = self.conservative_loss(batch, tensors)
        d_outputs = torch.cat([d.q_values.unsqueeze(-1), d.sampled_q_values], dim=-1)
        self.critic_optimizer.step(pull(d_outputs.flatten(1)))
        polyak_update(self.critic_parameters, self.target_parameters, self.tau)
        self._update_weight(losses["cql_penalty"])
        return losses | {"cql_alpha": weight}

    def conservative_loss(self, batch: Batch, tensors: dict[str, Tensor]) -> tuple[Metrics, Any]:  # noqa: ARG002 (Cal-QL looks)
        """The critics' loss, and its gradients at `q_values` and `sampled_q_values`."""
        return cql_loss.vjp(tensors, cql_alpha=self.cql_alpha)

    def sampled_actions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Actions (batch, 3 samples, action_dim), a third each uniform, of π(·|s) and of π(·|s′); and their log-densities."""
        rows, count, dim = len(batch["obs"]), self.num_cql_samples, self.model.action_dim
        states = torch.cat([batch["obs"], batch["next_obs"]])
        drawn, drawn_logprobs = several_samples(self.model, states, count)
        uniform = states.new_empty(rows, count, dim).uniform_(-1, 1)
        density = drawn.new_full((rows, count), -dim * math.log(2.0))
        actions = torch.cat([uniform, drawn[:rows], drawn[rows:]], dim=1)
        return actions, torch.cat([density, drawn_logprobs[:rows], drawn_logprobs[rows:]], dim=1)

    def _update_weight(self, gap: Tensor) -> None:
        if self.cql_target_gap is None:
            return
        # the weight w climbs w · (gap - target): up while critics are bolder than they may be, down after
        gradient = -self.cql_alpha * (gap - self.cql_target_gap)
        self.penalty_optimizer.step([gradient.reshape(())])
        self.penalty_weight.log_alpha.clamp_(max=MAX_LOG_WEIGHT)


CQLAlgorithm = CQL
