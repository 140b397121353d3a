"""Phasic Policy Gradient (Cobbe et al., 2021, arXiv:2009.04416)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rl_training.algorithms.ppo import PPO, ppo_loss
from rl_training.kernels.differentiable import loss
from rl_training.models.adapters import asked, column_of, under
from rl_training.models.entry import plain
from rl_training.models.heads import Categorical, DiagonalGaussian, MultiCategorical
from rl_training.models.mlp_ppg import AuxiliaryColumns, MLPPPGModel
from rl_training.models.optim import Adam, clip_gradients
from rl_training.types import Batch, Metrics, UpdateResult

ppg_loss = ppo_loss  # the policy phase is PPO; what differs is where the value gradient may go, which the model decides


@loss("auxiliary_loss", wrt=("values", "auxiliary_values"))
def ppg_auxiliary_loss(
    batch: Mapping[str, Tensor], *, aux_value_coef: float = 1.0, behavior_clone_coef: float = 1.0, value_clone_coef: float = 1.0
) -> Metrics:
    """½(V_aux − V̂)² + β·KL(π_teacher ‖ π) + ½(V − V̂)², from `policy_logits, teacher_logits, values, auxiliary_values,
    returns`; Gaussian policies give `policy_mean, policy_log_std, teacher_mean, teacher_log_std` in place of logits. Logits of
    an action in parts are (batch, parts, choices); what masks forbid has no probability in either."""
    aux_value_loss = 0.5 * (batch["auxiliary_values"] - batch["returns"]).square().mean()
    value_clone_loss = 0.5 * (batch["values"] - batch["returns"]).square().mean()
    divergence = _policy(batch, "policy").kl_from(_policy(batch, "teacher"))
    behavior_clone_loss = (divergence.sum(-1) if divergence.dim() > 1 else divergence).mean()  # a column for each part
    total = aux_value_coef * aux_value_loss + behavior_clone_coef * behavior_clone_loss + value_clone_coef * value_clone_loss
    return {
        "auxiliary_loss": total,
        "aux_value_loss": aux_value_loss,
        "behavior_clone_loss": behavior_clone_loss,
        "value_clone_loss": value_clone_loss,
    }


def policy_columns(policy: Any, *, prefix: str) -> Batch:
    """A distribution, ours or torch's, as columns of a batch: `<prefix>_logits`, or `<prefix>_mean` and `<prefix>_log_std`."""
    if isinstance(policy, Categorical | MultiCategorical):
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
        "Normal (also within Independent) of torch.distributions, Categorical, MultiCategorical and DiagonalGaussian of "
        "rl_training.models.heads"
    )


def _policy(batch: Mapping[str, Tensor], prefix: str) -> Any:
    """The inverse of `policy_columns`."""
    if f"{prefix}_logits" in batch:
        return Categorical(batch[f"{prefix}_logits"])
    return DiagonalGaussian(batch[f"{prefix}_mean"], batch[f"{prefix}_log_std"])


class PPG(PPO):
    """A PPO with a second phase. `update` is one step of the policy phase, `auxiliary_update` one of the auxiliary phase.

    `model` is an `MLPPPGModel`, or any module as PPO takes it that also has `distribution(obs)` and `auxiliary(obs)`
    (see there); it must itself cut the value gradient in `evaluate_actions`.
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
        self.auxiliary = asked(model, "auxiliary", model, _auxiliary_by_rows)
        self.value_optimizer: Adam | None = None
        if isinstance(model, MLPPPGModel):
            # one for each part: where E_pi and E_V differ, the momentum of the one must not move the other
            parts = model.policy_and_value_parts([p.data for p in self.parameters])
            self.optimizer, self.value_optimizer = (Adam(part, learning_rate=learning_rate, eps=adam_eps) for part in parts)
        self.auxiliary_optimizer = Adam(self.parameters, learning_rate=aux_learning_rate or learning_rate, eps=adam_eps)
        self.policy_updates = self.auxiliary_updates = 0

    @property
    def model(self) -> Any:
        return self.policy

    @torch.no_grad()
    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:  # noqa: ARG002 (PPG needs no clock)
        """One step of the policy phase. A batch without `advantages` trains the value function alone, one without
        `returns` the policy alone: separate epochs, for which the model must be an `MLPPPGModel`."""
        if "advantages" not in batch:
            return UpdateResult(self._update_value(plain(batch, self.dtype, reads_bytes=self.reads_bytes)))
        self.policy_updates += 1
        policy_alone = "returns" not in batch
        if policy_alone:
            batch = batch | {"returns": self.value(batch["obs"])}  # no error, no gradient
        losses, gradients = self.losses_and_gradients(batch)
        if self.value_optimizer is None:
            self.optimizer.step(gradients)
            return UpdateResult(losses)
        d_policy, d_value = self.policy.policy_and_value_parts(gradients)
        self.optimizer.step(d_policy)
        if policy_alone:
            del losses["value_loss"]
        else:
            self.value_optimizer.step(d_value)
        return UpdateResult(losses)

    def _update_value(self, batch: Batch) -> Metrics:
        assert self.value_optimizer is not None
        values, pull = self.policy.value.vjp(batch["obs"])
        # PPO's value loss, its clipping included: there is no policy in it
        columns = dict.fromkeys(("logprobs", "new_logprobs", "advantages", "entropy"), torch.zeros_like(values))
        losses, d = ppo_loss.vjp(columns | batch | {"new_values": values}, **self.coefficients)
        gradients = pull(d.new_values)
        norm = clip_gradients(gradients, self.max_grad_norm)
        self.value_optimizer.step(gradients)
        return {"value_loss": losses["value_loss"], "value_gradient_norm": norm}

    @torch.no_grad()
    def auxiliary_update(self, batch: Batch, *, teacher_model: nn.Module | None = None, global_step: int = 0) -> UpdateResult:  # noqa: ARG002
        """One step of the auxiliary phase on `obs, returns` (and `action_masks`, if there are any). What to stay close to is
        `teacher_model`'s policy, or the columns of `teacher_columns` where the batch holds them already."""
        batch = plain(batch, self.dtype, reads_bytes=self.reads_bytes)
        masks = batch.get("action_masks")
        if teacher_model is not None:
            batch = batch | self.teacher_columns(batch["obs"], teacher_model, action_masks=masks)
        output, pull = self.auxiliary.vjp(batch["obs"], **under(masks))
        fresh = dict(zip(_auxiliary_columns(output), (column for column in output if column is not None), strict=True))
        coefficients = {name: getattr(self, name) for name in ("aux_value_coef", "behavior_clone_coef", "value_clone_coef")}
        losses, d = ppg_auxiliary_loss.vjp(batch | fresh, wrt=tuple(fresh), **coefficients)
        d_policy, *d_log_std, d_values, d_auxiliary_values = (getattr(d, name) for name in fresh)
        gradients = pull(d_policy, d_log_std[0] if d_log_std else None, d_values, d_auxiliary_values)
        norm = clip_gradients(gradients, self.max_grad_norm)
        self.auxiliary_optimizer.step(gradients)
        self.auxiliary_updates += 1
        return UpdateResult(losses | {"auxiliary_gradient_norm": norm})

    @torch.no_grad()
    def teacher_columns(self, obs: Tensor, teacher_model: Any = None, *, action_masks: Tensor | None = None) -> Batch:
        """What a teacher, or the policy as it is now, says at normalised observations."""
        teacher = self.policy if teacher_model is None else teacher_model
        return policy_columns(teacher.distribution(obs, **under(action_masks)), prefix="teacher")


def _auxiliary_columns(output: AuxiliaryColumns) -> tuple[str, ...]:
    """The names by which `ppg_auxiliary_loss` knows what is there of them."""
    policy = ("policy_logits",) if output.log_std is None else ("policy_mean", "policy_log_std")
    return (*policy, "values", "auxiliary_values")


def _auxiliary_by_rows(given: Any, obs: Tensor) -> AuxiliaryColumns:
    policy, *log_std = policy_columns(given.distribution, prefix="policy").values()
    values = (column_of(getattr(given, name), len(obs), name=name) for name in ("values", "auxiliary_values"))
    return AuxiliaryColumns(policy, log_std[0] if log_std else None, *values)


PPGAlgorithm = PPG
