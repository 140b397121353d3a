"""Phasic Policy Gradient (Cobbe et al., 2021, arXiv:2009.04416)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import detached
from rl_training.algorithms.entry import column_of, plain
from rl_training.algorithms.optim import Adam, clip_gradients
from rl_training.algorithms.ppo import PPO, ppo_loss, ppo_loss_gradients
from rl_training.models.heads import Categorical, DiagonalGaussian
from rl_training.models.mlp_ppg import MLPPPGModel
from rl_training.types import Batch, Metrics, UpdateResult

ppg_loss = ppo_loss  # the policy phase is PPO; what differs is where the value gradient may go, which the model decides


def ppg_auxiliary_loss(
    batch: Mapping[str, Tensor], *, aux_value_coef: float = 1.0, behavior_clone_coef: float = 1.0, value_clone_coef: float = 1.0
) -> Metrics:
    """½(V_aux − V̂)² + β·KL(π_teacher ‖ π) + ½(V − V̂)², from `policy_logits, teacher_logits, values, auxiliary_values,
    returns`; Gaussian policies give `policy_mean, policy_log_std, teacher_mean, teacher_log_std` in place of logits."""
    aux_value_loss = 0.5 * (batch["auxiliary_values"] - batch["returns"]).square().mean()
    value_clone_loss = 0.5 * (batch["values"] - batch["returns"]).square().mean()
    behavior_clone_loss = _policy(batch, "policy").kl_from(_policy(batch, "teacher")).mean()
    total = aux_value_coef * aux_value_loss + behavior_clone_coef * behavior_clone_loss + value_clone_coef * value_clone_loss
    return {
        "auxiliary_loss": total,
        "aux_value_loss": aux_value_loss,
        "behavior_clone_loss": behavior_clone_loss,
        "value_clone_loss": value_clone_loss,
    }


def ppg_auxiliary_loss_gradients(
    batch: Mapping[str, Tensor], *, aux_value_coef: float = 1.0, behavior_clone_coef: float = 1.0, value_clone_coef: float = 1.0
) -> dict[str, Any]:
    """The gradients of `ppg_auxiliary_loss` at the policy's outputs and at both values, written down."""
    returns, rows = batch["returns"], len(batch["returns"])
    d_kl = torch.full_like(returns, behavior_clone_coef / rows)
    return {
        "d_policy": _policy(batch, "policy").kl_gradient(_policy(batch, "teacher"), d_kl),
        "d_values": (batch["values"] - returns) * (value_clone_coef / rows),
        "d_auxiliary_values": (batch["auxiliary_values"] - returns) * (aux_value_coef / rows),
    }


def policy_columns(policy: Any, *, prefix: str) -> Batch:
    """A distribution, ours or torch's, as columns of a batch: `<prefix>_logits`, or `<prefix>_mean` and `<prefix>_log_std`."""
    if isinstance(policy, Categorical):
        return {f"{prefix}_logits": policy.log_probabilities}
    if isinstance(policy, DiagonalGaussian):
        return {f"{prefix}_mean": policy.mean, f"{prefix}_log_std": policy.log_std.expand_as(policy.mean)}
    inner = policy.base_dist if isinstance(policy, torch.distributions.Independent) else policy
    if isinstance(inner, torch.distributions.Categorical):
        return {f"{prefix}_logits": inner.logits}
    if isinstance(inner, torch.distributions.Normal):
        return {f"{prefix}_mean": inner.mean, f"{prefix}_log_std": inner.stddev.log()}
    raise TypeError(
        f"the module's distribution is a {type(policy).__name__}, which cannot be cloned; possible: Categorical and "
        "Normal (also within Independent) of torch.distributions, Categorical and DiagonalGaussian of rl_training.models.heads"
    )


def _policy(batch: Mapping[str, Tensor], prefix: str) -> Any:
    """The inverse of `policy_columns`."""
    if f"{prefix}_logits" in batch:
        return Categorical(batch[f"{prefix}_logits"])
    return DiagonalGaussian(batch[f"{prefix}_mean"], batch[f"{prefix}_log_std"])


class PPG(PPO):
    """A PPO with a second phase. `update` is one step of the policy phase, `auxiliary_update` one of the auxiliary phase.

    `model` is an `MLPPPGModel`, or any module as PPO takes it that also has `distribution(obs)` and `auxiliary(obs)`
    (see there); the latter is differentiated by autograd, and it must itself cut the value gradient in `evaluate_actions`.
    `ppo_options` are PPO's: `clip_coef`, `ent_coef`, `vf_coef`, `max_grad_norm` and so on.
    """

    saved: ClassVar[tuple[str, ...]] = ("policy_updates", "auxiliary_updates")

    def __init__(
        self,
        model: MLPPPGModel | nn.Module,
        *,
        learning_rate: float,
        aux_learning_rate: float | None = None,
        aux_value_coef: float = 1.0,
        behavior_clone_coef: float = 1.0,
        value_clone_coef: float = 1.0,
        adam_eps: float = 1e-5,
        **ppo_options: Any,
    ) -> None:
        super().__init__(model, learning_rate=learning_rate, adam_eps=adam_eps, **ppo_options)
        self.aux_value_coef, self.value_clone_coef = aux_value_coef, value_clone_coef
        self.behavior_clone_coef = behavior_clone_coef
        self.explicit = isinstance(model, MLPPPGModel)
        if isinstance(model, MLPPPGModel):
            # one for each piece of the vector: where E_pi and E_V differ, the momentum of the one must not move the other
            pieces = model.flat.data.tensor_split([model.num_policy_parameters])
            self.optimizer, self.value_optimizer = (Adam([p], learning_rate=learning_rate, eps=adam_eps) for p in pieces)
        self.auxiliary_optimizer = Adam(self.parameters, learning_rate=aux_learning_rate or learning_rate, eps=adam_eps)
        self.policy_updates = self.auxiliary_updates = 0

    @property
    def model(self) -> Any:
        return self.policy

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        """One step of the policy phase. A batch without `advantages` trains the value function alone, one without
        `returns` the policy alone: separate epochs, for which the model must be an `MLPPPGModel`."""
        if "advantages" in batch:
            result = super().update(batch, global_step=global_step)
        else:
            result = UpdateResult(self._value_step(plain(batch, self.dtype)))
        self.policy_updates += 1
        return result

    def auxiliary_update(self, batch: Batch, *, teacher_model: nn.Module | None = None, global_step: int = 0) -> UpdateResult:  # noqa: ARG002
        """One step of the auxiliary phase on `obs, returns`. What to stay close to is `teacher_model`'s policy, or the
        columns of `teacher_columns` where the batch holds them already."""
        batch = plain(batch, self.dtype)
        if teacher_model is not None:
            batch = batch | self.teacher_columns(batch["obs"], teacher_model)
        losses = self._explicit_auxiliary_step(batch) if self.explicit else self._autograd_auxiliary_step(batch)
        self.auxiliary_updates += 1
        return UpdateResult(detached(losses))

    @torch.no_grad()
    def teacher_columns(self, obs: Tensor, teacher_model: Any = None) -> Batch:
        """What a teacher, or the policy as it is now, says at normalised observations."""
        teacher = self.policy if teacher_model is None else teacher_model
        return policy_columns(teacher.distribution(obs), prefix="teacher")

    @torch.no_grad()
    def _explicit_step(self, minibatch: Batch) -> Metrics:
        policy_alone = "returns" not in minibatch
        if policy_alone:
            minibatch = minibatch | {"returns": self.value(minibatch["obs"])}  # no error, no gradient
        losses = self._fill_gradient(minibatch)
        d_policy, d_value = self.policy.gradient.tensor_split([self.policy.num_policy_parameters])
        self.optimizer.step([d_policy])
        if policy_alone:
            losses.pop("value_loss", None)
        else:
            self.value_optimizer.step([d_value])
        return losses

    @torch.no_grad()
    def _value_step(self, batch: Batch) -> Metrics:
        values, tape = self.policy.run_value(batch["obs"])
        # PPO's value loss, its clipping included: there is no policy in it
        columns = dict.fromkeys(("logprobs", "new_logprobs", "advantages", "entropy"), torch.zeros_like(values))
        columns |= batch | {"new_values": values}
        losses = ppo_loss(columns, **self._coefficients())
        gradient = self.policy.backward_value(tape, ppo_loss_gradients(columns, **self._coefficients())["d_values"])
        norm = clip_gradients([gradient], self.max_grad_norm)
        self.value_optimizer.step([gradient])
        return {"value_loss": losses["value_loss"], "value_gradient_norm": norm}

    def _auxiliary_coefficients(self) -> dict[str, float]:
        names = ("aux_value_coef", "behavior_clone_coef", "value_clone_coef")
        return {name: getattr(self, name) for name in names}

    @torch.no_grad()
    def _explicit_auxiliary_step(self, batch: Batch) -> Metrics:
        model, lean = self.policy, self.lean
        done = model.run(batch["obs"]) if lean is None else model.run_lean_auxiliary(lean, batch["obs"])
        batch = batch | policy_columns(done.distribution, prefix="policy")
        batch |= {"values": done.values, "auxiliary_values": done.auxiliary_values}
        losses = ppg_auxiliary_loss(batch, **self._auxiliary_coefficients()) if self.measures else {}
        gradients = ppg_auxiliary_loss_gradients(batch, **self._auxiliary_coefficients())
        if lean is None:
            model.backward_auxiliary(done, **gradients)
            norm = clip_gradients([model.gradient], self.max_grad_norm)
        else:
            model.backward_lean_auxiliary(lean, **gradients)
            norm = lean.clip_gradient(self.max_grad_norm)
        self.auxiliary_optimizer.step([self.policy.gradient])
        return losses | {"auxiliary_gradient_norm": norm}

    def _autograd_auxiliary_step(self, batch: Batch) -> Metrics:
        output = self.policy.auxiliary(batch["obs"])
        batch = batch | policy_columns(output.distribution, prefix="policy")
        rows = len(batch["obs"])
        for name in ("values", "auxiliary_values"):
            batch[name] = column_of(getattr(output, name), rows, name=name)
        losses = ppg_auxiliary_loss(batch, **self._auxiliary_coefficients())
        norm = self.auxiliary_optimizer.descend(losses["auxiliary_loss"], self.parameters, max_grad_norm=self.max_grad_norm)
        return losses | {"auxiliary_gradient_norm": norm}


PPGAlgorithm = PPG
