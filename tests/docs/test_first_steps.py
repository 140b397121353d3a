"""What newcomers try: habits from other libraries and plain slips are answered with what to do."""

import copy
import inspect
import logging
import pickle
import re

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training import PPO, SAC, Callback
from rl_training.cli import main
from rl_training.errors import CheckpointError, ConfigError, UnsupportedSpace
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.yaml_loader import parse_yaml
from rl_training.options import algorithm_names, load_options_class
from rl_training.options._foreign import ADVICE, ALGORITHMS, CONFIG_FIELDS, KEYWORDS, NAMES, name_here
from rl_training.runtime.workflows import evaluate_checkpoint

SMALL = {"total_timesteps": 64, "num_steps": 32, "minibatch_size": 32, "update_epochs": 1, "eval_episodes": 1}


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    agent = PPO("CartPole-v1", output_dir=tmp_path_factory.mktemp("runs"), **SMALL)
    agent.learn()
    return agent


def test_every_foreign_name_leads_to_an_option_there_is():
    known = {name for algo in algorithm_names() for name in load_options_class(algo).model_fields}
    assert {name for names in NAMES.values() for name in names} <= known | set(TrainConfig.model_fields)
    assert set(CONFIG_FIELDS) <= set(TrainConfig.model_fields)


def test_a_foreign_name_means_what_the_algorithm_has():
    ppo, sac = (load_options_class(name).model_fields for name in ("ppo", "sac"))
    assert name_here("batch_size", ppo) == "minibatch_size"
    assert name_here("ent_coef", sac) == "alpha"
    assert name_here("n_critics", ppo) is None


@pytest.mark.parametrize(("theirs", "ours"), [("lr", "learning_rate"), ("n_envs", "num_envs"), ("clip_range", "clip_coef")])
def test_options_of_other_libraries_are_translated(theirs, ours, capsys):
    with pytest.raises(ConfigError, match=f"{theirs!r} is {ours!r} here"):
        PPO("CartPole-v1", **{theirs: 1})
    assert main(["config", "ppo/cartpole", f"{theirs}=1"]) == 2
    assert f"{theirs!r} is {ours!r} here" in capsys.readouterr().err


@pytest.mark.parametrize("given", [(), ("MlpPolicy", "CartPole-v1")])
def test_an_agent_takes_one_environment(given):
    with pytest.raises(ConfigError, match=r"PPO\('CartPole-v1', total_timesteps=50_000\)"):
        PPO(*given)


@pytest.mark.parametrize("name", ["ppo/cartpole", "my_run.yaml"])
def test_a_preset_is_no_environment(name):
    with pytest.raises(ConfigError, match=r"PPO\.from_preset"):
        PPO(name)


def test_a_preset_is_trained_from_python_with_settings_changed():
    agent = PPO.from_preset("ppo/cartpole", seed=7, learning_rate=1e-4)
    preset = PPO.from_preset("ppo/cartpole").config
    assert agent.config.seed == 7
    assert agent.config.algo_kwargs == {**preset.algo_kwargs, "learning_rate": 1e-4}
    with pytest.raises(ConfigError, match="SAC needs a configuration for 'sac'"):
        SAC.from_preset("ppo/cartpole")
    with pytest.raises(ConfigError, match="learning_rate"):
        PPO.from_preset("ppo/cartpole", learning_rte=1)


def test_learn_takes_its_steps_as_other_libraries_do(tmp_path):
    agent = PPO("CartPole-v1", output_dir=tmp_path, **SMALL)
    assert agent.learn(96).metrics["global_step"] == 96


@pytest.mark.parametrize("callbacks", [print, [print], [object]])
def test_callbacks_are_objects_and_nothing_is_made_for_others(callbacks, tmp_path):
    with pytest.raises(ConfigError, match="Callback objects"):
        PPO("CartPole-v1", output_dir=tmp_path, **SMALL).learn(callbacks=callbacks)
    assert not list(tmp_path.iterdir())


class HalfACallback:
    def on_train_start(self, trainer): ...


def test_a_callback_that_lacks_hooks_is_refused_before_a_file_is_made(tmp_path):
    with pytest.raises(ConfigError, match=r"HalfACallback.*no on_collect_end, .*derive your class from rl_training\.Callback"):
        PPO("CartPole-v1", output_dir=tmp_path, **SMALL).learn(callbacks=[HalfACallback()])
    assert not list(tmp_path.iterdir())


def test_callbacks_are_derived_from_what_the_package_exports(tmp_path):
    class Counts(Callback):
        turns = 0

        def on_collect_end(self, trainer, result):
            Counts.turns += 1

    PPO("CartPole-v1", output_dir=tmp_path, **SMALL).learn(callbacks=[Counts()])
    assert Counts.turns == 2


@pytest.mark.parametrize(
    ("keyword", "said"),
    [
        ("callback", r"it is callbacks=\[\.\.\.\]"),
        ("progress_bar", "logging.basicConfig"),
        ("log_interval", "a setting of the agent"),
        ("tb_log_name", "output_dir"),
        ("reset_num_timesteps", "n steps in all"),
        ("callbaks", "did you mean 'callbacks'"),
    ],
)
def test_what_learn_takes_in_other_libraries_is_answered_with_ours(keyword, said, tmp_path):
    with pytest.raises(ConfigError, match=f"learn takes no '{keyword}'; .*{said}"):
        PPO("CartPole-v1", output_dir=tmp_path, **SMALL).learn(100, **{keyword: 1})
    assert not list(tmp_path.iterdir())


def test_what_evaluate_and_predict_take_in_other_libraries_is_answered_too(agent):
    with pytest.raises(ConfigError, match="evaluate takes no 'n_eval_episodes'; it is num_episodes"):
        agent.evaluate(n_eval_episodes=3)
    with pytest.raises(ConfigError, match="predict takes no 'state'; policies here have no memory"):
        agent.predict([0.0] * 4, state=None)


def test_advice_for_keywords_is_for_those_that_methods_do_not_take():
    for method, keywords in KEYWORDS.items():
        assert not set(keywords) & set(inspect.signature(getattr(PPO, method)).parameters)


@pytest.mark.parametrize("number", [0, -2])
def test_fewer_than_one_episode_is_refused_as_on_the_command_line(agent, number):
    with pytest.raises(ConfigError, match=f"num_episodes: given {number}; possible: at least 1"):
        agent.evaluate(num_episodes=number)
    with pytest.raises(ConfigError, match=f"num_episodes: given {number}; possible: at least 1"):
        evaluate_checkpoint(agent.checkpoint_path, num_episodes=number)


def test_a_result_is_not_the_agent_and_says_so(tmp_path):
    result = PPO("CartPole-v1", output_dir=tmp_path, **SMALL).learn()
    with pytest.raises(AttributeError, match=r"no 'predict', only run_dir, .* call agent\.predict"):
        result.predict([0.0] * 4)
    with pytest.raises(AttributeError, match="a TrainResult has no 'colour'"):
        _ = result.colour
    assert copy.deepcopy(pickle.loads(pickle.dumps(result))) == result


def test_a_function_as_learning_rate_is_answered_with_schedules():
    with pytest.raises(ConfigError, match=r"algo_kwargs\.learning_rate: .*function.*learning_rate_schedule=\{'type': 'linear'"):
        PPO("CartPole-v1", learning_rate=lambda left: left * 1e-3)
    PPO("CartPole-v1", learning_rate_schedule={"type": "linear", "end": 0})


def test_algorithms_that_are_well_known_but_not_here_lead_to_those_that_are(capsys):
    known = set(algorithm_names())
    assert not known & set(ALGORITHMS)
    for name, advice in ALGORITHMS.items():
        assert known & set(re.findall(r"\w+", advice)), name
    for words in (["dqn", "env_id=CartPole-v1"], ["DQN"], ["algo=dqn", "env_id=CartPole-v1"]):
        assert main(["train", *words]) == 2
        assert "DQN is not here; for discrete actions: ppo, ppg, ars, openai_es" in capsys.readouterr().err


def test_a_list_without_brackets_is_shown_with_them(capsys):
    assert main(["config", "ppo/cartpole", "hidden_sizes=64,64"]) == 2
    assert "did you mean '[64, 64]'?" in capsys.readouterr().err


def test_what_reset_returns_is_no_observation(agent):
    env = gym.make("CartPole-v1")
    with pytest.raises(ValueError, match="pass obs alone"):
        agent.predict(env.reset(seed=0))
    with pytest.raises(ValueError, match="CartPole-v1 is observed as 4 numbers"):
        agent.predict(["left", "right"])


def test_a_tensor_that_hangs_in_a_graph_is_observed_like_any_other(agent):
    obs = torch.full((4,), 0.1)
    assert agent.predict(obs.clone().requires_grad_()) == agent.predict(obs.tolist())


def test_loading_as_another_algorithm_says_whose_it_is(agent):
    with pytest.raises(ConfigError, match=r"is of 'ppo', and SAC\.load takes 'sac'"):
        SAC.load(agent.checkpoint_path)


def test_help_is_a_word_too(capsys):
    assert main(["help"]) == 0
    assert "commands:" in capsys.readouterr().out
    assert main(["help", "train"]) == 0
    assert "rl-training train (PRESET" in capsys.readouterr().out


def test_resume_says_that_a_run_keeps_its_settings(capsys):
    assert main(["resume", "--checkpoint", "runs/x", "learning_rate=1"]) == 2
    assert "a run keeps its settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("obs", "place"),
    [([0.0, float("nan"), 0.0, 0.0], "number 1 is nan"), ([[0.0] * 4, [0, 0, 0, -1e300]], "number 3 of row 1 is -inf")],
)
def test_an_observation_that_is_not_finite_is_refused_with_its_place(agent, obs, place):
    with np.errstate(over="ignore"), pytest.raises(ValueError, match=place):
        agent.predict(obs)


def test_names_are_found_whatever_their_case(capsys):
    assert main(["config", "PPO/CartPole"]) == 2
    assert "did you mean 'ppo/cartpole'?" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["ppo", "env_id=Acrobot-v1"], ["algo=ppo", "env_id=Acrobot-v1"]])
def test_an_algorithm_takes_its_defaults_to_any_environment(words, capsys):
    assert main(["config", *words, "gamma=0.9", "--seed", "3"]) == 0
    told = TrainConfig.from_dict(parse_yaml(capsys.readouterr().out, source="stdout"))
    assert told == PPO("Acrobot-v1", gamma=0.9, seed=3).config


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ppo"], "its presets are: ppo/cartpole, ppo/halfcheetah, ppo/pendulum; without one: ppo env_id=NAME"),
        (["pppo", "env_id=Acrobot-v1"], "there is no preset or algorithm 'pppo'; did you mean 'ppo'?"),
        (["algo=pppo", "env_id=Acrobot-v1"], "there is no algorithm 'pppo'; did you mean 'ppo'?"),
        (["ppo/cartpole", "gamma", "0.9"], "settings are written key=value, with no space between"),
        (["ppo/cartpole", "--learning-rate", "1"], "settings are written without dashes: learning_rate=value"),
        (["ppo/cartpole", "--env", "Acrobot-v1"], "settings are written without dashes: env_id=value"),
        (["ppo/cartpole", "--n-timesteps", "9"], "did you mean '--total-timesteps'?"),
        (["ppo/cartpole", "--dry-run"], "`rl-training config` prints what would be trained"),
        (["ppo/cartpole", "verbose=1"], "logging.basicConfig(level=logging.INFO)"),
    ],
)
def test_what_other_command_lines_take_is_answered_with_ours(words, message, capsys):
    assert main(["train", *words]) == 2
    assert message in capsys.readouterr().err


def test_advice_is_only_for_what_is_no_option_here():
    known = {name for algo in algorithm_names() for name in load_options_class(algo).model_fields}
    assert not set(ADVICE) & (known | set(NAMES) | set(TrainConfig.model_fields))


def test_an_agent_says_what_it_is(agent):
    assert repr(agent) == f"<PPO on CartPole-v1, seed 0, learnt: {agent.checkpoint_path}>"
    assert repr(SAC("Pendulum-v1", seed=2)) == "<SAC on Pendulum-v1, seed 2, nothing learnt yet>"


def test_help_shows_every_setting_with_its_default(capsys):
    keywords = inspect.signature(PPO).parameters
    assert (keywords["clip_coef"].default, keywords["seed"].default, keywords["num_envs"].default) == (0.2, 0, 1)
    assert keywords["clip_coef"].annotation is float
    assert "clip_coef" not in inspect.signature(SAC).parameters
    for name, keyword in keywords.items():
        if name != "env" and keyword.default is not None:
            PPO("CartPole-v1", **{name: keyword.default})  # what it shows is what it takes
    help(PPO)
    assert "num_steps: int = 128" in capsys.readouterr().out


def test_evaluations_are_logged_for_those_who_listen(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="rl_training"):
        result = PPO("CartPole-v1", output_dir=tmp_path, eval_interval=32, **SMALL).learn()
    told = [record.getMessage() for record in caplog.records if "evaluation" in record.getMessage()]
    assert len(told) == 2
    assert told[1] == f"step 64 of 64: evaluation {result.metrics['eval_return_mean']:.6g}"


class Spaceless(gym.Env):
    action_space = gym.spaces.Discrete(2)


def test_an_environment_without_a_space_is_told_so(tmp_path):
    with pytest.raises(UnsupportedSpace, match="Spaceless has no observation_space; set it in __init__"):
        PPO(Spaceless, output_dir=tmp_path, **SMALL).learn()
    assert not list(tmp_path.iterdir())


def test_saving_over_a_folder_is_refused(agent, tmp_path):
    (tmp_path / "here").mkdir()
    with pytest.raises(CheckpointError, match=r"here: could not be written: Is a directory$"):
        agent.save(tmp_path / "here")
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
