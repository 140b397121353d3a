"""A number that is not finite stops every algorithm in the turn that made it, with a checkpoint from before; or is skipped."""

from __future__ import annotations

import logging
import math
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from small_runs import ALGORITHMS, OFFLINE, StopAt, difference, small_config, state_difference, train

from rl_training.errors import EnvNumericsError, NumericsError
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.registry import list_algorithm_specs
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.numerics import NumericsGuard, not_finite
from rl_training.runtime.workflows import resume_training
from rl_training.types import UpdateResult

EVOLUTION = ("ars", "openai_es")
ACTING = [name for name in ALGORITHMS if name not in OFFLINE]


class Spoil(Callback):
    """After the learning of the turns named by `when`, put a number where it does not belong."""

    def __init__(self, what: str, number: float, when=lambda turn: turn == 2):
        self.what, self.number, self.when = what, number, when
        self.turn = 0
        self.step = self.name = None

    def on_train_start(self, trainer):
        learn = trainer.loop.learn

        def spoilt(**arguments):
            result = learn(**arguments)
            if not result.num_gradient_steps:
                return result
            self.turn += 1
            if self.when(self.turn):
                self.step = trainer.global_step
                self._spoil(trainer, result)
            return result

        trainer.loop.learn = spoilt

    def _spoil(self, trainer, result):
        if self.what == "weights":
            self.name, weight = trainer.guard._weights[-1]
            weight.view(-1)[-1] = self.number
        else:
            self.name = next(name for name in result.metrics if "loss" in name or name == "update_norm")
            result.metrics[self.name] = torch.tensor(self.number)


def finite(path) -> bool:
    return not not_finite(load_checkpoint(path).algorithm_state)


def run_of(folder):
    (run_dir,) = folder.iterdir()
    return run_dir


def test_every_registered_algorithm_is_among_these_tests():
    assert {spec.name for spec in list_algorithm_specs()} == set(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_weights_that_are_not_finite_stop_the_turn_and_the_run_before_it_is_kept(name, tmp_path):
    config = small_config(name, tmp_path / "spoilt", eval_episodes=0)
    spoil = Spoil("weights", math.nan)
    with pytest.raises(NumericsError, match=r"holds nan in 1 of(.|\n)*checkpoint from before") as caught:
        train(config, callbacks=[spoil])
    assert f"step {spoil.step}, update" in str(caught.value)
    assert spoil.name.rpartition(".")[2] in str(caught.value)
    (checkpoint,) = (run_of(tmp_path / "spoilt") / "checkpoints").glob("step_*.safetensors")
    assert str(checkpoint) in str(caught.value)
    assert finite(checkpoint)
    # nothing was lost: what goes on from there is the run that was never spoilt
    rest = resume_training(run_of(tmp_path / "spoilt"))
    whole = train(config.replace(output_dir=tmp_path / "whole"))
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None


@pytest.mark.parametrize("name", ALGORITHMS)
def test_skipping_takes_the_turn_back_counts_it_and_goes_on(name, tmp_path, caplog):
    config = small_config(name, tmp_path, eval_episodes=0, on_nan="skip")
    with caplog.at_level(logging.WARNING):
        result = train(config, callbacks=[Spoil("loss", math.inf)])
    assert result.metrics["skipped_updates"] >= 1
    assert "taken back (on_nan: skip)" in caplog.text
    assert finite(result.checkpoint_path)
    assert result.metrics["global_step"] >= config.total_timesteps


@pytest.mark.parametrize("name", ["ppo", "sac"])
@pytest.mark.parametrize(("what", "number"), [("weights", math.inf), ("loss", math.nan), ("loss", -math.inf)])
def test_every_kind_of_number_in_weights_and_losses_is_named(name, what, number, tmp_path):
    spoil = Spoil(what, number)
    with pytest.raises(NumericsError) as caught:
        train(small_config(name, tmp_path, eval_episodes=0), callbacks=[spoil])
    assert (f"{spoil.name} is {number}" if what == "loss" else f"holds {number}") in str(caught.value)


@pytest.mark.parametrize("name", ["ppo", "sac", "openai_es"])
def test_where_nothing_goes_wrong_skipping_changes_nothing(name, tmp_path):
    stop, skip = (train(small_config(name, tmp_path / word, on_nan=word)) for word in ("stop", "skip"))
    assert state_difference(stop.checkpoint_path, skip.checkpoint_path) is None


def test_a_skipped_turn_leaves_the_learner_bit_for_bit_as_it_was(tmp_path):
    class Same(Spoil):
        def _spoil(self, trainer, result):
            super()._spoil(trainer, result)
            self.kept = trainer.guard._kept

        def on_update_end(self, trainer, result):
            if self.when(self.turn):
                assert difference(self.kept, trainer.algorithm.state_dict()) is None
                assert result.metrics == {}

    spoil = Same("weights", math.nan)
    assert train(small_config("td3", tmp_path, on_nan="skip"), callbacks=[spoil]).metrics["skipped_updates"] == 1


@pytest.mark.parametrize("name", ["sac", "ppo"])
def test_turns_that_are_bad_again_and_again_end_the_run_with_a_checkpoint(name, tmp_path):
    config = small_config(name, tmp_path, eval_episodes=0, on_nan="skip", max_skips=3)
    spoil = Spoil("weights", math.nan, when=lambda turn: turn > 2)
    with pytest.raises(NumericsError, match=r"in 4 turns in a row(.|\n)*is saved"):
        train(config, callbacks=[spoil])
    assert spoil.turn == 2 + 4
    state = load_checkpoint(next((run_of(tmp_path) / "checkpoints").glob("step_*")))
    assert not not_finite(state.algorithm_state)
    assert state.trainer_state["progress"]["global_step"] == spoil.step


def test_bad_turns_with_good_ones_between_them_do_not_end_the_run(tmp_path):
    config = small_config("sac", tmp_path, eval_episodes=0, on_nan="skip", max_skips=3)
    result = train(config, callbacks=[Spoil("loss", math.nan, when=lambda turn: turn % 2 == 0)])
    assert result.metrics["skipped_updates"] > 10


def test_skips_are_remembered_over_a_resume(tmp_path):
    config = small_config("sac", tmp_path, eval_episodes=0, on_nan="skip")
    first = train(config, callbacks=[Spoil("loss", math.nan), StopAt(120)])
    assert first.metrics["skipped_updates"] == 1
    assert resume_training(first.run_dir).metrics["skipped_updates"] == 1


POISON = {"obs": np.nan, "reward": -np.inf, "large": 1e39, "huge": 10**400}  # large: float32 has no such number
SAID = {
    "obs": "an observation with nan in column 0",
    "reward": "the reward -inf",
    "large": r"the reward 1e\+39, which float32 cannot hold",
    "huge": "the reward inf",
}


class Poisoned(gym.Wrapper):
    """Returns what is not finite at step 5 of its third episode, or of every one; episodes are known by their seeds, so that
    one that is repeated meets it again. Before training begins, and after it has failed, it does nothing."""

    armed = False

    def __init__(self, env, *, what, episode=2, every=False):
        super().__init__(env)
        self.what, self.episode, self.every = what, episode, every
        self.seeds: list[int] = []

    def reset(self, *, seed=None, options=None):
        if seed not in self.seeds:
            self.seeds.append(seed)
        self.steps, self.now = 0, self.seeds.index(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        self.steps += 1
        if Poisoned.armed and self.steps == 5 and (self.every or self.now == self.episode):
            obs, reward = (np.full_like(obs, np.nan), reward) if self.what == "obs" else (obs, POISON[self.what])
        return obs, reward, *rest


class Arm(Callback):
    def on_train_start(self, trainer):
        Poisoned.armed = True


@pytest.fixture(autouse=True)
def _disarmed():
    Poisoned.armed = False


def acting_config(name, folder, **changes):
    # poisoned environments are no longer those that can be batched
    options = {"batched_envs": False} if name in EVOLUTION else {}
    return small_config(name, folder, eval_episodes=0, algo_kwargs=options, **changes)


def factory(config, *, only=None, **poison):
    """Of whole environments, or of poisoned ones; `only` the one that is made as the so many-th."""
    made = []

    def make():
        made.append(1)
        env = gym.make(config.env_id, **config.env_kwargs)
        return Poisoned(env, **poison) if poison and only in (None, len(made)) else env

    return make


@pytest.mark.parametrize("what", POISON)
@pytest.mark.parametrize("name", ACTING)
def test_an_observation_or_reward_that_is_not_finite_stops_before_the_turn(name, what, tmp_path):
    # evolution would leave out the pair that met it
    config = acting_config(name, tmp_path / "spoilt", **({"on_nan": "stop"} if name in EVOLUTION else {}))
    bare = config.replace(env_kwargs={})
    said = rf"environment [01], episode 2, step 5.*{SAID[what]}"
    if name in EVOLUTION:
        said = r"generation \d+, direction \d+.*not finite"
    with pytest.raises(EnvNumericsError, match=rf"{said}(.|\n)*is saved"):
        train(bare, env=factory(config, what=what, only=5 if name in EVOLUTION else None), callbacks=[Arm()])
    rest = resume_training(run_of(tmp_path / "spoilt"), env=factory(config))
    whole = train(bare.replace(output_dir=tmp_path / "whole"), env=factory(config))
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None


@pytest.mark.parametrize("what", ["reward", "large"])
@pytest.mark.parametrize("name", ACTING)
def test_skipping_leaves_an_episode_with_such_a_number_and_goes_on(name, what, tmp_path):
    config = acting_config(name, tmp_path, on_nan="skip")
    poisoned = factory(config, what=what, only=5 if name in EVOLUTION else None)
    result = train(config.replace(env_kwargs={}), env=poisoned, callbacks=[Arm()])
    counted = "dropped_directions" if name in EVOLUTION else "skipped_episodes"
    assert result.metrics[counted] >= 1
    assert result.metrics["global_step"] >= config.total_timesteps
    assert finite(result.checkpoint_path)


def test_an_environment_in_which_every_episode_goes_bad_ends_the_run(tmp_path):
    config = small_config("sac", tmp_path, eval_episodes=0, on_nan="skip", max_skips=2, num_envs=1)
    with pytest.raises(EnvNumericsError, match=r"episode 2, step 5.*nan(.|\n)*step 12 is saved"):
        train(config.replace(env_kwargs={}), env=factory(config, what="obs", every=True), callbacks=[Arm()])


class NanActions(Callback):
    """From a step on, the policy chooses no number."""

    def __init__(self, step):
        self.step = step

    def on_train_start(self, trainer):
        explorer = trainer.loop.collector.algorithm
        explore = explorer.explore
        explorer.explore = lambda obs: explore(obs) * (math.nan if trainer.global_step >= self.step else 1.0)


@pytest.mark.parametrize("name", [n for n in ACTING if n not in (*EVOLUTION, "ppo", "ppg")] + ["ppg_alt"])
def test_an_action_that_is_not_finite_is_named_and_stops_before_the_turn(name, tmp_path):
    config = small_config(name, tmp_path / "spoilt", eval_episodes=0)
    with pytest.raises(
        NumericsError, match=r"environment 0, episode \d+, step \d+: the policy chose the action \[nan\](.|\n)*saved"
    ):
        train(config, callbacks=[NanActions(100)])
    rest = resume_training(run_of(tmp_path / "spoilt"))
    whole = train(config.replace(output_dir=tmp_path / "whole"))
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None


def test_what_a_callback_spoils_between_turns_is_never_saved(tmp_path):
    class After(Callback):
        def on_update_end(self, trainer, result):
            if trainer.global_step >= 100:
                trainer.guard._weights[0][1].fill_(math.nan)
                trainer.request_stop("at once, so that the next thing is a checkpoint")

    with pytest.raises(NumericsError, match=r"step 100: model.actor.flat holds nan(.|\n)*step_000000000"):
        train(small_config("sac", tmp_path, eval_episodes=0), callbacks=[After()])
    assert finite(next((run_of(tmp_path) / "checkpoints").glob("step_*")))


def test_a_bad_number_in_an_evaluation_is_named_and_the_run_saved(tmp_path):
    config = small_config("ppo", tmp_path)
    made = []

    def make():
        made.append(gym.make(config.env_id, **config.env_kwargs))
        # the first is looked at, two are trained in; the fourth evaluates
        return Poisoned(made[-1], what="obs", every=True) if len(made) > 3 else made[-1]

    with pytest.raises(EnvNumericsError, match=r"evaluation episode 0, step 5.*nan(.|\n)*step 60 is saved"):
        train(config.replace(env_kwargs={}), env=make, callbacks=[Arm()])


def test_alpha_of_zero_is_no_fault(tmp_path):
    assert train(small_config("sac", tmp_path, eval_episodes=0, algo_kwargs={"alpha": 0.0})).checkpoint_path.exists()


def test_a_loss_far_above_its_running_mean_is_told_and_counted(tmp_path, caplog):
    def values(trainer, result):
        result.metrics["critic_loss"] = torch.tensor(5000.0 if spoil.turn == 40 else 2.0)

    spoil = Spoil("loss", 0.0, when=lambda turn: True)
    spoil._spoil = values
    with caplog.at_level(logging.WARNING):
        result = train(small_config("sac", tmp_path, eval_episodes=0), callbacks=[spoil])
    assert result.metrics["gradient_explosions"] == 1
    assert "critic_loss is 5e+03, 2500 times its running mean of 2" in caplog.text


def test_small_or_early_numbers_are_no_explosion():
    guard = NumericsGuard(SimpleNamespace(), skips=False, max_skips=1)
    for value in (1e-9, 1e9, *[1e-6] * 5000, 0.9):
        assert guard.problem(UpdateResult({"critic_loss": torch.tensor(value)})) is None
    assert guard.explosions == 0
    guard.problem(UpdateResult({"critic_loss": torch.tensor(1e5)}))
    assert guard.explosions == 1
