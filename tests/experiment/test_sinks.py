"""Where metrics go beside metrics.jsonl: TensorBoard, Weights & Biases, and a class of one's own."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from run_helpers import history
from small_runs import small_config, train

from conftest import REPOSITORY
from rl_training import PPO
from rl_training.cli import main
from rl_training.errors import ConfigError, MissingExtraError, RLTrainingError
from rl_training.experiment import BatchingSink, MetricsSink, RunLogger
from rl_training.experiment.sinks import Row, make_sinks
from rl_training.experiment.suite_jobs import fingerprint
from rl_training.experiment.wandb_sink import WandbSink
from rl_training.runtime.workflows import resume_training

OPENED: list[Notebook] = []


class Notebook(MetricsSink):
    """A user's own sink, as the page on logging shows it."""

    def __init__(self, title: str = "untitled") -> None:
        self.title = title
        self.rows: list[tuple[int, float]] = []
        self.events: list[str] = []
        OPENED.append(self)

    def open(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        self.events.append(f"open {config['algo']} in {run_dir.name}")

    def log_metrics(self, metrics: Mapping[str, Any], *, step: int) -> None:
        self.rows.append((step, metrics["time/steps_per_second"]))

    def rewind(self, step: int) -> None:
        self.events.append(f"rewind {step}")

    def close(self) -> None:
        self.events.append("close")


class Broken(MetricsSink):
    def __init__(self) -> None:
        self.calls = 0

    def log_metrics(self, metrics: Mapping[str, Any], *, step: int) -> None:
        self.calls += 1
        raise RuntimeError("no ink")


class Counting(BatchingSink):
    def __init__(self, **batching: Any) -> None:
        super().__init__(**batching)
        self.batches: list[list[int]] = []

    def write(self, rows: Sequence[Row]) -> None:
        self.batches.append([row.step for row in rows])


def test_a_users_sink_is_named_in_the_configuration_with_its_arguments(tmp_path: Path):
    name = "test_sinks:Notebook"
    config = small_config("ppo", tmp_path, sinks=[name], sink_kwargs={name: {"title": "mine"}}, log_interval=16)
    result = train(config)
    sink = OPENED[-1]
    assert sink.title == "mine"
    assert sink.events == [f"open ppo in {result.run_dir.name}", "close"]
    assert [step for step, _ in sink.rows] == [line["step"] for line in history(result.run_dir)]
    assert not (result.run_dir / "tensorboard").exists()  # only what is named


def test_resume_takes_other_sinks_in_place_of_the_runs_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = small_config("ppo", tmp_path).replace(sinks=("tensorboard",), sink_kwargs={"tensorboard": {"batch_size": 3}})
    run_dir = train(config).run_dir
    before = [file.stat().st_size for file in run_dir.glob("tensorboard/*")]
    words = ["resume", "--checkpoint", str(run_dir), "--total-timesteps", str(2 * config.total_timesteps), "--quiet"]
    assert main([*words, "--sinks", "tensorbord"]) == 2
    assert "did you mean 'tensorboard'?" in capsys.readouterr().err
    OPENED.clear()
    assert main([*words, "--sinks", f"{__name__}:Notebook"]) == 0
    (notebook,) = OPENED
    assert notebook.rows[-1][0] == 2 * config.total_timesteps
    assert notebook.events == [f"open ppo in {run_dir.name}", f"rewind {config.total_timesteps}", "close"]
    assert [file.stat().st_size for file in run_dir.glob("tensorboard/*")] == before
    assert history(run_dir)[-1]["step"] == 2 * config.total_timesteps


def test_a_resumed_run_tells_its_sinks_where_it_goes_on(tmp_path: Path):
    config = small_config("ppo", tmp_path, log_interval=16)
    result = train(config)
    sink = Notebook()
    resume_training(result.run_dir, total_timesteps=2 * config.total_timesteps, sinks=[sink])
    assert sink.events[0].startswith("open ppo")
    assert sink.events[1].startswith("rewind")
    assert sink.rows[0][0] > config.total_timesteps - 1


def test_learn_takes_sink_objects_beside_those_of_the_configuration(tmp_path: Path):
    sink = Notebook()
    PPO(small_config("ppo", tmp_path)).learn(sinks=[sink])
    assert sink.rows
    assert list(tmp_path.glob("*/tensorboard/events*"))


def test_a_sink_that_fails_is_told_once_and_the_run_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    broken, notebook = Broken(), Notebook()
    result = PPO(small_config("ppo", tmp_path, log_interval=16)).learn(sinks=[broken, notebook])
    assert broken.calls == 1
    assert caplog.text.count("Broken: failed in log_metrics and gets no more metrics: RuntimeError: no ink") == 1
    assert len(notebook.rows) == len(history(result.run_dir)) > 2


class Pipe(MetricsSink):
    """Fails in the method it is told to, and counts how often it is closed."""

    def __init__(self, fails_in: str) -> None:
        self.fails_in, self.closed = fails_in, 0

    def log_metrics(self, metrics: Mapping[str, Any], *, step: int) -> None:
        if self.fails_in == "log_metrics":
            raise OSError("burst")

    def rewind(self, step: int) -> None:
        if self.fails_in == "rewind":
            raise OSError("burst")

    def close(self) -> None:
        self.closed += 1
        raise OSError("rusty")


@pytest.mark.parametrize("fails_in", ["log_metrics", "rewind", "close"])
def test_a_sink_that_fails_on_the_way_is_closed_once(fails_in: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    sink = Pipe(fails_in)
    with RunLogger(tmp_path, sinks=[sink], tensorboard=False) as logger:
        logger.log_metrics({"a": 1.0}, step=1)
        logger.cut(1)
        assert sink.closed == (fails_in != "close")  # at once, not when the run ends
        logger.log_metrics({"a": 1.0}, step=2)
    assert sink.closed == 1
    assert caplog.text.count("burst") == (fails_in != "close")
    assert caplog.text.count("Pipe: failed in close and gets no more metrics: OSError: rusty") == 1


class Unreachable(MetricsSink):
    def open(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        raise RLTrainingError("nobody answers")


def test_a_sink_that_cannot_begin_ends_those_that_have_begun_and_leaves_no_file_open(tmp_path: Path):
    before, after = Notebook(), Notebook()
    with pytest.raises(RLTrainingError, match="nobody answers"):
        PPO(small_config("ppo", tmp_path)).learn(sinks=[before, Unreachable(), after])
    assert [event.split()[0] for event in before.events] == ["open", "close"]
    assert after.events == []
    assert not list(tmp_path.iterdir())  # the same command can be given again, with the same suffix
    assert not [handle for handle in Path("/proc/self/fd").iterdir() if tmp_path in handle.resolve().parents]


def test_rows_are_written_together_in_their_order(tmp_path: Path):
    sink = Counting(batch_size=4, max_seconds=1e9)
    with RunLogger(tmp_path, sinks=[sink], tensorboard=False) as logger:
        for step in range(9):
            logger.log_metrics({"a": 1.0, "text": "not a number"}, step=step)
        logger.cut(2)
    assert sink.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 2]]  # the last is the mark of the rewind
    quick = Counting(batch_size=100, max_seconds=0.0)
    quick.log_metrics({"a": 1.0}, step=1)
    assert quick.batches == [[1]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sinks": ["tensorbord"]}, "there is no sink 'tensorbord'; did you mean 'tensorboard'?"),
        ({"sink_kwargs": {"wandb": {"mode": "offline"}}}, "'wandb' is not among the sinks; sinks: tensorboard"),
        ({"sinks": ["wandb"], "sink_kwargs": {"wandb": "offline"}}, "a mapping of the sink's arguments"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_configuration(settings: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        small_config("ppo", tmp_path, **settings)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("no_such_module:Sink", {}, "could not be imported"),
        ("test_sinks:Nothing", {}, "could not be imported"),
        ("test_sinks:Path", {}, "is no class below"),
        ("test_sinks:Notebook", {"colour": "red"}, "colour"),
        ("wandb", {"mode": "ofline"}, "possible: online, offline, disabled"),
    ],
)
def test_a_sink_that_cannot_be_made_is_refused_before_a_run_directory_is(
    name: str, arguments: dict[str, Any], message: str, tmp_path: Path
):
    with pytest.raises(ConfigError, match=message):
        train(small_config("ppo", tmp_path / "runs", sinks=[name], sink_kwargs={name: arguments}))
    assert not (tmp_path / "runs").exists()


def test_a_missing_wandb_is_answered_with_its_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rl_training.experiment.wandb_sink.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rl-training\[wandb\]'"):
        make_sinks(["wandb"], {})


def test_where_metrics_go_does_not_make_another_run(tmp_path: Path):
    one, other = small_config("ppo", tmp_path), small_config("ppo", tmp_path, sinks=[])
    assert fingerprint(one) == fingerprint(other)


def test_the_flag_names_sinks_and_none_leaves_only_the_history(capsys: pytest.CaptureFixture[str]):
    assert main(["config", "ppo/cartpole", "--sinks", "tensorboard,wandb", "sink_kwargs.wandb.mode=offline"]) == 0
    assert "sinks: [tensorboard, wandb]\nsink_kwargs:\n  wandb:\n    mode: offline" in capsys.readouterr().out
    assert main(["config", "ppo/cartpole", "--sinks", "none"]) == 0
    assert "sinks: []" in capsys.readouterr().out
    assert main(["config", "ppo/cartpole", "--sinks", "wandbb"]) == 2
    assert "did you mean 'wandb'?" in capsys.readouterr().err


def test_weights_and_biases_gets_every_scalar_offline(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    pytest.importorskip("wandb")
    settings = {"sinks": ["wandb"], "sink_kwargs": {"wandb": {"mode": "offline", "project": "tests"}}, "tags": ["small"]}
    with caplog.at_level(logging.WARNING):
        result = train(small_config("ppo", tmp_path, log_interval=16, **settings))
    assert caplog.text == ""
    (record,) = result.run_dir.glob("wandb/offline-run-*/run-*.wandb")
    identity = (result.run_dir / "wandb_id.txt").read_text().strip()
    assert record.name == f"run-{identity}.wandb"
    written, told = history(result.run_dir), offline_history(record)
    deadline = time.monotonic() + 20
    while len(told) < len(written) and time.monotonic() < deadline:  # W&B's own process writes a little later
        time.sleep(0.1)
        told = offline_history(record)
    assert [row["step"] for row in told] == [line["step"] for line in written]
    assert told[-1]["eval_return_mean"] == written[-1]["metrics"]["eval_return_mean"]


def offline_history(path: Path) -> list[dict[str, Any]]:
    """The history in W&B's record: LevelDB's log format, blocks of 32 kB with protobuf in them."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, whole, rows = path.read_bytes(), 7, b"", []
    while position + 7 <= len(data):
        if 32_768 - position % 32_768 < 7:  # no room for a header in this block
            position += 32_768 - position % 32_768
            continue
        size, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        whole += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # complete, or the last part
            record, whole = Record.FromString(whole), b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                rows.append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items})
    return rows


def test_a_resumed_run_goes_on_in_the_same_wandb_run(tmp_path: Path):
    sink = WandbSink(mode="offline")
    sink.open(tmp_path, {"algo": "ppo"})
    sink.log_metrics({"loss": 1.0}, step=1)
    sink.close()
    again = WandbSink(mode="offline")
    again.open(tmp_path, {"algo": "ppo"})
    again.close()
    names = {path.name for path in tmp_path.glob("wandb/offline-run-*/run-*.wandb")}
    assert len(names) == 1


def test_a_wandb_run_is_finished_though_its_last_rows_cannot_be_written():
    class Away:
        finished = 0

        def log(self, row: dict[str, Any]) -> None:
            raise ConnectionError("gone")

        def finish(self) -> None:
            self.finished += 1

    pytest.importorskip("wandb")
    sink = WandbSink(mode="offline")
    sink._run = away = Away()
    sink.log_metrics({"loss": 1.0}, step=1)
    with pytest.raises(ConnectionError):
        sink.close()
    sink.close()
    assert away.finished == 1


def test_the_sink_on_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    page = (REPOSITORY / "docs" / "howto" / "logging.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec(page.split("```python\n")[1].split("```")[0], {})
    assert " at step " in capsys.readouterr().out
