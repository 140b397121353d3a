"""Train BC: one update after another on recorded data."""

from __future__ import annotations

from typing import cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.bc import BC
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.models.mlp_bc import MLPBCModel
from rl_training.options.bc import BCConfig
from rl_training.runtime.offline_loop import OfflineLoop
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import EnvSpec, TrainResult


def build_bc(options: BCConfig, env: EnvSpec, device: torch.device) -> BC:
    model = MLPBCModel(env.obs_dim, env.action_dim, options.hidden_sizes, discrete=env.discrete, activation=options.activation)
    return BC(model.to(device), learning_rate=options.learning_rate, discrete=env.discrete)


def train_bc(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        options = cast("BCConfig", config.options)
        algorithm = build_bc(options, session.spec, session.device)
        loop = OfflineLoop(session.prior_data(), algorithm, batch_size=options.batch_size, device=session.device)
        return session.train(algorithm, loop)


SPEC = AlgorithmSpec("bc", BCConfig, build_bc, train_bc, evaluate_checkpoint, predict_checkpoint)
