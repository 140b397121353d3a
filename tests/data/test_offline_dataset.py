"""Prior data in memory: drawn, mixed, saved; and what is read from arrays of any origin."""

import numpy as np
import pytest
import torch
from offline_helpers import PENDULUM, arrays, recorded

from rl_training.data.mixed_source import MixedSource, PooledSource, interleave
from rl_training.data.offline_dataset import OfflineDataset
from rl_training.data.recorded_data import RecordedData
from rl_training.data.reference_scores import SCORES, normalized_score
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.errors import CheckpointError, DatasetError
from rl_training.types import EnvSpec


def dataset(rows=60, *, seed=0, parts=()):
    return OfflineDataset(recorded(rows).columns(PENDULUM), seed=seed, parts=parts)


def read(**changes):
    given = {name: values for name, values in (arrays() | changes).items() if values is not None}
    return RecordedData.from_arrays(given, "data.npz")


def test_rows_stay_together_and_all_are_drawn():
    batch = dataset(10).sample(500)
    assert torch.equal(batch["obs"][:, 0], -batch["rewards"])
    assert torch.equal(batch["next_obs"][:, 2], 1 - batch["rewards"])
    assert torch.equal(batch["cuts"], ((1 - batch["rewards"]) % 3 == 0).float())
    assert sorted(set(batch["obs"][:, 0].tolist())) == list(range(10))


def test_a_batch_is_a_view_of_one_matrix():
    batch = dataset().sample(8)
    assert len({column.untyped_storage().data_ptr() for column in batch.values()}) == 1


def test_the_same_seed_draws_the_same_rows_and_another_others():
    one, same, other = (dataset(seed=seed).sample(50)["rewards"] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_checkpoint_of_the_data_holds_the_stream_and_not_the_rows():
    one, other = dataset(seed=1), dataset(seed=2)
    one.sample(3)
    state = one.state_dict()
    assert not any(isinstance(value, torch.Tensor | np.ndarray) for value in state.values())
    other.load_state_dict(state)
    assert torch.equal(one.sample(20)["obs"], other.sample(20)["obs"])


def test_going_on_with_other_data_is_refused():
    state = dataset(60).state_dict()
    with pytest.raises(CheckpointError, match=r"60 rows .* then, 57 rows .* now"):
        dataset(57).load_state_dict(state)
    changed = recorded(60).columns(PENDULUM)
    changed["rewards"] = changed["rewards"] + np.float32(1e-6)
    with pytest.raises(CheckpointError, match="other data"):
        OfflineDataset(changed, seed=0).load_state_dict(state)


def test_a_mix_is_drawn_by_weight_and_not_by_size():
    mixed = dataset(60, parts=[(50, 1.0), (10, 3.0)])
    from_second = (-mixed.sample(400)["rewards"] >= 50).float()
    assert from_second.sum() == 300
    assert all(piece.sum() == 15 for piece in from_second.split(20))


def test_no_data_is_no_dataset():
    empty = {name: column[:0] for name, column in recorded().columns(PENDULUM).items()}
    with pytest.raises(DatasetError, match="empty"):
        OfflineDataset(empty, seed=0)


def fresh(rows, value):
    buffer = ReplayBuffer(100, obs_dim=3, action_dim=1, seed=5)
    columns = recorded(rows).columns(PENDULUM)
    buffer.add(columns | {"rewards": np.full(rows, value, np.float32)})
    return buffer


def test_half_and_half_alternates():
    batch = MixedSource([(fresh(9, 1.0), 0.5), (fresh(9, 2.0), 0.5)]).sample(6)
    assert batch["rewards"].tolist() == [1, 2, 1, 2, 1, 2]


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.7, 0.9])
def test_every_slice_of_a_large_batch_keeps_the_share(share):
    batch = MixedSource([(fresh(9, 1.0), share), (fresh(9, 0.0), 1 - share)]).sample(20 * 32)
    for piece in batch["rewards"].split(32):
        assert abs(piece.sum().item() - 32 * share) <= 1


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.2, 0.3, 0.5), (0.01, 0.99), (1.0, 0.0)])
def test_no_prefix_of_a_batch_is_more_than_a_row_from_its_shares(shares):
    owners = interleave(shares, 500)
    for number, share in enumerate(shares):
        count = np.cumsum(owners == number)
        assert np.abs(count - share * np.arange(1, 501)).max() <= 1


def test_a_source_without_a_share_is_not_asked():
    mixed = MixedSource([(fresh(9, 1.0), 1.0), (ReplayBuffer(10, obs_dim=3, action_dim=1, seed=0), 0.0)])
    assert mixed.sample(7)["rewards"].tolist() == [1.0] * 7
    assert mixed.counts(7) == [7, 0]
    mixed = MixedSource([(ReplayBuffer(10, obs_dim=3, action_dim=1, seed=0), 0.0), (fresh(9, 1.0), 1.0)])
    assert mixed.sample(7)["rewards"].tolist() == [1.0] * 7
    assert mixed.counts(7) == [0, 7]


def test_rows_stay_together_in_a_mix():
    batch = MixedSource([(dataset(60), 0.3), (dataset(60, seed=3), 0.7)]).sample(100)
    assert torch.equal(batch["obs"][:, 0], -batch["rewards"])
    torch.testing.assert_close(batch["actions"][:, 0], ((-batch["rewards"]) % 5 - 2) / 2)


@pytest.mark.parametrize("shares", [[0.5, 0.6], [-0.5, 1.5], [0.2]])
def test_shares_must_make_a_whole(shares):
    with pytest.raises(ValueError, match="add up to 1"):
        MixedSource([(fresh(3, 0.0), share) for share in shares])


def test_a_mix_goes_on_from_its_state():
    one, other = (MixedSource([(dataset(60, seed=s), 0.5), (fresh(9, 1.0), 0.5)]) for s in (1, 2))
    one.sample(10)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.sample(30)["obs"], other.sample(30)["obs"])


def test_actions_come_in_the_learners_range():
    assert recorded().columns(PENDULUM)["actions"][:, 0].tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0, -1.0]


def test_rewards_are_scaled_and_then_shifted():
    assert recorded().columns(PENDULUM, reward_scale=0.5, reward_shift=3.0)["rewards"].tolist() == [3, 2.5, 2, 1.5, 1, 0.5]


def test_scores_are_0_for_a_random_policy_100_for_a_good_one_and_straight_between():
    assert normalized_score(22.0, SCORES["CartPole-v1"]) == 0.0
    assert normalized_score(261.0, SCORES["CartPole-v1"]) == 50.0
    assert normalized_score(-146.0, SCORES["Pendulum-v1"]) == 100.0
    assert normalized_score(-1727.0, SCORES["Pendulum-v1"]) == pytest.approx(-50.0)  # worse than random


def test_a_time_limit_is_a_cut_but_not_an_end():
    columns = read(terminations=np.array([0, 1, 0, 0, 0, 0]), truncations=np.array([0, 0, 0, 0, 1, 0])).columns(PENDULUM)
    assert columns["dones"].tolist() == [0, 1, 0, 0, 0, 0]
    assert columns["cuts"].tolist() == [0, 1, 0, 0, 1, 0]


def renamed(**names):
    given = arrays()
    return RecordedData.from_arrays({names.get(name, name): values for name, values in given.items()}, "x")


@pytest.mark.parametrize(
    "names",
    [
        {"observations": "obs", "next_observations": "next_obs"},
        {"terminations": "terminals", "truncations": "timeouts"},
        {"terminations": "terminated", "truncations": "truncated"},
        {"terminations": "dones", "truncations": "cuts"},
    ],
    ids=str,
)
def test_the_names_of_this_package_of_gymnasium_and_of_d4rl_mean_the_same(names):
    one, other = recorded(), renamed(**names)
    for name in ("obs", "actions", "rewards", "next_obs", "terminations", "truncations"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_a_change_of_episode_is_a_cut():
    data = read(truncations=None, episode_id=np.array([7, 7, 7, 7, 9, 9]))
    assert data.truncations.tolist() == [False, False, False, True, False, True]
    assert data.episodes() == [slice(0, 4), slice(4, 6)]


def test_without_next_observations_the_next_row_stands_in_and_cut_rows_are_left_out():
    ends = {"terminations": np.array([0, 0, 0, 1, 0, 0]), "truncations": np.array([0, 1, 0, 0, 0, 0])}
    data = read(next_observations=None, **ends)
    # row 1 is cut and row 5 is the last: nobody saw what they led to
    assert data.obs[:, 0].tolist() == [0, 2, 3, 4]
    assert data.next_obs[:, 0].tolist() == [1, 3, 3, 5]  # what follows a termination does not matter
    assert data.terminations.tolist() == [False, False, True, False]
    assert data.cuts.tolist() == [True, False, True, True]


def with_value(name, index, value):
    column = arrays()[name].astype(np.float64)
    column[index] = value
    return {name: column}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (with_value("observations", (4, 1), np.nan), "observations has nan in row 4, column 1"),
        (with_value("next_observations", (5, 2), np.inf), "next_observations has inf in row 5, column 2"),
        (with_value("actions", (2, 0), np.nan), "actions has nan in row 2, column 0"),
        (with_value("rewards", 3, -np.inf), "rewards has -inf in row 3"),
        (with_value("rewards", 3, 1e300), "rewards has 1e.300 in row 3; every number must be finite in float32"),
        ({"rewards": np.zeros(5)}, "observations has 6 rows, rewards has 5"),
        ({"actions": np.zeros((7, 1))}, "actions has 7 rows, rewards has 6"),
        ({"observations": np.zeros((6, 3, 3))}, r"observations has shape \(6, 3, 3\); possible: \(rows, numbers\)"),
        ({"next_observations": np.zeros((6, 2))}, r"next_observations has shape \(6, 2\), the observations have \(6, 3\)"),
        ({"rewards": np.zeros((6, 2))}, r"rewards has shape \(6, 2\); possible: \(6,\)"),
        ({"actions": np.array(list("abcdef"))}, "actions has dtype <U1; possible: floats or integers"),
        ({"observations": np.zeros((6, 3), complex)}, "observations has dtype complex128"),
        ({"terminations": np.array([0, 0, 2, 0, 0, 0])}, "terminations has 2 in row 2; possible: true or false"),
        ({"terminations": None}, "no array named terminations or terminated or terminals or dones"),
        ({"rewards": None, "reward": np.zeros(6)}, "no array named rewards; did you mean 'reward'"),
        ({"obs": np.zeros((6, 3))}, "obs and observations mean the same"),
        ({"rewards": np.float32(1)}, "rewards is a single value"),
        ({name: values[:0] for name, values in arrays().items()}, "empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_with_the_arrays_is_said_with_its_place(changes, message):
    with pytest.raises(DatasetError, match=f"data.npz: .*{message}"):
        read(**changes)


def test_data_of_another_environment_is_refused():
    with pytest.raises(DatasetError, match="observations have 4 numbers, those of Pendulum-v1 have 3"):
        recorded(obs_dim=4).columns(PENDULUM)
    two = EnvSpec("Two-v0", obs_dim=3, action_dim=2, low=(-2.0, -2.0), high=(2.0, 2.0))
    with pytest.raises(DatasetError, match="actions have 1 numbers, those of Two-v0 have 2"):
        recorded().columns(two)
    discrete = EnvSpec("Coin-v0", obs_dim=3, action_dim=2, discrete=True)
    with pytest.raises(DatasetError, match="actions, row 0: -2 is none of 0 to 1"):
        recorded().columns(discrete)


def test_an_action_outside_the_space_is_named_unless_it_may_be_clipped():
    data = read(**with_value("actions", (3, 0), 2.5))
    with pytest.raises(DatasetError, match=r"actions, row 3, column 0: 2.5 lies outside -2 to 2 \(1 of 6 rows do\)"):
        data.columns(PENDULUM)
    assert data.columns(PENDULUM, clip_actions=True)["actions"][3, 0] == 1.0


def test_an_action_on_the_bound_may_be_off_by_rounding():
    data = read(**with_value("actions", (3, 0), 2.00001))
    assert data.columns(PENDULUM)["actions"][3, 0] == 1.0


def test_discrete_actions_stay_indices():
    coin = EnvSpec("Coin-v0", obs_dim=3, action_dim=2, discrete=True, action_start=1)
    data = read(actions=np.array([1, 2, 1, 2, 2, 1]))
    assert data.columns(coin)["actions"].tolist() == [0, 1, 0, 1, 1, 0]


def test_a_pool_draws_recorded_and_fresh_rows_equally_often():
    recorded, new = dataset(300), fresh(100, 7.0)
    pool = PooledSource(recorded, new)
    assert len(pool) == 400
    assert pool.counts(20) == [15, 5]
    rewards = torch.cat([pool.sample(64)["rewards"] for _ in range(200)])
    assert (rewards == 7.0).float().mean().item() == pytest.approx(0.25, abs=0.02)


def test_a_few_fresh_rows_among_many_come_up_as_often_as_they_should():
    pool = PooledSource(dataset(300), fresh(1, 7.0))  # a share of 1/301 of 16 rows, which no rounding would give
    drawn = sum((pool.sample(16)["rewards"] == 7.0).sum().item() for _ in range(3000))
    assert drawn == pytest.approx(3000 * 16 / 301, rel=0.25)


def test_a_pool_without_fresh_rows_draws_recorded_ones():
    pool = PooledSource(dataset(9), ReplayBuffer(10, obs_dim=3, action_dim=1, seed=0))
    assert pool.sample(5)["obs"].shape == (5, 3)
    assert pool.counts(5) == [5, 0]
