"""Train PPO: collect a rollout, go over it a few times, forget it."""

from __future__ import annotations

from typing import Any, cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.ppo import PPO
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.normalizer import RewardNormalizer
from rl_training.options.ppo import PPOConfig
from rl_training.runtime.loops import OnPolicyLoop
from rl_training.runtime.networks import observation_normalizer, policy_encoders
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import EnvSpec, TrainResult


def build_ppo(options: PPOConfig, env: EnvSpec, device: torch.device) -> PPO:
    policy = MLPActorCritic(
        env.obs_dim,
        env.action_dim,
        options.hidden_sizes,
        discrete=env.discrete,
        nvec=env.nvec,
        activation=options.activation,
        log_std_init=options.log_std_init,
        encoders=policy_encoders(options, env),
    ).to(device)
    return PPO(policy, **ppo_arguments(options, env))


def ppo_arguments(options: PPOConfig, env: EnvSpec) -> dict[str, Any]:
    """What the learner takes beside its networks."""
    return {
        "learning_rate": options.learning_rate,
        "clip_coef": options.clip_coef,
        "ent_coef": options.ent_coef,
        "vf_coef": options.vf_coef,
        "max_grad_norm": options.max_grad_norm,
        "normalize_advantages": options.normalize_advantages == "minibatch",
        "clip_value_loss": options.clip_value_loss,
        "adam_eps": options.adam_eps,
        "observation_normalizer": observation_normalizer(env) if options.normalize_observations else None,
        "reward_normalizer": RewardNormalizer(gamma=options.gamma) if options.normalize_rewards else None,
    }


def train_ppo(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        options = cast("PPOConfig", config.options)
        algorithm = build_ppo(options, session.spec, session.device)
        return session.train(algorithm, OnPolicyLoop(session.collector(algorithm), algorithm, options))


SPEC = AlgorithmSpec("ppo", PPOConfig, build_ppo, train_ppo, evaluate_checkpoint, predict_checkpoint)
