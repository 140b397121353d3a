"""What learners are handed, as their networks take it: in rows, of the parameters' type, and outside of autograd. And what
modules of a user's answer, as the losses take it: a number for each row, critics before rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from rl_training.kernels.differentiable import BoundMethod, ByAutograd, Pullback
from rl_training.models.critics import random_subset
from rl_training.models.heads import PolicyOutput
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import Batch, EnvSpec

Method = TypeVar("Method", bound=Callable[..., Tensor])

OBSERVED = ("obs", "next_obs")


def type_of(parameters: Sequence[Tensor]) -> torch.dtype:
    """What networks with these parameters compute in."""
    return parameters[0].dtype if parameters else torch.float32


def of_any_obs(method: Method) -> Method:
    """Let a learner's method that answers to rows of observations (and what stands beside them) answer to a single one too,
    without an axis of rows then, and to observations of any type."""

    @wraps(method)
    def answer(self: Any, obs: Tensor, *beside: Tensor, **settings: Any) -> Tensor:
        if obs.dim() > 1 and obs.dtype is self.dtype and not obs.requires_grad:  # nearly always, and in 0.2 µs
            return method(self, obs, *beside, **settings)
        rows = obs.detach().to(self.dtype)
        if obs.dim() > 1:
            return method(self, rows, *beside, **settings)
        return method(self, rows.unsqueeze(0), *(column.unsqueeze(0) for column in beside), **settings)[0]

    return cast("Method", answer)


def plain(batch: Batch, dtype: torch.dtype) -> Batch:
    """The batch outside of autograd, its numbers of this type; the very same where it is so already, as nearly always."""
    for name, column in batch.items():  # half a microsecond; a function for each column would take three
        if column.requires_grad or ((kind := column.dtype) is not dtype and _is_to_be(name, kind)):
            return {name: _plain_column(name, column, dtype) for name, column in batch.items()}
    return batch


def _plain_column(name: str, column: Tensor, dtype: torch.dtype) -> Tensor:
    return column.detach().to(dtype if _is_to_be(name, column.dtype) else column.dtype)


def _is_to_be(name: str, kind: torch.dtype) -> bool:
    """Whether such a column is to be of the parameters' type; whole numbers other than observations are choices, or do as
    they are."""
    return kind.is_floating_point or name in OBSERVED


def column_of(answer: Tensor, rows: int, *, name: str) -> Tensor:
    """One number for each row (rows,), also where they came as (rows, 1), which a loss would spread over all pairs of rows."""
    if answer.numel() != rows:
        raise ValueError(
            f"the module's {name} have shape {tuple(answer.shape)}; there must be one number for each of {rows} rows"
        )
    return answer.reshape(rows)


def flat_columns(batch: Mapping[str, Any], *names: str) -> list[Tensor]:
    """Columns of a loss as vectors (rows,), also where they came as (rows, 1), of which two make all pairs of rows."""
    columns = [batch[name].reshape(-1) for name in names]
    if len({len(column) for column in columns}) > 1:
        shapes = ", ".join(f"{name} {tuple(batch[name].shape)}" for name in names)
        raise ValueError(f"columns of different lengths make no loss: {shapes}")
    return columns


def q_network(model: Any) -> Any:
    """The part of a model whose `q_values` learners ask: its critics where they have them, as ours do, else the whole."""
    return model.critics if hasattr(model.critics, "q_values") else model


def q_function(model: Any) -> Any:
    """A model's `q_values` as (critics, rows), with a pullback to the critics' parameters or to an input."""
    network = q_network(model) if hasattr(model, "critics") else model
    if isinstance(network.q_values, BoundMethod):
        return network.q_values
    return AnyCritics(network, "q_values", list(network.critics.parameters()), _critics_by_rows)


class AnyCritics(ByAutograd):
    """`q_values` of a user's module, of which a random `subset` may be asked for as of ours."""

    def __call__(self, obs: Tensor, actions: Tensor, *, subset: int | None = None) -> Tensor:
        q_values: Tensor = super().__call__(obs, actions)
        members = None if subset is None else random_subset(len(q_values), subset)
        return q_values if members is None else q_values[members]

    def vjp(self, *inputs: Tensor, wrt: int | None = None, members: Tensor | None = None) -> tuple[Tensor, Pullback]:
        q_values, pull = super().vjp(*inputs, wrt=wrt)
        if members is None:
            return q_values, pull
        return q_values[members], lambda d: pull(torch.zeros_like(q_values).index_copy_(0, members, d))


def _critics_by_rows(given: Any, obs: Tensor, _: Tensor) -> Tensor:
    """Critics may come in a sequence, and one critic's values without their axis."""
    rows = len(obs)
    alone = isinstance(given, Tensor) and given.shape in {(rows,), (rows, 1)}
    return torch.stack([column_of(values, rows, name="q_values") for values in ([given] if alone else given)])


def sampler(model: Any) -> Any:
    """A model's `sample_actions`: actions with their log-probabilities (rows,), with a pullback to the actor's parameters."""
    if isinstance(model.sample_actions, BoundMethod):
        return model.sample_actions
    return ByAutograd(model, "sample_actions", list(model.actor.parameters()), _sample_by_rows)


def actor_of(model: Any) -> Any:
    """A deterministic actor's actions, with a pullback to its parameters."""
    if isinstance(getattr(model.actor, "actions", None), BoundMethod):
        return model.actor.actions
    return ByAutograd(model.actor, "__call__", list(model.actor.parameters()), _as_they_are)


def _as_they_are(actions: Tensor, _: Tensor) -> Tensor:
    return actions


def evaluator(policy: Any) -> Any:
    """A policy's `evaluate_actions` (rows,) each, with a pullback to its parameters."""
    if isinstance(policy.evaluate_actions, BoundMethod):
        return policy.evaluate_actions
    return ByAutograd(policy, "evaluate_actions", list(policy.parameters()), _evaluation_by_rows)


def _evaluation_by_rows(given: Any, obs: Tensor, actions: Tensor) -> PolicyOutput:
    names = ("logprobs", "values", "entropy")
    return PolicyOutput(actions, *(column_of(getattr(given, name), len(obs), name=name) for name in names))


def actions_by(policy: Any, obs: Tensor, *, deterministic: bool) -> Tensor:
    """A policy's actions: ours are asked for nothing else."""
    if hasattr(policy, "actions"):
        actions: Tensor = policy.actions(obs, deterministic=deterministic)
        return actions
    actions = policy.act(obs, deterministic=deterministic).actions
    return actions


class Prediction(NamedTuple):
    means: Tensor
    logvars: Tensor


def predictor(model: Any) -> Any:
    """A dynamics model's `predict_distribution`, with a pullback to the ensemble's parameters."""
    if isinstance(model.predict_distribution, BoundMethod):
        return model.predict_distribution
    return ByAutograd(model, "predict_distribution", list(model.ensemble_parameters()), _prediction)


def _prediction(given: Any, *_: Tensor) -> Prediction:
    return Prediction(*given)


class Sample(NamedTuple):
    actions: Tensor
    logprobs: Tensor


def _sample_by_rows(given: Any, obs: Tensor) -> Sample:
    return Sample(given.actions, column_of(given.logprobs, len(obs), name="logprobs"))


def several_samples(model: Any, obs: Tensor, count: int) -> Sample:
    """Several actions for each observation, (batch, count, action_dim), outside of autograd."""
    if hasattr(model, "sample_several"):
        sample: Sample = model.sample_several(obs, count)
        return sample
    actions, logprobs = sampler(model)(obs.repeat_interleave(count, 0))
    return Sample(actions.unflatten(0, (len(obs), count)), logprobs.unflatten(0, (len(obs), count)))


def exported(model: Any, env: EnvSpec, *, normalizer: ObservationNormalizer | None = None) -> PolicyNetwork | None:
    """The deterministic policy of a model of ours as a network that stands alone; None for a user's module."""
    if not hasattr(model, "policy_network"):
        return None
    network: PolicyNetwork = model.policy_network(env) if normalizer is None else model.policy_network(env, normalizer=normalizer)
    return network
