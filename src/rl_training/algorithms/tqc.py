"""Truncated quantile critics, TQC (Kuznetsov et al., 2020, arXiv:2005.04269).

SAC whose critics know quantiles of the return and not its mean alone. Of all critics' quantiles at the next state the highest
are left out of the target, which takes overestimation away in small doses; what is left is everybody's target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from rl_training.algorithms.sac import SAC
from rl_training.algorithms.td import td_targets
from rl_training.kernels.losses import quantile_huber_loss, soft_actor_loss
from rl_training.models.adapters import quantiles_of
from rl_training.models.mlp_sac import SACSample
from rl_training.models.mlp_tqc import MLPTQCModel
from rl_training.models.optim import polyak_update
from rl_training.types import Batch, Metrics


def lowest_quantiles(quantiles: Tensor, num_dropped: int) -> Tensor:
    """All critics' quantiles (critics, batch, quantiles) as one sorted mixture for each row, without the highest: as many as
    `num_dropped` of each critic, whoever they are of. Shape (batch, kept)."""
    mixture = quantiles.transpose(0, 1).flatten(1).sort(dim=-1).values
    return mixture[:, : mixture.shape[-1] - num_dropped * len(quantiles)]


def tqc_loss(batch: Mapping[str, Any], *, alpha: float | Tensor | None = None) -> Metrics:
    """Both losses, from `quantiles (critics, batch, quantiles), target_quantiles (batch, kept), sampled_q_values (critics,
    batch), sampled_logprobs, alpha`."""
    weight = batch["alpha"] if alpha is None else alpha
    actor = soft_actor_loss(batch["sampled_q_values"], batch["sampled_logprobs"].reshape(-1), weight, pessimistic=False)
    return quantile_huber_loss(batch["quantiles"], batch["target_quantiles"]) | actor


class TQC(SAC):
    """SAC with quantile critics; the actor climbs the mean of all their quantiles, of which nothing is left out.

    `model` is an `MLPTQCModel`, or any module that SAC takes with `quantiles(obs, actions)` beside `q_values`, of shape
    (critics, batch, quantiles). Further settings are those of `SAC`.
    """

    def __init__(
        self,
        model: MLPTQCModel | nn.Module,
        *,
        num_dropped_quantiles: int = 2,
        pessimistic_actor: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(model, pessimistic_actor=pessimistic_actor, **settings)
        self.num_dropped_quantiles = num_dropped_quantiles
        self.quantiles, self.target_quantiles = quantiles_of(model), quantiles_of(self.target)

    def targets(self, batch: Batch, next_sample: SACSample | None = None) -> Tensor:
        """r + γ (1 − done) (z − α log π(a′|s′)) for each quantile z of the target critics that is kept: (batch, kept)."""
        actions, logprobs = self.sample_actions(batch["next_obs"]) if next_sample is None else next_sample
        kept = lowest_quantiles(self.target_quantiles(batch["next_obs"], actions), self.num_dropped_quantiles)
        values = kept - self.alpha * logprobs.unsqueeze(-1) if self.backup_entropy else kept
        return td_targets({name: batch[name].unsqueeze(-1) for name in ("rewards", "dones")}, values, self.gamma)

    def update_critics(self, batch: Batch, *, next_sample: SACSample | None = None) -> Metrics:
        """One step of every critic's quantiles towards the mixture, and of the target critics after them."""
        targets = self.targets(batch, next_sample)
        quantiles, pull = self.quantiles.vjp(batch["obs"], batch["actions"])
        losses, d = quantile_huber_loss.vjp(quantiles, targets)
        self.critic_optimizer.step(pull(d.quantiles))
        polyak_update(self.critic_parameters, self.target_parameters, self.tau)
        return losses


TQCAlgorithm = TQC
