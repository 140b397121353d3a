"""Behaviour cloning (Pomerleau, 1988): supervised learning of what was done.

It knows nothing of rewards, and so is what every offline algorithm has to be better than.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.algorithms.base import Algorithm
from rl_training.kernels.differentiable import loss
from rl_training.models.adapters import exported, outputs_of
from rl_training.models.encoded_policy import StandalonePolicy
from rl_training.models.entry import of_any_obs, plain, type_of
from rl_training.models.heads import Categorical
from rl_training.models.mlp_bc import MLPBCModel
from rl_training.models.optim import Adam
from rl_training.types import Batch, EnvSpec, Metrics, UpdateResult


@loss("bc_loss", wrt=("outputs",))
def bc_loss(outputs: Tensor, actions: Tensor, *, discrete: bool = False) -> Metrics:
    """Squared error of actions (rows, action_dim), or the cross-entropy of chosen ones, (rows,) or (rows, 1), under logits."""
    if not discrete:
        return {"bc_loss": (outputs - actions.reshape(outputs.shape)).square().mean()}
    chosen = actions.reshape(-1).long()
    return {"bc_loss": F.cross_entropy(outputs, chosen), "accuracy": (outputs.argmax(-1) == chosen).to(outputs.dtype).mean()}


class BC(Algorithm):
    """Learns from batches of `obs, actions`.

    `model` is an `MLPBCModel`, or any module from observations to actions in [-1, 1], or to logits where `discrete` is said.
    """

    def __init__(self, model: MLPBCModel | nn.Module, *, learning_rate: float, discrete: bool = False) -> None:
        self.model = cast("Any", model)
        self.learning_rate, self.discrete = learning_rate, discrete
        self.outputs = outputs_of(model)
        parameters = list(self.model.parameters())
        self.dtype = type_of(parameters)
        self.optimizer = Adam(parameters, learning_rate=learning_rate)

    @of_any_obs
    @torch.no_grad()
    def act(self, obs: Tensor, *, deterministic: bool = False) -> Tensor:
        """What was done most likely, or on average; of discrete actions one is drawn unless it is to be `deterministic`."""
        outputs: Tensor = self.outputs(obs)
        if not self.discrete:
            return outputs
        policy = Categorical(outputs)
        return policy.mode() if deterministic else policy.sample()

    def policy_network(self, env: EnvSpec) -> StandalonePolicy | None:
        return exported(self.model, env)

    @torch.no_grad()
    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (cloning needs no clock)
        batch = plain(batch, self.dtype)
        outputs, pull = self.outputs.vjp(batch["obs"])
        losses, d = bc_loss.vjp(outputs, batch["actions"], discrete=self.discrete)
        self.optimizer.step(pull(d.outputs))
        return UpdateResult(losses)


BCAlgorithm = BC
