"""Train ReBRAC: one update after another on recorded data, and then in an environment where that is asked for."""

from __future__ import annotations

from typing import cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.rebrac import ReBRAC
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.options.rebrac import ReBRACConfig
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.prior_data_loop import recorded_data_loop
from rl_training.runtime.td3_trainer import td3_model, td3_settings
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import EnvSpec, TrainResult


def build_rebrac(options: ReBRACConfig, env: EnvSpec, device: torch.device) -> ReBRAC:
    return ReBRAC(
        td3_model(options, env, device, layer_norm=options.layer_norm),
        actor_penalty_coef=options.actor_penalty_coef,
        critic_penalty_coef=options.critic_penalty_coef,
        **td3_settings(options),
    )


def train_rebrac(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        options = cast("ReBRACConfig", config.options)
        algorithm = build_rebrac(options, session.spec, session.device)
        return session.train(algorithm, recorded_data_loop(session, algorithm, options))


SPEC = AlgorithmSpec("rebrac", ReBRACConfig, build_rebrac, train_rebrac, evaluate_checkpoint, predict_checkpoint)
