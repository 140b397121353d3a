"""Train TQC: act, remember, update once per environment step."""

from __future__ import annotations

from typing import cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.tqc import TQC
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.models.mlp_tqc import MLPTQCModel
from rl_training.options.tqc import TQCConfig
from rl_training.runtime.loops import OffPolicyLoop
from rl_training.runtime.networks import actor_and_critic_encoders
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.sac_trainer import sac_settings
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import EnvSpec, TrainResult


def build_tqc(options: TQCConfig, env: EnvSpec, device: torch.device) -> TQC:
    model = MLPTQCModel(
        env.obs_dim,
        env.action_dim,
        options.hidden_sizes,
        critic_hidden_sizes=options.critic_hidden_sizes,
        num_critics=options.num_critics,
        num_quantiles=options.num_quantiles,
        layer_norm=options.layer_norm,
        activation=options.activation,
        **actor_and_critic_encoders(options, env),
    )
    return TQC(model.to(device), num_dropped_quantiles=options.num_dropped_quantiles, **sac_settings(options))


def train_tqc(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        options = cast("TQCConfig", config.options)
        algorithm = build_tqc(options, session.spec, session.device)
        buffer = session.replay_buffer(options.buffer_capacity)
        return session.train(algorithm, OffPolicyLoop(session.collector(algorithm), buffer, algorithm, options))


SPEC = AlgorithmSpec("tqc", TQCConfig, build_tqc, train_tqc, evaluate_checkpoint, predict_checkpoint)
