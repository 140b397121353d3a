"""What every learner is: networks and optimisers behind `act` and `update`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from typing_extensions import Self

from rl_training.errors import CheckpointError
from rl_training.forms import Form, Record, like
from rl_training.models.normalizer import ObservationNormalizer, RewardNormalizer
from rl_training.models.optim import Adam
from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import Batch, EnvSpec, State, UpdateResult

EpisodePolicy: TypeAlias = "Callable[[Tensor, list[int]], Tensor]"
"""From observations and the number of the episode that each row is in to actions."""


class Algorithm(ABC):
    """A learner. It knows tensors; it does not know environments, files or clocks.

    Attributes with a `state_dict` are checkpointed without further ado; plain numbers that must survive a
    resume are named in `saved`. Everything else comes from the configuration.
    """

    saved: ClassVar[tuple[str, ...]] = ()
    forms: ClassVar[Mapping[str, Form]] = {}  # of saved parts that do not keep the shape they begin with
    learning_rate: float
    dtype: torch.dtype = torch.float32  # of the parameters; what is handed in is made so

    @abstractmethod
    def act(self, obs: Tensor, *, deterministic: bool = False) -> Tensor:
        """Actions for a batch of observations, or for a single one (`entry.of_any_obs`): in [-1, 1], or indices if the space
        is discrete."""

    def explore(self, obs: Tensor) -> Tensor:
        """Actions to learn from."""
        return self.act(obs)

    def episode_policy(self) -> EpisodePolicy:
        """The deterministic policy for a number of episodes from their beginnings: `act`, unless the learner would
        remember something from one step to the next."""
        return lambda obs, _: self.act(obs, deterministic=True)

    def policy_network(self, env: EnvSpec) -> PolicyNetwork | None:  # noqa: ARG002 (those that have one scale its actions)
        """The deterministic policy as a network that stands alone, for use elsewhere; None for a learner that has none:
        a planner, or one whose networks are a user's own module."""
        return None

    @abstractmethod
    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        """One gradient step on one batch."""

    def schedule(self, name: str, value: float) -> None:
        """Set an option that changes while training runs."""
        if name == "learning_rate":
            factor = value / self.learning_rate
            for optimizer in vars(self).values():
                if isinstance(optimizer, Adam):
                    optimizer.learning_rate = optimizer.base_learning_rate * factor
        elif hasattr(self, name):
            setattr(self, name, value)
        else:
            raise AttributeError(f"{type(self).__name__} has no {name!r} to schedule")

    def train(self, mode: bool = True) -> Self:
        """Put all networks in training mode, or with False in evaluation mode: for a user's that have dropout or the like."""
        for network in _networks(self):
            network.train(mode)
        return self

    def eval(self) -> Self:
        """Put all networks in evaluation mode."""
        return self.train(mode=False)

    def state_dict(self) -> State:
        parts = {name: value.state_dict() for name, value in vars(self).items() if hasattr(value, "state_dict")}
        return parts | {name: getattr(self, name) for name in self.saved}

    def require_fitting(self, state: Mapping[str, Any]) -> None:
        """CheckpointError unless it is the state of such a learner: the same parts, kinds and shapes."""
        own = self.state_dict()
        if state.keys() != own.keys():
            raise CheckpointError(f"{type(self).__name__} has the parts {sorted(own)}; the checkpoint has {sorted(state)}")
        Record({name: self.forms.get(name) or like(part) for name, part in own.items()})(state, "algorithm_state")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.require_fitting(state)
        for name, value in state.items():
            if name in self.saved:
                setattr(self, name, value)
            else:
                getattr(self, name).load_state_dict(value)


class OnPolicyAlgorithm(Algorithm):
    """A learner that is handed each stretch of fresh experience once, and owns the statistics to normalise it."""

    observation_normalizer: ObservationNormalizer | None = None
    reward_normalizer: RewardNormalizer | None = None

    @abstractmethod
    def value(self, obs: Tensor) -> Tensor:
        """Values of normalised observations."""

    @abstractmethod
    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Log-probabilities of actions at normalised observations."""

    def normalize(self, obs: Tensor) -> Tensor:
        return obs if self.observation_normalizer is None else self.observation_normalizer(obs)

    def scale_rewards(self, rewards: Tensor, cuts: Tensor) -> Tensor:
        """Rewards (time, environments) as the learner wants them."""
        return rewards if self.reward_normalizer is None else self.reward_normalizer(rewards, cuts)

    def observe(self, obs: Tensor) -> None:
        """Let raw observations move the statistics; done once per rollout, after it was learnt from."""
        if self.observation_normalizer is not None:
            self.observation_normalizer.observe(obs)


def _networks(owner: object) -> Iterator[nn.Module]:
    """Those of a learner, and of its parts that have some."""
    for value in vars(owner).values():
        if isinstance(value, nn.Module):
            yield value
        elif hasattr(value, "state_dict") and hasattr(value, "__dict__"):
            yield from _networks(value)
