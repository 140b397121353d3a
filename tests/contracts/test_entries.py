"""What every learner takes: one observation or many, tensors of any precision, tensors that hang in somebody's graph."""

import copy

import numpy as np
import pytest
import torch
from small_runs import ALGORITHMS, NAMES, difference, small_config

from rl_training.envs.source import EnvSource
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel
from rl_training.models.mlp_ppg import MLPPPGModel
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.models.mlp_td3 import MLPTD3Model
from rl_training.runtime.collector import random_actions

ROWS = 8
ON_POLICY = [name for name in NAMES if name.startswith(("ppo", "ppg"))]
CONTINUOUS = torch.float64, torch.float16


def learner_of(name, tmp_path):
    """A learner as the small run has it, and the environment it is for."""
    config = small_config(name, tmp_path)
    spec = EnvSource(config.env_id, config.env_kwargs).spec()
    torch.manual_seed(0)
    return get_algorithm_spec(config.algo).build_fn(config.options, spec, torch.device("cpu")), spec


def exact(*shape):
    """Numbers that are the same in half, single and double precision."""
    return (torch.rand(*shape) * 2 - 1).half().float()


def batch_for(learner, spec):
    """Rows of everything that any learner but the evolution strategies asks for, or a generation for those."""
    if hasattr(learner, "noise_std"):
        directions = {f"{sign}_returns": exact(ROWS) for sign in ("positive", "negative")}
        return {"perturbations": exact(ROWS, learner.model.num_parameters), **directions}
    batch = {name: exact(ROWS, spec.obs_dim) for name in ("obs", "next_obs")}
    batch |= {name: exact(ROWS) for name in ("rewards", "logprobs", "advantages", "returns", "values")}
    actions = actions_for(spec, ROWS)
    following = {"next_actions": actions.roll(1, 0), "next_known": torch.ones(ROWS)}
    return batch | following | {"actions": actions, "dones": torch.zeros(ROWS), "cuts": torch.zeros(ROWS)}


def actions_for(spec, rows):
    """Such as a learner chooses."""
    if not spec.discrete:
        return exact(rows, spec.action_dim)
    return torch.from_numpy(random_actions(spec, np.random.default_rng(0), rows))


def ways_to_act(learner):
    """By name, each from observations to an answer that begins at the same place of torch's stream."""
    deterministic = {"act": lambda obs: learner.act(obs, deterministic=True)}
    drawn = {"act drawn": learner.act, "explore": learner.explore}
    return deterministic | drawn | ({"value": learner.value} if hasattr(learner, "value") else {})


def seeded(function, *arguments):
    torch.manual_seed(1)
    return function(*arguments)


@pytest.mark.parametrize("name", NAMES)
def test_one_observation_is_answered_as_a_batch_of_one(name, tmp_path):
    learner, spec = learner_of(name, tmp_path)
    obs = exact(spec.obs_dim)
    for way, answer in ways_to_act(learner).items():
        single, rows = seeded(answer, obs), seeded(answer, obs.unsqueeze(0))
        assert single.shape == rows.shape[1:], way
        assert torch.equal(single, rows[0]), way


@pytest.mark.parametrize("name", ON_POLICY)
def test_one_action_at_one_observation_has_the_probability_it_has_in_a_batch(name, tmp_path):
    learner, spec = learner_of(name, tmp_path)
    obs, actions = exact(1, spec.obs_dim), actions_for(spec, 1)
    assert torch.equal(learner.log_prob(obs[0], actions[0]), learner.log_prob(obs, actions)[0])


@pytest.mark.parametrize("dtype", CONTINUOUS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_precision_of_observations_and_what_they_hang_in_change_no_action(name, dtype, tmp_path):
    learner, spec = learner_of(name, tmp_path)
    obs = exact(ROWS, spec.obs_dim)
    for way, answer in ways_to_act(learner).items():
        other = seeded(answer, obs.to(dtype).requires_grad_())
        assert torch.equal(other, seeded(answer, obs)), way
        assert not other.requires_grad, way


@pytest.mark.parametrize("dtype", CONTINUOUS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_precision_of_a_batch_and_what_it_hangs_in_change_nothing_that_is_learnt(name, dtype, tmp_path):
    (learner, spec), (twin, _) = learner_of(name, tmp_path), learner_of(name, tmp_path)
    batch = batch_for(learner, spec)
    own = {"positive_returns", "negative_returns"} if "perturbations" in batch else set()  # these may be more precise
    moved = [column for column, values in batch.items() if values.is_floating_point() and column not in own]
    other = batch | {column: batch[column].to(dtype).requires_grad_() for column in moved}
    for method in ("update", "auxiliary_update", "update_model"):
        if hasattr(learner, method):
            extra = {"teacher_model": copy.deepcopy(learner.policy)} if method == "auxiliary_update" else {}
            seeded(lambda one: getattr(learner, method)(one, **extra), batch)  # noqa: B023 (called at once)
            metrics = seeded(lambda one: getattr(twin, method)(one, **extra), other).metrics  # noqa: B023
            assert difference(learner.state_dict(), twin.state_dict()) is None, method
            assert not any(value.requires_grad for value in metrics.values()), method


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in {"ars", "openai_es"}])
def test_learners_compute_in_single_precision_whatever_torchs_default_is(name, tmp_path):
    learner, spec = learner_of(name, tmp_path)
    batch, obs = batch_for(learner, spec), exact(ROWS, spec.obs_dim)
    seeded(learner.update, batch)
    torch.set_default_dtype(torch.float64)
    try:
        twin, _ = learner_of(name, tmp_path)
        seeded(twin.update, batch)
        said = {way: seeded(answer, obs) for way, answer in ways_to_act(twin).items()}
    finally:
        torch.set_default_dtype(torch.float32)
    assert difference(learner.state_dict(), twin.state_dict()) is None
    assert difference(said, {way: seeded(answer, obs) for way, answer in ways_to_act(learner).items()}) is None


def test_rounds_of_rlpd_take_any_precision_too(tmp_path):
    (learner, spec), (twin, _) = learner_of("rlpd", tmp_path), learner_of("rlpd", tmp_path)
    batch = batch_for(learner, spec)
    seeded(learner.update_round, batch, 2)
    seeded(twin.update_round, {name: column.double() for name, column in batch.items()}, 2)
    assert difference(learner.state_dict(), twin.state_dict()) is None


def flattened(answer):
    """The tensors of an answer, of distributions their parameters."""
    if isinstance(answer, torch.Tensor):
        return [answer]
    if isinstance(answer, tuple | list):
        return [part for item in answer for part in flattened(item)]
    return [value for value in vars(answer).values() if isinstance(value, torch.Tensor)]


ON_POLICY_WAYS = ("distribution", "value")
MODELS = {
    "actor-critic": (lambda: MLPActorCritic(3, 2, (8,)), ON_POLICY_WAYS),
    "gaussian": (lambda: MLPActorCritic(3, 2, (8,), discrete=False), ON_POLICY_WAYS),
    "silu": (lambda: MLPActorCritic(3, 2, (8,), activation="silu"), ON_POLICY_WAYS),
    "ppg": (lambda: MLPPPGModel(3, 2, (8,)), ON_POLICY_WAYS),
    "ppg dual": (
        lambda: MLPPPGModel(3, 2, (8,), architecture="dual"),
        ON_POLICY_WAYS,
    ),
    "sac": (lambda: MLPSACModel(3, 2, (8,)), ("sample_actions",)),
    "td3": (lambda: MLPTD3Model(3, 2, (8,)), ("actor",)),
}


@pytest.mark.parametrize("name", MODELS)
def test_networks_answer_to_one_observation_as_to_a_batch_of_one(name):
    make, ways = MODELS[name]
    model, obs = make(), exact(3)
    for way in ways:
        single, rows = (flattened(seeded(getattr(model, way), x)) for x in (obs, obs.unsqueeze(0)))
        for one, many in zip(single, rows, strict=True):
            if many.dim() == one.dim():  # what no observation moves
                assert torch.equal(one, many), way
            else:
                torch.testing.assert_close(one, many[0], msg=way)


def test_several_samples_for_one_observation_have_no_batch_axis():
    model, obs = MLPSACModel(3, 2, (8,)), exact(3)
    single, rows = seeded(model.sample_several, obs, 4), seeded(model.sample_several, obs.unsqueeze(0), 4)
    torch.testing.assert_close(single.actions, rows.actions[0])
    torch.testing.assert_close(single.logprobs, rows.logprobs[0])


@pytest.mark.parametrize("name", MODELS)
def test_networks_take_observations_of_any_precision(name):
    make, ways = MODELS[name]
    model, obs = make(), exact(ROWS, 3)
    for way in ways:
        wanted, given = (flattened(seeded(getattr(model, way), x)) for x in (obs, obs.double()))
        for one, other in zip(wanted, given, strict=True):
            torch.testing.assert_close(one, other.float(), msg=way)


def test_the_ensemble_takes_any_precision_and_imagines_in_its_own():
    model = MLPMOPOEnsembleModel(3, 2, (8,), 2)
    obs, actions = exact(ROWS, 3), exact(ROWS, 2)
    for way in (model.predict_distribution, model.imagine, model.sample_transition):
        wanted, given = seeded(way, obs, actions), seeded(way, obs.double(), actions.double())
        for one, other in zip(wanted, given, strict=True):
            assert other.dtype == torch.float32
            torch.testing.assert_close(one, other)


NUMPYS = {
    "actor-critic": lambda n: MLPActorCritic(n(3), n(2), (n(8),), discrete=False),
    "ppg": lambda n: MLPPPGModel(n(3), n(2), (n(8),), architecture="dual"),
    "sac": lambda n: MLPSACModel(n(3), n(2), [n(8)], num_critics=n(3)),
    "td3": lambda n: MLPTD3Model(n(3), n(2), np.array([8]) if n is np.int64 else [8]),
    "dynamics": lambda n: MLPMOPOEnsembleModel(n(3), n(2), (n(8),), n(4), num_elites=n(2)),
    "parameter search": lambda n: MLPARSModel(n(3), n(2), (n(8),)),
}


@pytest.mark.parametrize("make", NUMPYS.values(), ids=NUMPYS)
def test_sizes_may_be_numpys(make):
    states = [seeded(make, number).state_dict() for number in (int, np.int64)]
    assert difference(*map(dict, states)) is None
