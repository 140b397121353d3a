"""Train CQL: one update after another on recorded data."""

from __future__ import annotations

from typing import cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.cql import CQL
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.options.cql import CQLConfig
from rl_training.runtime.offline_loop import OfflineLoop
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.sac_trainer import sac_model, sac_settings
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import EnvSpec, TrainResult


def build_cql(options: CQLConfig, env: EnvSpec, device: torch.device, *, kind: type[CQL] = CQL) -> CQL:
    """CQL, or a learner of its kind that takes the same settings."""
    settings = sac_settings(options)
    # the authors' temperature learns as fast as their policy; without any rate of its own that is learning_rate
    settings["alpha_learning_rate"] = options.alpha_learning_rate or options.actor_learning_rate
    return kind(
        sac_model(options, env, device),
        cql_alpha=options.cql_alpha,
        num_cql_samples=options.num_cql_samples,
        cql_target_gap=options.cql_target_gap,
        backup_entropy=options.backup_entropy,
        **settings,
    )


def train_cql(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        options = cast("CQLConfig", config.options)
        algorithm = build_cql(options, session.spec, session.device)
        loop = OfflineLoop(session.prior_data(), algorithm, batch_size=options.batch_size, device=session.device)
        return session.train(algorithm, loop)


SPEC = AlgorithmSpec("cql", CQLConfig, build_cql, train_cql, evaluate_checkpoint, predict_checkpoint)
