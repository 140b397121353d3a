"""Train RLPD: act, remember, and learn from batches that mix what was remembered with prior data."""

from __future__ import annotations

from typing import cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.rlpd import RLPD
from rl_training.data.offline_dataset import OfflineDataset
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.options.rlpd import RLPDConfig
from rl_training.runtime.collector import Collector
from rl_training.runtime.loops import on_device
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.prior_data_loop import PriorDataLoop
from rl_training.runtime.sac_trainer import sac_model, sac_settings
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import EnvSpec, TrainResult, UpdateResult


class RLPDLoop(PriorDataLoop):
    """Online, a turn is a round of many updates. `offline_pretrain_updates` are not counted in `global_step`, and schedules
    stand still meanwhile."""

    algorithm: RLPD

    def __init__(
        self,
        collector: Collector,
        buffer: ReplayBuffer,
        dataset: OfflineDataset | None,
        algorithm: RLPD,
        options: RLPDConfig,
        *,
        total_timesteps: int,
    ) -> None:
        counts = options.online_timesteps is not None
        updates = total_timesteps if counts else options.offline_pretrain_updates
        super().__init__(collector, buffer, dataset, algorithm, options, pretrain_updates=updates, timesteps=int(counts))

    def update(self, updates: int, *, global_step: int) -> UpdateResult:  # noqa: ARG002 (RLPD needs no clock)
        """One large batch in slices: rows are interleaved, so that each slice has its share of prior data."""
        batch = on_device(self.source.sample(updates * self.options.batch_size), self.collector.device)
        return self.algorithm.update_round(batch, updates)


def build_rlpd(options: RLPDConfig, env: EnvSpec, device: torch.device) -> RLPD:
    return RLPD(
        sac_model(options, env, device, initial="xavier"),
        pessimistic_actor=options.pessimistic_actor,
        backup_entropy=options.backup_entropy,
        **sac_settings(options),
    )


def train_rlpd(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        options = cast("RLPDConfig", config.options)
        algorithm = build_rlpd(options, session.spec, session.device)
        buffer = session.replay_buffer(options.buffer_capacity)
        data, total = session.dataset, config.total_timesteps  # none where nothing is drawn from it
        loop = RLPDLoop(session.collector(algorithm), buffer, data, algorithm, options, total_timesteps=total)
        return session.train(algorithm, loop)


SPEC = AlgorithmSpec("rlpd", RLPDConfig, build_rlpd, train_rlpd, evaluate_checkpoint, predict_checkpoint)
