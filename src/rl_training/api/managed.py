"""One object per algorithm: learn, evaluate, predict, save, load."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from typing_extensions import Never

from rl_training.api.signature import SettingsSignature, require_no_strangers
from rl_training.envs.source import EnvSource
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError, TrainingInterrupted
from rl_training.experiment.checkpoint import load_checkpoint, read_header
from rl_training.experiment.config import WITHOUT_PRESET, TrainConfig
from rl_training.experiment.files import reason, replacing
from rl_training.experiment.locate import resolve_checkpoint, run_directory_of
from rl_training.experiment.overrides import change
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.experiment.sinks import MetricsSink
from rl_training.experiment.trust import Trust, named_code, named_for_envs, require_trust
from rl_training.experiment.yaml_loader import is_config_name, load_config_values
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.policy import Policy, load_policy
from rl_training.shipping.export import Exported, export_checkpoint
from rl_training.shipping.video import Video, record_video
from rl_training.types import TrainResult

log = logging.getLogger(__name__)

Managed = TypeVar("Managed", bound="ManagedAlgorithm")


class ManagedAlgorithm:
    """`PPO(config)`, or the short way `PPO("CartPole-v1", total_timesteps=50_000, learning_rate=1e-3)`.

    In place of the id an environment object or a factory is taken too. Keywords are the fields of `TrainConfig`
    and, beside them, the algorithm's own options.
    """

    algo: ClassVar[str]
    __signature__ = SettingsSignature()

    def __init_subclass__(cls, *, algo: str) -> None:
        cls.algo = algo

    def __init__(self, config: TrainConfig | str | Any = None, *more: Any, **settings: Any) -> None:
        self._env: Any = None
        if config is None or more:
            name = type(self).__name__
            raise ConfigError(
                f"{name} takes one environment (an id, an object or a factory) or one TrainConfig, then keywords: "
                f"{name}('CartPole-v1', total_timesteps=50_000); networks are set by hidden_sizes and activation"
            )
        if isinstance(config, TrainConfig):
            if settings:
                raise ConfigError(f"the configuration is complete; change it with config.replace({', '.join(settings)}=...)")
            self.config = config
        else:
            self.config = self._config_for(config, settings)
        if self.config.algo != self.algo:
            raise ConfigError(f"{type(self).__name__} needs a configuration for {self.algo!r}, not {self.config.algo!r}")
        self.checkpoint_path: Path | None = None
        self._policy: Policy | None = None
        self._trust: Trust = False

    def __repr__(self) -> str:
        learnt = "nothing learnt yet" if self.checkpoint_path is None else f"learnt: {self.checkpoint_path}"
        return f"<{type(self).__name__} on {self.config.env_id}, seed {self.config.seed}, {learnt}>"

    def _config_for(self, env: Any, settings: dict[str, Any]) -> TrainConfig:
        if isinstance(env, str):
            if is_config_name(env):
                raise ConfigError(f"{env!r} is no environment but a config: {type(self).__name__}.from_preset({env!r})")
            env_id = env
        else:
            self._env, env_id = env, EnvSource(env=env).env_id
        fields = {name: settings.pop(name) for name in list(settings) if name in TrainConfig.model_fields}
        options = {**fields.pop("algo_kwargs", {}), **settings}
        return TrainConfig(**{**WITHOUT_PRESET, **fields, "algo": self.algo, "env_id": env_id, "algo_kwargs": options})

    @classmethod
    def from_preset(cls: type[Managed], name: str | Path, **settings: Any) -> Managed:
        """From a packaged preset (`ppo/cartpole`) or a YAML file, with some settings changed by keyword."""
        return cls(TrainConfig.from_dict(change(load_config_values(name), settings)))

    def learn(
        self,
        total_timesteps: int | None = None,
        *,
        callbacks: Sequence[Callback] | None = None,
        sinks: Sequence[MetricsSink] | None = None,
        **strangers: Never,
    ) -> TrainResult:
        """Train until `total_timesteps` of the configuration (or of this call) are reached; called again with more to
        do, training goes on where it ended."""
        require_no_strangers(self.learn, strangers)
        if total_timesteps is not None:
            self.config = self.config.replace(total_timesteps=total_timesteps)
        given: dict[str, Any] = {"callbacks": callbacks, "env": self._env, "sinks": sinks}
        if self.checkpoint_path is not None:
            self._require_trust()
            state = load_checkpoint(self.checkpoint_path)
            done = state.trainer_state.get("progress", {}).get("global_step", 0)
            run_dir = run_directory_of(self.checkpoint_path)
            if done >= self.config.total_timesteps:
                return self._nothing_left(done, run_dir or self.checkpoint_path.parent)
            given |= {"checkpoint_state": state, "run_dir": run_dir}
        with self._keeping_what_is_saved():
            result: TrainResult = get_algorithm_spec(self.algo).train_fn(self.config, **given)
        self.checkpoint_path, self._policy = result.checkpoint_path, None
        return result

    @contextmanager
    def _keeping_what_is_saved(self) -> Iterator[None]:
        """Of a training that does not come to its end there is a checkpoint: to predict with, and for `learn` to go on from."""
        try:
            yield
        except (TrainingInterrupted, RLTrainingError) as error:
            path = error.result.checkpoint_path if isinstance(error, TrainingInterrupted) else error.checkpoint_path
            if path is not None:
                self.checkpoint_path, self._policy = path, None
                error.args = (f"{error}\nIn this program agent.learn() goes on from there.",)
            raise

    def _nothing_left(self, done: int, run_dir: Path) -> TrainResult:
        total = self.config.total_timesteps
        why = f"nothing left to do: {done} of {total} steps are done; go on with learn(total_timesteps={done + total})"
        log.warning("%s", why)
        metrics = {"global_step": done, **self.evaluate(), "stop_reason": why}
        return TrainResult(run_dir, self._require_checkpoint(), metrics)

    def predict(self, obs: Any, *, deterministic: bool = True, **strangers: Never) -> int | np.ndarray:
        """The action for one observation, or actions for a batch; works in memory."""
        if strangers:
            require_no_strangers(self.predict, strangers)
        policy = self._policy
        if policy is None:
            policy = self._load_policy()
        return policy.predict(obs, deterministic=deterministic)

    def evaluate(self, *, num_episodes: int | None = None, **strangers: Never) -> dict[str, Any]:
        """Mean and spread of the returns of the deterministic policy."""
        require_no_strangers(self.evaluate, strangers)
        return self._load_policy().evaluate(num_episodes=num_episodes, env=self._env)

    def record_video(self, path: str | Path, *, num_episodes: int = 1) -> Video:
        """Film the first episodes that `evaluate` plays, to an .mp4 or .gif file; no screen is needed."""
        return record_video(self._load_policy(), path, num_episodes=num_episodes, env=self._env)

    def save(self, path: str | Path) -> Path:
        """Copy the whole checkpoint, from which `load` can predict, evaluate and go on learning."""
        source, target = self._require_checkpoint(), Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as written, replacing(target) as copy:
                shutil.copyfileobj(written, copy)
        except OSError as error:
            raise CheckpointError(f"{target}: could not be written: {reason(error)}") from error
        return target

    def export(self, path: str | Path, *, format: str | None = None) -> Exported:  # noqa: A002 (the public name)
        """The policy with normaliser and action scaling as an ONNX, TorchScript or safetensors file, and a card beside it;
        the format is that of the file's ending unless it is given. Nothing is written unless it acts as `predict` does."""
        return export_checkpoint(self._require_checkpoint(), path, format=format, trust=self._trust)

    @classmethod
    def load(cls: type[Managed], path: str | Path, *, env: Any = None, trust: Trust = False) -> Managed:
        """From a checkpoint file or a run directory; `env` where the run was made on an object or a factory. `trust` lets a
        checkpoint that is not known to be yours import what it names, when it learns, plans or is evaluated."""
        file = resolve_checkpoint(Path(path))
        try:
            config = TrainConfig.from_dict(read_header(file).config)
        except ConfigError as error:
            raise CheckpointError(f"{file}: its configuration cannot be used: {error}") from error
        if config.algo != cls.algo:
            raise ConfigError(
                f"{file}: is of {config.algo!r}, and {cls.__name__}.load takes {cls.algo!r}; use the class of that name"
            )
        agent = cls(config)
        agent.checkpoint_path, agent._env, agent._trust = file, env, trust
        return agent

    def _load_policy(self) -> Policy:
        if self._policy is None:
            self._policy = load_policy(self._require_checkpoint(), device=self.config.device, trust=self._trust)
        return self._policy

    def _require_trust(self) -> None:
        """Learning may import all that the configuration names, but for an environment that was given."""
        given = () if self._env is None else named_for_envs(self.config)
        named = [entry for entry in named_code(self.config) if entry not in given]
        require_trust(named, self._require_checkpoint(), trust=self._trust)

    def _require_checkpoint(self) -> Path:
        if self.checkpoint_path is None:
            raise ValueError(f"nothing learnt yet: call learn(), or {type(self).__name__}.load(path), first")
        return self.checkpoint_path
