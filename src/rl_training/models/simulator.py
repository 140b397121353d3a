"""Members of an ensemble of dynamics networks as rollouts use them: one step at a time, outside of autograd."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rl_training.kernels.imagine import NativeDynamics
from rl_training.kernels.library import library
from rl_training.kernels.layout import Layer
from rl_training.kernels.mlp import MLPLayout

if TYPE_CHECKING:
    from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel


class ImaginedTransition(NamedTuple):
    """What a member imagined for each row, and two measures of how unsure all of them are there."""

    next_obs: Tensor  # (batch, obs_dim)
    rewards: Tensor  # (batch,)
    disagreement: Tensor  # (batch,)
    max_std: Tensor  # (batch,)


class Members(ABC):
    """Members that each predict rows of their own."""

    num_members: int

    @abstractmethod
    def __call__(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """For obs and actions of shape (members, rows, ·): means and log-variances (members, rows, obs_dim + 1)."""

    def particles(self, obs: Tensor, actions: Tensor, luck: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where particles (particles, rows, obs_dim) are led, and their expected rewards (particles, rows).

        Each member has as many particles as the next. `obs` and `actions` may be those of all particles, (rows, ·): a member
        is then asked once. The luck (particles, obs_dim) is in standard deviations; without it particles, one for each
        member, follow the means.
        """
        members, count, rows = self.num_members, self.num_members if luck is None else len(luck), obs.shape[-2]
        if obs.dim() == actions.dim() == 2:
            each = (x.repeat_interleave(count // members, dim=0) for x in self(*_for_each(members, obs, actions)))
        else:
            own = (x.reshape(members, -1, x.shape[-1]) for x in _for_each(count, obs, actions))
            each = (x.reshape(count, rows, -1) for x in self(*own))
        means, logvars = each
        next_obs = obs + means[..., :-1]
        if luck is not None:
            next_obs = torch.addcmul(next_obs, logvars[..., :-1].mul(0.5).exp_(), luck.unsqueeze(1))
        return next_obs, means[..., -1]


class Simulator(Members):
    """Some members of our own ensemble, in raw units; they do not follow later changes of its parameters.

    The scales of inputs and targets stand in the weights, so that a step is nothing but the network. The inputs' means
    do not: taken off a bias they would cost precision where a column is far from zero. Steps are made in C where they can be
    (`native`); calling it goes through torch.
    """

    @torch.no_grad()
    def __init__(self, model: MLPMOPOEnsembleModel, members: Tensor) -> None:
        self.num_members, self.obs_dim = len(members), model.obs_dim
        self.input_mean = model.input_mean.clone()
        layers = [Layer(layer.weight[members], layer.bias[members], None, None) for layer in model.layers("net")]
        first = layers[0]
        layers[0] = first._replace(weight=first.weight / model.input_scale.unsqueeze(-1))
        self.deterministic = model.deterministic
        stretch, lift = model.target_scale, model.target_mean
        if not self.deterministic:
            # the soft bounds move along with the log-variance, so that its shift can stand in the bias
            shift = 2 * model.target_scale.log()
            stretch, lift = torch.cat([stretch, torch.ones_like(stretch)]), torch.cat([lift, shift])
            self.upper, self.lower = (bound[members] + shift for bound in model.logvar_bounds())
        last = layers[-1]
        layers[-1] = last._replace(weight=last.weight * stretch, bias=last.bias * stretch + lift)
        self.layout = MLPLayout(model.layout.sizes, members=self.num_members, activation=model.layout.activation)
        self.flat = torch.cat([part.reshape(-1) for layer in layers for part in layer[:2] if part is not None])
        self.native = self._in_c()

    def _in_c(self) -> NativeDynamics | None:
        if library() is None or not self.flat.is_cpu or self.flat.dtype != torch.float32:
            return None
        bounds = None if self.deterministic else (self.upper, self.lower)
        return NativeDynamics(self.layout, self.flat, obs_dim=self.obs_dim, input_mean=self.input_mean, bounds=bounds)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "native": None}  # a copy reads addresses of its own

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.native = self._in_c()

    def __call__(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Also for obs and actions of shape (rows, ·), for all members."""
        outputs = self.layout(self.flat, torch.cat([obs, actions], dim=-1).sub_(self.input_mean))
        if self.deterministic:
            return outputs, torch.full_like(outputs, -torch.inf)
        (means, raw), upper, lower = outputs.chunk(2, dim=-1), self.upper.unsqueeze(1), self.lower.unsqueeze(1)
        logvars: Tensor = lower + softplus(upper - softplus(upper - raw) - lower)
        return means, logvars

    def particles(self, obs: Tensor, actions: Tensor, luck: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.native is not None and self.native.serves(obs, actions, *(() if luck is None else (luck,))):
            return self.native.particles(obs, actions, luck)
        return super().particles(obs, actions, luck)

    def drawn(self, obs: Tensor, actions: Tensor, members: Tensor, noise: Tensor) -> ImaginedTransition:
        """A transition of each row (rows, ·) from its own of the members (rows,), and how unsure all of them are."""
        if self.native is not None and self.native.serves(obs, actions, noise):
            return ImaginedTransition(*self.native.drawn(obs, actions, members, noise))
        means, logvars = self(obs, actions)
        rows, stds = torch.arange(len(obs), device=obs.device), (0.5 * logvars).exp()
        drawn = torch.addcmul(means[members, rows], stds[members, rows], noise)
        return ImaginedTransition(obs + drawn[:, :-1], drawn[:, -1], disagreement(means), max_std(logvars))


def disagreement(means: Tensor) -> Tensor:
    """How far the members' means (members, batch, dims) lie apart: the norm of their standard deviation, per row."""
    # plain sums: std and vector_norm go through such a short axis several times slower
    return (means - means.mean(dim=0)).square().sum(dim=-1).mean(dim=0).sqrt()


def max_std(logvars: Tensor) -> Tensor:
    """The largest norm of any member's standard deviation, per row: MOPO's penalty."""
    return logvars.exp().sum(dim=-1).amax(dim=0).sqrt()


def _for_each(count: int, *tensors: Tensor) -> list[Tensor]:
    """With a leading axis of this length, where those without one say the same to all."""
    return [tensor.expand(count, *tensor.shape[-2:]) for tensor in tensors]
