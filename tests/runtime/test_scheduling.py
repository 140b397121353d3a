"""What a learner is told of options that change, turn by turn."""

from __future__ import annotations

import pytest
import torch
from small_runs import small_config, train

from rl_training.runtime.callbacks import Callback


class Diary(Callback):
    """The rate of every turn that learnt, and the parameters it began with."""

    def __init__(self):
        self.rates, self.parameters = [], []

    def on_collect_end(self, trainer, result):
        self.parameters.append([p.detach().clone() for p in parameters_of(trainer.algorithm)])

    def on_update_end(self, trainer, result):
        learner = trainer.algorithm
        self.rates.append(learner.step_size if hasattr(learner, "step_size") else learner.optimizer.learning_rate)


def parameters_of(learner):
    return (learner.policy if hasattr(learner, "policy") else learner.model).parameters()


def turns(name, tmp_path, **changes):
    diary = Diary()
    train(small_config(name, tmp_path, eval_episodes=0, **changes), callbacks=[diary])
    return diary


def test_the_first_rollout_of_a_warm_up_is_learnt_from(tmp_path):
    # turns are of 20 steps
    diary = turns("ppo", tmp_path, total_timesteps=60, algo_kwargs={"warmup_steps": 40, "learning_rate": 1e-3})
    assert diary.rates == pytest.approx([0.5e-3, 1e-3, 1e-3])
    first, second = diary.parameters[:2]
    assert any(not torch.equal(before, after) for before, after in zip(first, second, strict=True))


@pytest.mark.parametrize("name", ["ars", "openai_es"])
def test_the_first_generation_of_a_warm_up_moves_the_policy(name, tmp_path):
    diary = turns(name, tmp_path, total_timesteps=500, algo_kwargs={"warmup_steps": 10**6, "step_size": 1.0})
    assert 0 < diary.rates[0] < 0.01
    assert not torch.equal(diary.parameters[0][0], diary.parameters[1][0])


def test_what_is_wanted_while_collecting_is_told_before(tmp_path):
    seen = []

    class Look(Callback):
        def on_collect_end(self, trainer, result):
            seen.append(trainer.algorithm.exploration_noise)

    schedule = {"type": "linear", "start": 1.0, "end": 0.0}
    config = small_config("td3", tmp_path, eval_episodes=0, num_envs=1, total_timesteps=10)
    options = {**config.algo_kwargs, "exploration_noise_schedule": schedule}
    train(config.replace(algo_kwargs=options), callbacks=[Look()])
    assert seen == pytest.approx([1 - step / 10 for step in range(10)])
