"""Whole episodes that are kept and repeated, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import toy_envs
from small_runs import difference

from rl_training.envs import repeats
from rl_training.envs.episodes import Evaluator, run_episodes
from rl_training.envs.pool import EnvPool
from rl_training.envs.repeats import Episode, episodes_from, episodes_state, repeat
from rl_training.envs.seeds import episode_seed
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import SyncEnvs
from rl_training.errors import CheckpointError, EnvError

SOURCE = EnvSource(env=lambda: toy_envs.Counting(length=3))
SPEC = SOURCE.spec()


def pool_of(*lengths: int) -> EnvPool:
    """One environment for each length of its episodes."""
    waiting = iter([1, *lengths])  # one is looked at for its spaces
    source = EnvSource(env=lambda: toy_envs.Counting(length=next(waiting)))
    return EnvPool(source, source.spec(), num_envs=len(lengths), seed=8, stream=2)


def test_of_each_environment_the_last_episode_that_is_over_is_kept():
    pool = pool_of(3, 2, 9)
    for action in ([0, 0, 0], [1, 1, 1], [2, 2, 2], [0, 1, 2], [1, 2, 0]):
        pool.step(np.array(action))
    kept = pool.state_dict()["finished"]
    # the first has ended once, the second twice, the third is in its first
    assert kept["seeds"].tolist() == [episode_seed(8, 2, 0, 0), episode_seed(8, 2, 1, 1), 0]
    assert kept["lengths"].tolist() == [3, 2, 0]
    assert kept["returns"].tolist() == [1.0 + 2 + 3, 1.0 + 2, 0.0]
    assert kept["obs"].tolist() == [[3, 2], [2, 1], [0, 0]]
    assert kept["actions"].tolist() == [0, 1, 2, 2, 1]
    pool.close()


def test_an_episode_too_long_to_be_kept_leaves_the_one_before_in_its_place(monkeypatch):
    monkeypatch.setattr(repeats, "KEPT_BYTES", 4 * 8)  # four whole numbers
    lengths = iter([1, 3])
    source = EnvSource(env=lambda: toy_envs.Counting(length=next(lengths)))
    pool = EnvPool(source, source.spec(), num_envs=1, seed=0, stream=0)
    for _ in range(3):
        pool.step(np.array([1]))
    pool._envs._envs[0].length = 5
    for _ in range(7):
        pool.step(np.array([2]))
    state = pool.state_dict()
    assert (state["episodes"].tolist(), state["lengths"].tolist()) == ([2], [2])
    assert state["finished"]["actions"].tolist() == [1, 1, 1]


def test_all_environments_together_share_the_room_there_is():
    assert repeats.most_steps(SPEC, num_envs=1) == (16 << 20) // 8  # discrete actions are int64
    assert repeats.most_steps(SPEC, num_envs=1000) == (16 << 20) // 8000
    halfcheetah = EnvSource("HalfCheetah-v5").spec()  # six float32
    assert repeats.most_steps(halfcheetah, num_envs=4) == (16 << 20) // (4 * 6 * 4)


def test_a_state_without_kept_episodes_as_older_versions_wrote_it_can_be_restored():
    pool, other = pool_of(3, 4), pool_of(3, 4)
    for _ in range(5):
        pool.step(np.array([1, 1]))
    state = pool.state_dict()
    del state["finished"]
    other.load_state_dict(state)
    assert other.exact
    assert other.state_dict()["finished"]["lengths"].tolist() == [0, 0]


def test_kept_episodes_survive_being_saved_and_restored():
    pool, other = pool_of(3, 4), pool_of(3, 4)
    for _ in range(5):
        pool.step(np.array([1, 2]))
    other.load_state_dict(pool.state_dict())
    assert difference(other.state_dict(), pool.state_dict()) is None
    (first, second) = episodes_from(pool.state_dict()["finished"], pool.spec, count=2)
    assert difference(episodes_state([first, second], pool.spec), pool.state_dict()["finished"]) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"total": 7.0}, "its observation after 3 steps differs by up to 0, its return by 1"),
        ({"obs": np.array([3, 0], dtype=np.float32)}, "its observation after 3 steps differs by up to 2, its return by 0"),
        ({"actions": np.array([2, 2, 2, 2])}, "it ended after 3 of 4 steps"),
        ({"actions": np.array([2, 2])}, "it did not end after its 2 steps"),
    ],
)
def test_how_an_episode_differs_is_said(changed, said):
    known = Episode(5, np.array([2, 2, 2]), 6.0, np.array([3, 2], dtype=np.float32))._replace(**changed)
    envs = SyncEnvs.of(SOURCE, SPEC, num_envs=2)
    assert repeat(envs, SPEC, {1: known}, over=True).get(1) == said


def test_one_that_still_runs_must_not_have_ended():
    envs = SyncEnvs.of(SOURCE, SPEC, num_envs=1)
    running = Episode(5, np.array([2, 2]), 3.0, np.array([2, 2], dtype=np.float32))
    assert repeat(envs, SPEC, {0: running}, over=False) == {}
    assert envs.step(np.array([1])).obs.tolist() == [[3, 1]]  # it was left where it is
    ended = Episode(5, np.array([2, 2, 2]), 6.0, np.array([3, 2], dtype=np.float32))
    assert repeat(envs, SPEC, {0: ended}, over=False) == {0: "it ended after 3 of 3 steps"}


def test_an_environment_that_breaks_in_a_repeated_episode_is_named():
    source = EnvSource(env=lambda: toy_envs.Broken(length=9, at=2))
    envs = SyncEnvs.of(source, source.spec(), num_envs=1)
    known = Episode(5, np.array([0, 0, 0]), 6.0, np.zeros(2, dtype=np.float32))
    with pytest.raises(EnvError, match=r"Broken, environment 0, step 2 of an episode that is repeated: step raised ValueError"):
        repeat(envs, source.spec(), {0: known}, over=True)


def test_saved_episodes_that_do_not_fit_are_refused():
    state = episodes_state([Episode(5, np.array([2, 2, 2]), 6.0, np.zeros(2, dtype=np.float32))], SPEC)
    with pytest.raises(CheckpointError, match="lack seeds"):
        episodes_from({name: value for name, value in state.items() if name != "seeds"}, SPEC, count=1)
    with pytest.raises(CheckpointError, match=r"actions saved with Counting has shape \(3,\); it needs \(4,\)"):
        episodes_from({**state, "lengths": np.array([4])}, SPEC, count=1)
    with pytest.raises(CheckpointError, match=r"lengths saved with Counting has shape \(1,\); it needs \(2,\)"):
        episodes_from({**state, "seeds": np.zeros(2)}, SPEC, count=2)


# --- of evaluations


def always(action):
    return lambda obs: np.full(len(obs), action)


def test_an_evaluation_keeps_its_first_episode():
    waiting = iter([4, 3])
    evaluator = Evaluator(EnvSource(env=lambda: toy_envs.Counting(length=next(waiting))), SPEC)
    evaluator.run(always(2), num_episodes=2, seed=7, stream=1)
    kept = evaluator.kept
    assert (kept.seed, kept.actions.tolist(), kept.total, kept.obs.tolist()) == (episode_seed(7, 1, 0), [2] * 4, 10.0, [4, 2])
    assert evaluator.repeat(kept, num_episodes=2) is None
    assert evaluator.repeat(kept._replace(total=9.0), num_episodes=2) is not None


def test_an_episode_that_a_limit_of_the_evaluation_cut_is_not_kept():
    evaluator = Evaluator(EnvSource(env=lambda: toy_envs.Counting(length=9)), SPEC)
    evaluator.run(always(1), num_episodes=2, seed=7, stream=1, max_steps=3)
    assert evaluator.kept is None


def test_what_an_environment_writes_into_an_action_is_not_kept():
    class Greedy(toy_envs.Drift):
        def step(self, action):
            action *= 0.5
            return super().step(action)

    source = EnvSource(env=lambda: Greedy(length=3, continuous=True))
    evaluator = Evaluator(source, source.spec())
    evaluator.run(lambda obs: np.ones((len(obs), 1), dtype=np.float32), num_episodes=1, seed=7, stream=1)
    assert evaluator.kept.actions.tolist() == [[2.0]] * 3
    assert evaluator.repeat(evaluator.kept, num_episodes=1) is None


def test_recording_changes_no_evaluation():
    returns, lengths = run_episodes(always(1), SOURCE, SPEC, num_episodes=3, seed=0, stream=1)
    assert (returns.tolist(), lengths.tolist()) == ([6.0] * 3, [3] * 3)
