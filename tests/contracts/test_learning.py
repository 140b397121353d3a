"""Every algorithm learns the simplest tasks there are, in seconds, and does not when it is broken.

`Bandit`: one action, one reward, one best answer. `Corridor`: a reward that only a value passed back from the end can see.
A learning test is worth what it catches, so each comes with mutations, one mistake each, that must make it fail.
"""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_runs import small_config, train
from toy_envs import Bandit, Choosing, Corridor

from rl_training.algorithms import ars, bc, cql, deterministic, iql, mopo, openai_es, rebrac, sac, tqc
from rl_training.data.dataset_files import write_npz
from rl_training.data.recorded_data import RecordedData
from rl_training.experiment.registry import algorithm_names
from rl_training.planning import particles
from rl_training.runtime import loops
from rl_training.runtime.workflows import evaluate_checkpoint

BEST = 0.5
# the mean of -(a - 0.5)² for an action drawn uniformly from [-1, 1] is -(1/3 + 1/4)
RANDOM_RETURN, WANTED_RETURN = -7 / 12, -0.1
# four moves of 1: 1 - 4 · 0.05; who stands still gets 0, who always walks the same way less than half of it
WANTED_IN_CORRIDOR = 0.6

BUDGETS = {  # steps, and what the small configurations lack for this task
    "ppo": (4_000, {"num_steps": 32, "minibatch_size": 32, "update_epochs": 10, "learning_rate": 3e-3}),
    "ppg": (4_000, {"num_steps": 32, "minibatch_size": 32, "update_epochs": 10, "learning_rate": 3e-3}),
    "sac": (1_500, {"learning_rate": 3e-3, "batch_size": 64, "buffer_capacity": 1_000, "alpha": 0.02}),
    "tqc": (1_500, {"learning_rate": 3e-3, "batch_size": 64, "buffer_capacity": 1_000, "alpha": 0.02}),
    "td3": (1_000, {"learning_rate": 3e-3, "batch_size": 64, "buffer_capacity": 1_000}),
    "ddpg": (1_000, {"learning_rate": 3e-3, "batch_size": 64, "buffer_capacity": 1_000}),
    "rlpd": (500, {"learning_rate": 3e-3, "batch_size": 32, "dataset_size": 300, "alpha": 0.02}),
    "cql": (1_500, {"learning_rate": 3e-3, "batch_size": 64, "dataset_size": 500, "alpha": 0.02, "cql_alpha": 0.1}),
    "bc": (500, {"learning_rate": 3e-3, "batch_size": 64, "dataset_kind": "npz", "dataset_size": None}),
    "iql": (1_500, {"learning_rate": 3e-3, "batch_size": 64, "dataset_size": 500, "inverse_temperature": 30.0}),
    "rebrac": (1_500, {"learning_rate": 3e-3, "batch_size": 64, "dataset_size": 500}),
    "mopo": (1_500, {"policy_learning_rate": 3e-3, "dataset_size": 500, "alpha": 0.02, "rollout_horizon": 1}),
    "pets": (120, {"planning_horizon": 2}),
    "ars": (8_000, {"observation_filter": False, "survival_bonus": 0.0, "episode_cap": None, "step_size": 0.05}),
    "openai_es": (8_000, {"noise_std": 0.1, "step_size": 0.05}),
}
WALKER = {"learning_rate": 3e-3, "batch_size": 64, "gamma": 0.95, "tau": 0.05, "hidden_sizes": [32, 32]}
ONLINE = {**WALKER, "buffer_capacity": 3_000, "learning_starts": 1_000}
CORRIDOR_BUDGETS = {
    "sac": (2_500, {**ONLINE, "alpha": 0.005}),
    "tqc": (2_500, {**ONLINE, "alpha": 0.005, "num_dropped_quantiles": 0}),
    "td3": (2_500, {**ONLINE, "exploration_noise": 0.3}),
    "ddpg": (2_500, {**ONLINE, "exploration_noise": 0.3}),
    "rlpd": (1_000, {**ONLINE, "learning_starts": 100, "dataset_size": 1_500, "alpha": 0.005}),
    "cql": (1_500, {**WALKER, "dataset_size": 2_000, "alpha": 0.005, "cql_alpha": 0.01}),
    "rebrac": (1_500, {**WALKER, "dataset_size": 2_000, "actor_penalty_coef": 0.01, "critic_penalty_coef": 0.001}),
    "iql": (1_500, {**WALKER, "dataset_size": 2_000, "expectile": 0.9, "inverse_temperature": 30.0}),
}
# with forbidden choices that raise, or any choice; random (allowed) ones earn 5 times the mean of 1 / (choices there are):
# 3.0 of four under masks, 3.7 of (2, 4, 3) under masks and 1.8 without, 2.5 of three bits
CHOOSERS = {
    **{(name, "discrete", True): 4.5 for name in ("ppo", "ppg")},
    **{(name, "multi_discrete", True): 4.2 for name in ("ppo", "ppg")},
    **{(name, "multi_discrete", False): 3.0 for name in ("openai_es", "ars")},
    **{(name, "multi_binary", False): 4.2 for name in ("ppo", "ppg", "openai_es", "ars")},
}
MORE_DIRECTIONS = {"step_size": 0.1, "num_directions": 8}
CHOOSER_BUDGETS = {
    "ppo": BUDGETS["ppo"],
    "ppg": BUDGETS["ppg"],
    "openai_es": (16_000, {**MORE_DIRECTIONS, "noise_std": 0.1}),
    "ars": (16_000, {**BUDGETS["ars"][1], **MORE_DIRECTIONS, "num_top_directions": 8}),
}
BOOTSTRAPPING = ("sac", "tqc", "td3", "iql", "rebrac")  # the others have these lines from them


def one_question():
    return Bandit(continuous=True, best=BEST)


def demonstrations(folder):
    """The bandit's best action with noise, which cloning begins with where the others have random behaviour."""
    rows, rng = 300, np.random.default_rng(0)
    columns = {"obs": np.ones((rows, 1)), "next_obs": np.ones((rows, 1)), "rewards": np.zeros(rows)}
    columns |= {"actions": BEST + rng.normal(0.0, 0.1, (rows, 1)), "terminations": np.ones(rows, bool)}
    return str(write_npz(folder / "demonstrations.npz", RecordedData.from_arrays(columns, "demonstrations")))


def score(name, folder, budget, env):
    steps, options = budget
    if options.get("dataset_kind") == "npz":
        options = options | {"dataset_path": demonstrations(folder)}
    config = small_config(name, folder, total_timesteps=steps, eval_episodes=0, env_kwargs={}, algo_kwargs=options)
    config = config.replace(env_id="Toy", log_interval=10**6, num_envs=1)
    result = train(config, env=env)
    return evaluate_checkpoint(result.checkpoint_path, num_episodes=20, env=env)["eval_return_mean"]


def test_no_algorithm_is_left_out():
    assert sorted(BUDGETS) == algorithm_names()


@pytest.mark.learning
@pytest.mark.parametrize("name", sorted(BUDGETS))
def test_it_learns_what_random_actions_do_not(name, tmp_path):
    assert score(name, tmp_path, BUDGETS[name], one_question) >= WANTED_RETURN > RANDOM_RETURN


@pytest.mark.learning
@pytest.mark.parametrize("name", sorted(CORRIDOR_BUDGETS))
def test_it_sees_a_reward_several_steps_ahead(name, tmp_path):
    assert score(name, tmp_path, CORRIDOR_BUDGETS[name], Corridor) >= WANTED_IN_CORRIDOR


@pytest.mark.learning
@pytest.mark.parametrize(("name", "kind", "masked"), CHOOSERS)
def test_it_learns_to_choose_in_parts_and_under_masks(name, kind, masked, tmp_path):
    env = partial(Choosing, kind=kind, masked=masked)
    assert score(name, tmp_path, CHOOSER_BUDGETS[name], env) >= CHOOSERS[name, kind, masked]


def flipped(function, *args, **kwargs):
    return -function(*args, **kwargs)


def uphill(function, *args, **kwargs):
    """A loss whose gradients have the wrong sign."""
    losses, d = function(*args, **kwargs)
    return losses, SimpleNamespace(**{name: -gradient for name, gradient in vars(d).items()})


def shuffled(function, returns, *rest):
    """What `function` says of the returns in another order: no direction gets its own."""
    order = torch.randperm(len(returns), generator=torch.Generator().manual_seed(len(returns)))
    return function(returns[order], *rest)


def with_wrong_mask(function, self, batch, *others):
    """Bootstraps where the episode is over, and nowhere else."""
    return function(self, batch | {"dones": 1.0 - batch["dones"]}, *others)


def left_alone(_function, *_args):
    """A target network that never moves."""


def ashamed(function, self, *args, **kwargs):
    """Imagined transitions whose rewards have the wrong sign."""
    batch = function(self, *args, **kwargs)
    return batch | {"rewards": -batch["rewards"]}


def opposite(function, self, batch, **others):
    """Learns from rows whose actions have the wrong sign."""
    return function(self, batch | {"actions": -batch["actions"]}, **others)


def undervalued(function, *, q_values, **others):
    """The better an action, the worse it looks."""
    return function(q_values=-q_values, **others)


def turned(function, *, advantages, **others):
    """The worse an action, the more it is imitated."""
    return function(advantages=-advantages, **others)


MUTATIONS = {  # what breaks, where it stands, how it is broken, and who must notice
    "advantage flipped": (loops, "generalized_advantages", flipped, ("ppo", "ppg")),
    "ranks shuffled": (openai_es, "centered_ranks", shuffled, ("openai_es",)),
    "planned return flipped": (particles.ParticleReturns, "__call__", flipped, ("pets",)),
    "imagined rewards flipped": (mopo.MOPO, "imagine", ashamed, ("mopo",)),
    "actions flipped": (bc.BC, "update", opposite, ("bc",)),
    "advantages of recorded actions flipped": (iql.advantage_weighted_loss, "definition", turned, ("iql",)),
    "values of the actor's actions flipped": (rebrac.cloning_actor_loss, "definition", undervalued, ("rebrac",)),
    "actor's gradient flipped": (deterministic.deterministic_actor_loss, "vjp", uphill, ("td3", "ddpg")),
    "both gradients of the actor flipped": (sac.soft_actor_loss, "vjp", uphill, ("sac", "rlpd", "cql")),
}
MUTATIONS_IN_CORRIDOR = {
    "target network frozen": [*((module, "polyak_update") for module in (sac, cql, tqc, deterministic, iql)), left_alone],
    "bootstrap mask wrong": [
        (sac.SAC, "targets"),
        (tqc.TQC, "targets"),
        (deterministic.DeterministicActorAlgorithm, "targets"),
        (rebrac.ReBRAC, "targets"),
        (iql.IQL, "update_critics"),
        with_wrong_mask,
    ],
}


def broken(monkeypatch, place, name, how):
    """The function of that name, wrapped in its mistake."""
    original = getattr(place, name)

    def mistaken(*args, **kwargs):  # not a partial: a method must still be given its object
        return how(original, *args, **kwargs)

    monkeypatch.setattr(place, name, mistaken)


@pytest.mark.learning
@pytest.mark.parametrize(("what", "name"), [(what, name) for what, (*_, names) in MUTATIONS.items() for name in names])
def test_a_broken_algorithm_does_not_pass(what, name, tmp_path, monkeypatch):
    place, function, how, _ = MUTATIONS[what]
    broken(monkeypatch, place, function, how)
    assert score(name, tmp_path, BUDGETS[name], one_question) < WANTED_RETURN


@pytest.mark.learning
def test_ars_does_not_pass_when_every_direction_gets_the_returns_of_another(tmp_path, monkeypatch):
    def update(self, batch, *, global_step=0):
        order = torch.arange(len(batch["perturbations"])).roll(1)
        return original(self, batch | {"perturbations": batch["perturbations"][order]}, global_step=global_step)

    original = ars.ARS.update
    monkeypatch.setattr(ars.ARS, "update", update)
    assert score("ars", tmp_path, BUDGETS["ars"], one_question) < WANTED_RETURN


@pytest.mark.learning
@pytest.mark.parametrize("name", BOOTSTRAPPING)
@pytest.mark.parametrize("what", sorted(MUTATIONS_IN_CORRIDOR))
def test_without_true_values_of_what_comes_next_nobody_walks(what, name, tmp_path, monkeypatch):
    *places, how = MUTATIONS_IN_CORRIDOR[what]
    for place, function in places:
        broken(monkeypatch, place, function, how)
    assert score(name, tmp_path, CORRIDOR_BUDGETS[name], Corridor) < WANTED_IN_CORRIDOR
