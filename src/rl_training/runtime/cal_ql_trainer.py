"""Train Cal-QL: one update after another on recorded data, and then in an environment where that is asked for."""

from __future__ import annotations

from typing import cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.cal_ql import CalQL
from rl_training.algorithms.cql import CQL
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.options.cal_ql import CalQLConfig
from rl_training.runtime.cql_trainer import build_cql
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.prior_data_loop import recorded_data_loop
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import EnvSpec, TrainResult


def build_cal_ql(options: CalQLConfig, env: EnvSpec, device: torch.device) -> CQL:
    return build_cql(options, env, device, kind=CalQL)


def train_cal_ql(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        options = cast("CalQLConfig", config.options)
        algorithm = build_cal_ql(options, session.spec, session.device)
        return session.train(algorithm, recorded_data_loop(session, algorithm, options))


SPEC = AlgorithmSpec("cal_ql", CalQLConfig, build_cal_ql, train_cal_ql, evaluate_checkpoint, predict_checkpoint)
