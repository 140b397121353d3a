"""`rl-training bench`: jobs that are run once, go on when killed, and add up to the numbers worked out here."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import REPOSITORY
from rl_training.bench import bench, bench_job
from rl_training.bench.bench_job import run_job
from rl_training.bench.bench_ray import RayLauncher, run_process
from rl_training.cli import main
from rl_training.errors import ConfigError, MissingExtraError, NumericsError, TrainingInterrupted
from rl_training.experiment.suite import Suite, load_suite
from rl_training.experiment.suite_jobs import Job, known_runs, plan_jobs, replaced_words
from rl_training.reports.result_curves import draw_result_curves, entry_bands
from rl_training.reports.result_tables import published_table, to_markdown
from rl_training.reports.results import (
    Missing,
    build_results,
    dump_results,
    elapsed_seconds,
    evaluation_curve,
    run_result,
    time_to_threshold,
)

TINY = {"total_timesteps": 64, "num_envs": 1, "num_steps": 16, "update_epochs": 1, "eval_episodes": 1, "eval_interval": 16}
HEAD = "name: tiny\nseeds: [1]\neval_episodes: 2\nentries:\n"


def suite_file(folder: Path, *entries: dict[str, Any], seeds: tuple[int, ...] = (1,)) -> Path:
    values = {"name": "tiny", "seeds": list(seeds), "eval_episodes": 2, "entries": list(entries)}
    path = folder / "suite.yaml"
    path.write_text(json.dumps(values))  # JSON is YAML
    return path


def tiny(**changes: Any) -> dict[str, Any]:
    return {"preset": "ppo/cartpole", "overrides": {**TINY, **changes}}


def jobs_of(path: Path, **options: Any) -> list[Job]:
    return plan_jobs(load_suite(path), suite_path=path, out=path.parent / "out", **options)


def made_up(job: Job, returns: list[float], curve: tuple[list[int], list[float], list[float]] = ([], [], [])) -> dict[str, Any]:
    """A job's result with these numbers."""
    history = []
    before = (0, 0.0)
    for step, value, seconds in zip(*curve, strict=True):
        speed = (step - before[0]) / (seconds - before[1])
        history.append((step, {"eval_return_mean": value, "time/steps_per_second": speed, "updates": step}))
        before = (step, seconds)
    environment = {"versions": {"python": "3"}, "cpu_model": "a cpu"}
    return run_result(job, history=history, returns=returns, environment=environment, cores=2)


# --- the suite


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ("- presett: ppo/cartpole", "entries.1.presett: an entry has no option 'presett'; did you mean 'preset'?"),
        ("- preset: ppo/cartpole\n  treshold: 1", "entries.ppo/cartpole.treshold: an entry has no option"),
        ("- preset: ppo/cartpole\n  config: a.yaml", "give one of the two"),
        ("- preset: ppo/cartpole\n- preset: ppo/cartpole", "2 are called 'ppo-cartpole'; give each a name of its own"),
        ("- preset: ppo/cartpole\n  seeds: [1, 2, 1]", "1 stands there twice"),
        ("- preset: ppo/cartpole\n  overrides: {seed: 3}", "overrides.seed: is not an entry's to set"),
        ("- preset: ppo/cartpole\n  reference: {value: 3}", "reference.source: it must be given"),
        ("- preset: ppo/cartpole\n  published: [{value: 3, source: them}]", "published: each needs steps"),
    ],
)
def test_a_suite_that_is_wrong_says_where(tmp_path: Path, entries: str, said: str):
    path = tmp_path / "suite.yaml"
    path.write_text(HEAD + entries)
    with pytest.raises(ConfigError) as caught:
        load_suite(path)
    assert said in str(caught.value)


def test_overrides_follow_the_rules_of_the_command_line(tmp_path: Path):
    path = suite_file(tmp_path, tiny(gamma=0.5, **{"algo_kwargs.hidden_sizes": [8], "clip_coef_schedule.end": 0.1}))
    options = jobs_of(path)[0].config.options
    assert (options.gamma, options.hidden_sizes, options.clip_coef_schedule.end) == (0.5, (8,), 0.1)
    with pytest.raises(ConfigError, match=r"entry 'ppo/cartpole': override 'gama=1': .* did you mean 'gamma'"):
        jobs_of(suite_file(tmp_path, tiny(gama=1)))


def test_an_entry_may_be_a_file_beside_the_suite(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("config: ppo/cartpole\nenv_id: Acrobot-v1\n")
    job = jobs_of(suite_file(tmp_path, {"config": "mine.yaml"}))[0]
    assert (job.entry, job.config.env_id) == ("mine", "Acrobot-v1")


def test_only_and_seeds_choose_among_the_jobs(tmp_path: Path):
    path = suite_file(tmp_path, tiny(), {**tiny(), "name": "b", "seeds": [7]}, seeds=(1, 2))
    assert [job.name for job in jobs_of(path)] == ["ppo/cartpole seed 1", "ppo/cartpole seed 2", "b seed 7"]
    assert [job.name for job in jobs_of(path, only=["b"], seeds=[3, 4])] == ["b seed 3", "b seed 4"]
    with pytest.raises(ConfigError, match="did you mean 'ppo/cartpole'"):
        jobs_of(path, only=["ppo/cartpol"])


# --- where runs lie


def test_a_changed_configuration_gets_a_place_of_its_own_and_the_old_one_is_found_again(tmp_path: Path):
    def place(**changes: Any) -> Job:
        return jobs_of(suite_file(tmp_path, tiny(**changes)))[0]

    first = place()
    assert first.run_dir == tmp_path / "out/runs/ppo-cartpole/ppo__CartPole-v1__seed1__bench"
    first.run_dir.mkdir(parents=True)
    (first.run_dir / "config.yaml").write_text(first.config.to_yaml())
    changed = place(gamma=0.5)
    assert changed.run_dir.name == "ppo__CartPole-v1__seed1__bench-2"
    assert "algo_kwargs.gamma: 0.98 then, 0.5 now" in replaced_words(changed)
    assert place().run_dir == first.run_dir
    assert place(checkpoint_interval=7).run_dir == first.run_dir  # changes no number


# --- one job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return jobs_of(suite_file(tmp_path, tiny()))[0]


def test_a_job_that_was_killed_before_its_first_checkpoint_is_begun_anew(job: Job):
    (job.run_dir / "checkpoints").mkdir(parents=True)
    (job.run_dir / "config.yaml").write_text(job.config.to_yaml())
    result = json.loads(run_job(job).read_text())
    assert job.result() == result
    assert result["curve"]["steps"] == [16, 32, 48, 64]
    assert result["return_mean"] == pytest.approx(sum(result["returns"]) / 2, abs=1e-3)


def test_the_best_policy_on_the_way_is_evaluated_again(job: Job, monkeypatch: pytest.MonkeyPatch):
    evaluated: list[str] = []
    scores = {"step_000000064": 3.0, "best": 5.0}

    def returns(checkpoint: Path, _: Job) -> list[float]:
        evaluated.append(checkpoint.stem)
        return [scores[checkpoint.stem]] * 2

    monkeypatch.setattr(bench_job, "policy_returns", returns)
    result = json.loads(run_job(job).read_text())
    best_step = result["curve"]["steps"][np.argmax(result["curve"]["returns"])]
    # the last policy, when it is the best one, need not be evaluated twice
    assert evaluated == (["step_000000064"] if best_step == 64 else ["step_000000064", "best"])
    assert result["return_mean"] == 3
    assert result["best_mean"] == (3 if best_step == 64 else 5)


def test_a_result_names_the_commit_that_made_it(job: Job):
    run_job(job)
    metadata = json.loads((job.run_dir / "metadata.json").read_text())
    metadata["git"] = {"commit": "0123456789abcdef", "dirty": True}
    (job.run_dir / "metadata.json").write_text(json.dumps(metadata))
    result = json.loads(run_job(job).read_text())
    assert result["commit"] == "0123456789ab with changes"


def test_more_evaluation_episodes_train_nothing_again(job: Job):
    run_job(job)
    history = (job.run_dir / "metrics.jsonl").read_text()
    more = Job(job.entry, job.slug, job.config, 3, job.run_dir)
    assert more.result() is None
    assert len(json.loads(run_job(more).read_text())["returns"]) == 3
    assert (job.run_dir / "metrics.jsonl").read_text() == history


def test_a_job_that_stopped_early_and_died_before_it_could_say_so_trains_no_further(tmp_path: Path):
    early = tiny(early_stopping={"patience": 1, "min_delta": 1e9})
    (job,) = jobs_of(suite_file(tmp_path, early))
    result = json.loads(run_job(job).read_text())
    assert result["curve"]["steps"] == [16, 32]
    (job.run_dir / "trained.json").unlink()
    (job.run_dir / "result.json").unlink()
    again = json.loads(run_job(job).read_text())
    assert (again["curve"]["steps"], again["returns"]) == (result["curve"]["steps"], result["returns"])
    assert json.loads((job.run_dir / "trained.json").read_text())["metrics"]["global_step"] == 32


def test_a_run_whose_checkpoints_are_all_damaged_is_set_aside(job: Job):
    run_job(job)
    for path in (job.run_dir / "checkpoints").glob("step_*"):
        path.write_bytes(b"nonsense")
    run_job(job)
    assert job.run_dir.with_name(job.run_dir.name + ".damaged-1").is_dir()
    assert job.result() is not None


def test_a_return_that_is_not_finite_is_no_result(job: Job):
    with pytest.raises(NumericsError, match="ppo/cartpole seed 1"):
        made_up(job, [1.0, float("nan")])


# --- scheduling, without processes


class FakeHandle:
    def __init__(self, job: Job, polls: int, code: int) -> None:
        self.job, self.polls, self.code, self.stopped = job, polls, code, False

    def poll(self) -> int | None:
        self.polls -= 1
        if self.stopped:
            return 143
        if self.polls > 0:
            return None
        if self.code == 0:
            self.job.run_dir.mkdir(parents=True, exist_ok=True)
            (self.job.run_dir / "result.json").write_text(json.dumps(made_up(self.job, [1.0, 2.0])))
        return self.code

    def stop(self) -> None:
        self.stopped = True

    def kill(self) -> None:
        self.stopped = True


class FakeLauncher:
    def __init__(self, *, fails: tuple[str, ...] = ()) -> None:
        self.fails, self.started = fails, []
        self.alive: list[FakeHandle] = []
        self.most = 0

    def start(self, job_file: Path, log_file: Path, *, threads: int) -> FakeHandle:
        job = Job.from_dict(json.loads(job_file.read_text()))
        bad = job.name in self.fails
        log_file.write_text("12:00:00 INFO beginning\n12:00:01 ERROR EnvError: it broke\nThe run is saved\n" if bad else "")
        self.started.append((job.name, threads))
        self.alive = [handle for handle in self.alive if handle.polls > 0]
        self.alive.append(FakeHandle(job, 2, 1 if bad else 0))
        self.most = max(self.most, len(self.alive))
        return self.alive[-1]


class Quiet:
    def begun(self, job: Job) -> None: ...
    def ended(self, job: Job, failure: str | None) -> None: ...
    def tick(self, schedule: bench.Schedule) -> None: ...


def schedule_of(path: Path, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch, **limits: Any) -> bench.Schedule:
    monkeypatch.setattr(bench, "POLL_SECONDS", 0.0)
    return bench.Schedule(
        jobs_of(path), work_dir=path.parent / "jobs", launcher=launcher, **{"cores": 4, "max_jobs": None, **limits}
    )


def test_jobs_fill_the_cores_by_their_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for threads, most in ((1, 4), (2, 2), (3, 1), (9, 1)):
        launcher = FakeLauncher()
        (tmp_path / str(threads)).mkdir()
        path = suite_file(tmp_path / str(threads), tiny(num_threads=threads), seeds=(1, 2, 3, 4, 5))
        schedule_of(path, launcher, monkeypatch).run(Quiet())
        assert launcher.most == most
        assert launcher.started[0] == ("ppo/cartpole seed 1", threads)


def test_max_jobs_counts_jobs_whatever_their_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    launcher = FakeLauncher()
    path = suite_file(tmp_path, tiny(num_threads=4), seeds=(1, 2, 3, 4))
    schedule_of(path, launcher, monkeypatch, max_jobs=3).run(Quiet())
    assert launcher.most == 3


def test_one_failure_leaves_the_others_alone_and_a_second_round_runs_only_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = suite_file(tmp_path, tiny(), seeds=(1, 2, 3))
    schedule = schedule_of(path, FakeLauncher(fails=("ppo/cartpole seed 2",)), monkeypatch)
    schedule.run(Quiet())
    assert [job.seed for job in schedule.done] == [1, 3]
    assert schedule.failed == [Missing("ppo/cartpole", 2, "EnvError: it broke")]
    assert bench.missing_jobs(jobs_of(path), [], tmp_path / "jobs") == schedule.failed  # the log still says it
    again = FakeLauncher()
    schedule_of(path, again, monkeypatch).run(Quiet())
    assert again.started == [("ppo/cartpole seed 2", 1)]


def test_a_signal_stops_what_runs_and_begins_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Interrupting(Quiet):
        def tick(self, schedule: bench.Schedule) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    launcher = FakeLauncher()
    path = suite_file(tmp_path, tiny(), seeds=(1, 2, 3))
    with pytest.raises(TrainingInterrupted, match="0 of 3 jobs are done") as caught:
        schedule_of(path, launcher, monkeypatch, max_jobs=1).run(Interrupting())
    assert caught.value.signum == signal.SIGTERM
    assert len(launcher.started) == 1
    assert launcher.alive[0].stopped


def test_the_time_left_is_that_of_what_is_left(tmp_path: Path):
    schedule = bench.Schedule(
        jobs_of(suite_file(tmp_path, tiny(), seeds=(1, 2, 3))),
        work_dir=tmp_path,
        launcher=FakeLauncher(),
        cores=1,
        max_jobs=None,
    )
    assert bench.seconds_left(schedule, {}) is None
    running = bench.Running(schedule.waiting.pop(0), FakeHandle(schedule.jobs[0], 1, 0), tmp_path / "log", 0)
    running.begun = time.monotonic() - 16.0
    schedule.running.append(running)
    # 16 of 64 steps in 16 s: 48 s left of this one, and 64 s for each of the two others
    assert bench.seconds_left(schedule, {running.job.name: 16}) == pytest.approx(48 + 2 * 64, abs=1.0)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"rl-training\[ray\]"):
        RayLauncher()


def test_a_ray_task_that_was_stopped_while_it_waited_begins_nothing(tmp_path: Path):
    (tmp_path / "job.stop").touch()
    assert run_process(str(tmp_path / "job.json"), str(tmp_path / "job.log"), str(tmp_path / "job.stop"), 1) == 143
    assert not (tmp_path / "job.log").exists()


# --- numbers


def test_seconds_are_steps_over_speed_summed_and_updates_count_where_no_steps_are_made():
    def line(step: int, updates: int, speed: float, update_speed: float) -> tuple[int, dict[str, Any]]:
        return step, {"updates": updates, "time/steps_per_second": speed, "time/updates_per_second": update_speed}

    history = [line(100, 0, 50.0, 0.0), line(300, 10, 100.0, 5.0), line(300, 20, 0.0, 5.0), line(300, 40, 0.0, 5.0)]
    assert elapsed_seconds(history) == [2.0, 4.0, 6.0, 10.0]


def test_of_two_evaluations_at_one_step_the_later_counts():
    history = [
        (10, {"eval_return_mean": 1.0}),
        (20, {"loss": 1}),
        (20, {"eval_return_mean": 2.0}),
        (20, {"eval_return_mean": 3.0}),
    ]
    assert evaluation_curve(history)[:2] == ([10, 20], [1.0, 3.0])


def test_time_to_threshold_tells_how_many_reach_it(job: Job):
    curves = [([100, 200], [1.0, 5.0], [2.0, 4.0]), ([100, 200], [6.0, 5.0], [3.0, 6.0]), ([100, 200], [1.0, 2.0], [2.0, 4.0])]
    told = time_to_threshold([made_up(job, [1.0], curve) for curve in curves], 5.0)
    assert told["steps"] == [200, 100, None]
    assert told["seconds"] == [4, 3, None]
    assert (told["reached"], told["n"], told["steps_iqm"], told["seconds_iqm"]) == (2, 3, 150, 3.5)
    assert told["steps_interval"] == [100, 200]  # of two seeds a resample may hold one twice


@pytest.fixture
def results(tmp_path: Path) -> dict[str, Any]:
    """Two entries on one task: a with four seeds, of which one is missing, b with three that are worse or equal."""
    reference = {"value": 500, "source": "RL zoo", "steps": 100_000}
    path = suite_file(
        tmp_path, {**tiny(), "name": "a", "threshold": 5, "reference": reference}, {**tiny(), "name": "b"}, seeds=(1, 2, 3, 4)
    )
    curve = ([100, 200], [1.0, 5.0], [30.0, 60.0])
    scores = {"a": [10.0, 20.0, 30.0, 1000.0], "b": [10.0, 5.0, 1.0]}
    jobs = jobs_of(path)
    runs = [(job, made_up(job, [scores[job.entry][job.seed - 1]], curve)) for job in jobs[:-1]]
    return build_results(
        load_suite(path),
        runs,
        missing=[Missing("b", 4, "EnvError: it broke")],
        command="rl-training bench suite.yaml",
        date="2026-01-01",
    )


def test_results_are_the_statistics_of_the_seeds(results: dict[str, Any]):
    a, b = results["entries"]
    assert a["summary"]["iqm"] == 25  # of 10, 20, 30, 1000 the ends are cut
    assert b["summary"]["iqm"] == pytest.approx(16 / 3, abs=1e-3)  # three are too few to cut any
    assert a["seconds"] == 60
    # of 12 pairs a wins 11 and ties one
    assert results["comparisons"][0]["probability"] == pytest.approx(11.5 / 12, abs=1e-3)


def test_the_time_of_an_entry_is_that_of_its_middle_run(tmp_path: Path):
    path = suite_file(tmp_path, tiny(), seeds=(1, 2, 3))
    curves = [([100], [1.0], [seconds]) for seconds in (30.0, 40.0, 500.0)]  # one waited for something
    runs = [(job, made_up(job, [1.0], curve)) for job, curve in zip(jobs_of(path), curves, strict=True)]
    (entry,) = build_results(load_suite(path), runs, command="", date="")["entries"]
    assert entry["seconds"] == 40


def test_markdown_says_what_the_results_say(results: dict[str, Any]):
    text = to_markdown(results)
    assert "| a | CartPole-v1 | 25.0 [10.0, 1,000] | 10.0 | 4 | 64 | 1.0 |" in text
    assert "200 [200, 200] (4 of 4 reach 5.0) | 60.0 | 500 (RL zoo @ 100,000) |" in text
    assert "| CartPole-v1 | a | b | 0.96 [" in text
    assert "- b seed 4: EnvError: it broke" in text
    assert "`rl-training bench suite.yaml`" in text


def test_published_figures_stand_beside_our_curves_at_their_steps(tmp_path: Path):
    published = [{"value": 4.0, "source": "them", "steps": steps} for steps in (150, 300)]
    path = suite_file(tmp_path, {**tiny(), "published": published}, seeds=(1, 2))
    curves = [([100, 200], [1.0, 5.0], [30.0, 60.0]), ([100, 200], [3.0, 7.0], [30.0, 60.0])]
    runs = [(job, made_up(job, [9.0], curve)) for job, curve in zip(jobs_of(path), curves, strict=True)]
    made = build_results(load_suite(path), runs, command="", date="")
    rows = published_table(made).splitlines()[2:]
    # half way between their evaluations the two are at 3 and 5; no curve goes as far as 300 steps
    assert rows == [
        "| ppo/cartpole | CartPole-v1 | 150 | 4.0 [3.0, 5.0] | 4.0 | them |",
        "| ppo/cartpole | CartPole-v1 | 300 |  | 4.0 | them |",
    ]
    draw_result_curves(made, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 0


def test_results_do_not_depend_on_the_entries_beside_them(results: dict[str, Any], tmp_path: Path):
    path = suite_file(tmp_path, {**tiny(), "name": "b"}, seeds=(1, 2, 3))
    runs = [(job, made_up(job, [score])) for job, score in zip(jobs_of(path), [10.0, 5.0, 1.0], strict=True)]
    alone = build_results(load_suite(path), runs, command="", date="")
    assert alone["entries"][0]["summary"] == results["entries"][1]["summary"]


def test_ten_entries_of_ten_seeds_stay_small_and_every_run_is_one_line(job: Job):
    suite = Suite(name="big", entries=tuple({"preset": "sac/pendulum", "name": f"entry {n}"} for n in range(10)))
    steps = list(range(1000, 21_000, 1000))
    curve = (steps, [-1234.567 + step for step in steps], [step / 97.3 for step in steps])
    episodes = [-148.123 - number / 7 for number in range(50)]
    runs = [
        (copy, made_up(copy, episodes, curve))
        for entry in suite.entries
        for seed in range(10)
        if (copy := Job(entry.label, entry.slug, job.config.replace(seed=seed), 50, job.run_dir))
    ]
    text = dump_results(build_results(suite, runs, command="c", date="d"))
    assert len(text) < 110_000
    assert len(json.loads(text)["entries"][9]["runs"]) == 10
    assert sum(line.startswith('    {"seed":') for line in text.splitlines()) == 100


def test_the_picture_has_a_band_for_every_entry_with_curves(results: dict[str, Any], tmp_path: Path):
    band = entry_bands(results["entries"])["a"]
    assert (band.steps.tolist(), band.iqm.tolist(), band.num_runs) == ([100.0, 200.0], [1.0, 5.0], 4)
    assert draw_result_curves(results, tmp_path / "curves.png").stat().st_size > 1000
    with pytest.raises(ConfigError, match="no curve to draw"):
        draw_result_curves({**results, "entries": []}, tmp_path / "none.png")


# --- processes


def start(path: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rl_training", "bench", str(path), "--out", str(path.parent / "out"), *words]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment, start_new_session=True, **pipes)


def wait_for_checkpoint(job: Job, process: subprocess.Popen[str], *, after: int) -> int:
    """The step of the first checkpoint later than `after`."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        steps = [int(path.stem.removeprefix("step_")) for path in (job.run_dir / "checkpoints").glob("step_*.safetensors")]
        if steps and max(steps) > after:
            return max(steps)
        time.sleep(0.02)
    process.kill()
    raise AssertionError(process.communicate()[0])


def test_a_benchmark_that_is_stopped_and_killed_goes_on_to_the_end_and_finished_jobs_are_not_run_again(tmp_path: Path):
    long = tiny(total_timesteps=20_000, eval_interval=1_000, checkpoint_interval=250)
    missing = {**tiny(env_id="NoSuchEnv-v0"), "name": "broken"}
    path = suite_file(tmp_path, long, missing)
    job = jobs_of(path)[0]

    stopped = start(path, "--only", "ppo/cartpole")
    step = wait_for_checkpoint(job, stopped, after=0)
    stopped.send_signal(signal.SIGTERM)  # to the benchmark alone, which passes it on
    text, _ = stopped.communicate()
    assert stopped.returncode == 143, text
    assert "The same command goes on with them" in text

    killed = start(path, "--only", "ppo/cartpole")
    wait_for_checkpoint(job, killed, after=step + 500)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert job.result() is None

    finished = start(path)
    text, _ = finished.communicate()
    assert finished.returncode == 1, text  # for the other entry fails
    assert "failed: broken seed 1" in text
    assert "NoSuchEnv" in text
    result = job.result()
    assert result is not None
    assert result["steps"] >= 20_000
    assert result["curve"]["steps"][-1] >= 20_000
    # the kill may come when the training is over and only the evaluation is left; then it is resumed once
    assert len(json.loads((job.run_dir / "metadata.json").read_text())["resume_history"]) in (1, 2)
    written = json.loads((tmp_path / "out/results.json").read_text())
    assert [entry["name"] for entry in written["entries"]] == ["ppo/cartpole"]
    assert "NoSuchEnv" in written["missing"][0]["reason"]
    assert str(tmp_path) not in (tmp_path / "out/results.json").read_text()

    before = (job.run_dir / "result.json").stat().st_mtime_ns
    assert main(["bench", str(path), "--out", str(tmp_path / "out"), "--only", "ppo/cartpole"]) == 0
    assert (job.run_dir / "result.json").stat().st_mtime_ns == before


def test_dry_run_makes_nothing_and_report_only_reports_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = suite_file(tmp_path, tiny(), seeds=(1, 2))
    out = tmp_path / "out"
    assert main(["bench", str(path), "--out", str(out), "--dry-run"]) == 0
    assert not out.exists()
    run_job(jobs_of(path)[1])
    assert main(["bench", str(path), "--out", str(out), "--report-only"]) == 0
    assert "missing: ppo/cartpole seed 1: not begun yet" in capsys.readouterr().err
    assert [run["seed"] for run in json.loads((out / "results.json").read_text())["entries"][0]["runs"]] == [2]
    assert main(["bench", str(path), "--out", str(out), "--seeds", "1,x"]) == 2


def test_runs_of_earlier_results_are_not_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, out, known = suite_file(tmp_path, tiny(), seeds=(1, 2)), tmp_path / "out", tmp_path / "known.json"
    assert main(["bench", str(path), "--out", str(out)]) == 0
    both = json.loads((out / "results.json").read_text())
    (out / "results.json").rename(known)
    shutil.rmtree(out)
    path = suite_file(tmp_path, tiny(), seeds=(1, 2, 3))
    assert main(["bench", str(path), "--out", str(out), "--known", str(known)]) == 0
    assert "3 jobs, 2 of them done already" in capsys.readouterr().out
    three = json.loads((out / "results.json").read_text())
    assert three["entries"][0]["runs"][:2] == both["entries"][0]["runs"]
    assert [run["seed"] for run in three["entries"][0]["runs"]] == [1, 2, 3]
    assert three["notes"] == [f"runs taken from results of {both['date']}: 2"]
    # those of other settings are
    assert not any(job.result() for job in jobs_of(suite_file(tmp_path, tiny(gamma=0.5)), known=known_runs(known)))
    known.write_text('{"entries": 3}')
    assert main(["bench", str(path), "--out", str(out), "--known", str(known)]) == 2
    assert "known.json: cannot be read as the results.json of a benchmark" in capsys.readouterr().err


# --- tables in the README and the docs


def load_tables() -> Any:
    spec = importlib.util.spec_from_file_location("tables", REPOSITORY / "benchmarks/learning/tables.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_made_between_their_markers_and_only_there(
    results: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    tables, root = load_tables(), tmp_path / "root"
    (root / "benchmarks/learning/results/tiny").mkdir(parents=True)
    (root / "docs/algorithms").mkdir(parents=True)
    results["entries"][0] |= {"name": "ppo/cartpole", "preset": "ppo/cartpole"}
    (root / "benchmarks/learning/results/tiny/results.json").write_text(dump_results(results))
    (root / "README.md").write_text("above\n<!-- results:README -->\nold\n<!-- /results:README -->\nbelow\n")
    (root / "docs/algorithms/ppo.md").write_text(
        "<!-- options:ppo -->\n<!-- /options:ppo -->\n<!-- results:ppo -->\n<!-- /results:ppo -->\n"
        "<!-- suite:tiny -->\n<!-- /suite:tiny -->\n"
    )
    arguments = ["--root", str(root)]
    assert tables.main([*arguments, "--check"]) == 1
    assert tables.main(arguments) == 0
    readme = (root / "README.md").read_text()
    assert readme.startswith("above\n<!-- results:README -->\n\n| algorithm |")
    assert readme.endswith("\n<!-- /results:README -->\nbelow\n")
    assert "| [ppo](docs/algorithms/ppo.md) | CartPole-v1 | 25.0 [" in readme
    assert readme.count("CartPole-v1") == 1  # variants of a preset are not for the README
    assert "old" not in readme
    page = (root / "docs/algorithms/ppo.md").read_text()
    assert "| `gamma` | number, from 0 to 1 | 0.99 | Discount per step. |" in page
    assert "(../curves/tiny.png)" in page
    whole = page.split("<!-- suite:tiny -->")[1]
    assert whole.count("| CartPole-v1 |") == len(results["entries"]) + len(results["comparisons"])
    assert "| steps to threshold |" in whole
    capsys.readouterr()
    assert tables.main([*arguments, "--check"]) == 0
    assert tables.main(arguments) == 0
    assert capsys.readouterr().out == ""  # nothing left to write

    results["entries"][0]["summary"]["iqm"] = 26
    (root / "benchmarks/learning/results/tiny/results.json").write_text(dump_results(results))
    assert tables.main([*arguments, "--check"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said == [f"out of date: {name}" for name in ("README.md", "docs/algorithms/ppo.md", "docs/curves/tiny.png")]
    (root / "README.md").write_text("<!-- suite:tinny -->\n<!-- /suite:tinny -->\n")
    assert tables.main([*arguments, "--check"]) == 2
    assert "did you mean 'tiny'" in capsys.readouterr().err


def test_a_preset_that_two_suites_train_is_listed_from_the_one_with_more_seeds(results: dict[str, Any]):
    few = {**results, "entries": [{**results["entries"][1], "name": "sac/hopper", "preset": "sac/hopper"}]}  # three seeds
    many = {**results, "entries": [{**results["entries"][0], "name": "sac/hopper", "preset": "sac/hopper"}]}  # four
    assert list(load_tables()._listed({"a": few, "b": many})) == ["b"]


def test_the_tables_of_this_repository_are_those_its_results_give(capsys: pytest.CaptureFixture[str]):
    assert load_tables().main(["--check"]) == 0, f"{capsys.readouterr().out}\nrun: python benchmarks/learning/tables.py"


@pytest.mark.parametrize("path", sorted((REPOSITORY / "benchmarks/learning/suites").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_committed_suites_can_be_run(path: Path, tmp_path: Path):
    suite = load_suite(path)
    assert suite.name == path.stem
    jobs = plan_jobs(suite, suite_path=path, out=tmp_path)
    assert len(jobs) == sum(len(suite.seeds_of(entry)) for entry in suite.entries)
