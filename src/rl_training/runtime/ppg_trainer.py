"""Train PPG: PPO's turns, and after every few of them an auxiliary phase over their rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from typing_extensions import Unpack

from rl_training.algorithms.ppg import PPG
from rl_training.data.rollout import minibatches
from rl_training.data.rollout_memory import RolloutMemory
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.forms import Array, Each, Form, Named, Record, Whole, scalar
from rl_training.models.mlp_ppg import MLPPPGModel
from rl_training.options.ppg import PPGConfig
from rl_training.runtime.collector import Collector
from rl_training.runtime.loops import OnPolicyLoop
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.ppo_trainer import ppo_arguments
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import Batch, EnvSpec, Metrics, State, TrainResult


class PPGLoop(OnPolicyLoop):
    """A turn is a policy phase; every `aux_frequency`-th ends with an auxiliary phase over the rollouts since the last.

    The session counts the policy phase's gradient steps as updates, as in PPO, and `max_updates` limits these; those of
    the auxiliary phase are counted apart, so that a phase is made whole or not at all.
    """

    algorithm: PPG
    options: PPGConfig

    def __init__(self, collector: Collector, algorithm: PPG, options: PPGConfig) -> None:
        super().__init__(collector, algorithm, options)
        self.memory = RolloutMemory(options.aux_buffer_rollouts or options.aux_frequency)
        self.buffers = {"auxiliary": self.memory}
        self.turns = 0
        self.auxiliary_metrics: Metrics = {}  # of the last phase; kept, because few turns have one

    def after_updates(self, batch: Batch, *, global_step: int) -> Metrics:
        # raw observations: by the time of the phase the statistics have moved, and it is about the policy as it acts then
        self.memory.add({"obs": batch["raw_obs"], "returns": batch["returns"]})
        self.turns += 1
        if self.turns % self.options.aux_frequency == 0:
            self.auxiliary_metrics = self._auxiliary_phase(global_step)
        return self.auxiliary_metrics

    def _auxiliary_phase(self, global_step: int) -> Metrics:
        rollouts = [self._taught(rollout) for rollout in self.memory]
        batch = {name: torch.cat([rollout[name] for rollout in rollouts]) for name in rollouts[0]}
        self.memory.clear()
        metrics: Metrics = {}
        for _ in range(self.options.aux_epochs):
            for minibatch in minibatches(batch, self.options.aux_minibatch_size):
                metrics = self.algorithm.auxiliary_update(minibatch, global_step=global_step).metrics
        return metrics

    def _taught(self, rollout: Batch) -> Batch:
        """A kept rollout with what the policy says of it before the phase: the teacher is asked once, not copied."""
        device = self.collector.device
        obs = self.algorithm.normalize(rollout["obs"].to(device))
        return {"obs": obs, "returns": rollout["returns"].to(device), **self.algorithm.teacher_columns(obs)}

    def _passes(self, batch: Batch) -> Iterator[Batch]:
        """E_pi passes for the policy and E_V for the value function, together as far as both go; the rest alone."""
        policy_epochs = self.options.update_epochs
        value_epochs = self.options.value_epochs or policy_epochs
        for epoch in range(max(policy_epochs, value_epochs)):
            left_out = {"raw_obs"}
            left_out |= {"actions", "logprobs", "advantages"} if epoch >= policy_epochs else set()
            left_out |= {"returns"} if epoch >= value_epochs else set()
            columns = {name: column for name, column in batch.items() if name not in left_out}
            yield from minibatches(columns, self.options.minibatch_size)

    def metrics(self) -> dict[str, Any]:
        learner = self.algorithm
        return {
            "auxiliary_phase_ran": learner.auxiliary_updates > 0,
            "policy_updates": learner.policy_updates,
            "auxiliary_updates": learner.auxiliary_updates,
            "auxiliary_buffer_rollouts": len(self.memory),
        }

    def state_dict(self) -> State:
        return super().state_dict() | {"turns": self.turns, "auxiliary_metrics": self.auxiliary_metrics}

    def state_form(self, steps: int) -> Record:
        return super().state_form(steps).with_parts(turns=Whole(0, steps), auxiliary_metrics=Named(scalar))

    def buffer_forms(self, steps: int) -> dict[str, Form]:  # noqa: ARG002 (a rollout is as long as any other)
        rows = self.options.num_steps * self.collector.num_envs
        rollout = Record({"obs": Array((rows, self.collector.spec.obs_dim)), "returns": Array((rows,))})
        return {"auxiliary": Record({"rollouts": Each(rollout, self.memory.capacity)})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.turns, self.auxiliary_metrics = state["turns"], dict(state["auxiliary_metrics"])


def build_ppg(options: PPGConfig, env: EnvSpec, device: torch.device) -> PPG:
    model = MLPPPGModel(
        env.obs_dim,
        env.action_dim,
        options.hidden_sizes,
        discrete=env.discrete,
        architecture=options.architecture,
        activation=options.activation,
        log_std_init=options.log_std_init,
    ).to(device)
    return PPG(
        model,
        aux_learning_rate=options.aux_learning_rate,
        aux_value_coef=options.aux_value_coef,
        behavior_clone_coef=options.behavior_clone_coef,
        value_clone_coef=options.value_clone_coef,
        **ppo_arguments(options, env),
    )


def train_ppg(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    with open_session(config, **session_options) as session:
        options = cast("PPGConfig", config.options)
        algorithm = build_ppg(options, session.spec, session.device)
        return session.train(algorithm, PPGLoop(session.collector(algorithm), algorithm, options))


SPEC = AlgorithmSpec("ppg", PPGConfig, build_ppg, train_ppg, evaluate_checkpoint, predict_checkpoint)
