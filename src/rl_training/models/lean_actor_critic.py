"""The networks of PPO and PPG and the heads above the policy, on the CPU, features before rows (see `LeanMLP`).

Everything here is what `MLPActorCritic`, `MLPPPGModel` and `heads` say, in other words; tests hold it against autograd.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rl_training.models.blas import Twin
from rl_training.models.heads import HALF_LOG_2PI
from rl_training.models.lean_mlp import LeanMLP
from rl_training.models.native_net import floats

if TYPE_CHECKING:
    from rl_training.models.actor_critic import ActorCritic


class TakenActions:
    """Discrete actions (rows,) as an index into a flattened matrix (actions, rows), and as a mask over it."""

    def __init__(self, actions: Tensor, number: int) -> None:
        rows = actions.numpy().astype(np.int64, copy=False)
        self.index = rows * len(rows) + _upto(len(rows))
        self.mask: np.ndarray = _upto(number)[:, None] == rows


class LeanRows(NamedTuple):
    """A minibatch as the networks take it: inputs (in + 1, rows), and the actions as their head wants them."""

    inputs: Twin
    actions: TakenActions | np.ndarray


class LeanCategorical:
    """Over logits (actions, rows), for the actions that were taken."""

    def __init__(self, logits: np.ndarray, taken: TakenActions) -> None:
        self.taken = taken
        above = logits - np.maximum.reduce(logits, axis=0)
        weights = np.exp(above)
        total = np.add.reduce(weights, axis=0)
        self.probabilities = np.divide(weights, total, out=weights)
        self.log_probabilities = np.subtract(above, np.log(total), out=above)
        self.logprobs: np.ndarray = above.take(taken.index)

    def entropy(self) -> np.ndarray:
        entropy: np.ndarray = -np.add.reduce(self.probabilities * self.log_probabilities, axis=0)
        return entropy

    def gradient(self, d_logprobs: np.ndarray, d_entropy: np.ndarray | None) -> np.ndarray:
        """At the logits."""
        gradient: np.ndarray = np.subtract(self.taken.mask, self.probabilities)
        gradient *= d_logprobs
        if d_entropy is not None:
            surprise = self.probabilities * self.log_probabilities
            gradient -= d_entropy * (surprise - self.probabilities * np.add.reduce(surprise, axis=0))
        return gradient


class LeanGaussian:
    """Around means (actions, rows), with one log-standard deviation per action, for actions (actions, rows)."""

    def __init__(self, mean: np.ndarray, actions: np.ndarray, log_std: np.ndarray, d_log_std: np.ndarray) -> None:
        self.log_std, self.d_log_std = log_std, d_log_std
        self.inverse_std = np.exp(-log_std)[:, None]
        self.z = (actions - mean) * self.inverse_std
        constant = np.add.reduce(log_std) + np.float32(HALF_LOG_2PI * len(log_std))
        self.logprobs: np.ndarray = np.float32(-0.5) * np.add.reduce(self.z * self.z, axis=0) - constant

    def entropy(self) -> np.ndarray:
        return np.full_like(self.logprobs, np.add.reduce(self.log_std + np.float32(0.5 + HALF_LOG_2PI)))

    def gradient(self, d_logprobs: np.ndarray, d_entropy: np.ndarray | None) -> np.ndarray:
        """At the means; that at the log-standard deviations is written where it belongs."""
        np.add.reduce(d_logprobs * (self.z * self.z - 1), axis=1, out=self.d_log_std)
        if d_entropy is not None:
            self.d_log_std += np.add.reduce(d_entropy)
        gradient: np.ndarray = d_logprobs * self.z * self.inverse_std
        return gradient


class LeanActorCritic:
    """Passes over the very vectors of a model. The policy network may have more outputs than the policy asks for, and the
    value function may be a head that reads its last hidden layer, as in PPG."""

    def __init__(self, model: ActorCritic) -> None:
        parts = {"policy": model.policy_net, "value": model.value_net}
        self.policy, self.value = (
            LeanMLP(net, model.vector(name).data, model.gradient_vector(name)) for name, net in parts.items()
        )
        self.gradient, self.discrete, self.shared = model.gradient, model.discrete, model.shared
        self.policy_outputs, self.further_outputs = model.action_dim, model.policy_net.sizes[-1] - model.action_dim
        self._race = Twin(floats(0, model.action_dim))
        self.log_std, self.d_log_std = model.vector("log_std").data, model.gradient_vector("log_std")

    def explore(self, obs: Tensor) -> Tensor:
        """Sampled actions, drawn as `heads` draws them."""
        outputs = self._policy(self.policy.inputs(obs))
        if not self.discrete:
            mean = torch.from_numpy(outputs).mT
            return mean + self.log_std.exp() * torch.randn(mean.shape, dtype=mean.dtype)
        if len(self._race.array) != outputs.shape[1]:
            self._race = Twin(floats(outputs.shape[1], self.policy_outputs))
        self._race.tensor.exponential_()
        return torch.from_numpy((outputs - np.log(self._race.array).T).argmax(axis=0))

    def values(self, obs: Tensor) -> Tensor:
        inputs = self.policy.inputs(obs)
        if self.shared:
            self.policy.run(inputs)
        return torch.from_numpy(self._values(inputs).copy())

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        return torch.from_numpy(self._head(self._policy(self.policy.inputs(obs)), self._taken(actions)).logprobs)

    def rows(self, obs: Tensor, actions: Tensor) -> LeanRows:
        """In memory of their own, for as many passes as are wanted."""
        inputs = torch.ones(obs.shape[1] + 1, len(obs), dtype=torch.float32)
        inputs.numpy()[:-1] = obs.numpy().T
        return LeanRows(Twin(inputs), self._taken(actions))

    def run(self, rows: LeanRows) -> LeanPass:
        """Both networks over the same rows."""
        outputs = self._policy(rows.inputs)
        return LeanPass(self, self._head(outputs, rows.actions), self._values(rows.inputs))

    def backward_policy(self, gradient: np.ndarray) -> None:
        """Fill the policy network's gradient from that at the policy's outputs (actions, rows); further outputs rest."""
        if self.further_outputs:
            rest = np.zeros((self.further_outputs, gradient.shape[1]), dtype=gradient.dtype)
            gradient = np.concatenate([gradient, rest])
        self.policy.backward(gradient)

    def clip_gradient(self, max_norm: float | None) -> Tensor:
        """Make its norm at most `max_norm`; gives the norm before."""
        norm = torch.dot(self.gradient, self.gradient).sqrt_()
        if max_norm is not None and not (length := norm.item()) <= max_norm:  # NaN is to be seen, not passed over
            self.gradient.mul_(max_norm / (length + 1e-6))
        return norm

    def _policy(self, inputs: Twin) -> np.ndarray:
        outputs = self.policy.run(inputs)
        return outputs[: self.policy_outputs] if self.further_outputs else outputs

    def _values(self, inputs: Twin) -> np.ndarray:
        """With a shared trunk, of the policy network's last pass."""
        values: np.ndarray = self.value.run(self.policy.features if self.shared else inputs)[0]
        return values

    def _taken(self, actions: Tensor) -> TakenActions | np.ndarray:
        return TakenActions(actions, self.policy_outputs) if self.discrete else actions.numpy().T

    def _head(self, outputs: np.ndarray, actions: TakenActions | np.ndarray) -> LeanCategorical | LeanGaussian:
        if isinstance(actions, TakenActions):
            return LeanCategorical(outputs, actions)
        return LeanGaussian(outputs, actions, self.log_std.numpy(), self.d_log_std.numpy())


class LeanPass:
    """One forward pass; `logprobs` and `values` have the batch's length."""

    def __init__(self, owner: LeanActorCritic, head: LeanCategorical | LeanGaussian, values: np.ndarray) -> None:
        self.owner, self.head = owner, head
        self.logprobs, self.values = head.logprobs, values

    def backward(self, *, d_logprobs: np.ndarray, d_entropy: np.ndarray | None, d_values: np.ndarray) -> None:
        """Fill the model's gradient from those at log-probabilities, entropies and values."""
        self.owner.backward_policy(self.head.gradient(d_logprobs, d_entropy))
        self.owner.value.backward(d_values[None])


@lru_cache(maxsize=64)
def _upto(count: int) -> np.ndarray:
    return np.arange(count)
