"""What is written in a configuration is what the learner works with: each option is looked up where it acts."""

from __future__ import annotations

import pytest
import torch

from rl_training.experiment.registry import get_algorithm_spec
from rl_training.types import EnvSpec

ENV = EnvSpec("Some-v0", 3, 2, low=(-1.0, -1.0), high=(1.0, 1.0))

NETWORKS_OF_SAC = {
    "gamma": (0.9, "gamma"),
    "tau": (0.02, "tau"),
    "initial_alpha": (0.3, "alpha"),
    "target_entropy": (-0.7, "target_entropy"),
    "critic_subset_size": (3, "critic_subset_size"),
    "num_critics": (4, "model.num_critics"),
    "hidden_sizes": ((5, 7), lambda learner: learner.model.actor.layout.sizes[1:-1]),
}
RATES_OF_SAC = {
    "learning_rate": (0.01, "critic_optimizer.learning_rate"),
    "actor_learning_rate": (0.02, "actor_optimizer.learning_rate"),
    "alpha_learning_rate": (0.03, "alpha_optimizer.learning_rate"),
}
LEARNER_OF_PPO = {
    "learning_rate": (0.01, "optimizer.learning_rate"),
    "adam_eps": (1e-3, "optimizer.eps"),
    "clip_coef": (0.3, "clip_coef"),
    "ent_coef": (0.04, "ent_coef"),
    "vf_coef": (0.6, "vf_coef"),
    "max_grad_norm": (0.7, "max_grad_norm"),
    "clip_value_loss": (True, "clip_value_loss"),
    "log_std_init": (-0.8, lambda learner: learner.policy.vector("log_std")[0].item()),
    "gamma": (0.9, "reward_normalizer.gamma"),
}
DETERMINISTIC = {
    "learning_rate": (0.01, "critic_optimizer.learning_rate"),
    "actor_learning_rate": (0.02, "actor_optimizer.learning_rate"),
    "gamma": (0.9, "gamma"),
    "tau": (0.02, "tau"),
    "exploration_noise": (0.3, "exploration_noise"),
}
SEARCH = {"step_size": (0.3, "step_size"), "noise_std": (0.04, "noise_std")}

OPTIONS = {
    "ppo": LEARNER_OF_PPO,
    "ppg": LEARNER_OF_PPO
    | {
        "aux_learning_rate": (0.05, "auxiliary_optimizer.learning_rate"),
        "aux_value_coef": (0.5, "aux_value_coef"),
        "behavior_clone_coef": (0.6, "behavior_clone_coef"),
        "value_clone_coef": (0.7, "value_clone_coef"),
    },
    "tqc": {name: place for name, place in NETWORKS_OF_SAC.items() if name != "critic_subset_size"}
    | RATES_OF_SAC
    | {
        "num_quantiles": (9, "model.num_quantiles"),
        "num_dropped_quantiles": (3, "num_dropped_quantiles"),
        "critic_hidden_sizes": ((6,), lambda learner: learner.model.critics.layout.sizes[1:-1]),
    },
    "bc": {
        "learning_rate": (0.01, "optimizer.learning_rate"),
        "hidden_sizes": ((5, 7), lambda learner: learner.model.actor.layout.sizes[1:-1]),
    },
    "sac": NETWORKS_OF_SAC | RATES_OF_SAC,
    "rlpd": NETWORKS_OF_SAC
    | RATES_OF_SAC
    | {"backup_entropy": (False, "backup_entropy"), "pessimistic_actor": (True, "pessimistic_actor")},
    "cql": NETWORKS_OF_SAC
    | RATES_OF_SAC
    | {
        "cql_alpha": (3.0, "cql_alpha"),
        "cql_target_gap": (2.0, "cql_target_gap"),
        "num_cql_samples": (6, "num_cql_samples"),
        "backup_entropy": (True, "backup_entropy"),
    },
    "cal_ql": NETWORKS_OF_SAC
    | RATES_OF_SAC
    | {"cql_alpha": (3.0, "cql_alpha"), "cql_target_gap": (2.0, "cql_target_gap"), "num_cql_samples": (6, "num_cql_samples")},
    "iql": {
        "learning_rate": (0.01, "value_optimizer.learning_rate"),
        "actor_learning_rate": (0.02, "actor_optimizer.learning_rate"),
        "gamma": (0.9, "gamma"),
        "tau": (0.02, "tau"),
        "expectile": (0.8, "expectile"),
        "inverse_temperature": (2.0, "inverse_temperature"),
        "max_advantage_weight": (20.0, "max_advantage_weight"),
        "hidden_sizes": ((5, 7), lambda learner: learner.model.actor.net.sizes[1:-1]),
    },
    "mopo": {name: (value, where if callable(where) else f"sac.{where}") for name, (value, where) in NETWORKS_OF_SAC.items()}
    | {
        "hidden_sizes": ((5, 7), lambda learner: learner.sac.model.actor.layout.sizes[1:-1]),
        "policy_learning_rate": (0.01, "sac.critic_optimizer.learning_rate"),
        "model_learning_rate": (0.02, "dynamics.optimizer.learning_rate"),
        "penalty": ("disagreement", "penalty"),
        "penalty_coef": (2.5, "penalty_coef"),
        "num_ensembles": (9, "dynamics_model.num_ensembles"),
    },
    "td3": DETERMINISTIC
    | {"policy_noise": (0.4, "policy_noise"), "noise_clip": (0.6, "noise_clip"), "policy_delay": (3, "policy_delay")},
    "rebrac": DETERMINISTIC
    | {"policy_noise": (0.4, "policy_noise"), "noise_clip": (0.6, "noise_clip"), "policy_delay": (3, "policy_delay")}
    | {
        "actor_penalty_coef": (0.5, "actor_penalty_coef"),
        "critic_penalty_coef": (0.6, "critic_penalty_coef"),
        "layer_norm": (False, "model.critics.layout.layer_norm"),
        "hidden_sizes": ((5, 7), lambda learner: learner.model.actor.layout.sizes[1:-1]),
    },
    "ddpg": DETERMINISTIC,
    "ars": SEARCH | {"num_top_directions": (2, "num_top_directions")},
    "openai_es": SEARCH
    | {"weight_decay": (0.2, "optimizer.weight_decay"), "fitness_shaping": ("standardized", "fitness_shaping")},
    "pets": {
        "model_learning_rate": (0.02, "dynamics.optimizer.learning_rate"),
        "planning_horizon": (7, "planner.horizon"),
        "planning_candidates": (31, "planner.candidates"),
        "planning_iterations": (3, "planner.iterations"),
        "planning_topk": (10, "planner.topk"),
        "planning_momentum": (0.2, "planner.momentum"),
        "planning_keep_elites": (0.4, "planner.keep_elites"),
        "planning_carry_elites": (0.5, "planner.carry_elites"),
        "planning_noise_beta": (2.0, "planner.noise_beta"),
        "planning_initial_std": (0.6, "planner.initial_std"),
        "planning_particles": (15, "num_particles"),
        "planning_warm_start": (False, "warm_start"),
        "value_updates_per_step": (4, lambda learner: 4 if learner.values else 0),
        "value_gamma": (0.9, "values.gamma"),
        "value_learning_rate": (0.03, "values.optimizer.learning_rate"),
        "value_action_repeat": (2, "values.action_repeat"),
    },
}
"""By algorithm: option, a value that is not its default, and where the learner has it."""


def found(learner, where):
    if callable(where):
        return where(learner)
    for name in where.split("."):
        learner = getattr(learner, name)
    return learner


@pytest.mark.parametrize("name", OPTIONS)
def test_every_setting_of_the_learners_stands_where_it_acts(name):
    spec, places = get_algorithm_spec(name), OPTIONS[name]
    extra = {"normalize_rewards": True} if name in {"ppo", "ppg"} else {}
    options = spec.config(**extra, **{option: value for option, (value, _) in places.items()})
    learner = spec.build_fn(options, ENV, torch.device("cpu"))
    default = {option: spec.config.model_fields[option].default for option in places}
    for option, (value, where) in places.items():
        assert value != default[option], option
        assert found(learner, where) == (value if isinstance(value, tuple | str) else pytest.approx(value)), option


def test_the_entropy_aimed_at_falls_with_the_number_of_actions_and_rlpd_aims_at_half_of_it():
    def aim(name):
        spec = get_algorithm_spec(name)
        return spec.build_fn(spec.config(), ENV, torch.device("cpu")).target_entropy

    assert (aim("sac"), aim("cql"), aim("rlpd")) == (-2.0, -2.0, -1.0)


def test_only_cql_leaves_the_entropy_out_of_its_targets_unless_told_otherwise():
    backed_up = {}
    for name in ("sac", "rlpd", "cql"):
        spec = get_algorithm_spec(name)
        backed_up[name] = spec.build_fn(spec.config(), ENV, torch.device("cpu")).backup_entropy
    assert backed_up == {"sac": True, "rlpd": True, "cql": False}
