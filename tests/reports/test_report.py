"""The report's numbers and its HTML, without a browser."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import struct
import threading
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from report_runs import make_run

from rl_training.cli import main
from rl_training.cli.report_server import ReportServer, ReportSource
from rl_training.errors import ConfigError
from rl_training.experiment.lock import RunLock, is_locked
from rl_training.reports.markup import Markup, breakable, element
from rl_training.reports.recorded_runs import find_runs, read_run
from rl_training.reports.report_data import BAND_POINTS, report_data, to_json
from rl_training.reports.report_page import default_title, report_html
from rl_training.reports.report_tables import report_sections
from rl_training.reports.run_groups import RunGroup, comparisons, differing_settings, group_runs, thinned
from rl_training.reports.statistics import aggregate_curves, summarize


def read_groups(folder: Path, **options) -> list[RunGroup]:
    return group_runs([read_run(run) for run in find_runs([folder])], **options)


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1])


# --- runs on disk


def test_runs_are_found_at_any_depth_once_and_not_inside_each_other(tmp_path: Path):
    first, second = make_run(tmp_path, seed=1), make_run(tmp_path / "suite" / "runs" / "ppo", seed=2)
    (first / "inner").mkdir()
    (first / "inner" / "metrics.jsonl").write_text("")
    assert find_runs([tmp_path, first]) == [first, second]
    with pytest.raises(ConfigError, match="no such folder"):
        find_runs([tmp_path / "nowhere"])


def test_a_torn_line_and_foreign_values_are_left_out(tmp_path: Path):
    run = make_run(tmp_path, points=2)
    lines = ['{"step": 9, "metrics": {"x": 1, "updates": "many", "time/steps_per_second": [], "eval_return_mean": 1e999}}']
    lines += [
        '{"step": -3, "metrics": {"x": 1}}',
        '{"step": 1e999, "metrics": {}}',
        '{"step": 10, "metrics": {"x": true}}',
        '{"step": 11, "met',
    ]
    with (run / "metrics.jsonl").open("a") as file:
        file.write("\n".join(lines))
    read = read_run(run)
    assert [step for step, _ in read.history] == [1000, 2000, 9, 10]
    assert read.curves["x"].steps == [9]
    assert read.curves["eval_return_mean"].steps == [1000, 2000]
    assert "nothing" not in read.curves


def test_of_two_values_at_one_step_the_later_counts(tmp_path: Path):
    run = make_run(tmp_path, points=1)
    (run / "metrics.jsonl").write_text('{"step": 5, "metrics": {"a": 1}}\n{"step": 5, "metrics": {"a": 2}}\n')
    assert (read_run(run).curves["a"].steps, read_run(run).curves["a"].returns) == ([5], [2.0])


def test_a_run_says_whether_it_is_over_from_its_lock_and_its_budget(tmp_path: Path):
    done, short = make_run(tmp_path, seed=1), make_run(tmp_path, seed=2, total=50_000)
    assert read_run(done).state == "finished"
    assert read_run(short).state == "ended early"
    with RunLock(short):
        assert is_locked(short)
        assert read_run(short).state == "running"
    assert not is_locked(short)
    assert make_run(tmp_path, seed=3, total=50_000, max_updates=200).is_dir()
    assert read_run(find_runs([tmp_path])[2]).state == "finished"  # its updates were the budget


def test_speed_is_steps_over_the_seconds_they_took(tmp_path: Path):
    run = read_run(make_run(tmp_path, points=10))
    assert run.seconds == pytest.approx(10 * 1000 / 2000)
    assert run.steps_per_second == pytest.approx(2000)


def test_benchs_own_evaluation_is_the_result_as_long_as_it_is_of_the_last_step(tmp_path: Path):
    run = make_run(tmp_path, points=3)
    (run / "result.json").write_text('{"return_mean": 321.5, "steps": 3000}')
    assert read_run(run).final_return == 321.5
    (run / "result.json").write_text('{"return_mean": 321.5, "steps": 2000}')
    assert read_run(run).final_return == 500
    (run / "result.json").write_text('{"return_mean": 521.5, "steps": 3000}')
    assert (read_run(run).final_return, read_run(run).best_return) == (521.5, 521.5)


def test_a_run_without_a_readable_config_goes_by_its_name(tmp_path: Path):
    run = make_run(tmp_path, algo="ppo", seed=7)
    (run / "config.yaml").unlink()
    assert (read_run(run).algo, read_run(run).task, read_run(run).seed) == ("ppo", "CartPole-v1", "7")
    (run / "config.yaml").write_text("algo: other\nenv_id: Own-v0\nalgo_kwargs: {x: 1}\n")
    assert read_run(run).algo == "other"
    assert read_run(run).settings["algo_kwargs.x"] == 1


# --- groups


def test_runs_that_differ_in_their_seed_alone_are_one_group(tmp_path: Path):
    for seed in (1, 2):
        make_run(tmp_path, seed=seed, tags=[f"mine {seed}"])
        make_run(tmp_path, seed=seed, suffix="fast", learning_rate=0.01)
    make_run(tmp_path, algo="sac", env_id="Pendulum-v1")
    by_settings = {group.label: len(group.runs) for group in read_groups(tmp_path)}
    assert by_settings == {"ppo learning_rate=0.0003": 2, "ppo learning_rate=0.01": 2, "sac": 1}
    assert [len(group.runs) for group in read_groups(tmp_path, by="algorithm")] == [4, 1]
    assert len(read_groups(tmp_path, by="run")) == 5
    assert [name for name in differing_settings(read_groups(tmp_path)) if "rate" in name] == ["algo_kwargs.learning_rate"]


def test_labels_take_as_few_settings_as_tell_groups_apart(tmp_path: Path):
    for number, (rate, gamma) in enumerate([(0.1, 0.9), (0.2, 0.9), (0.3, 0.8)]):
        make_run(tmp_path, suffix=str(number), learning_rate=rate, gamma=gamma)
    assert [group.label for group in read_groups(tmp_path)] == [f"ppo learning_rate={rate}" for rate in (0.1, 0.2, 0.3)]


def test_labels_cut_long_numbers_as_far_as_they_stay_different(tmp_path: Path):
    for number, rate in enumerate([0.00185759792641628, 5.600254469036771e-08, 0.25]):
        make_run(tmp_path / "a", suffix=str(number), learning_rate=rate)
    rates = [group.label.removeprefix("ppo learning_rate=") for group in read_groups(tmp_path / "a")]
    assert rates == ["0.001858", "5.6e-08", "0.25"]
    for number, rate in enumerate([0.00185759792641628, 0.00185759700000000]):
        make_run(tmp_path / "b", suffix=str(number), learning_rate=rate)
    rates = [group.label.removeprefix("ppo learning_rate=") for group in read_groups(tmp_path / "b")]
    assert rates == ["0.0018575979", "0.001857597"]


def test_summary_and_band_are_those_of_the_statistics(tmp_path: Path):
    runs = [make_run(tmp_path, seed=seed, final=100.0 * seed) for seed in (1, 2, 3, 4)]
    (group,) = read_groups(tmp_path)
    expected = summarize([100, 200, 300, 400], rng=np.random.default_rng(0))
    assert group.entry()["summary"]["iqm"] == 250 == expected.iqm
    assert group.entry()["summary"]["low"] == pytest.approx(expected.low)
    curves = [read_run(run).curves["eval_return_mean"] for run in runs]
    band = aggregate_curves([(curve.steps, curve.returns) for curve in curves], rng=np.random.default_rng(0))
    assert np.array_equal(group.band().iqm, band.iqm)
    assert np.array_equal(group.band().low, band.low)


def test_a_run_still_going_neither_counts_nor_cuts_the_others_short(tmp_path: Path):
    make_run(tmp_path, seed=1)
    make_run(tmp_path, seed=2)
    young = make_run(tmp_path, seed=3, points=3, total=20_000)
    with RunLock(young):
        (group,) = read_groups(tmp_path)
    assert [run.seed for run in group.counted] == ["1", "2"]
    assert group.band().num_runs == 2
    assert group.band().steps[-1] == 20_000


def test_groups_of_one_task_are_compared(tmp_path: Path):
    for seed in (1, 2):
        make_run(tmp_path, seed=seed, final=100)
        make_run(tmp_path, seed=seed, algo="ppg", final=50)
    make_run(tmp_path, algo="sac", env_id="Pendulum-v1")
    (pair,) = comparisons(read_groups(tmp_path))
    assert (pair["a"], pair["b"], pair["probability"]) == ("ppg", "ppo", 0)


# --- thinning


def test_thinning_keeps_the_ends_and_the_peak():
    values = np.zeros(10_000)
    values[1234], values[8765] = 5, -7
    kept = thinned(values, 100)
    assert len(kept) <= 100
    assert {0, 1234, 8765, 9999} <= set(kept.tolist())
    assert thinned(np.arange(5.0), 100).tolist() == [0, 1, 2, 3, 4]


def test_the_mean_is_made_before_it_is_thinned(tmp_path: Path):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed=seed, points=500, steps_per_point=10)
    (group,) = read_groups(tmp_path)
    whole, few = group.band(num_resamples=10), group.band(max_points=50, num_resamples=10)
    assert len(whole.steps) == 500
    assert len(few.steps) <= 50
    assert few.iqm.tolist() == whole.iqm[np.searchsorted(whole.steps, few.steps)].tolist()


def test_two_hundred_runs_make_a_page_of_a_few_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rl_training.reports.report_data.NUM_RESAMPLES", {})
    monkeypatch.setattr("rl_training.reports.report_data.OTHER_RESAMPLES", 10)  # the size does not depend on it
    for number in range(200):
        make_run(tmp_path, seed=number % 10, suffix=str(number // 10), gamma=0.9 + 0.001 * (number // 10), points=160)
    page = report_html(read_groups(tmp_path), title="many")
    assert len(page) < 4_500_000
    data = data_of(page)
    assert len(data["runs"]) == 200
    assert len(data["groups"]) == 20
    assert max(len(band["x"]) for group in data["groups"] for band in group["bands"].values()) <= BAND_POINTS


# --- the page


def test_the_page_holds_the_numbers(tmp_path: Path):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed=seed, final=100.0 * seed, tags=["a tag"])
    sections = report_sections(read_groups(tmp_path))
    assert "200.0 [100.0, 300.0]" in sections["results"]
    assert "2,000" in sections["results"]  # steps per second
    assert "a tag" in sections["every-run"]
    assert "2.9.0" in sections["software"]
    assert "a processor" in sections["software"]
    assert "There is one group" in sections["settings"]
    assert "algo_kwargs.gae_lambda" in sections["settings"]


def test_what_all_runs_share_is_said_once_and_the_rest_side_by_side(tmp_path: Path):
    for seed, commit in ((1, "aaaa"), (2, "bbbb"), (3, "bbbb")):
        run = make_run(tmp_path, seed=seed)
        metadata = json.loads((run / "metadata.json").read_text())
        (run / "metadata.json").write_text(json.dumps(metadata | {"git": {"commit": commit}}))
    shown = report_sections(read_groups(tmp_path))["software"]
    assert shown.count("2.9.0") == 1  # torch
    common, differing = shown.split("<table>")[1:]
    assert "commit" not in common
    assert re.findall(r"<td>(.*?)</td>", differing) == ["commit", "aaaa", "bbbb"]
    assert "2 runs" in differing


def test_a_page_is_called_by_what_was_trained_on_what(tmp_path: Path):
    for algo in ("ppo", "ppg"):
        make_run(tmp_path, algo=algo)
    assert default_title(read_groups(tmp_path)) == "ppg, ppo on CartPole-v1"
    for number in range(4):
        make_run(tmp_path, algo=f"own{number}", env_id=f"Own{number}-v0")
    assert default_title(read_groups(tmp_path)) == "6 algorithms on 5 tasks"


def test_the_column_of_tags_is_there_when_there_are_some(tmp_path: Path):
    make_run(tmp_path / "a", tags=["mine"])
    make_run(tmp_path / "b")
    with_tags, without = (report_sections(read_groups(tmp_path / name))["every-run"] for name in ("a", "b"))
    assert "<th>tags</th>" in with_tags
    assert "tags" not in without


def test_long_names_break_between_words_and_stay_escaped():
    assert breakable("ppo a_b=1,c=2/3") == "ppo a_b=<wbr>1,<wbr>c=<wbr>2/<wbr>3"
    assert breakable("ppo__Cart__seed1") == "ppo__<wbr>Cart__<wbr>seed1"
    assert breakable("<b>=<i>&") == "&lt;b&gt;=<wbr>&lt;i&gt;&amp;"


def test_a_run_never_evaluated_and_one_just_begun_are_on_the_page(tmp_path: Path):
    make_run(tmp_path, evaluated=False)
    empty = make_run(tmp_path, algo="sac", env_id="Pendulum-v1")
    for name in ("metadata.json", "config.yaml"):
        (empty / name).unlink()
    (empty / "metrics.jsonl").write_text("")
    groups = read_groups(tmp_path)
    assert report_sections(groups)["results"] == ""
    data = report_data(groups)
    assert "episode_return" in data["groups"][0]["bands"]
    assert data["groups"][1]["bands"] == {}
    assert "sac__Pendulum-v1__seed1__test" in report_sections(groups)["every-run"].replace("<wbr>", "")


def test_recordings_are_put_into_the_page_unless_they_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = make_run(tmp_path)
    (run / "videos").mkdir()
    (run / "videos" / "a.mp4").write_bytes(b"film")
    (run / "b.gif").write_bytes(b"GIF89a" * 100)
    shown = report_sections(read_groups(tmp_path))["recordings"]
    assert 'src="data:video/mp4;base64,ZmlsbQ=="' in shown
    assert "data:image/gif;base64," in shown
    monkeypatch.setattr("rl_training.reports.report_tables.MAX_VIDEO_BYTES", 100)
    assert "Too large" in report_sections(read_groups(tmp_path))["recordings"]


def test_everything_from_files_is_escaped(tmp_path: Path):
    hostile = "</script><script>alert(1)</script>"
    make_run(tmp_path, tags=[hostile])
    other = make_run(tmp_path, seed=2)
    (other / "metrics.jsonl").write_text(json.dumps({"step": 1, "metrics": {hostile: 1.0, "\ud800": 2.0}}) + "\n")
    (other / "metadata.json").write_text(json.dumps({"versions": {hostile: hostile}, "git": {"commit": hostile}}))
    (other / "config.yaml").write_text(json.dumps({"algo": hostile, "env_id": hostile, "x": {hostile: hostile}}))
    page = report_html(read_groups(tmp_path), title=hostile)
    assert page.count("<script") == 2  # the data and the program
    assert "alert(1)</" not in page
    assert hostile in data_of(page)["groups"][0]["label"] + data_of(page)["groups"][1]["label"]
    page.encode()


def test_the_page_asks_for_nothing_from_elsewhere(tmp_path: Path):
    make_run(tmp_path)
    page = report_html(read_groups(tmp_path), title="alone")
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert "default-src &#x27;none&#x27;" in page
    assert "@import" not in page
    assert set(re.findall(r"https?://[\w./]+", page)) <= {"http://www.w3.org/2000/svg"}


def test_elements_escape_texts_and_attributes_but_not_each_other():
    inner = element("b", "1 < 2")
    assert element("p", inner, "&", title='"') == '<p title="&quot;"><b>1 &lt; 2</b>&amp;</p>'
    assert isinstance(inner, Markup)
    assert to_json("<!-- \u2028") == '"\\u003c!-- \\u2028"'


# --- the command


def test_the_command_writes_the_page_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    make_run(tmp_path / "runs")
    out = tmp_path / "new" / "report.html"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"report={out}\n"
    assert "<title>ppo on CartPole-v1</title>" in out.read_text()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "--out report.html"),
        (["--out", "report.pdf"], "possible endings: .html"),
        (["--out", "a.html", "--port", "80"], "belongs to --watch"),
        (["--watch", "--refresh", "0"], "0.2 to 3600"),
        (["--watch", "--port", "99999"], "cannot be used"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(
    words: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    make_run(tmp_path)
    assert main(["report", str(tmp_path), *words]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_watching_ends_with_the_page_written(ending: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_run(tmp_path / "runs")
    announced: list[str] = []

    def announce(rows: list[tuple[str, str]]) -> None:
        announced.append(dict(rows)["report"])
        signal.raise_signal(ending)  # at the earliest moment a reader could

    monkeypatch.setattr("rl_training.cli.commands.report.facts", announce)
    out = tmp_path / "end.html"
    # a shell that starts the tests in the background has them ignore Ctrl-C
    before, term_before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.getsignal(signal.SIGTERM)
    try:
        assert main(["report", str(tmp_path / "runs"), "--watch", "--port", "0", "--out", str(out)]) == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert announced[0].startswith("http://127.0.0.1:")
    assert len(data_of(out.read_text())["runs"]) == 1
    assert signal.getsignal(signal.SIGTERM) is term_before


# --- the server


def test_the_server_answers_this_machine_and_only_what_it_has(tmp_path: Path):
    run = make_run(tmp_path, points=2)
    server = ReportServer(ReportSource([str(tmp_path)], by="settings"), port=0, title="live", seconds=1)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()

    def get(path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        request = urllib.request.Request(server.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, {}, b""

    try:
        assert server.server_address[0] == "127.0.0.1"
        assert b'data-live="1"' in get("")[2]
        status, headers, body = get("live.json")
        assert status == 200
        assert json.loads(body)["data"]["runs"][0]["name"] == run.name
        assert get("live.json", **{"If-None-Match": headers["ETag"]})[0] == 304
        with (run / "metrics.jsonl").open("a") as file:
            file.write('{"step": 3000, "metrics": {"eval_return_mean": 1.0}}\n')
        assert get("live.json", **{"If-None-Match": headers["ETag"]})[0] == 200
        assert get("../secret")[0] == 404
        assert get("", Host="evil.example:80")[0] == 403
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def leave_while_answered(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets it
        connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())


def test_a_reader_who_leaves_is_nobodys_news_and_what_goes_wrong_is_a_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    make_run(tmp_path)
    server = ReportServer(ReportSource([str(tmp_path)], by="settings"), port=0, title="live", seconds=1)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        for _ in range(20):
            leave_while_answered(server.server_address[1])
        assert urllib.request.urlopen(server.url, timeout=10).status == 200
        assert caplog.text == ""
        monkeypatch.setattr(server, "page", lambda: 1 / 0)
        with pytest.raises(http.client.RemoteDisconnected):
            urllib.request.urlopen(server.url, timeout=10)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert "a question to the report was not answered: ZeroDivisionError: division by zero" in caplog.text
    assert capfd.readouterr().err == ""


def test_watching_an_empty_folder_waits_for_the_first_run(tmp_path: Path):
    source = ReportSource([str(tmp_path)], by="settings")
    assert source.look() == []
    assert "no run yet" in report_html(source.groups(), title="soon")
    make_run(tmp_path)
    assert len(source.look()) == 1
    known = source.groups()[0].runs[0]
    source.look()
    assert source.groups()[0].runs[0] is known  # unchanged files are not read again
