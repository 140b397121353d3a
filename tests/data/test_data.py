"""Replay, advantages and normalisers, with numbers worked out by hand."""

import copy

import numpy as np
import pytest
import torch

from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.rollout import explained_variance, generalized_advantages, minibatches
from rl_training.models.normalizer import ObservationNormalizer, RewardNormalizer, RunningMoments


def advantages(rewards, values, next_values, dones, cuts, gamma=0.5, gae_lambda=0.5):  # noqa: PLR0917 (a row per column)
    columns = {
        name: torch.tensor(column, dtype=torch.float32).unsqueeze(-1)
        for name, column in {
            "rewards": rewards, "values": values, "next_values": next_values, "dones": dones, "cuts": cuts
        }.items()
    }  # fmt: skip
    return generalized_advantages(**columns, gamma=gamma, gae_lambda=gae_lambda).squeeze(-1).tolist()


def test_advantages_accumulate_backwards():
    # deltas: 1 + .5·2 - 0 = 2, then 1 + .5·4 - 2 = 1; the first takes .25 of the second
    assert advantages([1, 1], [0, 2], [2, 4], [0, 0], [0, 0]) == [2.25, 1.0]


def test_truncation_keeps_the_future_value():
    assert advantages([1], [0], [10], [0], [1]) == [1.0 + 0.5 * 10.0]


def test_termination_has_no_future_value():
    assert advantages([1], [0], [10], [1], [1]) == [1.0]


def test_the_end_of_the_rollout_keeps_the_future_value():
    assert advantages([1], [0], [10], [0], [0]) == [6.0]


def test_no_trace_crosses_the_end_of_an_episode():
    # the second episode's huge delta must not leak into the first, whether it was cut or over
    for done in (0, 1):
        first = advantages([0, 1000], [0, 0], [0, 0], [done, 0], [1, 0])[0]
        assert first == 0.0


def test_lambda_one_is_the_whole_return_minus_the_value():
    result = advantages([1, 2, 4], [3, 5, 7], [5, 7, 9], [0, 0, 1], [0, 0, 1], gamma=0.5, gae_lambda=1.0)
    assert result[0] == pytest.approx(1 + 0.5 * 2 + 0.25 * 4 - 3)


def test_minibatches_show_every_row_once():
    batch = {"obs": torch.arange(10.0), "returns": torch.arange(10.0) * 2}
    seen = list(minibatches(batch, 4))
    assert [len(m["obs"]) for m in seen] == [4, 4, 2]
    rows = torch.cat([m["obs"] for m in seen])
    assert sorted(rows.tolist()) == list(range(10))
    assert all(torch.equal(m["returns"], 2 * m["obs"]) for m in seen)


def test_explained_variance_of_perfect_and_useless_predictions():
    targets = torch.tensor([1.0, 2.0, 3.0])
    assert explained_variance(targets, targets).item() == 1.0
    assert explained_variance(torch.zeros(3), targets).item() == pytest.approx(0.0)


def rows(start, n):
    numbers = np.arange(start, start + n, dtype=np.float32)
    return {
        "obs": np.stack([numbers, numbers], -1),
        "actions": numbers[:, None] / 100,
        "rewards": numbers,
        "next_obs": np.stack([numbers + 1, numbers + 1], -1),
        "dones": numbers % 2,
        "cuts": np.ones(n, dtype=np.float32),
    }


def buffer(capacity=8, seed=0):
    return ReplayBuffer(capacity, obs_dim=2, action_dim=1, seed=seed)


def contents(replay):
    return sorted(replay.columns(replay._rows[: len(replay)])["rewards"].tolist())


def test_rows_stay_together():
    replay = buffer()
    replay.add(rows(0, 6))
    batch = replay.sample(100)
    assert torch.equal(batch["obs"][:, 0], batch["rewards"])
    assert torch.equal(batch["next_obs"][:, 1], batch["rewards"] + 1)
    assert torch.equal(batch["dones"], batch["rewards"] % 2)
    torch.testing.assert_close(batch["actions"][:, 0], batch["rewards"] / 100)


def test_the_oldest_rows_give_way():
    replay = buffer(capacity=8)
    for start in range(0, 15, 3):
        replay.add(rows(start, 3))
    assert len(replay) == 8
    assert contents(replay) == list(range(7, 15))


def test_more_rows_than_fit_leave_the_last():
    replay = buffer(capacity=4)
    replay.add(rows(0, 3))
    replay.add(rows(3, 11))
    assert contents(replay) == [10, 11, 12, 13]


@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 5, 5), (8, 8), (3, 9, 2), (20,), (7, 1, 1)])
def test_the_ring_keeps_what_a_list_would_keep(sizes):
    replay, expected, start = buffer(capacity=8), [], 0
    for n in sizes:
        replay.add(rows(start, n))
        expected = (expected + list(range(start, start + n)))[-8:]
        start += n
    assert contents(replay) == sorted(expected)


def test_sampling_is_uniform_over_what_is_there():
    replay = buffer(capacity=1000)
    replay.add(rows(0, 10))
    counts = torch.bincount(replay.sample(50_000)["rewards"].long(), minlength=10)
    assert counts.min() > 4_500
    assert counts.max() < 5_500


def test_the_buffer_goes_on_from_its_state_bit_for_bit():
    one, other = buffer(seed=1), buffer(seed=2)
    one.add(rows(0, 11))
    one.sample(3)
    other.load_state_dict(one.state_dict())
    for each in (one, other):
        each.add(rows(50, 2))
    assert torch.equal(one.sample(20)["obs"], other.sample(20)["obs"])
    assert contents(one) == contents(other)


def test_the_buffer_takes_no_more_than_its_columns():
    replay = ReplayBuffer(1000, obs_dim=17, action_dim=6, seed=0)
    assert replay.nbytes <= 1.05 * 1000 * 4 * (17 + 6 + 17 + 1 + 1 + 1)
    shapes = {"obs": (17,), "actions": (6,), "next_obs": (17,), "rewards": (), "dones": (), "cuts": ()}
    replay.add({name: np.zeros((10, *shape), np.float32) for name, shape in shapes.items()})
    assert replay.state_dict()["rows"].untyped_storage().data_ptr() == replay._rows.untyped_storage().data_ptr()


def test_moments_merged_in_pieces_are_those_of_the_whole():
    data = torch.randn(1000, 3, dtype=torch.float64) * torch.tensor([1.0, 10.0, 0.1]) + 5
    moments = RunningMoments(3)
    for piece in data.split([1, 99, 400, 500]):
        moments.merge(piece)
    torch.testing.assert_close(moments.mean, data.mean(0))
    torch.testing.assert_close(moments.var, data.var(0, correction=0))
    assert moments.count == 1000


def test_observations_are_left_alone_until_something_was_observed_and_frozen_after():
    normalizer = ObservationNormalizer(2)
    obs = torch.tensor([[1.0, 2.0]])
    assert torch.equal(normalizer(obs), obs)
    normalizer.observe(torch.tensor([[0.0, 0.0], [2.0, 4.0]]))
    torch.testing.assert_close(normalizer(torch.tensor([[2.0, 4.0]])), torch.tensor([[1.0, 1.0]]))
    before = normalizer.state_dict()["count"]
    normalizer(torch.randn(100, 2))
    assert normalizer.state_dict()["count"] == before


def test_a_constant_observation_is_not_blown_up():
    normalizer = ObservationNormalizer(1)
    normalizer.observe(torch.full((50, 1), 3.0))
    assert normalizer(torch.tensor([[3.0]])).item() == pytest.approx(0.0, abs=1e-3)
    assert normalizer(torch.tensor([[4.0]])).item() == 10.0  # clipped


def test_rewards_are_divided_by_the_spread_of_the_return_and_keep_their_sign():
    normalizer = RewardNormalizer(gamma=0.0)  # the return is then the reward itself
    rewards = torch.tensor([[2.0], [-2.0], [2.0], [-2.0]])
    scaled = normalizer(rewards, torch.zeros(4, 1))
    assert scaled.flatten().tolist() == pytest.approx([1.0, -1.0, 1.0, -1.0])


def test_rewards_are_scaled_but_neither_centred_nor_let_out_of_the_clip():
    normalizer = RewardNormalizer(gamma=0.0, clip=2.0)
    scaled = normalizer(torch.tensor([[1.0, 5.0]]), torch.zeros(1, 2))  # mean 3, standard deviation 2
    assert scaled.tolist() == [pytest.approx([0.5, 2.0])]
    assert normalizer(torch.tensor([[-5.0, -1.0]]), torch.zeros(1, 2)).tolist() == [  # and of all four √13
        pytest.approx([-5 / 13**0.5, -1 / 13**0.5])
    ]


def test_the_discounted_return_begins_anew_with_an_episode():
    normalizer = RewardNormalizer(gamma=1.0)
    normalizer(torch.ones(3, 1), torch.tensor([[0.0], [1.0], [0.0]]))
    assert normalizer.running.tolist() == [1.0]
    assert normalizer.moments.mean.item() == pytest.approx((1 + 2 + 1) / 3)


def test_a_reward_normaliser_goes_on_from_its_state_in_the_middle_of_an_episode():
    one, other = RewardNormalizer(gamma=0.5), RewardNormalizer(gamma=0.5)
    one(torch.tensor([[4.0, 8.0]]), torch.tensor([[0.0, 1.0]]))
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for each in (one, other):
        each(torch.tensor([[1.0, 1.0]]), torch.zeros(1, 2))
        assert each.running.tolist() == [3.0, 1.0]  # 1 + 0.5 · 4, and a new episode
        assert each.moments.mean.item() == 4.0  # of 4, 8, 3 and 1


def test_a_variance_below_the_floor_counts_as_the_floor():
    normalizer = ObservationNormalizer(2, eps=0.0, var_floor=0.25)
    normalizer.observe(torch.tensor([[-0.1, -2.0], [0.1, 2.0]]))
    torch.testing.assert_close(normalizer(torch.tensor([[0.1, 2.0]])), torch.tensor([[0.1 / 0.5, 2.0 / 2.0]]))


@pytest.mark.parametrize("added", [1, 2, 3, 100, 2**20 + 7])
def test_batches_are_the_rows_that_numpy_would_draw(added):
    buffer = ReplayBuffer(added, obs_dim=1, action_dim=1, seed=(3, 4))
    buffer._rows[:, 0] = torch.arange(added)
    buffer.added = added
    rng = np.random.default_rng((3, 4))
    for batch_size in (1, 256, 31, 0, 256):
        expected = rng.integers(added, size=batch_size)
        assert buffer.sample(batch_size)["obs"].flatten().tolist() == expected.tolist()
    assert buffer.rng.bit_generator.state == rng.bit_generator.state
    buffer.load_state_dict(buffer.state_dict() | {"rng": np.random.default_rng(9).bit_generator.state})
    assert buffer.sample(40)["obs"].flatten().tolist() == np.random.default_rng(9).integers(added, size=40).tolist()


def test_a_copy_of_a_buffer_draws_by_itself():
    buffer = ReplayBuffer(50, obs_dim=1, action_dim=1, seed=1)
    buffer._rows[:, 0], buffer.added = torch.arange(50), 50
    buffer.sample(8)
    other = copy.deepcopy(buffer)
    other._rows += 1000
    first = buffer.sample(16)["obs"]
    assert torch.equal(other.sample(16)["obs"], first + 1000)
    assert not torch.equal(buffer.sample(16)["obs"], first)


def test_a_copied_buffer_takes_in_what_is_added_to_it() -> None:
    def rows(value: float) -> dict[str, np.ndarray]:
        wide = {
            name: np.full((1, width), value, dtype=np.float32)
            for name, width in {"obs": 2, "actions": 1, "next_obs": 2}.items()
        }
        return wide | {name: np.full(1, value, dtype=np.float32) for name in ("rewards", "dones", "cuts")}

    buffer = ReplayBuffer(4, obs_dim=2, action_dim=1, seed=0)
    buffer.add(rows(1.0))
    copied = copy.deepcopy(buffer)
    copied.add(rows(2.0))
    assert copied.transitions["rewards"].tolist() == [1.0, 2.0]
    assert buffer.transitions["rewards"].tolist() == [1.0]


def test_a_buffers_generator_may_be_replaced() -> None:
    def drawn(buffer: ReplayBuffer) -> list[float]:
        return buffer.sample(8)["rewards"].tolist()

    buffers = [ReplayBuffer(16, obs_dim=1, action_dim=1, seed=seed) for seed in (0, 5)]
    for buffer in buffers:
        wide = {name: np.zeros((16, 1), dtype=np.float32) for name in ("obs", "actions", "next_obs")}
        buffer.add(wide | {name: np.arange(16, dtype=np.float32) for name in ("rewards", "dones", "cuts")})
    first = drawn(buffers[0])
    buffers[0].rng = np.random.default_rng(5)
    assert drawn(buffers[0]) == drawn(buffers[1]) != first


def test_transitions_with_images_are_kept_in_bytes_and_come_back_to_the_bit():
    buffer = ReplayBuffer(5, obs_dim=7, action_dim=2, seed=0, in_bytes=True)
    rng = np.random.default_rng(1)
    rows = {name: rng.integers(256, size=(8, 7), dtype=np.uint8) for name in ("obs", "next_obs")}
    rows |= {"actions": rng.normal(size=(8, 2)).astype(np.float32)}
    rows |= {name: rng.normal(size=8).astype(np.float32) for name in ("rewards", "dones", "cuts")}
    buffer.add({name: column[:6] for name, column in rows.items()})
    buffer.add({name: column[6:] for name, column in rows.items()})
    # five numbers of four bytes, two observations of seven, and two bytes that are nothing
    assert buffer.nbytes == 5 * 36
    kept = [5, 6, 7, 3, 4]  # the sixth began the ring anew
    for name, column in buffer.transitions.items():
        assert column.numpy().tobytes() == rows[name][kept].tobytes(), name
    again = ReplayBuffer(5, obs_dim=7, action_dim=2, seed=0, in_bytes=True)
    again.load_state_dict(buffer.state_dict())
    one, other = buffer.sample(64), again.sample(64)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert one["obs"].dtype == torch.uint8
    copied = copy.deepcopy(buffer)
    copied.add(rows)
    assert torch.equal(buffer.transitions["obs"], again.transitions["obs"])
