"""Rows that wait for the end of their episode: nothing comes in before it, nothing is lost, and all of it is state."""

import numpy as np

from rl_training.data.episode_buffer import EpisodeBuffer


def buffer(*, num_envs=2, capacity=8):
    settings = {"obs_dim": 1, "action_dim": 1, "seed": 0, "more": {"returns": 0}}
    return EpisodeBuffer(capacity, num_envs=num_envs, gamma=0.5, **settings)


def step(*rewards, dones=(), cuts=()):
    """One step of as many environments; a row's observation is its reward."""
    numbers, column = np.arange(len(rewards)), np.array(rewards)[:, None]
    ends = {"dones": np.isin(numbers, dones) * 1.0, "cuts": np.isin(numbers, [*dones, *cuts]) * 1.0}
    return {"obs": column, "actions": column, "next_obs": column, "rewards": np.array(rewards), **ends}


def held(buffer):
    rows = buffer.transitions
    return list(zip(rows["rewards"].tolist(), rows["returns"].tolist(), strict=True))


def test_rows_come_in_when_their_episode_is_over_with_the_return_that_followed():
    one = buffer()
    one.add(step(1.0, 10.0))
    one.add(step(2.0, 20.0, cuts=[1]))  # the second environment's is cut: 20 goes on for ever
    assert held(one) == [(10.0, 10 + 0.5 * 40), (20.0, 40.0)]
    one.add(step(4.0, 30.0, dones=[0]))
    assert held(one)[2:] == [(1.0, 1 + 0.5 * 4), (2.0, 4.0), (4.0, 4.0)]
    assert len(one) == one.added == 5


def test_an_episode_that_is_left_comes_in_as_far_as_it_came_and_the_next_begins_anew():
    one = buffer(num_envs=1)
    one.add(step(3.0))
    one.end_episode(0)
    one.end_episode(0)  # nothing waits any more
    one.add(step(5.0, dones=[0]))
    assert held(one) == [(3.0, 6.0), (5.0, 5.0)]


def test_rows_that_wait_do_not_change_with_the_arrays_they_came_in():
    one, given = buffer(num_envs=1), step(3.0)
    one.add(given)
    given["rewards"][:] = 99.0
    one.add(step(1.0, dones=[0]))
    assert held(one)[0] == (3.0, 3.5)


def test_what_waits_is_part_of_the_state():
    one, other = buffer(), buffer()
    one.add(step(1.0, 10.0))
    one.add(step(2.0, 20.0, cuts=[1]))
    other.load_state_dict(one.state_dict())
    for each in (one, other):
        each.add(step(4.0, 5.0, dones=[0, 1]))
    assert held(one) == held(other)
    assert [len(rows) for rows in other.state_dict()["waiting"]] == [0, 0]


def test_the_oldest_rows_give_way_also_within_an_episode():
    one = buffer(num_envs=1, capacity=3)
    for reward in (1.0, 2.0, 3.0):
        one.add(step(reward))
    one.add(step(4.0, dones=[0]))
    assert sorted(held(one)) == [(2.0, 4.5), (3.0, 5.0), (4.0, 4.0)]
