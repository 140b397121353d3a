"""What rows know of those after them: by hand, over ends and cuts, and in batches of recorded and fresh rows."""

import numpy as np
import pytest
import torch
from offline_helpers import PENDULUM, recorded

from rl_training.data.hindsight import hindsight, returns_to_go
from rl_training.data.mixed_source import MixedSource
from rl_training.data.offline_dataset import OfflineDataset
from rl_training.data.replay_buffer import ReplayBuffer


def columns(rows=6):
    return recorded(rows).columns(PENDULUM)


def test_the_next_action_is_that_of_the_next_row_and_after_a_cut_none_is_known():
    given = {"actions": np.array([[1.0], [2.0], [3.0], [4.0]]), "cuts": np.array([0.0, 1.0, 0.0, 0.0])}
    made = hindsight(given, ("next_actions",), gamma=0.9)
    assert made["next_actions"][[0, 2], 0].tolist() == [2.0, 4.0]
    assert made["next_known"].tolist() == [1.0, 0.0, 1.0, 0.0]  # the recording ends with the last row


def test_nothing_is_made_that_nobody_asks_for():
    assert hindsight(columns(), (), gamma=0.9) == {}


def test_a_batch_has_further_columns_in_the_shape_they_were_given():
    given = columns() | {"next_actions": np.arange(6.0)[:, None], "next_known": np.arange(6.0)}
    dataset = OfflineDataset(given, seed=0)
    assert dataset.more == {"next_actions": 1, "next_known": 0}
    batch = dataset.sample(50)
    assert batch["next_actions"].shape == (50, 1)
    assert torch.equal(batch["next_actions"][:, 0], batch["next_known"])
    assert torch.equal(batch["next_known"], batch["obs"][:, 0])  # rows stay together
    assert torch.equal(batch["rewards"], -batch["obs"][:, 0])


def test_fresh_rows_have_the_same_columns_with_nothing_in_them():
    dataset = OfflineDataset(columns() | {"next_actions": np.ones((6, 1)), "next_known": np.ones(6)}, seed=0)
    buffer = ReplayBuffer(8, obs_dim=3, action_dim=1, seed=0, more=dataset.more)
    buffer.add(columns())
    batch = MixedSource([(dataset, 0.5), (buffer, 0.5)]).sample(8)
    assert batch["next_known"].sum() == 4
    assert torch.equal(batch["next_known"], batch["next_actions"][:, 0])


def test_the_fingerprint_of_a_dataset_knows_of_further_columns():
    one, other = (OfflineDataset(columns() | {"next_known": np.full(6, number)}, seed=0) for number in (0.0, 1.0))
    assert one.fingerprint != other.fingerprint


def rows(rewards, *, dones=(), cuts=()):
    numbers = np.arange(len(rewards))
    ends = {"dones": np.isin(numbers, dones).astype(float), "cuts": np.isin(numbers, [*dones, *cuts]).astype(float)}
    return {"rewards": np.array(rewards), **ends}


def test_returns_up_to_a_real_end_by_hand():
    assert returns_to_go(rows([1.0, 2.0, 3.0], dones=[2]), 0.5).tolist() == [1 + 0.5 * 3.5, 2 + 0.5 * 3, 3.0]


def test_after_a_cut_the_last_reward_goes_on_for_ever_by_hand():
    assert returns_to_go(rows([1.0, 2.0, 3.0], cuts=[2]), 0.5).tolist() == [1 + 0.5 * 5, 2 + 0.5 * 6, 3 / (1 - 0.5)]


def test_who_fails_at_the_same_price_a_step_has_the_same_return_everywhere():
    assert returns_to_go(rows([-1.0] * 4, cuts=[3]), 0.99).tolist() == pytest.approx([-100.0] * 4)


def test_no_return_runs_over_the_end_of_an_episode():
    returns = returns_to_go(rows([1.0, 1.0, 8.0, 8.0], dones=[1], cuts=[3]), 0.5)
    assert returns.tolist() == [1.5, 1.0, 16.0, 16.0]


def test_the_end_of_the_rows_is_a_cut_and_without_a_discount_what_was_seen_is_all():
    assert returns_to_go(rows([1.0, 3.0]), 0.5).tolist() == [4.0, 6.0]
    assert returns_to_go(rows([1.0, 3.0]), 1.0).tolist() == [4.0, 3.0]
