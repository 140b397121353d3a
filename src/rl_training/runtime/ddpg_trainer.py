"""Train DDPG: act with noise, remember, update once per environment step."""

from __future__ import annotations

from typing import cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.ddpg import DDPG
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.models.mlp_ddpg import MLPDDPGModel
from rl_training.options.ddpg import DDPGConfig
from rl_training.runtime.loops import OffPolicyLoop
from rl_training.runtime.networks import actor_and_critic_encoders
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import EnvSpec, TrainResult


def build_ddpg(options: DDPGConfig, env: EnvSpec, device: torch.device) -> DDPG:
    settings = {"activation": options.activation, **actor_and_critic_encoders(options, env)}
    model = MLPDDPGModel(env.obs_dim, env.action_dim, options.hidden_sizes, **settings).to(device)
    return DDPG(
        model,
        learning_rate=options.learning_rate,
        gamma=options.gamma,
        tau=options.tau,
        exploration_noise=options.exploration_noise,
        actor_learning_rate=options.actor_learning_rate,
    )


def train_ddpg(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        options = cast("DDPGConfig", config.options)
        algorithm = build_ddpg(options, session.spec, session.device)
        buffer = session.replay_buffer(options.buffer_capacity)
        return session.train(algorithm, OffPolicyLoop(session.collector(algorithm), buffer, algorithm, options))


SPEC = AlgorithmSpec("ddpg", DDPGConfig, build_ddpg, train_ddpg, evaluate_checkpoint, predict_checkpoint)
