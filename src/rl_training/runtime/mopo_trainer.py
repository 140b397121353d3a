"""Train MOPO: fit the dynamics to recorded data, then learn from it and from short imagined rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from rl_training.algorithms.mopo import LOSS, MOPO
from rl_training.data.mixed_source import MixedSource
from rl_training.data.offline_dataset import OfflineDataset
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.envs.source import EnvSource
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import AlgorithmSpec
from rl_training.forms import NUMBER, Form, Named, Record, Whole
from rl_training.options.mopo import MOPOConfig
from rl_training.planning.dynamics_fit import DynamicsFit, FitSettings
from rl_training.planning.known_functions import require_functions, termination_function
from rl_training.runtime.loops import on_device
from rl_training.runtime.offline_loop import OfflineLoop
from rl_training.runtime.opening import SessionOptions, open_session
from rl_training.runtime.pets_trainer import dynamics_model, in_env_units
from rl_training.runtime.rng import Stream
from rl_training.runtime.sac_trainer import sac_model, sac_policy_settings
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.types import Batch, Collected, EnvSpec, State, TrainResult, UpdateResult

FIT_TURN = 50  # gradient steps of the model in a turn: after each the run can be stopped and saved


class MOPOLoop(OfflineLoop):
    """First the model is fitted, `FIT_TURN` updates a turn; then a turn is one update of the policy, and a timestep.

    The fit counts in `updates` and `max_updates`, not in `global_step`, and schedules stand still. Every
    `rollout_refresh_interval` turns the policy imagines rollouts from recorded states, which push the oldest ones out.
    """

    algorithm: MOPO

    def __init__(
        self,
        dataset: OfflineDataset,
        synthetic: ReplayBuffer,
        algorithm: MOPO,
        options: MOPOConfig,
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        ratio = options.synthetic_batch_ratio
        self.mixed = MixedSource([(dataset, 1 - ratio), (synthetic, ratio)])
        super().__init__(dataset, algorithm, batch_size=options.batch_size, device=device, source=self.mixed)
        self.synthetic, self.options, self.seed = synthetic, options, seed
        self.buffers = {"dataset": dataset, "synthetic": synthetic}
        self.fit = DynamicsFit(algorithm.dynamics, fit_settings(options), loss_name=LOSS)
        self.bounds = data_range(on_device(dataset.transitions, device)) if options.clip_rollouts else None
        self.model_updates_done = self.policy_updates = 0
        self.imagined: dict[str, float] = {"synthetic_disagreement_mean": 0.0}
        self._marked = dataset.rng.bit_generator.state

    @property
    def fitting(self) -> bool:
        return not self.fit.fits_done

    def collect(self) -> Collected:
        if self.fitting:
            return Collected(0, [], [])
        if self.mixed.counts(self.batch_size)[1] and self.policy_updates % self.options.rollout_refresh_interval == 0:
            self.refresh()
        return super().collect()

    def refresh(self) -> None:
        """Imagine rollouts from recorded states into the synthetic buffer."""
        options = self.options
        starts = on_device(self.dataset.sample(options.rollout_batch_size), self.device)["obs"]
        batch = self.algorithm.imagine(starts, horizon=options.rollout_horizon, bounds=self.bounds)
        rows = len(batch["rewards"])
        if rows > self.synthetic.capacity:
            # the buffer would keep the last rows, which are the last steps of all rollouts: let it keep some of each
            chosen = torch.randperm(rows)[: self.synthetic.capacity].to(self.device)
            batch = {name: column[chosen] for name, column in batch.items()}
        self.synthetic.add({name: column.cpu().numpy() for name, column in batch.items()})
        names = {"disagreement": "disagreement", "penalties": "penalty", "rewards": "reward"}
        self.imagined = {f"synthetic_{name}_mean": float(batch[column].mean()) for column, name in names.items()}

    def learn(self, *, global_step: int, max_updates: int | None) -> UpdateResult:
        if self.fitting:
            return self._fit(max_updates)
        self.policy_updates += 1
        return super().learn(global_step=global_step, max_updates=max_updates)

    def _fit(self, max_updates: int | None) -> UpdateResult:
        if not self.fit.running:
            seed = int(np.random.default_rng((self.seed, Stream.MODEL_FITS)).integers(2**62))
            self.fit.begin(seed, max_updates=self.options.model_updates)
        # turns end at multiples, even after one that `max_updates` cut short
        turn = FIT_TURN - self.model_updates_done % FIT_TURN
        limit = turn if max_updates is None else min(turn, max_updates)
        result = self.fit.advance(on_device(self.dataset.transitions, self.device), max_updates=limit)
        self.model_updates_done += result.num_gradient_steps
        return result

    def metrics(self) -> dict[str, Any]:
        real, synthetic = self.mixed.counts(self.batch_size)
        counts = {
            "model_updates_done": self.model_updates_done,
            "synthetic_buffer_size": len(self.synthetic),
            "real_batch_size": real,
            "synthetic_batch_size": synthetic,
        }
        return super().metrics() | counts | self.imagined

    def mark(self) -> None:
        self._marked = self.dataset.rng.bit_generator.state

    def rewind(self) -> None:
        """A refresh that fails has drawn its starts but added nothing."""
        self.dataset.rng.bit_generator.state = self._marked

    def state_dict(self) -> State:
        own = {name: getattr(self, name) for name in ("model_updates_done", "policy_updates", "imagined")}
        return super().state_dict() | own | {"fit": self.fit.state_dict()}

    def state_form(self, steps: int) -> Record:
        updates = self.options.model_updates
        return (
            super()
            .state_form(steps)
            .with_parts(
                model_updates_done=Whole(0, updates),
                policy_updates=Whole(0, steps),
                imagined=Named(NUMBER),
                fit=self.fit.state_form(max_updates=updates),
            )
        )

    def buffer_forms(self, steps: int) -> dict[str, Form]:
        rows = steps * self.options.rollout_batch_size * self.options.rollout_horizon
        return super().buffer_forms(steps) | {"synthetic": self.synthetic.state_form(rows)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.model_updates_done, self.policy_updates = state["model_updates_done"], state["policy_updates"]
        self.imagined = dict(state["imagined"])
        self.fit.load_state_dict(state["fit"])


def fit_settings(options: MOPOConfig) -> FitSettings:
    return FitSettings(
        batch_size=options.model_batch_size,
        holdout_ratio=options.model_holdout_ratio,
        max_holdout=options.model_max_holdout,
        patience=options.model_patience,
    )


def data_range(transitions: Batch) -> tuple[Tensor, Tensor]:
    """The lowest and the highest of every observed value, before or after a step."""
    both = [transitions["obs"], transitions["next_obs"]]
    low, high = (torch.stack([extreme(column, 0) for column in both]) for extreme in (torch.amin, torch.amax))
    return low.amin(0), high.amax(0)


def build_mopo(options: MOPOConfig, env: EnvSpec, device: torch.device) -> MOPO:
    dynamics = dynamics_model(options, env, num_elites=options.predicting_members())
    return MOPO(
        sac_model(options, env, device),
        dynamics.to(device),
        policy_learning_rate=options.policy_learning_rate,
        model_learning_rate=options.model_learning_rate,
        penalty=options.penalty,
        penalty_coef=options.penalty_coef,
        weight_decays=options.layer_decays(),
        termination_fn=in_env_units(termination_function(options.termination_fn, obs_dim=env.obs_dim), env, device),
        **sac_policy_settings(options),
    )


def train_mopo(config: TrainConfig, **session_options: Unpack[SessionOptions]) -> TrainResult:
    """Train as `config` says; see `SessionOptions` for the rest."""
    options = cast("MOPOConfig", config.options)
    if options.termination_fn:  # what cannot be found is refused before any file is made
        source = EnvSource(config.env_id, config.env_kwargs, session_options.get("env"))
        require_functions(source.spec(), rows=(3,), termination_fn=options.termination_fn)
    with open_session(config, **session_options) as session:
        algorithm = build_mopo(options, session.spec, session.device)
        synthetic = session.replay_buffer(options.synthetic_capacity())
        loop = MOPOLoop(session.prior_data(), synthetic, algorithm, options, seed=config.seed, device=session.device)
        return session.train(algorithm, loop)


SPEC = AlgorithmSpec("mopo", MOPOConfig, build_mopo, train_mopo, evaluate_checkpoint, predict_checkpoint)
