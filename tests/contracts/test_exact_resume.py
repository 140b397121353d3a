"""Stop anywhere, resume, and every later number is the same bit for bit; nothing but the seed and the settings matter."""

import pytest
import torch
from kernel_choice import KINDS, compute_with
from small_runs import ALGORITHMS, MASKED, NAMES, StopAt, difference, history, small_config, state_difference, train

from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.runtime.policy import load_policy
from rl_training.runtime.workflows import resume_training

# as configured; with compiled ops on two threads, and by their definitions
WAYS = [
    *((name, None, None) for name in NAMES),
    *((name, *way) for name in ALGORITHMS for way in ((True, 2), (False, 1))),
    *((name, False, 2) for name in ("sac", "td3", "pets")),  # slow beside other work: one for each kind of networks
]


@pytest.mark.parametrize(("name", "compiled", "threads"), WAYS)
def test_a_run_stopped_within_an_episode_and_resumed_is_the_uninterrupted_run(name, compiled, threads, tmp_path, monkeypatch):
    if compiled and not KINDS:
        pytest.skip("the library in C was not compiled for this processor")
    if compiled is False:
        compute_with(None, monkeypatch)
    config = small_config(name, tmp_path / "whole", num_threads=threads)
    if threads is not None:  # shorter, as there are many
        config = config.replace(total_timesteps=config.total_timesteps // 2)
    whole = train(config)
    total = whole.metrics["global_step"]
    half = train(config.replace(output_dir=tmp_path / "half"), callbacks=[StopAt(int(total * 0.55))])
    assert 0 < half.metrics["global_step"] < total
    torch.rand(100)  # whatever happens in between
    rest = resume_training(half.run_dir)

    assert rest.run_dir == half.run_dir
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None
    assert history(whole.run_dir) == history(rest.run_dir)
    assert rest.metrics["eval_return_mean"] == whole.metrics["eval_return_mean"]


@pytest.mark.parametrize("backend", ["local_sync", "local_async"])
@pytest.mark.parametrize("name", ["ppo", "ppg", "sac"])
def test_a_run_in_an_environment_that_no_seed_brings_back_goes_on_from_the_states_it_gives(name, backend, tmp_path):
    kwargs = {"continuous": name == "sac"}
    config = small_config(name, tmp_path / "whole", env_kwargs=kwargs, eval_episodes=0, execution_backend=backend)
    config = config.replace(env_id="toy_envs:ToyKeeping-v0")
    whole = train(config)
    half = train(config.replace(output_dir=tmp_path / "half"), callbacks=[StopAt(int(whole.metrics["global_step"] * 0.55))])
    rest = resume_training(half.run_dir)
    assert load_checkpoint(rest.checkpoint_path).trainer_state["loop"]["collector"]["envs"]["exact"] is True
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None


@pytest.mark.parametrize("name", ALGORITHMS)
def test_resuming_a_run_that_has_ended_changes_nothing(name, tmp_path):
    """As after a kill between the last checkpoint and the end: what came after it is made again, and only once."""
    whole = train(small_config(name, tmp_path))
    lines, file, best = history(whole.run_dir), whole.checkpoint_path, whole.run_dir / "checkpoints" / "best.safetensors"
    bytes_before = file.read_bytes(), best.read_bytes()
    again = resume_training(whole.run_dir)
    assert history(whole.run_dir) == lines
    assert (file.read_bytes(), best.read_bytes()) == bytes_before
    clockless = [{k: v for k, v in r.metrics.items() if not k.startswith("time/")} for r in (whole, again)]
    assert clockless[0] == clockless[1]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_n_steps_and_then_n_more_are_two_n(name, tmp_path):
    config = small_config(name, tmp_path / "whole")
    whole = train(config)
    first = train(config.replace(total_timesteps=config.total_timesteps // 2, output_dir=tmp_path / "first"))
    second = resume_training(first.checkpoint_path, total_timesteps=config.total_timesteps, output_dir=tmp_path / "second")
    assert second.run_dir.parent == tmp_path / "second"
    assert state_difference(whole.checkpoint_path, second.checkpoint_path) is None


@pytest.mark.parametrize("name", [*ALGORITHMS, *MASKED])
def test_how_often_one_evaluates_logs_and_saves_changes_nothing(name, tmp_path):
    often = train(small_config(name, tmp_path / "often", log_interval=10, checkpoint_interval=25))
    config = small_config(name, tmp_path / "rarely", eval_episodes=3, algo_kwargs={"eval_interval": 10**9})
    rarely = train(config)
    assert state_difference(often.checkpoint_path, rarely.checkpoint_path, ("algorithm_state", "buffer_state")) is None
    a, b = (load_checkpoint(r.checkpoint_path).trainer_state for r in (often, rarely))
    of_evaluations = {"history_lines", "evaluation"}
    assert difference(*({name: part for name, part in state.items() if name not in of_evaluations} for state in (a, b))) is None


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_seed_decides_everything(name, tmp_path):
    one = train(small_config(name, tmp_path / "one"))
    torch.rand(7)
    same = train(small_config(name, tmp_path / "same"))
    other = train(small_config(name, tmp_path / "other", seed=4))
    assert state_difference(one.checkpoint_path, same.checkpoint_path) is None
    assert state_difference(one.checkpoint_path, other.checkpoint_path, ("algorithm_state",)) is not None


@pytest.fixture
def double_by_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", [name for name in NAMES if "_mujoco" not in name])
def test_the_default_type_of_tensors_that_a_user_has_set_changes_nothing_and_stays(name, tmp_path, double_by_default):
    config = small_config(name, tmp_path / "double")
    stopped = train(config, callbacks=[StopAt(int(config.total_timesteps * 0.55))])
    double = resume_training(stopped.run_dir)
    policy = load_policy(double.checkpoint_path)
    obs = policy.environments().make().reset(seed=0)[0]
    many = obs if policy.spec.observation else [obs, obs]
    said = policy.evaluate(num_episodes=1), policy.predict(obs), policy.predict(many)
    assert torch.get_default_dtype() == torch.float64

    torch.set_default_dtype(torch.float32)
    single = train(small_config(name, tmp_path / "single"))
    assert state_difference(double.checkpoint_path, single.checkpoint_path) is None
    assert history(double.run_dir) == history(single.run_dir)
    policy = load_policy(single.checkpoint_path)
    assert difference(said, (policy.evaluate(num_episodes=1), policy.predict(obs), policy.predict(many))) is None


@pytest.mark.parametrize("name", [*ALGORITHMS, *MASKED])
def test_worker_processes_give_the_same_numbers_as_this_one(name, tmp_path):
    here = train(small_config(name, tmp_path / "here"))
    workers = train(small_config(name, tmp_path / "workers", execution_backend="local_async"))
    assert state_difference(here.checkpoint_path, workers.checkpoint_path) is None


@pytest.mark.parametrize("name", ALGORITHMS)
def test_resuming_leaves_the_old_run_alone_when_a_new_one_is_asked_for(name, tmp_path):
    config = small_config(name, tmp_path)
    first = train(config, callbacks=[StopAt(config.total_timesteps // 2)])
    before = sorted((path.name, path.stat().st_mtime_ns) for path in first.run_dir.rglob("*"))
    second = resume_training(first.run_dir, run_suffix="again")
    assert second.run_dir.name.endswith("__again")
    assert sorted((path.name, path.stat().st_mtime_ns) for path in first.run_dir.rglob("*")) == before
