"""Where experience waits."""

from rl_training.data.replay_buffer import ReplayBuffer

__all__ = ["ReplayBuffer"]
