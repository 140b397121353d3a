"""One turn of the on-policy loop worked out by hand: what becomes of a rollout, and what is learnt from it when."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rl_training.algorithms.base import OnPolicyAlgorithm
from rl_training.algorithms.ppo import PPO
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.normalizer import ObservationNormalizer, RewardNormalizer
from rl_training.options.ppg import PPGConfig
from rl_training.options.ppo import PPOConfig
from rl_training.runtime.loops import OnPolicyLoop
from rl_training.runtime.ppg_trainer import PPGLoop
from rl_training.types import UpdateResult


class Plain(OnPolicyAlgorithm):
    """Its value is twice the observation it is shown, its log-probability ten times it less the action; it keeps a diary."""

    def __init__(self, divergences=()):
        self.observation_normalizer, self.reward_normalizer = ObservationNormalizer(1), RewardNormalizer(gamma=0.5)
        # mean 1, standard deviation 2
        self.observation_normalizer.observe(torch.tensor([[-1.0], [3.0]]))
        self.divergences = iter(divergences)
        self.diary = []

    def act(self, obs, *, deterministic=False):
        return torch.zeros(len(obs), dtype=torch.int64)

    def value(self, obs):
        return 2 * obs[:, 0]

    def log_prob(self, obs, actions):
        return 10 * obs[:, 0] - actions

    def teacher_columns(self, obs):
        return {"teacher_mean": 3 * obs}

    def update(self, batch, *, global_step=0):
        self.diary.append({"batch": batch, "seen": self.observation_normalizer.moments.count})
        return UpdateResult({"approx_kl": torch.tensor(next(self.divergences, 0.0))})

    auxiliary_update = update


# rows are times, columns are two environments: the first is over at its second step, the second cut at its first
ROLLOUT = {
    "obs": [[1.0, 3.0], [3.0, 1.0], [5.0, 5.0]],
    "actions": [[0, 1], [2, 0], [1, 2]],
    "rewards": [[2.0, 2.0], [1.0, -2.0], [-2.0, -1.0]],
    "next_obs": [[3.0, 7.0], [9.0, 5.0], [7.0, 3.0]],
    "dones": [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]],
    "cuts": [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]],
}


def rollout():
    columns = {name: np.array(column, dtype=np.int64 if name == "actions" else np.float32) for name, column in ROLLOUT.items()}
    return columns | {name: columns[name][..., None] for name in ("obs", "next_obs")}


def loop_of(learner, *, loop=OnPolicyLoop, options=PPOConfig, **settings):
    """A loop that has just collected the rollout."""
    made = loop(SimpleNamespace(device=torch.device("cpu")), learner, options(gamma=0.5, gae_lambda=0.25, **settings))
    made.columns = rollout()
    return made


def prepared(**settings):
    columns = {name: torch.from_numpy(column) for name, column in rollout().items()}
    return loop_of(Plain(), **settings).prepare(columns)


def test_a_rollout_becomes_rows_worked_out_by_hand():
    batch, metrics = prepared(normalize_advantages="none")
    # observations are shown as (obs - 1) / 2, so that values are obs - 1
    torch.testing.assert_close(batch["obs"][:, 0], torch.tensor([0.0, 1.0, 1.0, 0.0, 2.0, 2.0]))
    assert batch["raw_obs"][:, 0].tolist() == [1.0, 3.0, 3.0, 1.0, 5.0, 5.0]
    assert batch["actions"].tolist() == [0, 1, 2, 0, 1, 2]
    torch.testing.assert_close(batch["logprobs"], torch.tensor([0.0, 9.0, 8.0, 0.0, 19.0, 18.0]))
    torch.testing.assert_close(batch["values"], torch.tensor([0.0, 2.0, 2.0, 0.0, 4.0, 4.0]))
    # the discounted returns 2, 2 | 2, -2 | -2, -2 have the standard deviation 2, so that rewards count half:
    #   first environment   1 + 2/2 - 0 = 2,    1/2 - 2 = -3/2 (over),  -1 + 6/2 - 4 = -2
    #   second              1 + 6/2 - 2 = 2 (cut),  -1 + 4/2 - 0 = 1,  -1/2 + 2/2 - 4 = -7/2
    # of which an eighth goes back one step, but not over a cut
    advantages = [2 - 1.5 / 8, 2.0, -1.5, 1 - 3.5 / 8, -2.0, -3.5]
    torch.testing.assert_close(batch["advantages"], torch.tensor(advantages))
    torch.testing.assert_close(batch["returns"], torch.tensor([1.8125, 4.0, 0.5, 0.5625, 2.0, 0.5]))
    # what the values miss are the advantages
    unexplained = np.var(advantages) / np.var([1.8125, 4.0, 0.5, 0.5625, 2.0, 0.5])
    assert metrics["explained_variance"].item() == pytest.approx(1 - unexplained)


def test_the_value_of_what_came_next_is_asked_for_only_where_the_next_row_does_not_tell(monkeypatch):
    asked, value = [], Plain.value
    monkeypatch.setattr(Plain, "value", lambda self, obs: asked.append(obs[:, 0].tolist()) or value(self, obs))
    prepared()
    # of the second environment's first step (cut at 7), of the first's second (over at 9), and of both at the end
    assert asked == [[0.0, 1.0, 1.0, 0.0, 2.0, 2.0], [3.0, 4.0, 3.0, 1.0]]


def test_ppo_judges_a_rollout_in_one_pass_as_it_does_in_two():
    torch.manual_seed(0)
    learner = PPO(MLPActorCritic(3, 2, (8,)), learning_rate=1e-3)
    obs, actions = torch.randn(9, 3), torch.randint(2, (9,))
    values, logprobs = learner.judge(obs, actions)
    assert torch.equal(values, learner.value(obs))
    assert torch.equal(logprobs, learner.log_prob(obs, actions))
    assert torch.equal(learner.judge(obs.double(), actions)[0], values)


def test_advantages_normalised_over_the_batch_leave_the_returns_alone():
    plain, over_batch = prepared(normalize_advantages="none")[0], prepared(normalize_advantages="batch")[0]
    advantages = plain["advantages"]
    torch.testing.assert_close(over_batch["advantages"], (advantages - advantages.mean()) / advantages.std())
    assert torch.equal(over_batch["returns"], plain["returns"])


def test_rewards_are_scaled_by_statistics_that_hold_this_rollout_once():
    learner = Plain()
    loop_of(learner, update_epochs=3, minibatch_size=2).learn(global_step=0, max_updates=None)
    assert learner.reward_normalizer.moments.count == 6
    assert learner.reward_normalizer.running.tolist() == [-2.0, -2.0]  # both episodes go on


@pytest.mark.parametrize("loop", [OnPolicyLoop, PPGLoop])
def test_all_of_a_turn_sees_the_statistics_it_was_collected_with_and_then_raw_observations_move_them(loop):
    learner = Plain()
    options, settings = (PPGConfig, {"aux_frequency": 1}) if loop is PPGLoop else (PPOConfig, {})
    loop_of(learner, loop=loop, options=options, **settings).learn(global_step=0, max_updates=None)
    assert {line["seen"] for line in learner.diary} == {2}
    for line in learner.diary:
        assert set(line["batch"]["obs"].flatten().tolist()) == {0.0, 1.0, 2.0}
    moments = learner.observation_normalizer.moments
    assert moments.count == 8
    assert moments.mean.item() == pytest.approx((-1 + 3 + 1 + 3 + 3 + 1 + 5 + 5) / 8)


@pytest.mark.parametrize("loop", [OnPolicyLoop, PPGLoop])
def test_epochs_end_after_the_first_step_that_diverges_by_more_than_half_as_much_again_as_target_kl(loop):
    learner = Plain(divergences=[0.011, 0.0149, 0.0151, 0.0])
    options = PPGConfig if loop is PPGLoop else PPOConfig
    bounded = loop_of(learner, loop=loop, options=options, target_kl=0.01, update_epochs=4)
    result = bounded.learn(global_step=0, max_updates=None)
    assert result.num_gradient_steps == 3


def test_what_is_told_of_a_turn_is_the_mean_over_its_steps():
    # two passes of three minibatches; the last step, of which other numbers were told once, counts as one of six
    learner = Plain(divergences=[0.5, 0.0, 1.0, 0.0, 0.0, 3.0])
    result = loop_of(learner, update_epochs=2, minibatch_size=2).learn(global_step=0, max_updates=None)
    assert result.metrics["approx_kl"].item() == 0.75
    cut_short = loop_of(Plain(divergences=[0.5, 0.0, 1.0]), update_epochs=2, minibatch_size=2)
    assert cut_short.learn(global_step=0, max_updates=2).metrics["approx_kl"].item() == 0.25


def test_what_is_told_of_an_auxiliary_phase_is_the_mean_over_its_steps():
    # one step of the policy phase, then two of the auxiliary phase, whose name for it is the same here
    learner = Plain(divergences=[9.0, 1.0, 2.0])
    settings = {"aux_frequency": 1, "aux_epochs": 2, "update_epochs": 1, "minibatch_size": 6}
    result = loop_of(learner, loop=PPGLoop, options=PPGConfig, **settings).learn(global_step=0, max_updates=None)
    assert result.metrics["approx_kl"].item() == 1.5


def test_passes_over_the_values_alone_do_not_end_by_the_divergence_of_a_policy_that_rests():
    class Quiet(Plain):
        def update(self, batch, *, global_step=0):
            result = super().update(batch)
            return result if "advantages" in batch else UpdateResult({"value_loss": torch.tensor(1.0)})

    settings = {"update_epochs": 1, "value_epochs": 3, "minibatch_size": 6, "target_kl": 0.01}
    loop = loop_of(Quiet(divergences=[0.014]), loop=PPGLoop, options=PPGConfig, **settings)
    assert loop.learn(global_step=0, max_updates=None).num_gradient_steps == 3


@pytest.mark.parametrize(("most", "sizes"), [(None, [4, 2, 4, 2, 4, 2]), (5, [4, 2, 4, 2, 4])])
def test_every_pass_goes_over_the_whole_rollout_until_there_were_updates_enough(most, sizes):
    learner = Plain()
    result = loop_of(learner, update_epochs=3, minibatch_size=4, target_kl=1.0).learn(global_step=0, max_updates=most)
    assert [len(line["batch"]["obs"]) for line in learner.diary] == sizes
    assert result.num_gradient_steps == len(sizes)


def test_an_auxiliary_phase_sees_what_was_kept_with_the_statistics_and_the_policy_of_its_own_time():
    learner = Plain()
    loop = loop_of(learner, loop=PPGLoop, options=PPGConfig, aux_frequency=2, aux_epochs=1, minibatch_size=6)
    loop.learn(global_step=0, max_updates=None)
    assert not any("teacher_mean" in line["batch"] for line in learner.diary)
    loop.columns = rollout()
    loop.learn(global_step=0, max_updates=None)
    *policy_phase, phase = [line["batch"] for line in learner.diary]
    # the first turn's statistics are of -1, 3 and its observations: their mean is 2.5, their variance 10 - 2.5²
    shown = (torch.tensor([1.0, 3.0, 3.0, 1.0, 5.0, 5.0]) - 2.5) / 3.75**0.5
    torch.testing.assert_close(phase["obs"][:, 0], shown.repeat(2))
    torch.testing.assert_close(phase["teacher_mean"], 3 * phase["obs"])
    first, second = policy_phase[0], policy_phase[-1]
    torch.testing.assert_close(phase["returns"], torch.cat([first["returns"], second["returns"]]))
    torch.testing.assert_close(first["returns"], torch.tensor([1.8125, 4.0, 0.5, 0.5625, 2.0, 0.5]))
