"""What the end of a plan is worth: values learnt by value iteration through a model of the environment.

A plan of few steps does not see what comes after it. Here a network V is fitted to

    V(s) = max over a few actions a of  Σ_{t<k} γ^t r(s_t, a) + γ^k V̄(s_k),

where `a` is held for k steps of the model and V̄ is a slow average of V. Nothing of it touches the environment.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from rl_training.models.flat_mlp import FlatMLP
from rl_training.models.optim import Adam, polyak_update
from rl_training.types import Metrics, State

Imagined: TypeAlias = "Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor | None]]"
"""From obs and actions (members, rows, ·) to next_obs, rewards and which of the rows have ended (None: none ever does)."""

MEMBERS = 2  # their mean is backed up: with one the maximum finds its errors, with the smaller of two values sink too low
STATES = 4_096  # drawn for a fit, about
CELLS = 8  # along each dimension of the data's range, of a grid over which states are drawn evenly
WANDER = 10  # steps of the model that they lie away from the data at most: plans end where nobody has been
CHANGE = 0.2  # chance in each of these steps that another action is tried
CHOICES = 9  # actions that the maximum is taken over; odd, so that the middle of the range is one
BATCH = 256
TAU = 0.01  # by which V̄ follows V in an update
CHUNK = 1_024  # rows imagined at a time: what their hidden layers hold should stay in the cache


def symlog(x: Tensor) -> Tensor:
    """Logarithmic in size, straight near zero: small values are told apart as well as large ones."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """The inverse of `symlog`, as far as float32 goes."""
    return x.sign() * x.abs().clamp(max=80.0).expm1()


class _Backups(NamedTuple):
    """States and, for each of their choices, what it earns, where it leads and what a value there is worth here."""

    states: Tensor  # (states, obs_dim)
    rewards: Tensor  # (states, choices)
    reached: Tensor  # (states, choices, obs_dim)
    discounts: Tensor  # (states, choices); zero where the episode has ended


class PlanValues:
    """Values of states, fitted anew whenever the model was; between fits they go on from where they were.

    The networks see standardised observations and say the value's `symlog`. Values stay within what rewards of the range
    seen can add up to.
    """

    _saved = ("_shift", "_scale", "_bounds")

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (128, 128),
        *,
        learning_rate: float = 1e-3,
        gamma: float = 0.99,
        action_repeat: int = 4,
    ) -> None:
        self.action_dim, self.gamma, self.action_repeat = action_dim, gamma, action_repeat
        self.model = FlatMLP((obs_dim, *hidden_sizes, 1), members=MEMBERS, activation="relu")
        self.target = copy.deepcopy(self.model).requires_grad_(False)
        self.optimizer = Adam([self.model.flat], learning_rate=learning_rate)
        like = self.model.flat.data
        self._shift, self._scale, self._bounds = like.new_zeros(obs_dim), like.new_ones(obs_dim), like.new_zeros(2)

    @torch.no_grad()
    def __call__(self, obs: Tensor) -> Tensor:
        """Of observations of any leading shape, by the slow average. Before the first fit all values are 0."""
        raw = self.target(self._seen(obs.reshape(-1, obs.shape[-1]))).mean(dim=0)
        return symexp(raw).clamp(*self._bounds).view(obs.shape[:-1])

    @torch.no_grad()
    def fit(self, imagine: Imagined, obs: Tensor, rewards: Tensor, *, members: int, updates: int, seed: int) -> Metrics:
        """So many updates on states near `obs` (rows, obs_dim); `rewards` are those of the data, which bound the values.

        All that is drawn comes from `seed`. `members` is how many rows of their own the model is asked for at a time.
        """
        generator = torch.Generator(device=obs.device).manual_seed(seed)
        self._bounds = torch.stack([rewards.min().clamp(max=0.0), rewards.max().clamp(min=0.0)]) / (1 - self.gamma)
        backups = self._backed_up(imagine, self._wandered(imagine, obs, members, generator), generator)
        if not len(backups.states):  # the model leads nowhere from anywhere: there is nothing to learn from it
            return {}
        spread, self._shift = backups.states.std(dim=0, correction=0), backups.states.mean(dim=0)
        self._scale = torch.where(spread > 1e-6 * self._shift.abs().clamp_min(1.0), spread, 1.0)
        seen, reached = self._seen(backups.states), self._seen(backups.reached)
        loss = obs.new_zeros(())
        for _ in range(updates):
            rows = torch.randint(len(seen), (BATCH,), generator=generator, device=obs.device)
            loss = self._update(seen[rows], backups.rewards[rows], reached[rows], backups.discounts[rows])
        return {"value_loss": loss, "value_mean": self(obs).mean()}

    def _update(self, seen: Tensor, rewards: Tensor, reached: Tensor, discounts: Tensor) -> Tensor:
        """One step of V towards the best of the choices; gives the squared error from before."""
        later = symexp(self.target(reached.flatten(0, 1)).mean(dim=0)).view_as(rewards)
        best = torch.addcmul(rewards, discounts, later).amax(dim=1).clamp(*self._bounds)
        targets = symlog(best).unsqueeze(-1)
        outputs, pull = self.model.vjp(seen)
        self.optimizer.step([pull.parameters((outputs - targets) * (2.0 / len(targets)))])
        polyak_update([self.model.flat.data], [self.target.flat.data], TAU)
        return (outputs - targets).square().mean()

    def _wandered(self, imagine: Imagined, obs: Tensor, members: int, generator: torch.Generator) -> Tensor:
        """States (members, rows, obs_dim) of the data, and where random actions lead from there in each member's eyes."""
        rows = -(-STATES // (members * (WANDER + 1)))
        drawn = torch.multinomial(_rarity(obs), members * rows, replacement=True, generator=generator)
        begun = obs[drawn.view(members, rows)]
        states = [begun]
        actions = self._any_actions(begun, generator)
        for _ in range(WANDER):
            changed = _uniform((members, rows, 1), generator) < CHANGE
            actions = torch.where(changed, self._any_actions(begun, generator), actions)
            reached, _, ended = imagine(states[-1], actions)
            # a state after the end is none: begin again
            states.append(reached if ended is None else torch.where(ended.unsqueeze(-1), begun, reached))
        return torch.cat(states, dim=1)

    def _any_actions(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        return _uniform((*obs.shape[:-1], self.action_dim), generator) * 2 - 1

    def _backed_up(self, imagine: Imagined, states: Tensor, generator: torch.Generator) -> _Backups:
        """Choices of each of the states (members, rows, obs_dim), as far as the model carries them."""
        obs = states.repeat_interleave(CHOICES, dim=1)
        actions = _spread_out(states.shape[:2], self.action_dim, generator).flatten(1, 2)
        parts = [self._held(imagine, obs[:, i : i + CHUNK], actions[:, i : i + CHUNK]) for i in range(0, obs.shape[1], CHUNK)]
        rewards, reached, discounts = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
        flat = states.flatten(0, 1)
        whole = (flat, rewards.view(-1, CHOICES), reached.reshape(len(flat), CHOICES, -1), discounts.view(-1, CHOICES))
        sound = whole[1].isfinite().all(dim=1) & whole[2].isfinite().all(dim=2).all(dim=1)  # a young model may run away
        return _Backups(*(column[sound] for column in whole))

    def _held(self, imagine: Imagined, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What each action earns when it is held, where it leads, and γ^k, or zero after an end."""
        total, discount = torch.zeros_like(obs[..., 0]), torch.ones_like(obs[..., 0])
        for _ in range(self.action_repeat):
            reached, rewards, ended = imagine(obs, actions)
            if ended is None:
                obs, total, discount = reached, total + discount * rewards, discount * self.gamma
                continue
            # who has ended stays there: in the model it may run away, and nothing times infinity is not a number
            going = discount > 0
            obs, total = torch.where(going.unsqueeze(-1), reached, obs), total + torch.where(going, discount * rewards, 0.0)
            discount = discount * self.gamma * ~ended
        return total, obs, discount

    def _seen(self, obs: Tensor) -> Tensor:
        return (obs - self._shift) / self._scale

    def to(self, device: torch.device) -> PlanValues:
        for module in (self.model, self.target):
            module.to(device)
        self.optimizer = Adam([self.model.flat], learning_rate=self.optimizer.learning_rate)
        for name in self._saved:
            setattr(self, name, getattr(self, name).to(device))
        return self

    def state_dict(self) -> State:
        parts = {name: getattr(self, name).state_dict() for name in ("model", "target", "optimizer")}
        return parts | {name.lstrip("_"): getattr(self, name) for name in self._saved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("model", "target", "optimizer"):
            getattr(self, name).load_state_dict(state[name])
        for name in self._saved:
            getattr(self, name).copy_(state[name.lstrip("_")])


def _rarity(obs: Tensor) -> Tensor:
    """Weights of rows that make every cell of a coarse grid count alike: one who has learnt to balance has seen little else,
    but plans from elsewhere need values as well."""
    low, high = obs.amin(dim=0), obs.amax(dim=0)
    cells = ((obs - low) / (high - low).clamp_min(1e-12) * CELLS).floor().clamp_max(CELLS - 1)
    _, place, counts = torch.unique(cells, dim=0, return_inverse=True, return_counts=True)
    weights: Tensor = 1.0 / counts[place].to(obs.dtype)
    return weights


def _spread_out(states: tuple[int, ...], action_dim: int, generator: torch.Generator) -> Tensor:
    """Choices for each of the states, (*states, choices, action_dim): every dimension takes a whole grid of values, both
    bounds among them, in an order of its own."""
    order = _uniform((*states, CHOICES, action_dim), generator).argsort(dim=-2)
    return torch.linspace(-1.0, 1.0, CHOICES, dtype=torch.float32, device=generator.device)[order]


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Drawn from [0, 1), in float32 whatever torch's default type is: the stream gives others for another type."""
    return torch.rand(shape, dtype=torch.float32, generator=generator, device=generator.device)
