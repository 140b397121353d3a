"""Fitting an ensemble of dynamics networks: the loss, one gradient step, and a whole fit that can stop anywhere.

PETS fits again and again on what it has seen, MOPO once on the data it was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.forms import Array
from rl_training.kernels.differentiable import loss
from rl_training.models.adapters import predictions_of
from rl_training.models.entry import plain, type_of
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel, disagreement
from rl_training.models.optim import Adam
from rl_training.types import Batch, Metrics, State


def gaussian_nll(means: Tensor, logvars: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood up to a constant and a factor two, by member: the mean over rows and dimensions."""
    return ((means - targets).square() * (-logvars).exp() + logvars).mean(dim=(-2, -1))


def squared_error(means: Tensor, targets: Tensor, scale: Tensor | float = 1.0) -> Tensor:
    """What members without variances are fitted by: the mean over rows and dimensions, in units of `scale`, by member."""
    return ((means - targets) / scale).square().mean(dim=(-2, -1))


@loss("loss", wrt=("means", "logvars"))
def likelihood_loss(means: Tensor, logvars: Tensor, targets: Tensor) -> Metrics:
    return {"loss": gaussian_nll(means, logvars, targets).sum()}


@loss("loss", wrt=("means",))
def error_loss(means: Tensor, targets: Tensor, scale: Tensor | float) -> Metrics:
    return {"loss": squared_error(means, targets, scale).sum()}


def dynamics_metrics(batch: Mapping[str, Tensor], loss_name: str) -> Metrics:
    """Loss and errors from `predicted_means [E,B,D], predicted_logvars, targets [B,D] or [E,B,D],
    ensemble_disagreement [B]`; the last of the D columns is the reward. The members' losses are summed.

    Without `predicted_logvars` the loss is the squared error, in units of `target_scale [D]` where it is given.
    """
    means, logvars, targets = batch["predicted_means"], batch.get("predicted_logvars"), batch["targets"]
    errors = (means - targets).abs()
    if logvars is None:
        losses = squared_error(means, targets, batch.get("target_scale", torch.ones(())))
    else:
        losses = gaussian_nll(means, logvars, targets)
    return {
        loss_name: losses.sum(),
        "reward_mae": errors[..., -1].mean(),
        "delta_obs_mae": errors[..., :-1].mean(),
        "ensemble_disagreement": batch["ensemble_disagreement"].mean(),
    }


def model_rows(transitions: Batch) -> tuple[Tensor, Tensor]:
    """Inputs (obs, action) and targets (next_obs - obs, reward) of transitions of any leading shape."""
    obs = transitions["obs"]
    inputs = torch.cat([obs, transitions["actions"]], dim=-1)
    return inputs, torch.cat([transitions["next_obs"] - obs, transitions["rewards"].unsqueeze(-1)], dim=-1)


def _obs_and_actions(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The two halves of what `model_rows` gave."""
    obs_dim = targets.shape[-1] - 1
    return inputs[..., :obs_dim], inputs[..., obs_dim:]


class DynamicsLearner:
    """An ensemble and its optimiser.

    `model` is an `MLPMOPOEnsembleModel`, or any object with `ensemble_parameters()` and `predict_distribution(obs,
    actions)`. `decays` are the weight decays of the former's layers.
    """

    def __init__(self, model: MLPMOPOEnsembleModel | Any, *, learning_rate: float, decays: Sequence[float] = ()) -> None:
        self.model: Any = model
        self.predict = predictions_of(model)
        self.deterministic = getattr(model, "deterministic", False)
        self.decays = tuple(decays)
        self.parameters: list[Tensor] = list(model.ensemble_parameters())
        self.dtype = type_of(self.parameters)
        self.optimizer = Adam(self.parameters, learning_rate=learning_rate)

    def update(self, batch: Batch, *, loss_name: str) -> Metrics:
        """One gradient step on transitions: rows shared by all members, or (members, rows) for rows of their own."""
        batch = plain(batch, self.dtype)
        inputs, targets = model_rows(batch)
        means, logvars = self.step(inputs, targets)
        if targets.dim() == 3:  # members that saw different rows cannot be compared
            return self.metrics(inputs[0], targets[0], loss_name=loss_name)
        return self._named(means, logvars, targets, loss_name)

    @torch.no_grad()
    def step(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The same for rows of `model_rows`; gives means and log-variances from before the step."""
        (means, logvars), pull = self.predict.vjp(*_obs_and_actions(inputs, targets))
        if self.deterministic:
            _, d = error_loss.vjp(means, targets, self.model.target_scale)
            gradients = pull(d.means, None)
        else:
            _, d = likelihood_loss.vjp(means, logvars, targets)
            gradients = pull(d.means, d.logvars)
        if hasattr(self.model, "add_regularization"):  # ours; as a part of the loss it would cost a third of an update
            self.model.add_regularization(*gradients, self.decays)
        self.optimizer.step(gradients)
        return means, logvars

    @torch.no_grad()
    def metrics(self, inputs: Tensor, targets: Tensor, *, loss_name: str) -> Metrics:
        """How well all members predict these rows."""
        means, logvars = self.predict(*_obs_and_actions(inputs, targets))
        return self._named(means, logvars, targets, loss_name)

    def _named(self, means: Tensor, logvars: Tensor, targets: Tensor, loss_name: str) -> Metrics:
        apart = disagreement(means)
        batch = {"predicted_means": means, "targets": targets, "ensemble_disagreement": apart}
        extra = {"target_scale": self.model.target_scale} if self.deterministic else {"predicted_logvars": logvars}
        return dynamics_metrics(batch | extra, loss_name)

    @torch.no_grad()
    def holdout_errors(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean squared error by member, in units of each target's spread so that all of them count."""
        means, _ = self.predict(*_obs_and_actions(inputs, targets))
        return squared_error(means, targets, self.model.target_scale)

    def state_dict(self) -> State:
        model = {"model": self.model.state_dict()} if hasattr(self.model, "state_dict") else {}
        return {**model, "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if "model" in state:
            elites = state["model"].get("elites")
            if elites is not None:  # they choose members by their numbers
                Array((None,), "i", least=0, most=self.model.num_ensembles - 1)(elites, "algorithm_state/dynamics/model/elites")
            self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
