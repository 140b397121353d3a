"""Train TD3: act with noise, remember, update once per environment step."""

from __future__ import annotations

from typing import cast

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


def build_td3(options: TD3Config, env: EnvSpec, device: torch.device) -> TD3:
    settings = {"activation": options.activation, **actor_and_critic_encoders(options, env)}
    model = MLPTD3Model(env.obs_dim, env.action_dim, options.hidden_sizes, **settings).to(device)
    return TD3(
        model,
        learning_rate=options.learning_rate,
        gamma=options.gamma,
        tau=options.tau,
        policy_noise=options.policy_noise,
        noise_clip=options.noise_clip,
        policy_delay=options.policy_delay,
        exploration_noise=options.exploration_noise,
        actor_learning_rate=options.actor_learning_rate,
    )


def train_td3(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        options = cast("TD3Config", config.options)
        algorithm = build_td3(options, session.spec, session.device)
        buffer = session.replay_buffer(options.buffer_capacity)
        return session.train(algorithm, OffPolicyLoop(session.collector(algorithm), buffer, algorithm, options))


SPEC = AlgorithmSpec("td3", TD3Config, build_td3, train_td3, evaluate_checkpoint, predict_checkpoint)
