"""Train ARS: evaluate a population around the policy, and follow its best directions."""

from __future__ import annotations

import math
from typing import cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.ars import ARS
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.options.ars import ARSConfig
from rl_training.runtime.evolution import evolution_loop
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import EnvSpec, TrainResult


def build_ars(options: ARSConfig, env: EnvSpec, device: torch.device) -> ARS:
    model = MLPARSModel(env.obs_dim, env.action_dim, options.hidden_sizes, discrete=env.discrete, nvec=env.nvec).to(device)
    # the paper does not clip what the filter shows: what has not varied must not be blown up when it begins to
    normalizer = ObservationNormalizer(env.obs_dim, clip=math.inf, hide_still=True) if options.observation_filter else None
    return ARS(
        model,
        step_size=options.step_size,
        noise_std=options.noise_std,
        num_top_directions=options.num_top_directions,
        observation_normalizer=normalizer,
    )


def train_ars(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        algorithm = build_ars(cast("ARSConfig", config.options), session.spec, session.device)
        return session.train(algorithm, evolution_loop(session, algorithm))


SPEC = AlgorithmSpec("ars", ARSConfig, build_ars, train_ars, evaluate_checkpoint, predict_checkpoint)
