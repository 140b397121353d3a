"""The command line, tried as a person or a script would."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY
from rl_training import __version__, errors
from rl_training.cli import load_config, main
from rl_training.cli.commands import doctor
from rl_training.cli.parser import command_names, load_command
from rl_training.cli.results import number
from rl_training.cli.settings import resolve_config
from rl_training.cli.tables import emphasis
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.locate import resolve_checkpoint
from rl_training.experiment.lock import RunLock
from rl_training.options import algorithm_names, load_options_class
from rl_training.reports.recorded_runs import read_run
from rl_training.resources import list_presets

TINY_PPO = ["ppo/cartpole", "num_envs=1", "num_steps=16", "update_epochs=1", "--total-timesteps", "64", "--eval-episodes", "1"]
TINY_SAC = ["sac/pendulum", "learning_starts=16", "batch_size=8", "--total-timesteps", "24", "--eval-episodes", "1"]


def closing(text: str) -> list[dict[str, Any]]:
    """What a script reads: one dict per run."""
    runs = re.findall(r"^run_dir=(.*)\ncheckpoint_path=(.*)\nmetrics=(.*)$", text, re.MULTILINE)
    return [{"run_dir": Path(run), "checkpoint_path": Path(path), "metrics": json.loads(line)} for run, path, line in runs]


def start(*arguments: str, **settings: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rl_training", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **settings}
    return subprocess.Popen(command, env={"PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}, **pipes)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(REPOSITORY / "src")}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One tiny PPO run, made by the command line, that tests may read."""
    folder = tmp_path_factory.mktemp("trained")
    process = start("train", *TINY_PPO, "log_interval=16", "--output-dir", str(folder))
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    return {"stdout": stdout, "stderr": stderr, **closing(stdout)[0]}


# --- starting up


def test_what_trains_nothing_imports_neither_torch_nor_gymnasium():
    calls = [["--help"], ["--version"], ["list"], ["train", "--help"], ["show", "ppo"], ["show", "sac/pendulum"]]
    calls += [["config", "ppo/cartpole", "gamma=0.5", "--full"], ["train", "ppo/cartpole", "seed=-1"], ["trian"]]
    code = f"""
import sys
from rl_training.cli import main
for call in {calls!r}:
    main(call)
    heavy = {{"torch", "gymnasium", "matplotlib"}} & set(sys.modules)
    assert not heavy, (call, heavy)
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_list_does_not_even_import_pydantic():
    done = run_python("import sys; from rl_training.cli import main; main(['list']); assert 'pydantic' not in sys.modules")
    assert done.returncode == 0, done.stderr


def test_the_package_runs_as_a_module(trained: dict[str, Any]):
    stdout, _ = start("--version").communicate()
    assert stdout == f"rl-training {__version__}\n"
    assert json.loads((trained["run_dir"] / "metadata.json").read_text())["command"][1] == "train"


def test_help_names_every_command_with_its_summary(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert {"train", "resume", "eval", "list", "show", "config", "plot", "doctor"} <= set(command_names())
    for name in command_names():
        assert re.search(rf"^  {name} +{re.escape(load_command(name).summary)}$", text, re.MULTILINE)


def test_without_a_command_help_is_printed_and_the_code_is_that_of_bad_input(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 2
    assert "examples:" in capsys.readouterr().out


@pytest.mark.parametrize("name", command_names())
def test_the_examples_in_the_help_of_a_command_are_understood(name: str, tmp_path: Path):
    command = load_command(name)
    (tmp_path / "my_run.yaml").write_text("config: ppo/cartpole")
    for line in command.module.EXAMPLES.splitlines():
        words = shlex.split(re.split(r" [|>] ", line.replace("my_run.yaml", str(tmp_path / "my_run.yaml")))[0])
        assert words[:2] == ["rl-training", name]
        args = command.parser().parse(words[2:])
        if name in ("train", "config"):
            resolve_config(args)


# --- list, show, config


def test_list_has_every_algorithm_and_every_preset(capsys: pytest.CaptureFixture[str]):
    assert main(["list"]) == 0
    first_words = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert {*algorithm_names(), *list_presets()} <= first_words


@pytest.mark.parametrize("algo", algorithm_names())
def test_show_has_every_option_with_its_default_and_meaning(algo: str, capsys: pytest.CaptureFixture[str]):
    assert main(["show", algo]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for info in load_options_class(algo).describe():
        assert f" {info.name} " in text
        assert info.description.split()[0] in text
    interval = load_options_class(algo).model_fields["eval_interval"].default
    assert f" eval_interval integer, at least 1 {interval:_} " in text


def test_show_prints_a_preset_as_it_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert main(["show", "ppo/cartpole"]) == 0
    copy = tmp_path / "copy.yaml"
    copy.write_text(capsys.readouterr().out)
    assert load_config(copy) == load_config("ppo/cartpole")


@pytest.mark.parametrize("extra", [[], ["--full"]])
def test_what_config_prints_loads_as_the_same_config(extra: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert main(["config", "ppo/cartpole", "gamma=0.5", "env_kwargs.max_episode_steps=9", *extra]) == 0
    file = tmp_path / "printed.yaml"
    file.write_text(capsys.readouterr().out)
    config = load_config(file)
    assert config.options.gamma == 0.5
    assert config.env_kwargs == {"max_episode_steps": 9}
    assert (
        config.resolved()
        == load_config("ppo/cartpole").replace(algo_kwargs=config.algo_kwargs, env_kwargs=config.env_kwargs).resolved()
    )
    assert ("keep_checkpoints" in file.read_text()) == bool(extra)


def test_short_and_full_names_of_a_setting_mean_the_same(capsys: pytest.CaptureFixture[str]):
    main(["config", "ppo/cartpole", "learning_rate=5e-3", "early_stopping.patience=3"])
    short = capsys.readouterr().out
    main(["config", "ppo/cartpole", "algo_kwargs.learning_rate=0.005", "algo_kwargs.early_stopping.patience=3"])
    assert short == capsys.readouterr().out
    assert "learning_rate: 0.005" in short


def test_options_count_more_than_settings_and_settings_more_than_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    file = tmp_path / "run.yaml"
    file.write_text("config: ppo/cartpole\nseed: 3\nnum_envs: 3")
    assert main(["config", "--seed", "5", "seed=4", "num_envs=4", "--config", str(file), "--total-timesteps", "1e5"]) == 0
    text = capsys.readouterr().out
    assert "seed: 5\n" in text
    assert "num_envs: 4\n" in text
    assert "total_timesteps: 100000\n" in text


def test_a_config_file_may_be_given_in_place_of_a_preset(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "run.yaml"
    file.write_text("config: ppo/cartpole\nseed: 77")
    assert main(["config", str(file)]) == 0
    assert "seed: 77\n" in capsys.readouterr().out


# --- errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["trian", "ppo/cartpole"], "no command 'trian'; did you mean 'train'?"),
        (["--verison"], "did you mean '--version'?"),
        (["train", "ppo/cartpol"], "no preset 'ppo/cartpol'; did you mean 'ppo/cartpole'?"),
        (["train", "ppo"], "its presets are: ppo/cartpole"),
        (["train"], "name a preset"),
        (["train", "ppo/cartpole", "sac/pendulum"], "one preset"),
        (["train", "ppo/cartpole", "--config", "x.yaml"], "one preset"),
        (["train", "ppo/cartpole", "--ouput-dir", "x"], "did you mean '--output-dir'?"),
        (["train", "ppo/cartpole", "--learning-rate=3"], "learning_rate=value"),
        (["train", "ppo/cartpole", "learning_rte=1"], "did you mean 'learning_rate'?"),
        (["train", "ppo/cartpole", "gamma=1.5"], "algo_kwargs.gamma: given 1.5"),
        (["train", "ppo/cartpole", "--seed", "x"], "seed: given 'x'"),
        (["train", "ppo/cartpole", "--execution-backend", "local_asink"], "did you mean 'local_async'?"),
        (["train", "ppo/cartpole", "--seeds", "1,1"], "each seed once"),
        (["train", "ppo/cartpole", "--jobs", "2"], "--jobs: given 2; possible: at least 1, together with --seeds"),
        (["train", "ppo/cartpole", "--execution-backend", "ray"], "a run of ppo has none"),
        (["train", "ppo/cartpole", "--seeds", "1,x"], "seed: given 'x'"),
        (["train", "ars/cartpole", "--seeds", "1,2", "--execution-backend", "ray", "ray_workers=2"], "--jobs N limits them"),
        (["train", "ppo/cartpole", "--seeds", "1,2", "--seed", "1"], "either --seed or --seeds"),
        (["train", "--config", "nowhere.yaml"], "no config file 'nowhere.yaml'"),
        (["train", "ppo/cartpole", "env_id=CartPol-v1"], "CartPole-v1"),
        (["train", "sac/pendulum", "env_id=CartPole-v1"], "SAC takes continuous actions"),
        (["resume", "--checkpoint", "nowhere"], "nowhere: there is no such file or folder"),
        (["resume"], "--checkpoint PATH"),
        (["eval", "--checkpoint", "x", "--num-episodes", "0"], "at least 1"),
        (["eval", "--checkpoint", "x", "--video-episodes", "2"], "--video-episodes: given 2 without --video"),
        (["eval", "--checkpoint", "x", "--video", "--video-episodes", "0"], "--video-episodes: given 0; possible: at least 1"),
        (["show", "pp"], "did you mean 'ppo'?"),
        (["plot", "nowhere", "--out", "a.png"], "no such folder"),
        (["list", "more"], "no more words"),
    ],
)
def test_bad_input_is_answered_in_words_before_any_file_is_made(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert says in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("e"), 2),
        (errors.EnvError("e"), 2),
        (errors.UnsupportedSpace("e"), 2),
        (errors.DatasetError("e"), 2),
        (errors.CheckpointError("e"), 2),
        (errors.MissingExtraError("m", extra="x", purpose="p"), 2),
        (errors.RunBusyError("e"), 3),
        (errors.NumericsError("e"), 1),
        (errors.TrainingInterrupted("e", signum=signal.SIGTERM, result=None), 143),
        (errors.TrainingInterrupted("e", signum=signal.SIGINT, result=None), 130),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("e"), 1),
    ],
)
def test_what_a_command_raises_decides_the_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(load_command("list").module, "run", fail)
    assert main(["list"]) == code
    assert "Traceback" not in capsys.readouterr().err
    main(["list", "--debug"])
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("RL_TRAINING_DEBUG", "1")
    main(["list"])
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error():
    with start("list") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 128 + signal.SIGPIPE


def test_logging_is_readable_and_gone_after_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    log, handlers = logging.getLogger("rl_training.test"), list(logging.getLogger().handlers)

    def talk(_: object) -> int:
        log.info("a detail")
        log.warning("look here")
        return 0

    monkeypatch.setattr(load_command("list").module, "run", talk)
    main(["list"])
    assert capsys.readouterr().err == "warning: look here\n"
    main(["--verbose", "list"])
    assert "info rl_training.test: a detail\n" in capsys.readouterr().err
    assert logging.getLogger().handlers == handlers


def test_colour_is_only_for_terminals_and_only_when_wanted(monkeypatch: pytest.MonkeyPatch):
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert emphasis("x", "1", Terminal()) == "\x1b[1mx\x1b[0m"  # type: ignore[arg-type]
    assert emphasis("x") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert emphasis("x", "1", Terminal()) == "x"  # type: ignore[arg-type]


# --- training


def test_train_ends_with_three_lines_that_a_script_can_read(trained: dict[str, Any]):
    assert len(closing(trained["stdout"])) == 1
    assert trained["stdout"].splitlines()[-1].startswith("metrics={")
    assert (trained["run_dir"] / "config.yaml").is_file()
    assert trained["checkpoint_path"].name == "step_000000064.safetensors"
    assert trained["checkpoint_path"].is_file()
    assert trained["metrics"]["global_step"] == 64
    assert trained["metrics"]["eval_episodes"] == 1
    assert trained["stderr"] == ""


def test_the_summary_says_how_good_it_is_and_what_to_do_next(trained: dict[str, Any]):
    mean = number(trained["metrics"]["eval_return_mean"])
    assert f"evaluation  {mean} ± 0 over 1 episode\n" in trained["stdout"]
    commands = re.findall(r"rl-training (\w+) .*", trained["stdout"])
    assert commands == ["eval", "resume", "plot"]
    assert "\x1b" not in trained["stdout"]


def test_quiet_prints_the_three_lines_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["train", *TINY_SAC, "--output-dir", str(tmp_path), "--quiet", "algo_kwargs.hidden_sizes=[8]"]) == 0
    text = capsys.readouterr().out
    assert [line.partition("=")[0] for line in text.splitlines()] == ["run_dir", "checkpoint_path", "metrics"]
    run_dir = closing(text)[0]["run_dir"]
    assert load_config(run_dir / "config.yaml").options.hidden_sizes == (8,)


def test_metrics_are_json_without_an_evaluation_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["train", *TINY_PPO[:-1], "0", "--output-dir", str(tmp_path), "--run-suffix", "here"]) == 0
    run = closing(capsys.readouterr().out)[0]
    assert run["metrics"]["eval_return_mean"] is None
    assert run["metrics"]["eval_episodes"] == 0
    assert run["run_dir"].name == "ppo__CartPole-v1__seed1__here"


def test_seeds_are_trained_one_after_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["train", *TINY_PPO, "--output-dir", str(tmp_path), "--seeds", "3,1,2", "--run-suffix", "a"]) == 0
    runs = closing(capsys.readouterr().out)
    assert [run["run_dir"].name for run in runs] == [f"ppo__CartPole-v1__seed{seed}__a" for seed in (3, 1, 2)]
    assert len({run["metrics"]["loss"] for run in runs}) == 3


def test_seeds_end_with_a_summary_and_are_the_same_runs_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    outs = {}
    for name, more in (("apart", ["--jobs", "2"]), ("here", [])):
        command = ["train", *TINY_PPO, "--output-dir", str(tmp_path / name), "--seeds", "1,2", "--run-suffix", "a", *more]
        assert main(command) == 0
        outs[name] = capsys.readouterr().out
        assert re.search(r"all seeds +mean [\d.]+, standard deviation [\d.]+, from [\d.]+ to [\d.]+", outs[name])
        last = [line.partition("=")[0] for line in outs[name].splitlines()[-3:]]
        assert last == ["run_dir", "checkpoint_path", "metrics"]
    apart, here = (closing(out) for out in outs.values())
    assert [run["metrics"] for run in apart] == [run["metrics"] for run in here]
    assert all(run["checkpoint_path"].is_file() for run in apart)
    again = ["train", *TINY_PPO, "--output-dir", str(tmp_path / "apart"), "--seeds", "1,2", "--run-suffix", "a", "--jobs", "2"]
    assert main(again) == 2
    assert "exists and is never overwritten" in capsys.readouterr().err


def test_resume_goes_on_in_the_same_directory_unless_told_otherwise(
    trained: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = ["resume", "--checkpoint", str(trained["run_dir"]), "--total-timesteps", "96"]
    assert main([*arguments, "--output-dir", str(tmp_path)]) == 0
    elsewhere = closing(capsys.readouterr().out)[0]
    assert elsewhere["run_dir"].parent == tmp_path
    assert not trained["run_dir"].joinpath("checkpoints/step_000000096.safetensors").exists()
    assert main(["resume", "--checkpoint", str(elsewhere["run_dir"]), "--total-timesteps", "128"]) == 0
    again = closing(capsys.readouterr().out)[0]
    assert again["run_dir"].resolve() == elsewhere["run_dir"].resolve()
    assert again["metrics"]["global_step"] == 128
    assert main(["resume", str(again["run_dir"])]) == 0
    assert "nothing was left to do" in capsys.readouterr().out


def test_two_evaluations_of_one_checkpoint_agree(trained: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    for path in (trained["run_dir"], trained["checkpoint_path"]):
        assert main(["eval", "--checkpoint", str(path), "--num-episodes", "2"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("metrics=")]
    assert lines[0] == lines[1]
    assert json.loads(lines[0].removeprefix("metrics="))["eval_episodes"] == 2


def test_a_run_directory_in_use_gives_exit_code_3(trained: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    take = f"from rl_training.experiment.lock import RunLock; lock = RunLock({str(trained['run_dir'])!r})"
    lock = f"{take}; print('held', flush=True); input()"
    settings = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": {"PYTHONPATH": str(REPOSITORY / "src")}}
    with subprocess.Popen([sys.executable, "-c", lock], text=True, **settings) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert main(["resume", "--checkpoint", str(trained["run_dir"]), "--total-timesteps", "500"]) == 3
        assert f"in use by process {holder.pid}" in capsys.readouterr().err
        holder.communicate("\n")
    RunLock(trained["run_dir"]).release()


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_saves_and_prints_the_command_that_goes_on(
    signum: signal.Signals, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    long = ["ppo/cartpole", "num_envs=1", "num_steps=32", "eval_interval=64", "total_timesteps=10_000_000", "eval_episodes=1"]
    process = start("train", *long, "--output-dir", str(tmp_path), "--seeds", "1,2")
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    assert any("evaluation" in line for line in lines)
    process.send_signal(signum)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == code
    run = closing(stdout)[0]
    step = run["metrics"]["global_step"]
    assert f"rl-training resume --checkpoint {run['run_dir']}" in stderr
    assert "not begun: seed 2" in stderr
    assert "Traceback" not in stderr
    assert load_checkpoint(run["checkpoint_path"]).trainer_state["progress"]["global_step"] == step
    command = re.search(r"rl-training (resume .*)", stderr)
    assert command is not None
    assert main([*shlex.split(command[1]), "--total-timesteps", str(step + 32)]) == 0
    assert closing(capsys.readouterr().out)[0]["metrics"]["global_step"] == step + 32


ON_A_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from rl_training.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_terminal_that_is_closed_costs_not_one_step(tmp_path: Path):
    """Its end is a SIGHUP, and nothing can be written to it any more."""
    often = {"num_envs": 1, "total_timesteps": 10_000_000, "log_interval": 1, "checkpoint_interval": 10**7}
    (tmp_path / "config.yaml").write_text(load_config("ppo/cartpole").replace(output_dir=tmp_path, **often).to_yaml())
    ours, theirs = os.openpty()
    words = [sys.executable, "-c", ON_A_TERMINAL, "train", "--config", str(tmp_path / "config.yaml")]
    environment = {"PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1", "TERM": "xterm"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    with subprocess.Popen(words, env=environment, start_new_session=True, **pipes) as process:
        os.close(theirs)
        shown = b""
        while b"steps/s" not in shown:
            shown += os.read(ours, 4096)
        os.close(ours)
        process.wait(timeout=30)
    (run_dir,) = tmp_path.glob("ppo__*")
    state = load_checkpoint(resolve_checkpoint(run_dir)).trainer_state
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    assert state["history_lines"] == len(lines) > 0
    assert json.loads(lines[-1])["step"] == state["progress"]["global_step"]


# --- plot and doctor


def test_plot_draws_a_run_even_one_with_a_torn_last_line(
    trained: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = tmp_path / "ppo__X__seed1__a"
    run.mkdir()
    whole = (trained["run_dir"] / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(whole + whole.splitlines()[-1][:20])
    for name in ("a.png", "b.svg"):
        assert main(["plot", str(tmp_path), str(trained["run_dir"]), "--out", str(tmp_path / "new" / name)]) == 0
        assert capsys.readouterr().out == f"curve={tmp_path / 'new' / name}\n"
    assert (tmp_path / "new" / "a.png").read_bytes().startswith(b"\x89PNG")
    assert read_run(run).history == read_run(trained["run_dir"]).history


def test_plot_refuses_what_it_cannot_draw(trained: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "metrics.jsonl").write_text("")
    assert main(["plot", str(tmp_path), "--out", str(tmp_path / "a.png")]) == 2
    assert "nothing to draw yet" in capsys.readouterr().err
    assert main(["plot", str(trained["run_dir"]), "--out", "a.bmp"]) == 2
    assert ".png, .svg, .pdf" in capsys.readouterr().err


def test_plot_without_matplotlib_says_how_to_get_it(
    trained: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["plot", str(trained["run_dir"]), "--out", "a.png"]) == 2
    assert "pip install 'rl-training[report]'" in capsys.readouterr().err


def test_doctor_knows_every_extra_of_the_project_and_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    section = (REPOSITORY / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    declared = set(re.findall(r"^(\w+) = \[", section, re.MULTILINE)) - {"all"}
    assert set(doctor.EXTRAS) == declared
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in ("mujoco", "procgen") else object())
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"procgen +missing procgen .* pip install --no-deps procgen2", text)
    assert re.search(r"mujoco +missing mujoco .* pip install 'rl-training\[mujoco\]'", text)
    assert "rl-training[report]" not in text


def test_doctor_fails_where_runs_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "file"
    file.write_text("")
    assert main(["doctor", "--output-dir", str(file / "runs")]) == 1
    assert f"problem: {file / 'runs'} cannot be written" in capsys.readouterr().out
