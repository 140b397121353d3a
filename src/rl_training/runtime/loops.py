"""How experience and learning alternate. A loop does one turn at a time; the session decides how often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import torch

from rl_training.algorithms.base import Algorithm, OnPolicyAlgorithm
from rl_training.algorithms.ppo import normalized
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.rollout import explained_variance, generalized_advantages, minibatches
from rl_training.forms import Form, Record, Whole, form_of
from rl_training.options.base import OffPolicyOptions, OnPolicyOptions
from rl_training.runtime.collector import Collector, to_batch
from rl_training.types import Batch, Collected, Metrics, Source, State, Stateful, UpdateResult


class Loop(Stateful, Protocol):
    """One turn is `collect`, then `learn`. What `buffers` holds is checkpointed apart, so that a policy can be read
    without it."""

    buffers: dict[str, Stateful]

    def collect(self) -> Collected: ...
    def learn(self, *, global_step: int, max_updates: int | None) -> UpdateResult: ...
    def mark(self) -> None: ...
    def rewind(self) -> None: ...
    def metrics(self) -> dict[str, Any]:
        """What the final metrics should tell beyond the losses."""
        ...

    def state_form(self, steps: int) -> Form:
        """What its state must look like after so many steps of a run; checked before anything is restored."""
        ...

    def buffer_forms(self, steps: int) -> dict[str, Form]:
        """The same for each of its buffers."""
        ...


class CollectingLoop:
    """What the loops with an environment have in common."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.buffers: dict[str, Stateful] = {}

    def mark(self) -> None:
        self.collector.mark()

    def rewind(self) -> None:
        self.collector.rewind()

    def leave_episode(self, env: int, *, passing: int = 0) -> None:
        """After a `rewind`: bring the environments back to the mark, but let this one begin its next episode or a later one."""
        self.collector.pool.restore()
        self.collector.pool.begin_next(np.array([env]), passing=passing)

    def metrics(self) -> dict[str, Any]:
        return {}

    def state_dict(self) -> State:
        return {"collector": self.collector.state_dict()}

    def state_form(self, steps: int) -> Record:
        """What its state must look like after so many steps of a run."""
        return Record({"collector": self.collector.state_form(steps)})

    def buffer_forms(self, steps: int) -> dict[str, Form]:
        """The same for each of its buffers."""
        return {name: form_of(buffer, steps) for name, buffer in self.buffers.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.collector.load_state_dict(state["collector"])


class OnPolicyLoop(CollectingLoop):
    """Collect a stretch with the current policy, learn from it, forget it."""

    def __init__(self, collector: Collector, algorithm: OnPolicyAlgorithm, options: OnPolicyOptions) -> None:
        super().__init__(collector)
        self.algorithm, self.options = algorithm, options
        self.columns: dict[str, np.ndarray] = {}

    def collect(self) -> Collected:
        self.columns, collected = self.collector.collect(self.options.num_steps)
        return collected

    def learn(self, *, global_step: int, max_updates: int | None) -> UpdateResult:
        batch, metrics = self.prepare(to_batch(self.columns, self.collector.device))
        updates = 0
        for minibatch in self._passes(batch):
            if max_updates is not None and updates >= max_updates:
                break
            metrics |= self.algorithm.update(minibatch, global_step=global_step).metrics
            updates += 1
            if self._moved_too_far(metrics):
                break
        metrics |= self.after_updates(batch, global_step=global_step)
        # only now: acting and learning of this turn saw the same statistics
        self.algorithm.observe(batch["raw_obs"])
        self.columns = {}
        return UpdateResult(metrics, updates)

    def prepare(self, data: Batch) -> tuple[Batch, Metrics]:
        """Columns (time, environments, ...) to rows with log-probabilities, advantages and returns."""
        algorithm, options, shape = self.algorithm, self.options, data["rewards"].shape
        rows = {name: column.flatten(0, 1) for name, column in data.items()}
        obs, next_obs = algorithm.normalize(rows["obs"]), algorithm.normalize(rows["next_obs"])
        values = algorithm.value(obs)
        advantages = generalized_advantages(
            rewards=algorithm.scale_rewards(data["rewards"], data["cuts"]).cpu(),
            values=values.view(shape).cpu(),
            next_values=algorithm.value(next_obs).view(shape).cpu(),
            dones=data["dones"].cpu(),
            cuts=data["cuts"].cpu(),
            gamma=options.gamma,
            gae_lambda=options.gae_lambda,
        )
        flat_advantages = advantages.flatten().to(values.device)
        over_batch = getattr(options, "normalize_advantages", None) == "batch"
        batch = {
            "obs": obs,
            "raw_obs": rows["obs"],
            "actions": rows["actions"],
            "logprobs": algorithm.log_prob(obs, rows["actions"]),
            "advantages": normalized(flat_advantages) if over_batch else flat_advantages,
            "returns": flat_advantages + values,
            "values": values,
        }
        return batch, {"explained_variance": explained_variance(values, batch["returns"])}

    def after_updates(self, batch: Batch, *, global_step: int) -> Metrics:  # noqa: ARG002
        """What else to do with a rollout before it is forgotten."""
        return {}

    def _passes(self, batch: Batch) -> Iterator[Batch]:
        needed = {name: column for name, column in batch.items() if name != "raw_obs"}
        for _ in range(self.options.update_epochs):
            yield from minibatches(needed, self.options.minibatch_size)

    def _moved_too_far(self, metrics: Metrics) -> bool:
        target_kl: float | None = getattr(self.options, "target_kl", None)
        return target_kl is not None and float(metrics["approx_kl"]) > 1.5 * target_kl


class OffPolicyLoop(CollectingLoop):
    """Act, remember, learn from memory."""

    def __init__(
        self,
        collector: Collector,
        buffer: ReplayBuffer,
        algorithm: Algorithm,
        options: OffPolicyOptions,
        *,
        source: Source | None = None,
    ) -> None:
        super().__init__(collector)
        self.buffer, self.algorithm, self.options = buffer, algorithm, options
        self.source: Source = source or buffer
        self.buffers = {"replay": buffer}
        self.turns = 0

    @property
    def warming_up(self) -> bool:
        return self.buffer.added < self.options.learning_starts

    def collect(self) -> Collected:
        columns, collected = self.collector.collect(1, random=self.warming_up)
        self.buffer.add({name: column[0] for name, column in columns.items()})
        self.turns += 1
        return collected

    def learn(self, *, global_step: int, max_updates: int | None) -> UpdateResult:
        if self.warming_up or self.turns % self.options.train_frequency:
            return UpdateResult({}, 0)
        updates = self.options.gradient_updates_per_step
        if max_updates is not None:
            updates = min(updates, max_updates)
        return self.update(updates, global_step=global_step)

    def update(self, updates: int, *, global_step: int) -> UpdateResult:
        """`updates` gradient steps, each on a batch of its own."""
        metrics: Metrics = {}
        for _ in range(updates):
            metrics = self.algorithm.update(self.sample(), global_step=global_step).metrics
        return UpdateResult(metrics, updates)

    def sample(self) -> Batch:
        return on_device(self.source.sample(self.options.batch_size), self.collector.device)

    def metrics(self) -> dict[str, Any]:
        return {"buffer_size": len(self.buffer)}

    def state_dict(self) -> State:
        return super().state_dict() | {"turns": self.turns}

    def state_form(self, steps: int) -> Record:
        return super().state_form(steps).with_parts(turns=Whole(0, steps))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.turns = state["turns"]


def on_device(batch: Batch, device: torch.device) -> Batch:
    """The batch where the networks are; as it is if that is here."""
    return batch if device.type == "cpu" else {name: column.to(device) for name, column in batch.items()}
