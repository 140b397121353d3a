"""The public losses of the off-policy learners: columns may be vectors or matrices of one column, in any mixture."""

import pytest
import torch

from rl_training.algorithms.cql import cql_loss
from rl_training.algorithms.ddpg import ddpg_loss
from rl_training.algorithms.iql import iql_loss
from rl_training.algorithms.mopo import mopo_loss
from rl_training.algorithms.rebrac import rebrac_loss
from rl_training.algorithms.rlpd import rlpd_loss
from rl_training.algorithms.sac import sac_loss
from rl_training.algorithms.td3 import td3_loss

TWIN = ("q1_values", "q2_values", "target_q_values", "sampled_logprobs", "sampled_q1", "sampled_q2")
LOSSES = {
    "sac": (lambda batch: sac_loss(batch, alpha=0.5), TWIN),
    "rlpd": (lambda batch: rlpd_loss(batch, alpha=0.5), TWIN),
    "mopo": (lambda batch: mopo_loss(batch, alpha=0.5), TWIN),
    "iql": (
        lambda batch: iql_loss(batch, expectile=0.7, inverse_temperature=1.0),
        ("values", "recorded_q_values", "logprobs", "q1_values", "q2_values", "target_q_values"),
    ),
    "rebrac": (
        lambda batch: rebrac_loss(
            batch | dict.fromkeys(("actions", "sampled_actions"), torch.ones(6, 2)), actor_penalty_coef=1.0
        ),
        ("q1_values", "q2_values", "target_q_values", "sampled_q1", "sampled_q2"),
    ),
    "td3": (td3_loss, ("q1_values", "q2_values", "target_q_values", "sampled_q1")),
    "ddpg": (ddpg_loss, ("q_values", "target_q_values", "sampled_q")),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_matrix_of_one_column_is_that_column(name):
    loss, columns = LOSSES[name]
    batch = {column: torch.randn(6) for column in columns}
    wanted = loss(batch)
    for apart in [*columns, None]:
        given = {column: values.unsqueeze(-1) if apart in {column, None} else values for column, values in batch.items()}
        assert {key: value.item() for key, value in loss(given).items()} == {key: value.item() for key, value in wanted.items()}


@pytest.mark.parametrize("name", LOSSES)
def test_columns_of_different_lengths_are_refused_by_name(name):
    loss, columns = LOSSES[name]
    batch = {column: torch.randn(6) for column in columns} | {"target_q_values": torch.randn(3)}
    with pytest.raises(ValueError, match=r"different lengths.*target_q_values \(3,\)"):
        loss(batch)


def test_the_target_of_conservative_critics_may_be_a_matrix_of_one_column():
    batch = {"q_values": torch.randn(2, 6), "sampled_q_values": torch.randn(2, 6, 3), "sampled_logprobs": torch.randn(6, 3)}
    target = torch.randn(6)
    wanted, given = (cql_loss(batch | {"target_q_values": column}, cql_alpha=1.0) for column in (target, target.unsqueeze(-1)))
    assert wanted["cql_loss"] == given["cql_loss"]
