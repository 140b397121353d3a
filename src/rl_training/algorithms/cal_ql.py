"""Cal-QL: calibrated offline pre-training for efficient online fine-tuning (Nakamoto et al., 2023, arXiv:2303.05479).

CQL pushes the values of the policy's actions down without end, below anything that could come to pass, and going online they
have to be learnt anew. Here they are pushed no further than to what the recorded behaviour earned from that state on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.cql import CQL, cql_loss
from rl_training.kernels.differentiable import loss
from rl_training.types import Batch, Metrics


def calibrated(sampled_q_values: Tensor, returns: Tensor) -> Tensor:
    """Values of sampled actions (critics, batch, 3 samples) that are no lower than the returns (batch,) where the policy chose
    the action; the first third is uniform, and stays as it is."""
    uniform = sampled_q_values.shape[-1] // 3
    bounded = torch.maximum(sampled_q_values[..., uniform:], returns.reshape(-1, 1))
    return torch.cat([sampled_q_values[..., :uniform], bounded], dim=-1)


@loss("cql_loss", wrt=("q_values", "sampled_q_values"))
def cal_ql_loss(batch: Mapping[str, Any], *, cql_alpha: float | Tensor) -> Metrics:
    """`cql_loss` with calibrated values, from what that takes and `returns`; `bound_share` of the policy's actions are worth
    less than these, and are pushed down no further."""
    values = batch["sampled_q_values"]
    bounded = calibrated(values, batch["returns"])
    policy = values.shape[-1] // 3
    below = (bounded[..., policy:] > values[..., policy:]).to(values.dtype).mean()
    return cql_loss({**batch, "sampled_q_values": bounded}, cql_alpha=cql_alpha) | {"bound_share": below}


class CalQL(CQL):
    """Learns from batches of `obs, actions, rewards, next_obs, dones` and `returns`, the discounted sum of rewards from the row
    to the end of its episode. Settings are those of `CQL`."""

    def conservative_loss(self, batch: Batch, tensors: dict[str, Tensor]) -> tuple[Metrics, Any]:
        return cal_ql_loss.vjp({**tensors, "returns": batch["returns"]}, cql_alpha=self.cql_alpha)


CalQLAlgorithm = CalQL
