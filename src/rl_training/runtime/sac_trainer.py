"""Train SAC: act, remember, update once per environment step."""

from __future__ import annotations

from typing import Literal, TypedDict, cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.sac import SAC
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.options._sac import SACLearnerOptions, SACPolicyOptions
from rl_training.options.sac import SACConfig
from rl_training.runtime.loops import OffPolicyLoop
from rl_training.runtime.networks import actor_and_critic_encoders
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import EnvSpec, TrainResult


class SACPolicySettings(TypedDict):
    """Arguments of `SAC` but for its step sizes, by name."""

    gamma: float
    alpha: float | str
    tau: float
    initial_alpha: float
    target_entropy: float | None
    critic_subset_size: int | None


class SACSettings(SACPolicySettings):
    """Arguments of `SAC`, by name."""

    learning_rate: float
    actor_learning_rate: float | None
    alpha_learning_rate: float | None


def build_sac(options: SACConfig, env: EnvSpec, device: torch.device) -> SAC:
    return SAC(sac_model(options, env, device), **sac_settings(options))


def sac_model(
    options: SACPolicyOptions, env: EnvSpec, device: torch.device, *, initial: Literal["torch", "xavier"] = "torch"
) -> MLPSACModel:
    """The networks of SAC and its kin."""
    return MLPSACModel(
        env.obs_dim,
        env.action_dim,
        options.hidden_sizes,
        num_critics=options.num_critics,
        layer_norm=options.layer_norm,
        activation=options.activation,
        initial=initial,
        **actor_and_critic_encoders(options, env),
    ).to(device)


def sac_policy_settings(options: SACPolicyOptions) -> SACPolicySettings:
    """The learner's arguments that SAC and its kin share, step sizes apart."""
    return {
        "gamma": options.gamma,
        "alpha": options.alpha,
        "tau": options.tau,
        "initial_alpha": options.initial_alpha,
        "target_entropy": None if options.target_entropy == "auto" else options.target_entropy,
        "critic_subset_size": options.critic_subset_size,
    }


def sac_settings(options: SACLearnerOptions) -> SACSettings:
    """The same with the step sizes of those that call them as SAC does."""
    return {
        **sac_policy_settings(options),
        "learning_rate": options.learning_rate,
        "actor_learning_rate": options.actor_learning_rate,
        "alpha_learning_rate": options.alpha_learning_rate,
    }


def train_sac(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        options = cast("SACConfig", config.options)
        algorithm = build_sac(options, session.spec, session.device)
        buffer = session.replay_buffer(options.buffer_capacity)
        return session.train(algorithm, OffPolicyLoop(session.collector(algorithm), buffer, algorithm, options))


SPEC = AlgorithmSpec("sac", SACConfig, build_sac, train_sac, evaluate_checkpoint, predict_checkpoint)
