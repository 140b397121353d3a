"""Train PETS: act by planning, remember, and fit the model anew after every episode."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from rl_training.algorithms.pets import LOSS, PETS
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.envs.source import EnvSource
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.forms import GENERATOR, Array, Maybe, Record, Whole, flag
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel
from rl_training.options._dynamics import DynamicsOptions
from rl_training.options.pets import PETSConfig
from rl_training.planning.cem import CEM
from rl_training.planning.dynamics_fit import DynamicsFit, FitSettings
from rl_training.planning.known_functions import TransitionFn, require_functions, reward_function, termination_function
from rl_training.planning.plan_values import PlanValues
from rl_training.runtime.collector import Collector
from rl_training.runtime.loops import CollectingLoop, on_device
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.rng import Stream
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import Collected, EnvSpec, State, TrainResult, UpdateResult


class PlanningExplorer:
    """Plans in the training environments, each step from what was left of the last plan.

    The plans are part of the run's state; evaluation and prediction have their own.
    """

    def __init__(self, learner: PETS) -> None:
        self.learner = learner
        self.plans: Tensor | None = None  # (environments, 1 + carried, horizon, action_dim)
        self._marked: Tensor | None = None
        self._seconds, self._planned = 0.0, 0

    def explore(self, obs: Tensor) -> Tensor:
        began = time.perf_counter()
        plan = self.learner.plan(obs, start=self.plans)
        if self.learner.warm_start:
            self.plans = plan.shifted(torch.zeros_like(plan.mean[0, 0]))
        self._seconds, self._planned = self._seconds + time.perf_counter() - began, self._planned + 1
        return plan.actions

    def forget(self, ended: np.ndarray) -> None:
        """An episode that has ended leaves no plan to the next."""
        if self.plans is not None and ended.any():
            self.plans = self.plans * torch.from_numpy(1.0 - ended).to(self.plans)[:, None, None, None]

    def mark(self) -> None:
        self._marked = self.plans

    def rewind(self) -> None:
        self.plans = self._marked

    def metrics(self) -> dict[str, Any]:
        return {"time/planning_ms": 1000 * self._seconds / self._planned} if self._planned else {}

    def state_dict(self) -> State:
        return {"plans": self.plans}

    def state_form(self, num_envs: int) -> Record:
        """What its state must look like."""
        horizon, actions = self.learner.planner.horizon, self.learner.dynamics.model.action_dim
        return Record({"plans": Maybe(Array((num_envs, None, horizon, actions)))})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        plans = state["plans"]
        if plans is not None and plans.dim() == 3:  # a checkpoint from before plans were carried on has the means alone
            plans = plans.unsqueeze(1)
        self.plans = None if plans is None else plans.to(self.learner.dynamics.parameters[0].device).clone()


class PETSLoop(CollectingLoop):
    """Act, remember; after an episode (or every `train_frequency` turns) fit the model to all that is remembered.

    A fit is part of the turn that makes it due. Only `max_updates` can leave one unfinished: its next turns go on with
    it before another step is made. What ends of plans are worth is learnt when the model's fit is over, as a whole.
    """

    _counts = ("turns", "episodes", "fitted_steps", "new_steps", "due")

    def __init__(self, collector: Collector, buffer: ReplayBuffer, algorithm: PETS, options: PETSConfig, *, seed: int) -> None:
        super().__init__(collector)
        self.buffer, self.algorithm, self.options = buffer, algorithm, options
        self.buffers = {"replay": buffer}
        self.explorer = cast("PlanningExplorer", collector.algorithm)
        settings = FitSettings(
            batch_size=options.batch_size,
            max_epochs=options.model_epochs if options.model_updates_per_step is None else None,
            holdout_ratio=options.model_holdout_ratio,
            max_holdout=options.model_max_holdout,
            patience=options.model_patience,
        )
        self.fit = DynamicsFit(algorithm.dynamics, settings, loss_name=LOSS)
        self.rng = np.random.default_rng((seed, Stream.MODEL_FITS))
        self.turns = self.episodes = self.fitted_steps = self.new_steps = 0
        self.due = False

    def collect(self) -> Collected:
        if self.fit.running:
            return Collected(0, [], [])
        random = self.buffer.added < self.options.initial_random_steps or not self.fit.fits_done
        columns, collected = self.collector.collect(1, random=random)
        self.buffer.add({name: column[0] for name, column in columns.items()})
        self.explorer.forget(columns["cuts"][0])
        self.turns += 1
        self.episodes += len(collected.episode_returns)
        frequency = self.options.train_frequency
        self.due |= bool(collected.episode_returns) if frequency is None else self.turns % frequency == 0
        return collected

    def learn(self, *, global_step: int, max_updates: int | None) -> UpdateResult:  # noqa: ARG002 (the model needs no clock)
        if self.due and not self.fit.running and self.buffer.added >= max(self.options.learning_starts, 2):
            self.new_steps = self.buffer.added - self.fitted_steps
            per_step, seed = self.options.model_updates_per_step, int(self.rng.integers(2**62))
            self.fit.begin(seed, max_updates=None if per_step is None else per_step * self.new_steps)
            self.fitted_steps, self.due = self.buffer.added, False
        if not self.fit.running:
            return UpdateResult({}, 0)
        transitions = on_device(self.buffer.transitions, self.collector.device)
        result = self.fit.advance(transitions, max_updates=max_updates)
        if self.algorithm.values is None or self.fit.running:
            return result
        updates, seed = self.options.value_updates_per_step * self.new_steps, int(self.rng.integers(2**62))
        metrics = self.algorithm.fit_values(transitions, updates=updates, seed=seed)
        return UpdateResult({**result.metrics, **metrics}, result.num_gradient_steps)

    def mark(self) -> None:
        super().mark()
        self.explorer.mark()

    def rewind(self) -> None:
        super().rewind()
        self.explorer.rewind()

    def leave_episode(self, env: int, *, passing: int = 0) -> None:
        super().leave_episode(env, passing=passing)
        self.explorer.forget(np.arange(self.collector.num_envs) == env)

    def metrics(self) -> dict[str, Any]:
        values = {"buffer_size": len(self.buffer), "model_fits": self.fit.fits_done, **self.explorer.metrics()}
        if not self.episodes:  # until one has ended, those that run
            running = self.collector.pool.state_dict()
            values |= {f"episode_{name}": float(running[f"{name}s"].mean()) for name in ("return", "length")}
        return values

    def state_dict(self) -> State:
        own = {name: getattr(self, name) for name in self._counts}
        parts = {"fit": self.fit.state_dict(), "explorer": self.explorer.state_dict(), "rng": self.rng.bit_generator.state}
        return super().state_dict() | own | parts

    def state_form(self, steps: int) -> Record:
        per_step, count = self.options.model_updates_per_step or 0, Whole(0, steps)
        parts = (
            super()
            .state_form(steps)
            .with_parts(
                **dict.fromkeys(("turns", "episodes", "fitted_steps"), count),
                due=flag,
                fit=self.fit.state_form(max_updates=per_step * steps),
                explorer=self.explorer.state_form(self.collector.num_envs),
                rng=GENERATOR,
            )
        )
        return replace(parts, optional={"new_steps": count})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for name in self._counts:  # a checkpoint from before there were values does not count for them
            setattr(self, name, state[name] if name != "new_steps" else state.get(name, 0))
        self.fit.load_state_dict(state["fit"])
        self.explorer.load_state_dict(state["explorer"])
        self.rng.bit_generator.state = state["rng"]


def build_pets(options: PETSConfig, env: EnvSpec, device: torch.device) -> PETS:
    planner = CEM(
        horizon=options.planning_horizon,
        candidates=options.planning_candidates,
        iterations=options.planning_iterations,
        topk=options.planning_topk,
        momentum=options.planning_momentum,
        keep_elites=options.planning_keep_elites,
        carry_elites=options.planning_carry_elites,
        act_on_best=options.planning_act_on == "best",
        noise_beta=options.planning_noise_beta,
        initial_std=options.planning_initial_std,
    )
    values = None
    if options.value_updates_per_step:
        values = PlanValues(
            env.obs_dim,
            env.action_dim,
            options.value_hidden_sizes,
            learning_rate=options.value_learning_rate,
            gamma=options.value_gamma,
            action_repeat=options.value_action_repeat,
        ).to(device)
    return PETS(
        dynamics_model(options, env, num_elites=options.num_elites).to(device),
        options.model_learning_rate,
        weight_decays=options.layer_decays(),
        planner=planner,
        num_particles=options.planning_particles,
        ts1=options.planning_propagation == "ts1",
        warm_start=options.planning_warm_start,
        reward_fn=in_env_units(reward_function(options.reward_fn, obs_dim=env.obs_dim), env, device),
        termination_fn=in_env_units(termination_function(options.termination_fn, obs_dim=env.obs_dim), env, device),
        values=values,
    )


def dynamics_model(options: DynamicsOptions, env: EnvSpec, *, num_elites: int | None) -> MLPMOPOEnsembleModel:
    """The ensemble that the options ask for, MOPO's too."""
    return MLPMOPOEnsembleModel(
        env.obs_dim,
        env.action_dim,
        options.model_hidden_sizes,
        options.num_ensembles,
        num_elites=num_elites,
        deterministic=options.deterministic_model,
    )


def in_env_units(function: TransitionFn | None, env: EnvSpec, device: torch.device) -> TransitionFn | None:
    """A function of the environment's actions as one of the learner's, which lie in [-1, 1]."""
    if function is None:
        return None
    known = function
    low, high = (torch.tensor(bound, dtype=torch.float32, device=device) for bound in (env.low, env.high))
    middle, half = (low + high) / 2, (high - low) / 2
    return lambda obs, actions, next_obs: known(obs, torch.addcmul(middle, actions, half), next_obs)


def train_pets(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    options = cast("PETSConfig", config.options)
    if options.reward_fn or options.termination_fn:  # what cannot be found is refused before any file is made
        spec = EnvSource(config.env_id, config.env_kwargs, session_options.get("env")).spec()
        particles_and_plans = (2, 3)
        require_functions(spec, rows=particles_and_plans, reward_fn=options.reward_fn, termination_fn=options.termination_fn)
    with open_session(config, **session_options) as session:
        algorithm = build_pets(options, session.spec, session.device)
        collector = session.collector(PlanningExplorer(algorithm))
        buffer = session.replay_buffer(options.buffer_capacity)
        return session.train(algorithm, PETSLoop(collector, buffer, algorithm, options, seed=config.seed))


SPEC = AlgorithmSpec("pets", PETSConfig, build_pets, train_pets, evaluate_checkpoint, predict_checkpoint)
