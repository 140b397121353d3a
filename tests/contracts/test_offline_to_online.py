"""One run learns from recorded data and goes on in an environment; it can be stopped in either part, and at the seam."""

import pytest
from small_runs import ALGORITHMS, StopAt, history, small_config, state_difference, train

from rl_training.experiment.registry import get_algorithm_spec
from rl_training.runtime.collector import Collector
from rl_training.runtime.workflows import resume_training

ONLINE = [name for name in ALGORITHMS if "online_timesteps" in get_algorithm_spec(name).config.model_fields]
UPDATES, STEPS, ENVS = 40, 80, 2
# episodes end within the phase online, and rlpd counts its updates on prior data in one way alone
OPTIONS = {"rlpd": {"offline_pretrain_updates": 0, "learning_starts": 0}}


def config_of(name, folder, *, steps=STEPS, **changes):
    options = {**OPTIONS.get(name, {}), "online_timesteps": steps, **changes.pop("algo_kwargs", {})}
    settings = {
        "total_timesteps": UPDATES,
        "num_envs": ENVS if steps else 1,
        "env_kwargs": {"max_episode_steps": 15},
        **changes,
    }
    return small_config(name, folder, **settings, **changes, algo_kwargs=options)


@pytest.mark.parametrize("name", ONLINE)
def test_updates_on_the_data_are_followed_by_steps_in_the_environment(name, tmp_path):
    metrics = train(config_of(name, tmp_path)).metrics
    assert metrics["pretrain_updates_done"] == UPDATES
    assert metrics["global_step"] == UPDATES + STEPS
    assert metrics["episodes"] == STEPS // 15 // ENVS * ENVS
    assert 0 < metrics["online_buffer_size"] <= STEPS
    assert metrics["updates"] > UPDATES
    assert metrics["offline_batch_size"] + metrics["online_batch_size"] == 16


# offline, at the last update on the data, at the first step online, within an episode
@pytest.mark.parametrize("stop", [UPDATES // 2, UPDATES, UPDATES + ENVS, UPDATES + STEPS - 14])
@pytest.mark.parametrize("name", ONLINE)
def test_a_run_stopped_in_either_part_and_resumed_is_the_uninterrupted_run(name, stop, tmp_path):
    whole = train(config_of(name, tmp_path / "whole"))
    part = train(config_of(name, tmp_path / "part"), callbacks=[StopAt(stop)])
    assert part.metrics["global_step"] == stop
    rest = resume_training(part.run_dir)
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None
    assert history(whole.run_dir) == history(rest.run_dir)


@pytest.mark.parametrize("name", ONLINE)
def test_what_was_learnt_offline_goes_on_online(name, tmp_path):
    offline = train(config_of(name, tmp_path / "offline", steps=0))
    assert offline.metrics["global_step"] == UPDATES
    seam = train(config_of(name, tmp_path / "online"), callbacks=[StopAt(UPDATES)])
    assert state_difference(offline.checkpoint_path, seam.checkpoint_path, ("algorithm_state",)) is None


@pytest.mark.parametrize("name", ONLINE)
def test_a_run_that_is_online_stays_there_when_it_is_given_more(name, tmp_path):
    first = train(config_of(name, tmp_path))
    more = resume_training(first.run_dir, total_timesteps=UPDATES + 10)
    assert more.metrics["pretrain_updates_done"] == UPDATES
    assert more.metrics["global_step"] == UPDATES + STEPS + 10


@pytest.mark.parametrize("name", ONLINE)
def test_the_policy_that_goes_online_takes_the_first_steps_itself(name, tmp_path, monkeypatch):
    drawn, collect = [], Collector.collect

    def watched(self, num_steps, *, random=False):
        if num_steps == 1:  # data of random behaviour is recorded in longer stretches
            drawn.append(random)
        return collect(self, num_steps, random=random)

    monkeypatch.setattr(Collector, "collect", watched)
    train(config_of(name, tmp_path, algo_kwargs={"learning_starts": 20}))
    assert drawn == [False] * (STEPS // ENVS)
