"""RLPD: efficient online reinforcement learning with offline data (Ball et al., 2023, arXiv:2302.02948).

The learner is SAC with three changes: many critics with layer norm whose target is the minimum over a random few,
an actor that climbs the critics' mean, and many critic updates to one of the actor. That batches are half prior and
half fresh data is the trainer's business (`runtime/rlpd_trainer.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.algorithms.sac import SAC, twin_losses
from rl_training.models.entry import plain
from rl_training.models.mlp_sac import MLPSACModel, SACSample
from rl_training.types import Batch, Metrics, UpdateResult


def rlpd_loss(batch: Mapping[str, Any], *, alpha: float | Tensor | None = None) -> Metrics:
    """Both losses, from `q1_values, q2_values, target_q_values, sampled_logprobs, sampled_q1, sampled_q2, alpha`.

    As SAC's, but for the actor, which is judged by the critics' mean rather than by the lowest.
    """
    return twin_losses(batch, alpha=alpha, pessimistic=False)


class RLPD(SAC):
    """SAC as RLPD wants it; `update` is one step of everything, `update_round` many of the critics and one of the actor."""

    def __init__(
        self,
        model: MLPSACModel | nn.Module,
        *,
        target_entropy: float | None = None,
        critic_subset_size: int | None = 2,
        pessimistic_actor: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(
            model,
            target_entropy=-0.5 * float(model.action_dim) if target_entropy is None else target_entropy,  # type: ignore[arg-type]
            critic_subset_size=critic_subset_size,
            pessimistic_actor=pessimistic_actor,
            **settings,
        )

    @torch.no_grad()
    def update_round(self, batch: Batch, num_updates: int) -> UpdateResult:
        """The batch in `num_updates` slices, one critic update each; the actor and the temperature learn on the last."""
        batch, rows = plain(batch, self.dtype, reads_bytes=self.reads_bytes), len(batch["rewards"]) // num_updates
        sample = self.sample_actions(batch["next_obs"])  # of all slices at once: the actor stays as it is until the round's end
        columns_of_all = (*batch.values(), sample.actions, sample.logprobs)
        pieces = zip(*(torch.split(column, rows) for column in columns_of_all), strict=True)
        piece, metrics = batch, {}
        for _, (*columns, actions, logprobs) in zip(range(num_updates), pieces, strict=False):
            piece = dict(zip(batch, columns, strict=True))
            metrics = self.update_critics(piece, next_sample=SACSample(actions, logprobs))
        return UpdateResult(metrics | self.update_actor(piece), num_updates)


RLPDAlgorithm = RLPD
