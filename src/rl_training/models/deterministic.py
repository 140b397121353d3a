"""A deterministic actor and its Q functions: the networks of TD3 and DDPG."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_training.models.flat_mlp import FlatMLP, FlatTape
from rl_training.models.heads import drawn_noise
from rl_training.models.native_actor import NativeActorCritic
from rl_training.models.native_net import NativeNet
from rl_training.types import Batch

FIRST = torch.tensor([0])  # of the critics: the one that the actor climbs


def blurred(actions: Tensor, noise: Tensor, *, std: float, clip: float) -> Tensor:
    """Actions with `std` times the noise, cut off at `clip`, brought back into [-1, 1]; the noise is written over."""
    return noise.mul_(std).clamp_(-clip, clip).add_(actions).clamp_(-1.0, 1.0)


class TanhMLP(FlatMLP):
    """A network whose outputs are squashed into [-1, 1]; gradients are those at the squashed outputs."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).tanh()

    def run(self, x: Tensor, *, members: Tensor | None = None) -> tuple[Tensor, FlatTape]:
        outputs, tape = super().run(x, members=members)
        return outputs.tanh_(), tape  # in place: the tape's outputs are the squashed ones

    def infer(self, x: Tensor, *, members: Tensor | None = None) -> Tensor:
        if (native := self._choosing(x)) is not None:
            return native.choose(x)
        return super().infer(x, members=members).tanh_()

    def infer_blurred(self, x: Tensor, *, std: float, clip: float = math.inf) -> Tensor:
        """`infer`, `blurred`."""
        noise = drawn_noise(x, self.layout.sizes[-1])
        if (native := self._choosing(x)) is not None:
            return native.choose(x, noise, std=std, clip=clip)
        return blurred(self.infer(x), noise, std=std, clip=clip)

    def _choosing(self, x: Tensor) -> NativeNet | None:
        """The network in C, where it can answer to `x`."""
        native = self.native_net("net")
        return native if native is not None and x.dim() == 2 and native.serves(x) else None

    def backward(self, tape: FlatTape, gradient: Tensor) -> None:
        super().backward(tape, torch.ops.aten.tanh_backward(gradient, tape.outputs))


class DeterministicActorCritic(nn.Module):
    """`actor(obs)` gives actions in [-1, 1]; all critics are one batched network."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int], *, num_critics: int, activation: str = "relu"
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim, self.num_critics = obs_dim, action_dim, num_critics
        self.actor = TanhMLP((obs_dim, *hidden_sizes, action_dim), activation=activation)
        self.critics = FlatMLP((obs_dim + action_dim, *hidden_sizes, 1), members=num_critics, activation=activation)
        self._both: NativeActorCritic | None = None

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """One row per critic: shape (num_critics, batch), or (num_critics,) for a single observation."""
        x = torch.cat([obs, actions], dim=-1)
        q: Tensor = self.critics(x.view(-1, x.shape[-1])).squeeze(-1)
        return q.squeeze(-1) if x.dim() == 1 else q

    def targets(self, batch: Batch, *, gamma: float, std: float | None = None, clip: float = math.inf) -> Tensor | None:
        """r + γ (1 − done) min Q(s′, a′) with a′ the actor's, or with `std` `blurred` so, in one call; None where C cannot read
        such a batch."""
        next_obs, rewards, dones = batch["next_obs"], batch["rewards"], batch["dones"]
        if (native := self._native(next_obs, rewards, dones)) is None:
            return None
        noise = None if std is None else drawn_noise(next_obs, self.action_dim)
        return native.targets(next_obs, rewards, dones, noise, gamma=gamma, std=std or 0.0, clip=clip)

    def own_values(self, obs: Tensor, *, std: float | None = None, clip: float = math.inf) -> Tensor:
        """All critics' values (critics, batch) of the actor's actions, or with `std` of those `blurred` so."""
        actions = self.actor.infer(obs) if std is None else self.actor.infer_blurred(obs, std=std, clip=clip)
        return self.critics.infer(torch.cat([obs, actions], dim=-1)).squeeze(-1)

    def climb(self, obs: Tensor, share: float) -> Tensor:
        """The first critic's values (1, batch) of the actor's actions; in `actor.gradient` is that of whatever has the gradient
        `share` at each of them. The critic stays as it is."""
        if (native := self._native(obs)) is not None:
            return native.climb(obs, share)
        actions, actor_tape = self.actor.run(obs)
        outputs, critic_tape = self.critics.run(torch.cat([obs, actions], dim=-1), members=FIRST)
        d_actions = self.critics.input_gradient(critic_tape, torch.full_like(outputs, share), start=self.obs_dim)
        self.actor.backward(actor_tape, d_actions[0])
        return outputs.squeeze(-1)

    def _native(self, obs: Tensor, *numbers: Tensor) -> NativeActorCritic | None:
        """Both networks in C, where that can be for such observations, with such columns of one number beside them."""
        actor, critics = self.actor.native_net("net"), self.critics.native_net("net")
        if actor is None or critics is None:
            return None
        known = self._both
        if known is None or known.actor is not actor or known.critics is not critics:
            known = self._both = NativeActorCritic(actor, critics)
        return known if known.serves(obs, *numbers) else None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_both": None}  # a copy has networks of its own
