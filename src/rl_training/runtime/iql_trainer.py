"""Train IQL: one update after another on recorded data, and then in an environment where that is asked for."""

from __future__ import annotations

from typing import cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.iql import IQL
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.models.mlp_iql import MLPIQLModel
from rl_training.options.iql import IQLConfig
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.prior_data_loop import recorded_data_loop
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import EnvSpec, TrainResult


def build_iql(options: IQLConfig, env: EnvSpec, device: torch.device) -> IQL:
    return IQL(
        MLPIQLModel(env.obs_dim, env.action_dim, options.hidden_sizes, activation=options.activation).to(device),
        learning_rate=options.learning_rate,
        gamma=options.gamma,
        tau=options.tau,
        expectile=options.expectile,
        inverse_temperature=options.inverse_temperature,
        max_advantage_weight=options.max_advantage_weight,
        actor_learning_rate=options.actor_learning_rate,
    )


def train_iql(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        options = cast("IQLConfig", config.options)
        algorithm = build_iql(options, session.spec, session.device)
        return session.train(algorithm, recorded_data_loop(session, algorithm, options))


SPEC = AlgorithmSpec("iql", IQLConfig, build_iql, train_iql, evaluate_checkpoint, predict_checkpoint)
