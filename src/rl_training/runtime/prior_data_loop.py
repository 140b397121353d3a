"""Recorded data first, an environment afterwards, and what was recorded stays in view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rl_training.algorithms.base import Algorithm
from rl_training.data.episode_buffer import EpisodeBuffer
from rl_training.data.mixed_source import MixedSource, PooledSource
from rl_training.data.offline_dataset import OfflineDataset
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.options._offline import OnlineOptions
from rl_training.runtime.collector import Collector
from rl_training.runtime.loops import OffPolicyLoop, on_device
from rl_training.runtime.offline_loop import OfflineLoop
from rl_training.types import Collected, State, UpdateResult

if TYPE_CHECKING:
    from rl_training.options.rlpd import RLPDConfig
    from rl_training.runtime.session import Session


class PriorDataLoop(OffPolicyLoop):
    """One update a turn on recorded data alone; then the off-policy loop, on batches of recorded and of fresh rows.

    A turn of the first phase makes no environment step, and counts as `timesteps` of them. It can be stopped and resumed
    like any other turn.
    """

    def __init__(
        self,
        collector: Collector,
        buffer: ReplayBuffer,
        dataset: OfflineDataset | None,
        algorithm: Algorithm,
        options: OnlineOptions | RLPDConfig,
        *,
        pretrain_updates: int,
        timesteps: int = 1,
    ) -> None:
        ratio = options.offline_batch_ratio
        self.mixed: MixedSource | PooledSource
        if dataset is None:
            self.mixed = MixedSource([(buffer, 0.0), (buffer, 1.0)])  # nothing is prior, all is fresh
        elif ratio is None:
            self.mixed = PooledSource(dataset, buffer)
        else:
            self.mixed = MixedSource([(dataset, ratio), (buffer, 1 - ratio)])
        super().__init__(collector, buffer, algorithm, options, source=self.mixed)
        self.dataset, self.pretrain_updates, self.timesteps = dataset, pretrain_updates, timesteps
        self.buffers = {"replay": buffer} | ({} if dataset is None else {"dataset": dataset})
        self.pretrain_updates_done = 0

    @property
    def pretraining(self) -> bool:
        """Until the updates are made, or an environment was stepped: a run that is resumed with more of them stays online."""
        return self.pretrain_updates_done < self.pretrain_updates and not self.turns

    @property
    def acts_randomly(self) -> bool:
        return self.warming_up and not self.pretrain_updates_done

    def collect(self) -> Collected:
        return Collected(self.timesteps, [], []) if self.pretraining else super().collect()

    def learn(self, *, global_step: int, max_updates: int | None) -> UpdateResult:
        if not self.pretraining:
            if not len(self.buffer):  # nobody's first episode is over yet
                return UpdateResult({}, 0)
            return super().learn(global_step=global_step, max_updates=max_updates)
        self.pretrain_updates_done += 1
        assert self.dataset is not None
        batch = on_device(self.dataset.sample(self.options.batch_size), self.collector.device)
        return self.algorithm.update(batch, global_step=global_step)

    def leave_episode(self, env: int, *, passing: int = 0) -> None:
        super().leave_episode(env, passing=passing)
        self._end_episodes([env])

    def _end_episodes(self, envs: Iterable[int]) -> None:
        """Episodes that will not go on; what waits for their end is as far as they came."""
        if isinstance(self.buffer, EpisodeBuffer):
            for env in envs:
                self.buffer.end_episode(env)

    def metrics(self) -> dict[str, Any]:
        offline, online = self.mixed.counts(self.options.batch_size)
        return super().metrics() | {
            "pretrain_updates_done": self.pretrain_updates_done,
            "offline_batch_size": offline,
            "online_batch_size": online,
            "offline_dataset_size": 0 if self.dataset is None else len(self.dataset),
            "online_buffer_size": len(self.buffer),
        }

    def state_dict(self) -> State:
        return super().state_dict() | {"pretrain_updates_done": self.pretrain_updates_done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.pretrain_updates_done = state["pretrain_updates_done"]
        if not self.collector.pool.exact:  # episodes may have begun anew, and have nothing to do with what waits
            self._end_episodes(range(self.collector.num_envs))


def recorded_data_loop(session: Session, algorithm: Algorithm, options: OnlineOptions) -> OfflineLoop | PriorDataLoop:
    """Of an algorithm that learns from recorded data, and goes on online if its options say so."""
    dataset = session.prior_data()
    if not options.goes_online:
        return OfflineLoop(dataset, algorithm, batch_size=options.batch_size, device=session.device)
    make: Callable[..., ReplayBuffer] = ReplayBuffer
    if "returns" in options.hindsight:
        make = partial(EpisodeBuffer, num_envs=session.config.num_envs, gamma=options.gamma)
    buffer = session.replay_buffer(options.buffer_capacity, make)
    updates = session.config.total_timesteps
    return PriorDataLoop(session.collector(algorithm), buffer, dataset, algorithm, options, pretrain_updates=updates)
