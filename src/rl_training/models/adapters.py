"""What learners ask of a model, ours or a user's module: each question is a function of tensors with a pullback.

Our models bring pullbacks of their own; a user's methods are differentiated by autograd, and what they answer is brought into
the form that the losses take: a number for each row, critics before rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_training.kernels.differentiable import ByAutograd, Pullback
from rl_training.models.critics import random_subset
from rl_training.models.encoded_policy import StandalonePolicy
from rl_training.models.heads import PolicyOutput
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.types import EnvSpec


class Sample(NamedTuple):
    actions: Tensor
    logprobs: Tensor


class Prediction(NamedTuple):
    means: Tensor
    logvars: Tensor


def q_network(model: Any) -> Any:
    """Whose `q_values` a model's are: its critics', as ours say, or its own."""
    return getattr(model.q_values, "owner", model)


def q_values_of(model: Any) -> Any:
    """(obs, actions) to (critics, rows), differentiable in the critics' parameters or, with `wrt=1`, in the actions."""
    network = q_network(model)
    if _has_pullback(network.q_values, network):
        return network.q_values
    return AnyCritics(network, "q_values", list(network.critics.parameters()), _critics_by_rows)


def quantiles_of(model: Any) -> Any:
    """(obs, actions) to (critics, rows, quantiles), differentiable in the critics' parameters."""
    network = q_network(model)
    if _has_pullback(network.quantiles, network):
        return network.quantiles
    return ByAutograd(network, "quantiles", list(network.critics.parameters()), _as_it_is)


def samples_of(model: Any) -> Any:
    """obs to actions and their log-probabilities (rows,), differentiable in the actor's parameters."""
    return asked(model, "sample_actions", model.actor, _sample_by_rows)


def log_probs_of(model: Any) -> Any:
    """(obs, actions) to log-probabilities (rows,), differentiable in the actor's parameters."""
    return asked(model, "log_prob", model.actor, partial(_numbers_by_rows, name="log_prob"))


def state_values_of(model: Any) -> Any:
    """obs to values (rows,), differentiable in the value function's parameters."""
    return asked(model, "values", model.value_net, partial(_numbers_by_rows, name="values"))


def actions_of(model: Any) -> Any:
    """obs to a deterministic actor's actions, differentiable in its parameters."""
    if _has_pullback(getattr(model.actor, "actions", None), model.actor):
        return model.actor.actions
    return ByAutograd(model.actor, "__call__", list(model.actor.parameters()), _as_it_is)


def outputs_of(model: Any) -> Any:
    """obs to whatever a network says of them, differentiable in all its parameters."""
    if _has_pullback(getattr(model, "outputs", None), model):
        return model.outputs
    return ByAutograd(model, "__call__", list(model.parameters()), _as_it_is)


def evaluations_of(policy: Any) -> Any:
    """(obs, actions) to a `PolicyOutput`, differentiable in all parameters."""
    return asked(policy, "evaluate_actions", policy, _evaluation_by_rows)


def predictions_of(model: Any) -> Any:
    """(obs, actions) to a dynamics model's means and log-variances, differentiable in the ensemble's parameters."""
    if _has_pullback(model.predict_distribution, model):
        return model.predict_distribution
    return ByAutograd(model, "predict_distribution", list(model.ensemble_parameters()), _prediction)


def choose_actions(policy: Any, obs: Tensor, *, deterministic: bool, action_masks: Tensor | None = None) -> Tensor:
    """A policy's actions; ours are asked for nothing else."""
    choose = policy.actions if hasattr(policy, "actions") else policy.act
    if action_masks is None:
        chosen = choose(obs, deterministic=deterministic)
    else:
        chosen = choose(obs, deterministic=deterministic, action_masks=action_masks)
    actions: Tensor = chosen if isinstance(chosen, Tensor) else chosen.actions
    return actions


def under(action_masks: Tensor | None) -> dict[str, Tensor]:
    """The keyword that masks go by; none where there are none, so that a user's module need not know of it."""
    return {} if action_masks is None else {"action_masks": action_masks}


def several_samples(model: Any, obs: Tensor, count: int) -> Sample:
    """Several actions for each observation, (batch, count, action_dim)."""
    if hasattr(model, "sample_several"):
        sample: Sample = model.sample_several(obs, count)
        return sample
    actions, logprobs = samples_of(model)(obs.repeat_interleave(count, 0))
    return Sample(actions.unflatten(0, (len(obs), count)), logprobs.unflatten(0, (len(obs), count)))


def exported(model: Any, env: EnvSpec, *, normalizer: ObservationNormalizer | None = None) -> StandalonePolicy | None:
    """The deterministic policy of a model of ours as a network that stands alone; None for a user's module."""
    if not hasattr(model, "policy_network"):
        return None
    network: StandalonePolicy = model.policy_network(env, normalizer=normalizer)
    return network


class AnyCritics(ByAutograd):
    """`q_values` of a user's module: as of ours, a random `subset` or certain `members` may be asked for."""

    def __call__(self, obs: Tensor, actions: Tensor, *, subset: int | None = None) -> Tensor:
        q_values: Tensor = super().__call__(obs, actions)
        members = None if subset is None else random_subset(len(q_values), subset)
        return q_values if members is None else q_values[members]

    def vjp(
        self, *inputs: Tensor, wrt: int | None = None, members: Tensor | None = None, **settings: Any
    ) -> tuple[Tensor, Pullback]:
        q_values, pull = super().vjp(*inputs, wrt=wrt, **settings)
        if members is None:
            return q_values, pull
        return q_values[members], lambda d: pull(torch.zeros_like(q_values).index_copy_(0, members, d))


def asked(owner: Any, name: str, of: Any, answer: Callable[..., Any]) -> Any:
    """A method of ours with its pullback, or one of a user's by autograd, in the parameters of the module `of`."""
    method = getattr(owner, name)
    return method if _has_pullback(method, owner) else ByAutograd(owner, name, list(of.parameters()), answer)


def _has_pullback(method: Any, owner: Any) -> bool:
    """Whether it goes back to all parameters of `owner`; what a module borrows of another knows of that one's alone."""
    return getattr(method, "owner", None) is owner


def column_of(answer: Tensor, rows: int, *, name: str) -> Tensor:
    """One number for each row (rows,), also where they came as (rows, 1), which a loss would spread over all pairs of rows."""
    if answer.numel() != rows:
        raise ValueError(
            f"the module's {name} have shape {tuple(answer.shape)}; there must be one number for each of {rows} rows"
        )
    return answer.reshape(rows)


def _critics_by_rows(given: Any, obs: Tensor, _: Tensor) -> Tensor:
    """Critics may come in a sequence, and one critic's values without their axis."""
    rows = len(obs)
    alone = isinstance(given, Tensor) and given.shape in {(rows,), (rows, 1)}
    return torch.stack([column_of(values, rows, name="q_values") for values in ([given] if alone else given)])


def _numbers_by_rows(given: Tensor, obs: Tensor, *_: Tensor, name: str) -> Tensor:
    return column_of(given, len(obs), name=name)


def _sample_by_rows(given: Any, obs: Tensor) -> Sample:
    return Sample(given.actions, column_of(given.logprobs, len(obs), name="logprobs"))


def _evaluation_by_rows(given: Any, obs: Tensor, actions: Tensor) -> PolicyOutput:
    names = ("logprobs", "values", "entropy")
    return PolicyOutput(actions, *(column_of(getattr(given, name), len(obs), name=name) for name in names))


def _prediction(given: Any, *_: Tensor) -> Prediction:
    return Prediction(*given)


def _as_it_is(given: Tensor, *_: Tensor) -> Tensor:
    return given
