"""Train RLPD: act, remember, and learn from batches that mix what was remembered with prior data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.rlpd import RLPD
from rl_training.data.mixed_source import MixedSource
from rl_training.data.offline_dataset import OfflineDataset
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.forms import Record, Whole
from rl_training.options.rlpd import RLPDConfig
from rl_training.runtime.collector import Collector
from rl_training.runtime.loops import OffPolicyLoop, on_device
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.sac_trainer import sac_model, sac_settings
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import Collected, EnvSpec, State, TrainResult, UpdateResult


class RLPDLoop(OffPolicyLoop):
    """The off-policy loop on a mixed source, after a phase of updates on prior data alone.

    A turn of that phase is one update and no environment step: it counts in `updates` and `max_updates`, not in
    `global_step`, and schedules stand still. It can be stopped and resumed like any other turn.
    """

    algorithm: RLPD

    def __init__(
        self, collector: Collector, buffer: ReplayBuffer, dataset: OfflineDataset, algorithm: RLPD, options: RLPDConfig
    ) -> None:
        ratio = options.offline_batch_ratio
        self.mixed = MixedSource([(dataset, ratio), (buffer, 1 - ratio)])
        super().__init__(collector, buffer, algorithm, options, source=self.mixed)
        self.dataset, self.pretrain_updates = dataset, options.offline_pretrain_updates
        self.buffers = {"replay": buffer, "dataset": dataset}
        self.pretrain_updates_done = 0

    @property
    def pretraining(self) -> bool:
        return self.pretrain_updates_done < self.pretrain_updates

    def collect(self) -> Collected:
        return Collected(0, [], []) if self.pretraining else super().collect()

    def learn(self, *, global_step: int, max_updates: int | None) -> UpdateResult:
        if self.pretraining:
            self.pretrain_updates_done += 1
            batch = on_device(self.dataset.sample(self.options.batch_size), self.collector.device)
            return self.algorithm.update(batch, global_step=global_step)
        return super().learn(global_step=global_step, max_updates=max_updates)

    def update(self, updates: int, *, global_step: int) -> UpdateResult:  # noqa: ARG002 (RLPD needs no clock)
        """One large batch in slices: rows are interleaved, so that each slice has its share of prior data."""
        batch = on_device(self.source.sample(updates * self.options.batch_size), self.collector.device)
        return self.algorithm.update_round(batch, updates)

    def metrics(self) -> dict[str, Any]:
        offline, online = self.mixed.counts(self.options.batch_size)
        return super().metrics() | {
            "pretrain_updates_done": self.pretrain_updates_done,
            "offline_batch_size": offline,
            "online_batch_size": online,
            "offline_dataset_size": len(self.dataset),
            "online_buffer_size": len(self.buffer),
        }

    def state_dict(self) -> State:
        return super().state_dict() | {"pretrain_updates_done": self.pretrain_updates_done}

    def state_form(self, steps: int) -> Record:
        return super().state_form(steps).with_parts(pretrain_updates_done=Whole(0, self.pretrain_updates))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.pretrain_updates_done = state["pretrain_updates_done"]


def build_rlpd(options: RLPDConfig, env: EnvSpec, device: torch.device) -> RLPD:
    return RLPD(
        sac_model(options, env, device),
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
        loop = RLPDLoop(session.collector(algorithm), buffer, session.prior_data(), algorithm, options)
        return session.train(algorithm, loop)


SPEC = AlgorithmSpec("rlpd", RLPDConfig, build_rlpd, train_rlpd, evaluate_checkpoint, predict_checkpoint)
