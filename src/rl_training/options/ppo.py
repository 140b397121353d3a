"""Settings of PPO (Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from rl_training.options._networks import LinearHeads
from rl_training.options._search import Real, SearchSpace, Whole, one_of
from rl_training.options.base import HiddenSizes, OnPolicyOptions, Problem, Schedule, option

ONE_ROW = "one advantage less its mean is 0, so that the policy would not move"


class PPOConfig(LinearHeads, OnPolicyOptions):
    """Proximal policy optimisation: several passes over each rollout, with steps too far from it clipped."""

    algo: ClassVar[str] = "ppo"
    summary: ClassVar[str] = "Proximal policy optimisation: the sturdy on-policy default for discrete and continuous actions"
    paper: ClassVar[str] = "Schulman et al., 2017, arXiv:1707.06347"
    discrete: ClassVar[bool] = True
    in_parts: ClassVar[bool] = True
    continuous: ClassVar[bool] = True
    images: ClassVar[bool] = True
    masks: ClassVar[bool] = True
    default_num_threads: ClassVar[int] = 1
    schedulable: ClassVar[tuple[str, ...]] = ("learning_rate", "ent_coef", "clip_coef", "vf_coef")
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": Real(1e-5, 1e-2, log=True),
        "num_steps": one_of(32, 64, 128, 256, 512, 1024, 2048),
        "minibatch_size": one_of(32, 64, 128, 256, 512),
        "update_epochs": Whole(1, 20),
        "gamma": one_of(0.9, 0.95, 0.98, 0.99, 0.995, 0.999),
        "gae_lambda": one_of(0.8, 0.9, 0.95, 0.98, 1.0),
        "clip_coef": one_of(0.1, 0.2, 0.3, 0.4),
        "ent_coef": Real(1e-8, 0.1, log=True),
        "vf_coef": Real(0.2, 1.0),
        "max_grad_norm": one_of(0.3, 0.5, 1.0, 2.0, 5.0),
        "hidden_sizes": one_of([64, 64], [128, 128], [256, 256]),
    }

    learning_rate: float = option(3e-4, "Adam's step size.", gt=0)
    clip_coef: float = option(0.2, "How far the probability ratio may leave 1 before its gradient is cut.", gt=0)
    ent_coef: float = option(0.0, "Weight of the entropy bonus.", ge=0)
    vf_coef: float = option(0.5, "Weight of the value loss.", ge=0)
    max_grad_norm: float | None = option(0.5, "Norm to which the gradient is clipped; none means it is not.", gt=0)
    hidden_sizes: HiddenSizes = option(
        (64, 64),
        "Width of each hidden layer; an empty list is a linear policy, and what stands behind another network than mlp.",
    )
    activation: Literal["tanh", "relu"] = option("tanh", "Nonlinearity of the hidden layers.")
    log_std_init: float = option(0.0, "Logarithm of the first standard deviation of continuous actions.")
    normalize_advantages: Literal["minibatch", "batch", "none"] = option(
        "minibatch", "Over what advantages are brought to mean 0 and standard deviation 1."
    )
    clip_value_loss: bool = option(False, "Also clip how far a value may move from its estimate at collection, by clip_coef.")
    target_kl: float | None = option(
        None,
        "The update that takes the approximate KL divergence above 1.5 times this is the turn's last; none means no limit.",
        gt=0,
    )
    adam_eps: float = option(1e-5, "Adam's term against division by zero.", gt=0)
    ent_coef_schedule: Schedule | None = option(None, "How ent_coef changes; none means it does not.")
    clip_coef_schedule: Schedule | None = option(None, "How clip_coef changes; none means it does not.")
    vf_coef_schedule: Schedule | None = option(None, "How vf_coef changes; none means it does not.")

    def contradictions(self) -> Iterator[Problem]:
        """Normalised over itself alone, a single advantage is 0."""
        yield from super().contradictions()
        if self.minibatch_size == 1 and self.normalize_advantages == "minibatch":
            keys = ("minibatch_size", "normalize_advantages")
            yield Problem(keys, f"{ONE_ROW}; give a larger minibatch_size, or normalize_advantages: batch (or none)")

    def contradictions_with_run(self, *, num_envs: int, execution_backend: str) -> Iterator[Problem]:
        """The same for a rollout of one row, and for what minibatches leave over of a longer one."""
        yield from super().contradictions_with_run(num_envs=num_envs, execution_backend=execution_backend)
        rows, size = num_envs * self.num_steps, self.minibatch_size
        keys = ("num_envs", "algo_kwargs.num_steps")
        if rows == 1 and self.normalize_advantages != "none":
            yield Problem(keys, f"a rollout of one row: {ONE_ROW}; give more num_steps, or normalize_advantages: none")
        elif rows % size == 1 < size < rows and self.normalize_advantages == "minibatch":
            text = f"minibatches of {size} leave one of the {rows} rows (num_envs · num_steps) over: {ONE_ROW}"
            advice = "give another minibatch_size, or normalize_advantages: batch (or none)"
            yield Problem((*keys, "algo_kwargs.minibatch_size"), f"{text} there; {advice}")
