"""From a configuration to a session that is ready to train. Everything that can be refused is refused here,
before any file is made."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import torch
from typing_extensions import Unpack

from rl_training.data.offline_dataset import OfflineDataset
from rl_training.envs.pool import EnvPool, Evaluator
from rl_training.envs.population import PopulationEnvs
from rl_training.envs.source import EnvSource
from rl_training.envs.spaces import require_actions
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError, did_you_mean
from rl_training.experiment.checkpoint import CheckpointState, must_fit
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.metadata import environment_differences, numeric_environment
from rl_training.experiment.run import Run
from rl_training.experiment.sinks import MetricsSink, make_sinks
from rl_training.experiment.trust import named_code, remember
from rl_training.options import algorithm_names, load_options_class
from rl_training.options._datasets import DatasetOptions
from rl_training.options._evolution import EvolutionOptions
from rl_training.options._offline import OfflineOptions
from rl_training.runtime.callbacks import Callback, EarlyStoppingCallback, checked_callbacks
from rl_training.runtime.checkpoint_form import require_sound
from rl_training.runtime.evaluation import PolicyEvaluator
from rl_training.runtime.first_update import warn_of_no_update
from rl_training.runtime.generation import RemotePopulation
from rl_training.runtime.offline_data import data_places, load_offline_data
from rl_training.runtime.rng import Stream
from rl_training.runtime.same_env import require_same_env, warn_of_forgotten_statistics
from rl_training.runtime.session import Session
from rl_training.runtime.torch_settings import torch_settings
from rl_training.types import EnvSpec

log = logging.getLogger(__name__)

TrainingEnvs: TypeAlias = EnvPool | PopulationEnvs | RemotePopulation | None

RAY_IS_FOR = (
    "execution_backend: 'ray' spreads the population of openai_es or ars over a cluster; a run of {algo} has none. "
    "Possible: 'local_sync', 'local_async', 'batched'. Many runs of {algo} at once: rl-training train ... --seeds 1,2,3 "
    "--execution-backend ray, or rl-training bench"
)


class SessionOptions(TypedDict, total=False):
    """What every `train_<algo>` takes beside the configuration."""

    run_suffix: str | None  # the last part of the run directory's name; a time stamp without one
    checkpoint_state: CheckpointState | None  # where to go on from
    callbacks: Sequence[Callback] | None
    run_dir: Path | None  # the existing run directory to go on in
    env: Any  # an environment object or factory in place of config.env_id
    sinks: Sequence[MetricsSink] | None  # where metrics go beside those the configuration names


@contextmanager
def open_session(config: TrainConfig, **given: Unpack[SessionOptions]) -> Iterator[Session]:
    """A session whose environments, run directory and torch settings last as long as the `with` block."""
    require_known(given)
    callbacks = checked_callbacks(given.get("callbacks"))
    source = EnvSource(config.env_id, config.env_kwargs, given.get("env"))
    saved = given.get("checkpoint_state")
    if saved is not None:
        with must_fit():
            require_sound(saved)
        with must_fit():  # before one is made: what is left of an object is perhaps no id that anything is registered by
            require_same_env(source, saved.metadata.get("made_on"), algo=config.algo, env_id=config.env_id)
    spec = source.spec()
    require_algorithm_fits(config, spec)
    if saved is not None:
        with must_fit():
            require_same_task(config, spec, saved)
    device = resolve_device(config.device)
    with enough_memory(config):
        dataset = _prior_data(config, source, spec, saved)
    origins = _origins(config, source, saved)
    warn_of_forgotten_statistics(origins["made_on"])
    warn_of_no_update(config)
    sinks = [*make_sinks(config.sinks, config.sink_kwargs), *(given.get("sinks") or ())]
    with ExitStack() as stack:
        stack.enter_context(enough_memory(config))
        stack.enter_context(torch_settings(config.threads))
        torch.manual_seed(config.seed)
        pool = _training_envs(config, source, spec)
        if pool is not None:
            stack.callback(pool.close)
        lender = None if isinstance(pool, RemotePopulation) else pool
        # in processes of their own, evaluations cannot hang the run either
        apart = "local_async" if config.envs_apart and source.can_make_more else "local_sync"
        episodes = Evaluator(source, spec, pool=lender, backend=apart, timeout=config.step_timeout)
        evaluator = PolicyEvaluator(episodes, spec, seed=config.seed, device=device)
        stack.callback(evaluator.close)
        run = stack.enter_context(_open_run(config, given, sinks))
        early_stopping = config.options.early_stopping
        if early_stopping is not None:
            callbacks.insert(0, EarlyStoppingCallback(early_stopping))
        session = Session(config, spec=spec, run=run, pool=pool, evaluator=evaluator, callbacks=callbacks, resume_from=saved)
        session.dataset = dataset
        session.origins = origins
        yield session


def require_known(given: Mapping[str, Any]) -> None:
    """TypeError for a keyword that nothing here listens to, as Python itself has it."""
    known = SessionOptions.__annotations__
    for name in given.keys() - known.keys():
        raise TypeError(f"training takes no keyword {name!r}{did_you_mean(name, known)}")


def _training_envs(config: TrainConfig, source: EnvSource, spec: EnvSpec) -> TrainingEnvs:
    """Environments that run on from turn to turn; for an evolution strategy, those a population is evaluated in, or the
    workers that have them."""
    options, backend = config.options, config.execution_backend
    if isinstance(options, OfflineOptions):
        return None
    if isinstance(options, EvolutionOptions):
        if backend == "ray":
            # by its name, since a cluster's workers stand above the runtime that they run
            remote: RemotePopulation = import_module("rl_training.cluster.ray_population").RayPopulation(config, source, spec)
            return remote
        episodes = 2 * options.num_directions * options.episodes_per_direction
        return PopulationEnvs(
            source,
            spec,
            num_episodes=episodes,
            num_envs=options.population_envs,
            backend=backend,
            batched=options.batched_envs,
            timeout=config.step_timeout,
        )
    return EnvPool(
        source,
        spec,
        num_envs=config.num_envs,
        seed=config.seed,
        stream=Stream.TRAIN_ENVS,
        backend=backend,
        timeout=config.step_timeout,
    )


def require_algorithm_fits(config: TrainConfig, spec: EnvSpec) -> None:
    """UnsupportedSpace when the algorithm cannot take the environment's actions, naming those that can."""
    options = config.options
    others = [
        name for name in algorithm_names() if getattr(load_options_class(name), "discrete" if spec.discrete else "continuous")
    ]
    require_actions(spec, algo=config.algo, discrete=options.discrete, continuous=options.continuous, alternatives=others)
    if config.execution_backend == "ray" and not isinstance(options, EvolutionOptions):
        raise ConfigError(RAY_IS_FOR.format(algo=config.algo))


def require_same_task(config: TrainConfig, spec: EnvSpec, saved: CheckpointState) -> None:
    """CheckpointError when a checkpoint is of another algorithm or of an environment with other spaces."""
    algo = saved.config.get("algo")
    if algo != config.algo:
        raise CheckpointError(f"the checkpoint is of {algo!r}, the configuration of {config.algo!r}")
    if not saved.trainer_state:
        raise CheckpointError(
            "the checkpoint holds only a policy; training goes on from one of the step_* checkpoints beside it"
        )
    was = EnvSpec.from_dict(saved.metadata["env_spec"])
    if was != spec:
        raise CheckpointError(f"the checkpoint is of an environment with other spaces: {was} then, {spec} now")


def _prior_data(config: TrainConfig, source: EnvSource, spec: EnvSpec, saved: CheckpointState | None) -> OfflineDataset | None:
    """What an algorithm with dataset options learns from; a resume on other data is refused here."""
    if not isinstance(config.options, DatasetOptions):
        return None
    places = {} if saved is None else saved.metadata.get("dataset_places", {})
    dataset = load_offline_data(config.options, source, spec, seed=config.seed, places=places)
    if saved is not None:
        with must_fit():
            dataset.load_state_dict(saved.buffer_state["dataset"])
    return dataset


def _origins(config: TrainConfig, source: EnvSource, saved: CheckpointState | None) -> dict[str, Any]:
    """What checkpoints should know of where a run got things from, which its configuration alone does not say."""
    origins: dict[str, Any] = {"made_on": source.made_otherwise(config.env_id, config.env_kwargs)}
    if isinstance(config.options, DatasetOptions):
        known = {} if saved is None else saved.metadata.get("dataset_places", {})
        origins["dataset_places"] = data_places(config.options, known)
    return origins


@contextmanager
def enough_memory(config: TrainConfig) -> Iterator[None]:
    """ConfigError naming the largest settings where memory cannot be had for them."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # torch says so by a RuntimeError, but for CUDA's own
        told = isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
        if isinstance(error, RLTrainingError) or not told:
            raise
        sizes = {f"algo_kwargs.{name}": _size(value) for name, value in config.options.to_dict().items()}
        sizes = {"num_envs": config.num_envs} | {name: size for name, size in sizes.items() if "interval" not in name}
        largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
        what = ", ".join(f"{name} ({sizes[name]:,})" for name in largest)
        raise ConfigError(f"{config.algo} gets no memory for settings as large as these; the largest are {what}") from error


def _size(value: Any) -> int:
    numbers = [number for number in (value if isinstance(value, list) else [value]) if isinstance(number, int)]
    return max(numbers, default=0)


def resolve_device(name: str) -> torch.device:
    """`auto` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device: given {name!r}, but torch sees no GPU here; possible: 'auto', 'cpu'")
    return torch.device(name)


def _open_run(config: TrainConfig, given: SessionOptions, sinks: Sequence[MetricsSink]) -> Run:
    saved, run_dir = given.get("checkpoint_state"), given.get("run_dir")
    # a configuration that is handed over is the caller's own; a checkpoint's has been answered for by here
    remember(named_code(config))
    if run_dir is None:
        run = Run.create(config, suffix=given.get("run_suffix"), sinks=sinks)
        remember(named_code(config), run_dir=run.directory)
    else:
        run = Run.open(run_dir, sinks=sinks, config=config.to_dict())
    if saved is not None:
        try:
            with must_fit():
                _note_resume(run, config, saved)
        except BaseException:
            run.close()
            raise
    return run


def _note_resume(run: Run, config: TrainConfig, saved: CheckpointState) -> None:
    differences = environment_differences(saved.metadata.get("environment", {}), numeric_environment())
    for difference in differences:
        log.warning("resuming may not be exact: %s", difference)
    changes = {
        name: [saved.config.get(name), value] for name, value in config.to_dict().items() if saved.config.get(name) != value
    }
    run.note_resume(config, step=saved.trainer_state["progress"]["global_step"], changes=changes, differences=differences)
