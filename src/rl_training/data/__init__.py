"""Where experience waits."""

from rl_training.data.mixed_source import MixedSource
from rl_training.data.offline_dataset import OfflineDataset
from rl_training.data.replay_buffer import ReplayBuffer

__all__ = [
    "MixedSource",
    "OfflineDataset",
    "ReplayBuffer",
]
