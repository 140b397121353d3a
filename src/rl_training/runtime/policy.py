"""A trained policy in memory: acts and is evaluated, with no file or environment touched to act."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_training.algorithms.base import Algorithm
from rl_training.envs.pool import Evaluator
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import all_finite
from rl_training.errors import CheckpointError, ConfigError, MisfitError
from rl_training.experiment.checkpoint import load_checkpoint, must_fit
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.locate import resolve_checkpoint
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.experiment.trust import Trust, named_for_envs, named_to_act, require_trust
from rl_training.runtime.checkpoint_form import require_finite, require_sound
from rl_training.runtime.evaluation import PolicyEvaluator
from rl_training.runtime.heap import keep_freed_memory
from rl_training.runtime.opening import resolve_device
from rl_training.runtime.same_env import require_same_env
from rl_training.runtime.single_policy import SinglePolicy
from rl_training.runtime.torch_settings import single_precision
from rl_training.types import EnvSpec


class Policy:
    """What a checkpoint knows how to do: the learner with its normaliser, and the environment's spaces."""

    def __init__(
        self,
        config: TrainConfig,
        spec: EnvSpec,
        algorithm: Algorithm,
        *,
        device: torch.device,
        made_on: Sequence[str] | None = None,
        file: Path | None = None,
        trust: Trust = False,
    ) -> None:
        self.file, self.trust = file, trust  # what it was read from, if it was, and whether that may be followed
        self.config, self.spec, self.algorithm, self.device = config, spec, algorithm, device
        self.made_on = made_on  # the layers of its environment, where the configuration's id does not say them
        keep_freed_memory()
        network = algorithm.policy_network(spec) if device.type == "cpu" else None
        self._single = None if network is None else SinglePolicy(network, spec)

    def predict(self, obs: Any, *, deterministic: bool = True) -> int | np.ndarray:
        """The action for one observation, or actions for a batch: an `int` for one discrete observation, an array in
        the environment's bounds otherwise."""
        array = self._as_array(obs)
        if array.ndim not in (1, 2) or array.shape[-1] != self.spec.obs_dim:
            possible = f"({self.spec.obs_dim},) or (batch, {self.spec.obs_dim})"
            raise ValueError(f"{self.spec.env_id} is observed as {possible}; this observation has shape {array.shape}")
        if not all_finite(array):  # half a microsecond; a network would answer with an action as if nothing were wrong
            raise ValueError(_not_finite(array, self.spec.env_id))
        single = array.ndim == 1
        if single and deterministic and self._single is not None:
            return self._single(array)
        rows = torch.from_numpy(array[None] if single else array)
        if self.device.type == "cpu":
            actions = self.algorithm.act(rows, deterministic=deterministic)
        else:
            actions = self.algorithm.act(rows.to(self.device), deterministic=deterministic).cpu()
        scaled = self.spec.to_env(actions.numpy())
        if not single:
            return scaled
        return int(scaled[0]) if self.spec.discrete else scaled[0]

    def _as_array(self, obs: Any) -> np.ndarray:
        if isinstance(obs, torch.Tensor):  # wherever it lies, and whatever it hangs in
            obs = obs.detach().cpu()
        try:
            return np.asarray(obs, dtype=np.float32)
        except (TypeError, ValueError) as error:
            from_reset = isinstance(obs, tuple) and len(obs) == 2 and isinstance(obs[1], dict)
            advice = "this is what env.reset() returns, (obs, info): pass obs alone" if from_reset else f"{error}"
            raise ValueError(f"{self.spec.env_id} is observed as {self.spec.obs_dim} numbers; {advice}") from error

    def environments(self, env: Any = None, **more: Any) -> EnvSource:
        """Those of the configuration, made with `more` arguments, or `env` in their place."""
        if env is None and self.file is not None:
            require_trust(named_for_envs(self.config), self.file, trust=self.trust)
        source = EnvSource(self.config.env_id, self.config.env_kwargs | (more if env is None else {}), env)
        require_same_env(source, self.made_on, algo=self.config.algo, env_id=self.config.env_id)
        return source

    def evaluate(self, *, num_episodes: int | None = None, env: Any = None) -> dict[str, Any]:
        """Mean and spread of the returns of the deterministic policy."""
        if num_episodes is not None and num_episodes < 1:
            raise ConfigError(f"num_episodes: given {num_episodes}; possible: at least 1")
        evaluator = PolicyEvaluator(
            Evaluator(self.environments(env), self.spec), self.spec, seed=self.config.seed, device=self.device
        )
        try:
            return evaluator(self.algorithm, num_episodes=self.config.eval_episodes if num_episodes is None else num_episodes)
        finally:
            evaluator.close()


def _not_finite(array: np.ndarray, env_id: str) -> str:
    first = tuple(int(index) for index in np.argwhere(~np.isfinite(array))[0])
    place = f"number {first[-1]}" + (f" of row {first[0]}" if len(first) > 1 else "")
    return f"this observation of {env_id} is not finite: {place} is {array[first]}; counted from 0"


def load_policy(path: str | Path, *, device: str = "auto", trust: Trust = False) -> Policy:
    """The policy of a checkpoint, or of the newest checkpoint of a run directory; buffers are not read.

    Nothing that the checkpoint names is imported but what the policy acts with, and that only with `trust` (see
    `experiment/trust.py`), which also holds for the environments it is evaluated in.
    """
    file = resolve_checkpoint(path, parts=("algorithm_state",))
    state = load_checkpoint(file, parts=("algorithm_state",))
    where = resolve_device(device)
    try:
        with must_fit(), single_precision():
            config = TrainConfig.from_dict(state.config)
            require_trust(named_to_act(config), file, trust=trust)
            require_sound(state)
            require_finite(state.algorithm_state)
            spec = EnvSpec.from_dict(state.metadata["env_spec"])
            algorithm = get_algorithm_spec(config.algo).build_fn(config.options, spec, where)
            algorithm.load_state_dict(state.algorithm_state)
    except MisfitError as error:
        raise CheckpointError(f"{file}: {error}") from error
    return Policy(config, spec, algorithm, device=where, made_on=state.metadata.get("made_on"), file=file, trust=trust)
