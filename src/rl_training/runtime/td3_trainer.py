"""Train TD3: act with noise, remember, update once per environment step."""

from __future__ import annotations

from typing import TypedDict, cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.td3 import TD3
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.models.mlp_td3 import MLPTD3Model
from rl_training.options.td3 import TD3Config
from rl_training.runtime.loops import OffPolicyLoop
from rl_training.runtime.networks import actor_and_critic_encoders
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import EnvSpec, TrainResult


class TD3Settings(TypedDict):
    """Arguments of `TD3`, by name."""

    learning_rate: float
    gamma: float
    tau: float
    policy_noise: float
    noise_clip: float
    policy_delay: int
    exploration_noise: float
    actor_learning_rate: float | None


def build_td3(options: TD3Config, env: EnvSpec, device: torch.device) -> TD3:
    return TD3(td3_model(options, env, device), **td3_settings(options))


def td3_model(options: TD3Config, env: EnvSpec, device: torch.device, *, layer_norm: bool = False) -> MLPTD3Model:
    """The networks of TD3 and its kin."""
    settings = {"activation": options.activation, "layer_norm": layer_norm, **actor_and_critic_encoders(options, env)}
    return MLPTD3Model(env.obs_dim, env.action_dim, options.hidden_sizes, **settings).to(device)


def td3_settings(options: TD3Config) -> TD3Settings:
    """The learner's arguments that TD3 and its kin share."""
    return {
        "learning_rate": options.learning_rate,
        "gamma": options.gamma,
        "tau": options.tau,
        "policy_noise": options.policy_noise,
        "noise_clip": options.noise_clip,
        "policy_delay": options.policy_delay,
        "exploration_noise": options.exploration_noise,
        "actor_learning_rate": options.actor_learning_rate,
    }


def train_td3(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        options = cast("TD3Config", config.options)
        algorithm = build_td3(options, session.spec, session.device)
        buffer = session.replay_buffer(options.buffer_capacity)
        return session.train(algorithm, OffPolicyLoop(session.collector(algorithm), buffer, algorithm, options))


SPEC = AlgorithmSpec("td3", TD3Config, build_td3, train_td3, evaluate_checkpoint, predict_checkpoint)
