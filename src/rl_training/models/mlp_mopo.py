"""An ensemble of probabilistic dynamics networks, evaluated as one batched network (PETS, MOPO)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from rl_training.kernels import differentiable
from rl_training.kernels.differentiable import Pullback
from rl_training.kernels.imagine import ImaginedTransition, disagreement, max_std
from rl_training.models.flat_mlp import FlatModule, MLPLayout, as_rows
from rl_training.models.simulator import Simulator

BOUNDS_COEF = 0.01
CHUNK = 1_000  # rows imagined at a time: what their hidden layers hold should stay in the cache

__all__ = ["ImaginedTransition", "MLPMOPOEnsembleModel", "Prediction", "Simulator", "Transition", "disagreement", "max_std"]


class Transition(NamedTuple):
    """What a member imagined for each row, and how far the members' means lie apart there."""

    next_obs: Tensor  # (batch, obs_dim)
    rewards: Tensor  # (batch,)
    disagreement: Tensor  # (batch,)


class Prediction(NamedTuple):
    """Of (next_obs - obs, reward), in raw units, by every member."""

    means: Tensor  # (members, batch, obs_dim + 1)
    logvars: Tensor


class MLPMOPOEnsembleModel(FlatModule):
    """A Gaussian over (next_obs - obs, reward) given (obs, action), one per member.

    Networks see standardised inputs and predict standardised targets; the statistics are part of the state and come
    from `standardize`. Log-variances stay softly between two learned bounds of each member's own. Elites are the
    members that predict when one is drawn. There is no model of how episodes end.

    With `deterministic` members give means alone: their log-variances are −∞, and nothing is drawn around the means.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (200, 200, 200),
        num_ensembles: int = 5,
        *,
        num_elites: int | None = None,
        activation: str = "silu",
        deterministic: bool = False,
    ) -> None:
        self.obs_dim, self.action_dim, self.num_ensembles = obs_dim, action_dim, num_ensembles
        self.target_dim, self.deterministic = obs_dim + 1, deterministic
        sizes = (obs_dim + action_dim, *hidden_sizes, self.target_dim * (1 if deterministic else 2))
        self.layout = MLPLayout(sizes, members=num_ensembles, activation=activation)
        bounds = dict.fromkeys(() if deterministic else ("max_logvar", "min_logvar"), num_ensembles * self.target_dim)
        super().__init__({"net": self.layout, **bounds})
        for layer in self.layout.layers(self.flat.data):  # as the authors: narrow weights, no bias
            nn.init.trunc_normal_(layer.weight, std=1.0, a=-2.0, b=2.0).mul_(0.5 / math.sqrt(layer.weight.shape[-2]))
        if not deterministic:
            self.vector("max_logvar").data.fill_(0.5)
            self.vector("min_logvar").data.fill_(-10.0)
        self.input_mean: Tensor
        self.input_scale: Tensor
        self.target_mean: Tensor
        self.target_scale: Tensor
        self.elites: Tensor
        for name, size in (("input", sizes[0]), ("target", self.target_dim)):
            self.register_buffer(f"{name}_mean", torch.zeros(size, dtype=torch.float32))
            self.register_buffer(f"{name}_scale", torch.ones(size, dtype=torch.float32))
        self.register_buffer("elites", torch.arange(num_elites or num_ensembles))

    def ensemble_parameters(self) -> list[nn.Parameter]:
        """What an optimiser moves."""
        return list(self.parameters())

    @torch.no_grad()
    def standardize(self, inputs: Tensor, targets: Tensor) -> None:
        """Take the statistics from rows of (obs, action) and of (next_obs - obs, reward)."""
        for rows, mean, scale in (
            (inputs, self.input_mean, self.input_scale),
            (targets, self.target_mean, self.target_scale),
        ):
            wide = rows.reshape(-1, rows.shape[-1]).to(torch.float64)
            center, spread = wide.mean(0), wide.std(0, correction=0)
            # a column that does not move, to float32's eyes, is left as wide as it is
            still = spread <= 1e-6 * center.abs().clamp_min(1.0)
            mean.copy_(center)
            scale.copy_(torch.where(still, torch.ones_like(spread), spread))

    @differentiable.method
    def predict_distribution(self, obs: Tensor, actions: Tensor) -> Prediction:
        """Means and log-variances of (next_obs - obs, reward) by every member: (members, batch, obs_dim + 1) each. Rows may be
        shared by the members or (members, batch, ·); for a single observation there is no batch axis."""
        outputs = self.layout(self.vector("net"), self._inputs(as_rows(obs), as_rows(actions)))
        prediction = self._prediction(outputs, *self._bounds_of(self.flat))
        return Prediction(*(part.squeeze(1) for part in prediction)) if obs.dim() == 1 else prediction

    @predict_distribution.with_vjp
    def _(self, obs: Tensor, actions: Tensor) -> tuple[Prediction, Pullback]:
        outputs, pull_net = self.layout.vjp(self.vector("net"), self._inputs(obs, actions))
        prediction, pull_head = differentiable.by_autograd(self._prediction, outputs, *self._bounds_of(self.flat))

        def pull(d_means: Tensor, d_logvars: Tensor | None) -> list[Tensor]:
            gradient = torch.empty_like(self.flat)
            d_outputs, *d_bounds = pull_head(d_means, d_logvars)
            pull_net.parameters(d_outputs, into=self.slice_of(gradient, "net"))
            for bound, d_bound in zip(self._bounds_of(gradient), d_bounds, strict=True):
                bound.copy_(d_bound)
            return [gradient]

        return prediction, pull

    def _inputs(self, obs: Tensor, actions: Tensor) -> Tensor:
        return (torch.cat([obs, actions], dim=-1) - self.input_mean) / self.input_scale

    def _prediction(self, outputs: Tensor, *bounds: Tensor) -> Prediction:
        """What the networks' outputs mean in raw units, with log-variances between their soft bounds."""
        means = torch.addcmul(self.target_mean, outputs[..., : self.target_dim], self.target_scale)
        if self.deterministic:
            return Prediction(means, torch.full_like(means, -torch.inf))
        upper, lower = bounds
        logvars = upper - softplus(upper - outputs[..., self.target_dim :])
        return Prediction(means, lower + softplus(logvars - lower) + 2 * self.target_scale.log())

    def _bounds_of(self, vector: Tensor) -> list[Tensor]:
        """The soft upper and lower bounds of log-variances (members, 1, obs_dim + 1), none without variances, as slices of a
        vector in the order of `flat`."""
        names = () if self.deterministic else ("max_logvar", "min_logvar")
        return [self.slice_of(vector, name).view(self.num_ensembles, 1, self.target_dim) for name in names]

    def regularization(self, decays: Sequence[float] = ()) -> Tensor:
        """What is added to the loss: the width between the bounds, and half the squared weights of each layer."""
        width = self.flat.new_zeros(())
        if not self.deterministic:
            width = self.vector("max_logvar").sum() - self.vector("min_logvar").sum()
        layers = self.layout.layers(self.vector("net"))
        squares = [0.5 * decay * layer.weight.square().sum() for decay, layer in zip(decays, layers, strict=bool(decays))]
        return BOUNDS_COEF * width + sum(squares)

    @torch.no_grad()
    def add_regularization(self, gradient: Tensor, decays: Sequence[float] = ()) -> None:
        """Add the gradient of `regularization` to one in the order of `flat`."""
        for bound, sign in zip(self._bounds_of(gradient), (1, -1), strict=False):
            bound.add_(sign * BOUNDS_COEF)
        each = zip(self.layers("net"), self.layout.layers(self.slice_of(gradient, "net")), strict=True)
        for decay, (layer, at) in zip(decays, each, strict=bool(decays)):
            at.weight.add_(layer.weight, alpha=decay)

    def draw_members(self, rows: int) -> Tensor:
        """An elite for each row; keep them over a rollout for TS∞, draw anew at every step for TS1."""
        return self.elites[torch.randint(len(self.elites), (rows,), device=self.elites.device)]

    def sample_transition(self, obs: Tensor, actions: Tensor, *, members: Tensor | None = None) -> Transition:
        """One imagined step of each row by its own member: a random elite, or those of `members` (batch,)."""
        return Transition(*self.imagine(obs, actions, members=members)[:3])

    @torch.no_grad()
    def imagine(self, obs: Tensor, actions: Tensor, *, members: Tensor | None = None) -> ImaginedTransition:
        """`sample_transition` with both measures of uncertainty."""
        single = obs.dim() == 1
        obs, actions = (as_rows(rows).detach().to(self.flat.dtype) for rows in (obs, actions))
        if members is None:
            members = self.draw_members(len(obs))
        elif len(members) and not 0 <= int(members.min()) <= int(members.max()) < self.num_ensembles:
            raise IndexError(f"members from {int(members.min())} to {int(members.max())}; there are {self.num_ensembles}")
        noise = torch.randn(len(obs), self.target_dim, dtype=obs.dtype, device=obs.device)
        everyone = Simulator(self, torch.arange(self.num_ensembles, device=obs.device))
        parts = zip(*(torch.split(column, CHUNK) for column in (obs, actions, members, noise)), strict=True)
        columns = [torch.cat(column) for column in zip(*(everyone.rows(*part) for part in parts), strict=True)]
        return ImaginedTransition(*(column[0] for column in columns) if single else columns)

    def simulator(self) -> Simulator:
        """The elites as one fast network for rollouts; it does not follow later changes of the parameters."""
        return Simulator(self, self.elites)

    def choose_elites(self, holdout_errors: Tensor) -> None:
        """Let the members with the lowest errors (members,) be the elites."""
        self.elites.copy_(holdout_errors.argsort(stable=True)[: len(self.elites)])

    def copy_members(self, source: Tensor, members: Tensor, target: Tensor) -> None:
        """Copy the parameters of some members from one flat vector to another."""
        for part_from, part_to in zip(self._tensors(source), self._tensors(target), strict=True):
            part_to[members] = part_from[members]

    def _tensors(self, flat: Tensor) -> list[Tensor]:
        """Views of a flat vector with an axis of members each."""
        layers = [part for layer in self.layout.layers(self.slice_of(flat, "net")) for part in (layer.weight, layer.bias)]
        return [*layers, *self._bounds_of(flat)]

    def logvar_bounds(self) -> tuple[Tensor, Tensor]:
        """The soft upper and lower bounds of standardised log-variances, (members, obs_dim + 1) each, outside of autograd."""
        upper, lower = (bound.detach().squeeze(1) for bound in self._bounds_of(self.flat))
        return upper, lower
