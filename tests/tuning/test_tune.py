"""Searching for settings: the declared ranges, trials, pruning, going on after a kill, and the command."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from small_runs import small_config

from conftest import REPOSITORY
from rl_training.cli import load_config, main
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.options import algorithm_names, load_options_class
from rl_training.options._search import Choice, Real, Whole, from_plain, parse_range, range_words, to_plain
from rl_training.resources import list_presets
from rl_training.tuning import tune_worker
from rl_training.tuning.tune import _tell_new, read_tuned, tune, write_best
from rl_training.tuning.tune_plan import TunePlan, make_space, require_allowed
from rl_training.tuning.tune_study import next_trial, open_study, recover
from rl_training.tuning.tune_worker import Curve, work

optuna = pytest.importorskip("optuna")

SPACE = {"learning_rate": Real(1e-4, 1e-2, log=True), "gamma": Choice((0.9, 0.99)), "update_epochs": Whole(1, 3)}


def small_plan(folder: Path, **changes: Any) -> TunePlan:
    settings = {"space": SPACE, "seeds": (1,), "pruner": "none", **changes}
    plan = TunePlan(folder, small_config("ppo", folder / "unused", total_timesteps=120, checkpoint_interval=20), **settings)
    plan.write()
    return plan


def draw(space: Any, rng: random.Random) -> dict[str, Any]:
    values = {}
    for name, found in space.items():
        if isinstance(found, Choice):
            values[name] = rng.choice(found.values)
        else:
            values[name] = (
                rng.randint(found.low, found.high) if isinstance(found, Whole) else rng.uniform(found.low, found.high)
            )
    return values


# --- ranges


@pytest.mark.parametrize("algo", algorithm_names())
def test_every_declared_range_lies_within_what_its_option_allows(algo: str):
    options = load_options_class(algo)
    assert len(options.search_space) >= 4
    for name, found in options.search_space.items():
        assert name in options.model_fields
        require_allowed(options, name, found)
        assert not isinstance(found, Real | Whole) or found.low < found.high


@pytest.mark.parametrize("preset", list_presets())
def test_whatever_is_drawn_for_a_preset_is_a_configuration(preset: str):
    config, rng = load_config(preset), random.Random(preset)
    space = make_space(config, [])
    for _ in range(20):
        config.replace(algo_kwargs={**config.algo_kwargs, **draw(space, rng)})


def test_the_law_about_ranges_can_fail():
    with pytest.raises(ConfigError, match=r"gamma.*from 0 to 1"):
        require_allowed(load_options_class("ppo"), "gamma", Real(0.9, 1.1))
    with pytest.raises(ConfigError, match="num_steps"):
        require_allowed(load_options_class("ppo"), "num_steps", Choice((0, 64)))


def test_ranges_are_written_and_read():
    assert parse_range("0.9..0.99", whole=False) == Real(0.9, 0.99)
    assert parse_range("log:1e-5..1e-2", whole=False) == Real(1e-5, 1e-2, log=True)
    assert parse_range("1..8", whole=True) == Whole(1, 8)
    for found in (Real(1e-5, 1e-2, log=True), Whole(1, 8)):
        assert parse_range(range_words(found), whole=isinstance(found, Whole)) == found
    for text in ("5", "2..1", "log:0..1", "a..b", "lin:1..2"):
        with pytest.raises(ConfigError, match=r"possible: LOW\.\.HIGH"):
            parse_range(text, whole=False)
    with pytest.raises(ConfigError, match="takes integers"):
        parse_range("1.5..3", whole=True)
    space = {**SPACE, "hidden_sizes": Choice(([64], [64, 64]))}
    assert from_plain(json.loads(json.dumps(to_plain(space)))) == space


def test_the_user_chooses_what_is_searched():
    config = load_config("ppo/cartpole")
    space = make_space(
        config, ["learning_rate", "gamma=[0.9, 0.99]", "update_epochs=2..4", "algo_kwargs.ent_coef=log:1e-6..1e-2"]
    )
    assert space == {
        "learning_rate": load_options_class("ppo").search_space["learning_rate"],
        "gamma": Choice((0.9, 0.99)),
        "update_epochs": Whole(2, 4),
        "ent_coef": Real(1e-6, 1e-2, log=True),
    }
    refused = {
        "learning_rte": "did you mean 'learning_rate'",
        "adam_eps": "no range is declared for it",
        "gamma=0.5..2": "from 0 to 1",
        "gamma=[]": "not empty",
        "update_epochs=1.5..2": "takes integers",
    }
    for text, message in refused.items():
        with pytest.raises(ConfigError, match=message):
            make_space(config, [text])


def test_an_option_that_its_schedule_decides_is_not_searched():
    config = load_config("ppo/cartpole")
    assert "learning_rate" in make_space(config, [])
    fixed = {**config.algo_kwargs, "learning_rate_schedule": {"type": "linear", "start": 1e-3}}
    assert "learning_rate" not in make_space(config.replace(algo_kwargs=fixed), [])


def test_rollouts_that_are_most_of_training_are_not_searched():
    config = load_config("ppo/cartpole").replace(num_envs=8)
    assert make_space(config.replace(total_timesteps=4_200), [])["num_steps"] == Choice((32, 64, 128))  # 4 * 8 * 128 = 4,096
    assert make_space(config.replace(total_timesteps=100), [])["num_steps"] == Choice((32,))  # its own, come what may
    assert make_space(config, ["num_steps=[4096]"])["num_steps"] == Choice((4096,))  # nor is what the user wants refused


def test_a_search_can_be_kept_on_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_locks(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    plan = small_plan(tmp_path)
    trial = next_trial(open_study(plan), plan, num_trials=1)
    assert trial is not None
    assert trial.number == 0


def test_the_first_trial_is_the_configuration_as_near_as_the_ranges_allow(tmp_path: Path):
    config = small_config("ppo", tmp_path)  # ent_coef is 0, which no logarithm has; hidden_sizes are none of those declared
    baseline = TunePlan(tmp_path, config, make_space(config, []), (1,)).baseline()
    assert baseline == {**{name: config.options.to_dict()[name] for name in baseline}, "ent_coef": 1e-8, "num_steps": 10}
    assert baseline.keys() == load_options_class("ppo").search_space.keys()


# --- trials


def test_a_search_begins_with_the_configuration_and_writes_the_best_as_a_config(tmp_path: Path):
    plan = small_plan(tmp_path)
    work(plan, num_trials=4)
    tuned = read_tuned(plan)
    first, *others = tuned.trials
    own = plan.config.options
    assert (first.values["learning_rate"], first.values["gamma"]) == (own.learning_rate, own.gamma)
    assert len({json.dumps(trial.values) for trial in tuned.trials}) == 4
    assert all(SPACE[name].contains(trial.values[name]) for trial in others for name in SPACE)
    assert tuned.best.score == max(trial.score for trial in tuned.trials)
    path = write_best(tuned)
    best = load_config(path)
    assert {name: getattr(best.options, name) for name in SPACE} == tuned.best.values
    assert (best.seed, best.output_dir, best.total_timesteps) == (plan.config.seed, plan.config.output_dir, 120)
    assert not list(tmp_path.glob("runs/*/checkpoints/step_*"))  # a hundred of them would fill a disk
    assert len(list(tmp_path.glob("runs/*/checkpoints/best.safetensors"))) == 4


def test_the_best_so_far_is_written_with_every_trial_that_ends(tmp_path: Path):
    plan, told, heard = small_plan(tmp_path), set[int](), list[int]()
    tell = lambda trial: heard.append(trial.number)  # noqa: E731
    _tell_new(plan, tell, told)
    assert not (tmp_path / "best.yaml").exists()
    for number in (1, 2):
        work(plan, num_trials=number)
        _tell_new(plan, tell, told)
        assert f"the best of {number} trial" in (tmp_path / "best.yaml").read_text()
    assert heard == [0, 1]


def test_a_score_is_the_mean_over_the_seeds_of_the_last_evaluation(tmp_path: Path):
    plan = small_plan(tmp_path, seeds=(1, 2))
    work(plan, num_trials=1)
    (trial,) = read_tuned(plan).trials
    last = [json.loads(path.read_text().splitlines()[-1])["metrics"] for path in sorted(tmp_path.glob("runs/*/metrics.jsonl"))]
    assert len(last) == 2
    assert trial.score == sum(metrics["eval_return_mean"] for metrics in last) / 2


class Killed(BaseException):
    pass


def test_a_search_that_dies_goes_on_as_if_it_had_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    straight, broken = small_plan(tmp_path / "a"), small_plan(tmp_path / "b")
    work(straight, num_trials=4)
    reports, tell = [], Curve.on_eval_end

    def die_at_the_fourth(self: Curve, trainer: Any, metrics: dict[str, Any]) -> None:
        reports.append(trainer.global_step)
        tell(self, trainer, metrics)
        if len(reports) == 4:  # in the second trial, after a checkpoint
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Curve, "on_eval_end", die_at_the_fourth)
        with pytest.raises(Killed):
            work(broken, num_trials=4)
    with (broken.directory / "journal.log").open("a") as journal:
        journal.write('{"op_code":')  # as a kill in the middle of a line leaves it
    assert recover(broken) == 1
    resumed = []
    resume = tune_worker.resume_training
    monkeypatch.setattr(tune_worker, "resume_training", lambda path, **rest: resumed.append(path) or resume(path, **rest))
    work(broken, num_trials=4)
    assert len(resumed) == 1  # from its checkpoint, not from the beginning
    one, other = read_tuned(straight).trials, read_tuned(broken).trials
    assert [(t.state, t.score, t.values) for t in one] == [(t.state, t.score, t.values) for t in other]
    curves = [
        [t.intermediate_values for t in open_study(plan).trials if t.state.name == "COMPLETE"] for plan in (straight, broken)
    ]
    assert curves[0] == curves[1]


def test_finished_seeds_of_a_trial_that_died_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plan = small_plan(tmp_path, seeds=(1, 2))
    train, trained = tune_worker.train_or_resume, []

    def die_at_the_second(config: TrainConfig, *rest: Any) -> Any:
        trained.append(config.seed)
        if trained == [1, 2]:
            raise Killed
        return train(config, *rest)

    monkeypatch.setattr(tune_worker, "train_or_resume", die_at_the_second)
    with pytest.raises(Killed):
        work(plan, num_trials=1)
    recover(plan)
    work(plan, num_trials=1)
    assert trained == [1, 2, 2]
    assert read_tuned(plan).trials[0].state == "complete"


def test_more_trials_add_to_those_there_are(tmp_path: Path):
    plan = small_plan(tmp_path)
    work(plan, num_trials=2)
    before = read_tuned(plan).trials
    work(plan, num_trials=3)
    assert read_tuned(plan).trials[:2] == before
    assert len(read_tuned(plan).trials) == 3
    work(plan, num_trials=3)
    assert len(read_tuned(plan).trials) == 3


def test_a_trial_worse_than_the_median_is_given_up_at_that_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plan = small_plan(tmp_path, pruner="median")
    monkeypatch.setattr("rl_training.tuning.tune_study.STARTUP_TRIALS", 4)  # half of them before anything is given up
    ended: list[tuple[int, int, bool]] = []
    tell = Curve.on_eval_end

    def told(self: Curve, trainer: Any, metrics: dict[str, Any]) -> None:
        number = self.trial.number
        tell(self, trainer, {**metrics, "eval_return_mean": [10.0, 20.0, 5.0, 30.0][number]})
        ended.append((number, trainer.global_step, self.pruned))

    monkeypatch.setattr(Curve, "on_eval_end", told)
    work(plan, num_trials=4)
    assert [trial.state for trial in read_tuned(plan).trials] == ["complete", "complete", "pruned", "complete"]
    assert [entry for entry in ended if entry[2]] == [(2, 60, True)]  # at its first evaluation
    assert read_tuned(plan).trials[2].score == 5.0


@pytest.mark.parametrize("window", ["train_or_resume", "_drop_checkpoints"])
def test_a_trial_that_was_given_up_stays_so_when_its_process_dies_before_it_is_told(
    window: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Between the last checkpoint of its run and the journal, there are two steps after which it may die."""
    plan = small_plan(tmp_path, pruner="median")
    monkeypatch.setattr("rl_training.tuning.tune_study.STARTUP_TRIALS", 4)
    evaluated: list[tuple[int, int]] = []
    tell, step = Curve.on_eval_end, getattr(tune_worker, window)

    def told(self: Curve, trainer: Any, metrics: dict[str, Any]) -> None:
        number = self.trial.user_attrs.get("continues", self.trial.number)
        evaluated.append((number, trainer.global_step))
        tell(self, trainer, {**metrics, "eval_return_mean": [10.0, 20.0, 5.0][number]})

    def dying(*arguments: Any) -> Any:
        done = step(*arguments)
        if evaluated[-1][0] == 2:
            raise Killed
        return done

    monkeypatch.setattr(Curve, "on_eval_end", told)
    with monkeypatch.context() as patch:
        patch.setattr(tune_worker, window, dying)
        with pytest.raises(Killed):
            work(plan, num_trials=3)
    assert recover(plan) == 1
    before = len(evaluated)
    work(plan, num_trials=3)
    assert [trial.state for trial in read_tuned(plan).trials] == ["complete", "complete", "pruned"]
    assert evaluated[before:] == []  # nor was anything trained


def test_what_is_trained_to_its_end_is_not_given_up():
    class Doomed:
        def report(self, value: float, step: int) -> None: ...

        def should_prune(self) -> bool:
            return True

    class At:
        def __init__(self, step: int) -> None:
            self.global_step, self.stopped = step, False

        def request_stop(self, reason: str) -> None:
            self.stopped = True

    def stopped(step: int, *, offset: int) -> bool:
        trainer = At(step)
        Curve(Doomed(), offset=offset, end=200, told=set()).on_eval_end(trainer, {"eval_return_mean": 1.0})
        return trainer.stopped

    assert stopped(60, offset=0)
    assert stopped(110, offset=0)  # the end of the first seed of two: the other is spared
    assert stopped(99, offset=100)
    assert not stopped(100, offset=100)
    assert not stopped(110, offset=100)  # a last rollout that is longer than it need be


def test_settings_that_do_not_work_fail_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plan = small_plan(tmp_path)
    train = tune_worker.train_or_resume

    def explode_once(config: TrainConfig, suffix: str, callback: Any) -> Any:
        if suffix == "trial0001":
            raise tune_worker.NumericsError("loss is nan")
        return train(config, suffix, callback)

    monkeypatch.setattr(tune_worker, "train_or_resume", explode_once)
    work(plan, num_trials=3)
    trials = read_tuned(plan).trials
    assert [trial.state for trial in trials] == ["complete", "fail", "complete"]
    assert trials[1].failure == "loss is nan"


def test_another_search_in_the_same_folder_is_refused_with_what_differs(tmp_path: Path):
    small_plan(tmp_path)
    with pytest.raises(ConfigError, match=r"holds another search(.|\n)*seeds: \[1\] then, \[5\] now"):
        small_plan(tmp_path, seeds=(5,))


def test_trials_without_evaluations_cannot_be_judged(tmp_path: Path):
    config = small_config("ppo", tmp_path, eval_episodes=0)
    with pytest.raises(ConfigError, match="eval_episodes: given 0"):
        tune(TunePlan(tmp_path / "t", config, SPACE, (1,)), num_trials=1)
    assert not (tmp_path / "t").exists()


# --- the command


def arguments(tmp_path: Path, *more: str) -> list[str]:
    path = tmp_path / "small.yaml"
    path.write_text(small_config("ppo", tmp_path / "runs", total_timesteps=120).to_yaml())
    return ["tune", "--config", str(path), "--out", str(tmp_path / "search"), *more]


def test_a_dry_run_shows_the_ranges_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "optuna", None)  # nor need it be installed
    assert main(arguments(tmp_path, "--dry-run")) == 0
    text = capsys.readouterr().out
    assert re.search(r"learning_rate +log:1e-05\.\.0\.01 +0\.0003", text)
    assert re.search(r"hidden_sizes +\[16\], \[64, 64\], \[128, 128\], \[256, 256\] +\[16\]", text)
    assert not (tmp_path / "search").exists()


def test_two_processes_search_and_the_best_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    search = ["--search", "learning_rate", "--search", "gamma=[0.9, 0.99]"]
    assert main(arguments(tmp_path, "--trials", "5", "--jobs", "2", *search)) == 0
    text = capsys.readouterr().out
    assert len(re.findall(r"^trial \d+: \S+", text, re.MULTILINE)) == 5
    best = Path(re.search(r"^best_config=(.*)$", text, re.MULTILINE)[1])
    logs = [path.read_text() for path in sorted((tmp_path / "search").glob("worker*.log"))]
    assert sorted(map(int, re.findall(r"INFO trial (\d):", "".join(logs)))) == [0, 1, 2, 3, 4]  # each once, in one process
    assert best.read_text().startswith("# ppo on CartPole-v1: the best of 5 trials, number ")
    assert main(["train", "--config", str(best), "--quiet", "--total-timesteps", "40"]) == 0
    picture = tmp_path / "search" / "importance.png"
    assert picture.exists() == ("importance.png" in text)


@pytest.mark.slow
def test_a_killed_search_leaves_no_process_and_goes_on(tmp_path: Path):
    command = [sys.executable, "-m", "rl_training", *arguments(tmp_path, "--trials", "6", "--jobs", "2")]
    settings = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if line.startswith("trial 1"):
                break
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while _workers(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not _workers(tmp_path)
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(read_tuned(TunePlan.read(tmp_path / "search")).finished()) == 6


def _workers(tmp_path: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "tune_worker" in text and str(tmp_path) in text:
            found.append(text)
    return found
