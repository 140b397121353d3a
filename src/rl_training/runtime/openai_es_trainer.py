"""Train OpenAI ES: evaluate a population around the policy, and climb by the ranks of the returns."""

from __future__ import annotations

from typing import cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.openai_es import OpenAIES
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.options.openai_es import OpenAIESConfig
from rl_training.runtime.evolution import evolution_loop
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import EnvSpec, TrainResult


def build_openai_es(options: OpenAIESConfig, env: EnvSpec, device: torch.device) -> OpenAIES:
    model = MLPARSModel(
        env.obs_dim, env.action_dim, options.hidden_sizes, discrete=env.discrete, nvec=env.nvec, bias=True, initial="normc"
    ).to(device)
    # the paper's filter: variances below 0.01 count as 0.01, and nothing is further than 5 from the middle
    normalizer = ObservationNormalizer(env.obs_dim, clip=5.0, eps=0.0, var_floor=1e-2) if options.observation_filter else None
    return OpenAIES(
        model,
        step_size=options.step_size,
        noise_std=options.noise_std,
        weight_decay=options.weight_decay,
        optimizer=options.optimizer,
        fitness_shaping=options.fitness_shaping,
        observation_normalizer=normalizer,
    )


def train_openai_es(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        algorithm = build_openai_es(cast("OpenAIESConfig", config.options), session.spec, session.device)
        return session.train(algorithm, evolution_loop(session, algorithm))


SPEC = AlgorithmSpec("openai_es", OpenAIESConfig, build_openai_es, train_openai_es, evaluate_checkpoint, predict_checkpoint)
