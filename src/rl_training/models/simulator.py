"""Members of an ensemble of dynamics networks as rollouts use them: one step at a time, outside of autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rl_training.kernels.imagine import Dynamics
from rl_training.kernels.layout import Layer
from rl_training.kernels.mlp import MLPLayout

if TYPE_CHECKING:
    from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel


class Simulator(Dynamics):
    """Some members of our own ensemble, in raw units; they do not follow later changes of its parameters.

    The scales of inputs and targets stand in the weights, so that a step is nothing but the network. The inputs' means
    do not: taken off a bias they would cost precision where a column is far from zero.
    """

    @torch.no_grad()
    def __init__(self, model: MLPMOPOEnsembleModel, members: Tensor) -> None:
        layers = [Layer(layer.weight[members], layer.bias[members], None, None) for layer in model.layers("net")]
        first = layers[0]
        layers[0] = first._replace(weight=first.weight / model.input_scale.unsqueeze(-1))
        stretch, lift, bounds = model.target_scale, model.target_mean, None
        if not model.deterministic:
            # the soft bounds move along with the log-variance, so that its shift can stand in the bias
            shift = 2 * model.target_scale.log()
            stretch, lift = torch.cat([stretch, torch.ones_like(stretch)]), torch.cat([lift, shift])
            upper, lower = (bound[members] + shift for bound in model.logvar_bounds())
            bounds = upper, lower
        last = layers[-1]
        layers[-1] = last._replace(weight=last.weight * stretch, bias=last.bias * stretch + lift)
        layout = MLPLayout(model.layout.sizes, members=len(members), activation=model.layout.activation)
        flat = torch.cat([part.reshape(-1) for layer in layers for part in layer[:2] if part is not None])
        super().__init__(layout, flat, obs_dim=model.obs_dim, input_mean=model.input_mean.clone(), bounds=bounds)
