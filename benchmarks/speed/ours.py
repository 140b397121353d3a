"""One timed training by the public API, with logging and checkpoints on: `ours.py WHO ROW THREADS SEED`."""

from __future__ import annotations

import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from about import computing
from rows import ROWS, Row, now, report

from rl_training import TrainConfig
from rl_training.algorithms import SAC
from rl_training.cli import load_config
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.kernels.squash import squash
from rl_training.models.flat_mlp import FlatMLP
from rl_training.models.mlp_sac import SACSample
from rl_training.resources import find_packaged_asset
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.loops import OffPolicyLoop
from rl_training.runtime.opening import open_session
from rl_training.types import Collected, UpdateResult

MODEL_ROWS = 256  # per update of MOPO's dynamics


class Clock(Callback):
    """The time at the first turn past `skip`, and at the last, with steps and updates at both."""

    def __init__(self, skip: int, *, counts_updates: bool = False) -> None:
        self.skip, self.counts_updates = skip, counts_updates
        self.begin: tuple[int, float] | None = None
        self.end = (0, 0.0)

    def on_collect_end(self, trainer: Any, result: Collected) -> None:  # noqa: ARG002
        done = trainer.progress.updates if self.counts_updates else trainer.global_step
        self.end = (done, now())
        reached = done if trainer.global_step == 0 else trainer.global_step
        if self.begin is None and reached >= self.skip:
            self.begin = self.end

    @property
    def rate(self) -> float:
        assert self.begin is not None
        return (self.end[0] - self.begin[0]) / (self.end[1] - self.begin[1])


class Stopwatch(Callback):
    """Seconds from the start of training until the last 20 training episodes are worth 475 in the mean."""

    def __init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=20)
        self.began = self.seconds = 0.0

    def on_train_start(self, trainer: Any) -> None:  # noqa: ARG002
        self.began = now()

    def on_collect_end(self, trainer: Any, result: Collected) -> None:
        self.seconds = now() - self.began
        for value in result.episode_returns:
            self.returns.append(value)
            if len(self.returns) == 20 and sum(self.returns) >= 20 * 475:
                trainer.request_stop("solved")

    def on_update_end(self, trainer: Any, result: UpdateResult) -> None: ...


def config_of(row: Row, who: str, *, threads: int, seed: int, folder: str) -> TrainConfig:
    settings, backend = dict(row.settings), "local_sync"
    algo = who.partition("_")[2] if who == "ours_ppo" else row.algo
    if who == "ours_ppo":
        settings = {name: value for name, value in settings.items() if not name.startswith("aux_")}
    elif row.num_envs is None:
        settings["batched_envs"] = who == "ours_batched"
    elif who == "ours_batched":
        backend = "batched"
    return TrainConfig(
        algo=algo,
        env_id=row.env_id,
        seed=seed,
        total_timesteps=row.total,
        output_dir=folder,
        num_envs=row.num_envs or 1,
        num_threads=threads,
        eval_episodes=0,
        execution_backend=backend,
        algo_kwargs=settings,
    )


def recorded(config: TrainConfig, row: Row) -> TrainConfig:
    """With at least one line of metrics and one checkpoint in what is timed."""
    if not row.skip:
        return config
    timed = row.total - row.skip
    intervals = {"log_interval": config.log_interval, "checkpoint_interval": config.checkpoint_interval}
    return config.replace(**{name: min(interval, timed) for name, interval in intervals.items()})


class Own(torch.nn.Module):
    """What a user might bring: our layers in a module that knows nothing of pullbacks."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.action_dim = action_dim
        self.actor = FlatMLP((obs_dim, *hidden_sizes, 2 * action_dim), activation="relu")
        self.critics = FlatMLP((obs_dim + action_dim, *hidden_sizes, 1), members=2, activation="relu")

    def sample_actions(self, obs: torch.Tensor, *, deterministic: bool = False) -> SACSample:
        outputs = self.actor(obs)
        means = outputs[..., : self.action_dim]
        return SACSample(*squash(outputs, torch.zeros_like(means) if deterministic else torch.randn_like(means)))

    def q_values(self, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return self.critics(torch.cat([obs, actions], dim=-1)).squeeze(-1)


def trained_own(config: TrainConfig, callback: Callback) -> None:
    """SAC on a module of a user's own."""
    options = config.options
    with open_session(config, callbacks=[callback]) as session:
        model = Own(session.spec.obs_dim, session.spec.action_dim, options.hidden_sizes)
        learner = SAC(model, learning_rate=options.learning_rate, gamma=options.gamma, alpha=options.alpha, tau=options.tau)
        buffer = session.replay_buffer(options.buffer_capacity)
        session.train(learner, OffPolicyLoop(session.collector(learner), buffer, learner, options))


def trained(config: TrainConfig, callback: Callback) -> dict[str, Any]:
    metrics: dict[str, Any] = get_algorithm_spec(config.algo).train_fn(config, callbacks=[callback]).metrics
    return metrics


def measured(row: Row, who: str, *, threads: int, seed: int, folder: str) -> dict[str, float]:
    if row.name == "pets_preset":
        preset = find_packaged_asset("configs/pets/pendulum.yaml")
        assert preset is not None
        config = load_config(preset).replace(output_dir=folder, num_threads=threads, total_timesteps=row.total, eval_episodes=0)
        return {"milliseconds": trained(config, Callback())["time/planning_ms"]}
    config = config_of(row, who, threads=threads, seed=seed, folder=folder)
    if row.name == "ppo_solve":
        stopwatch = Stopwatch()
        trained(config, stopwatch)
        return {"seconds": stopwatch.seconds}
    clock = Clock(row.skip, counts_updates=row.name in ("rlpd", "mopo_model"))
    (trained_own if who == "ours_own" else trained)(recorded(config, row), clock)
    return {"rate": clock.rate * (MODEL_ROWS if row.name == "mopo_model" else 1)}


def main() -> None:
    who, name, threads, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    with tempfile.TemporaryDirectory() as folder:
        values = measured(ROWS[name], who, threads=threads, seed=seed, folder=folder)
    report(values, "rl-training", computed_with=computing())


if __name__ == "__main__":
    main()
