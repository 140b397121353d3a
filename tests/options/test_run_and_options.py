"""Settings of the run and of the algorithm that are fine alone but not together."""

from __future__ import annotations

import pytest

from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.options import algorithm_names, load_options_class
from rl_training.options._evolution import EvolutionOptions
from rl_training.options._offline import OfflineOptions

RUN = {"env_id": "Pendulum-v1", "seed": 1, "total_timesteps": 1_000, "output_dir": "runs"}
OFFLINE = [name for name in algorithm_names() if issubclass(load_options_class(name), OfflineOptions)]
EVOLUTION = [name for name in algorithm_names() if issubclass(load_options_class(name), EvolutionOptions)]


def config(algo: str, *, options: dict[str, object] | None = None, **run: object) -> TrainConfig:
    return TrainConfig(**RUN, algo=algo, algo_kwargs=options or {}, **run)


def refusal(algo: str, **settings: object) -> str:
    with pytest.raises(ConfigError) as caught:
        config(algo, **settings)
    return str(caught.value)


@pytest.mark.parametrize("algo", ["ppo", "ppg"])
def test_minibatches_of_one_row_are_refused_where_advantages_are_normalised_in_them(algo):
    text = refusal(algo, options={"minibatch_size": 1})
    assert text.startswith("algo_kwargs.minibatch_size, algo_kwargs.normalize_advantages: one advantage less its mean is 0")
    for over in ("batch", "none"):
        config(algo, options={"minibatch_size": 1, "normalize_advantages": over})
    config(algo, options={"minibatch_size": 2})


@pytest.mark.parametrize("over", ["minibatch", "batch"])
@pytest.mark.parametrize("algo", ["ppo", "ppg"])
def test_rollouts_of_one_row_are_refused_unless_advantages_stay_as_they_are(algo, over):
    options = {"num_steps": 1, "normalize_advantages": over}
    assert refusal(algo, options=options).startswith("num_envs, algo_kwargs.num_steps: a rollout of one row: one advantage")
    config(algo, options=options, num_envs=2)
    config(algo, options={"num_steps": 1, "normalize_advantages": "none"})


@pytest.mark.parametrize(("num_steps", "num_envs"), [(129, 1), (43, 3)])
def test_one_row_that_minibatches_leave_over_is_refused(num_steps, num_envs):
    options = {"num_steps": num_steps, "minibatch_size": 64}
    assert "minibatches of 64 leave one of the 129 rows" in refusal("ppo", options=options, num_envs=num_envs)
    config("ppo", options=options | {"normalize_advantages": "batch"}, num_envs=num_envs)
    config("ppo", options=options | {"minibatch_size": 63}, num_envs=num_envs)  # three are left over


@pytest.mark.parametrize("algo", OFFLINE)
def test_environments_that_nobody_would_step_are_refused(algo):
    assert "num_envs: " + algo + " learns from recorded data" in refusal(algo, num_envs=4)
    assert "execution_backend: " + algo + " learns from recorded data" in refusal(algo, execution_backend="batched")
    config(algo, num_envs=1, execution_backend="local_async")


@pytest.mark.parametrize("algo", EVOLUTION)
def test_a_population_is_not_sized_by_the_environments_of_other_algorithms(algo):
    assert "population_envs: 4 in algo_kwargs" in refusal(algo, num_envs=4)
    config(algo, options={"population_envs": 4})


@pytest.mark.parametrize("algo", EVOLUTION)
def test_a_cap_under_which_episodes_could_never_grow_is_refused(algo):
    for cap in (0.5, 1.0):
        assert "episode_cap: given" in refusal(algo, options={"episode_cap": cap})
    config(algo, options={"episode_cap": 1.5})


@pytest.mark.parametrize("algo", ["ppo", "ppg"])
def test_gradients_are_left_unclipped_on_request(algo):
    assert config(algo, options={"max_grad_norm": None}).options.max_grad_norm is None
