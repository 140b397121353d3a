"""The report in a real browser, at the width of a phone and of a desk: what a reader sees and can do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import NO_BROWSER, Browser, Page, find_browser
from report_runs import make_run

from rl_training.cli import main
from rl_training.cli.report_server import ReportServer, ReportSource

pytestmark = pytest.mark.skipif(find_browser() is None, reason=NO_BROWSER)
WIDTHS = pytest.mark.parametrize("width", [390, 1280])
HOSTILE = "</script><img src=x onerror=\"document.title='taken'\"><b>bold</b>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    assert program is not None
    running = Browser(program, tmp_path_factory.mktemp("browser"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two algorithms with three seeds on one task, one with a single run on another."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2, 3):
        make_run(folder, seed=seed)
        make_run(folder, seed=seed, algo="ppg", final=300)
    make_run(folder, algo="sac", env_id="Pendulum-v1", final=-200, tags=[HOSTILE])
    assert main(["report", str(folder), "--out", str(folder / "report.html"), "--title", HOSTILE]) == 0
    return (folder / "report.html").as_uri()


@pytest.fixture
def page(browser: Browser, report: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    width = request.getfixturevalue("width") if "width" in request.fixturenames else 1280
    opened = browser.open(report, width=width)
    yield opened
    assert opened.errors() == []
    opened.close()


def curves(page: Page) -> list[str]:
    return list(page.ask("[...document.querySelectorAll('.curve')].map((one) => one.dataset.id)"))


def picture(page: Page) -> str:
    """The first chart as it is drawn."""
    return str(page.ask("document.querySelector('.panel svg').innerHTML"))


def set_value(page: Page, selector: str, value: str, event: str) -> None:
    """What choosing in a list or moving a slider comes to."""
    found = f"document.querySelector('{selector}')"
    page.ask(f"((one) => {{ one.value = '{value}'; one.dispatchEvent(new Event('{event}')); }})({found})")


@WIDTHS
def test_curves_are_drawn_within_the_screen(page: Page, width: int):
    assert curves(page) == ["group ppg", "group ppo", "group sac"]
    assert page.ask("document.querySelectorAll('.band').length") == 3
    lengths = page.ask("[...document.querySelectorAll('.curve')].map((one) => one.getTotalLength())")
    assert all(length > width / 4 for length in lengths)
    assert page.ask("document.documentElement.scrollWidth") <= width  # nothing sticks out to the side
    small = page.ask("[...document.querySelectorAll('button, select')].filter((b) => b.offsetHeight < 32).length")
    assert small == 0  # a finger can hit them


OUTSIDE = """[...document.querySelectorAll('.panel svg')].flatMap((svg) => {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map((one) => [one.textContent, one.getBoundingClientRect()]);
  const over = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const cut = texts.filter(([, box]) => box.left < frame.left || box.right > frame.right || box.bottom > frame.bottom);
  const pairs = texts.flatMap(([a, one], i) => (
    texts.slice(i + 1).filter(([, other]) => over(one, other)).map(([b]) => `${a} on ${b}`)));
  return [...cut.map(([text]) => `${text} is cut off`), ...pairs];
})"""


@WIDTHS
def test_ticks_and_labels_are_whole_and_clear_of_each_other(page: Page, width: int):
    for metric in ("eval_return_mean", "episode_return", "loss"):
        set_value(page, "#metric", metric, "change")
        assert page.ask(OUTSIDE) == []


@pytest.fixture(scope="module")
def two_hundred(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("many")
    for number in range(200):
        make_run(folder, seed=number % 10, suffix=str(number // 10), gamma=0.9 + 0.001 * (number // 10), points=4)
    assert main(["report", str(folder), "--out", str(folder / "all.html")]) == 0
    return (folder / "all.html").as_uri()


@WIDTHS
def test_two_hundred_runs_are_drawn_and_can_be_searched(browser: Browser, width: int, two_hundred: str):
    page = browser.open(two_hundred, width=width)
    assert len(curves(page)) == 20
    page.click("#show-runs")
    assert len(curves(page)) == 220
    page.click("summary")
    set_value(page, "#filter", "seed3", "input")
    assert page.ask("[...document.querySelectorAll('#runs label')].filter((one) => one.offsetHeight).length") == 20
    assert page.ask("document.documentElement.scrollWidth") <= width
    assert page.errors() == []
    page.close()


@WIDTHS
def test_pointing_at_a_curve_tells_its_value(page: Page, width: int):
    assert page.ask("document.querySelector('.tip').hidden")
    box = page.box(".panel svg")
    page.mouse("mouseMoved", box["x"] + box["width"] - 14, box["y"] + 60)
    text = page.ask("document.querySelector('.tip').innerText")
    assert "step 20,000" in text
    assert "ppo (3 runs)" in text
    assert "500 [500, 500]" in text
    assert "300 [300, 300]" in text
    assert page.ask("document.querySelectorAll('.spot').length") == 2
    tip = page.ask("(({left, right}) => [left, right])(document.querySelector('.tip').getBoundingClientRect())")
    assert tip[0] >= 0
    assert tip[1] <= width
    page.mouse("mouseMoved", 2, 2)
    assert page.ask("document.querySelector('.tip').hidden")


@WIDTHS
def test_toggles_change_the_picture(page: Page, width: int):
    page.click("#show-runs")
    assert len(curves(page)) == 3 + 7
    page.click("#show-mean")
    assert len(curves(page)) == 7
    assert page.ask("document.querySelectorAll('.band').length") == 0
    page.click(".chip:nth-child(1)")  # ppg
    assert curves(page) == [
        "run ppo__CartPole-v1__seed1__test",
        "run ppo__CartPole-v1__seed2__test",
        "run ppo__CartPole-v1__seed3__test",
        "run sac__Pendulum-v1__seed1__test",
    ]
    page.click(".chip:nth-child(1)")
    page.click("summary")
    page.click("#runs label:nth-child(4) input")  # ppo's first seed: ppg's three stand before
    assert "run ppo__CartPole-v1__seed1__test" not in curves(page)
    assert len(curves(page)) == 6


@WIDTHS
def test_another_metric_is_drawn_when_it_is_chosen(page: Page, width: int):
    before = picture(page)
    set_value(page, "#metric", "loss", "change")
    assert picture(page) != before
    assert "loss" in page.ask("document.querySelector('.panel').textContent")
    linear = picture(page)
    page.click("#show-log")
    assert picture(page) != linear


STEP_TICKS = """[...document.querySelectorAll('.panel .axis text[text-anchor=middle]:not([transform])')]
  .map((one) => one.textContent).filter((text) => /^[0-9]/.test(text))"""
DOTS = "[...document.querySelectorAll('.dot.mean')].slice(0, 20).map((one) => Number(one.getAttribute('cx')))"


@WIDTHS
def test_on_a_log_axis_equal_factors_of_steps_are_equally_far(browser: Browser, tmp_path: Path, width: int):
    make_run(tmp_path, points=10)  # 1,000, 2,000, ... 10,000
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 0
    page = browser.open((tmp_path / "r.html").as_uri(), width=width)
    page.click("#show-logSteps")
    dots = page.ask(DOTS)
    doubled = [dots[2 * i + 1] - dots[i] for i in range(5)]
    assert max(doubled) - min(doubled) < 0.1  # pixels
    assert page.ask(OUTSIDE) == []
    assert len(page.ask(STEP_TICKS)) >= 2
    box = page.box(".panel svg")
    page.mouse("mouseMoved", box["x"] + dots[3], box["y"] + 60)
    assert "step 4,000" in page.ask("document.querySelector('.tip').innerText")
    page.drag(".panel svg", start=0.7, end=0.8)  # less than a factor of two: no round power lies in it
    assert len(page.ask(STEP_TICKS)) >= 2
    assert page.ask("document.querySelector('#reset').disabled") is False
    page.click("#show-logSteps")
    assert page.ask(OUTSIDE) == []
    assert page.errors() == []
    page.close()


def test_smoothing_straightens_the_curve_and_leaves_the_tables_alone(page: Page):
    page.click("#show-runs")
    table = page.ask("document.querySelector('#results').innerText")
    rough = page.ask("Math.max(...[...document.querySelectorAll('.curve.run')].map((one) => one.getTotalLength()))")
    set_value(page, "#smooth", "60", "input")
    assert page.ask("document.querySelector('#smooth-value').textContent") == "60 %"
    assert page.ask("Math.max(...[...document.querySelectorAll('.curve.run')].map((one) => one.getTotalLength()))") < rough
    assert page.ask("document.querySelector('#results').innerText") == table


def test_dragging_zooms_and_a_double_click_shows_all_again(page: Page):
    whole = picture(page)
    page.drag(".panel svg", start=0.5, end=0.75)
    zoomed = picture(page)
    assert zoomed != whole
    assert ">20k<" not in zoomed
    assert page.ask("document.querySelector('#reset').disabled") is False
    box = page.box(".panel svg")
    for count in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            page.mouse(kind, box["x"] + 200, box["y"] + 100, button="left", clickCount=count)
    page.mouse("mouseMoved", 2, 2)
    assert picture(page) == whole
    assert page.ask("document.querySelector('#reset').disabled") is True


def test_keys_move_the_cursor_and_zoom(page: Page):
    page.ask("document.querySelector('.panel svg').focus()")
    for _ in range(2):
        page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
    assert page.ask("document.querySelector('.tip').hidden") is False
    before = picture(page)
    page.call("Input.dispatchKeyEvent", type="keyDown", key="+", text="+")
    assert picture(page) != before


def test_two_fingers_zoom_on_a_phone(browser: Browser, report: str):
    page = browser.open(report, width=390, height=800, touch=True)
    box = page.box(".panel svg")
    middle, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.touch("touchStart", [(middle - 20, y), (middle + 20, y)])
    page.touch("touchMove", [(middle - 60, y), (middle + 60, y)])
    page.touch("touchMove", [(middle - 100, y), (middle + 100, y)])
    page.touch("touchEnd", [])
    assert page.ask("document.querySelector('#reset').disabled") is False
    assert page.errors() == []
    page.close()


@WIDTHS
def test_the_page_is_dark_where_the_reader_prefers_it_and_light_on_paper(browser: Browser, report: str, width: int):
    light, dark = [browser.open(report, width=width, scheme=scheme) for scheme in ("light", "dark")]
    colour = "getComputedStyle(document.body).backgroundColor"
    lightness = [sum(json.loads(page.ask(colour).replace("rgb(", "[").replace(")", "]"))) / 3 for page in (light, dark)]
    assert lightness[0] > 230
    assert lightness[1] < 40
    dark.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert dark.ask(colour) == "rgb(255, 255, 255)"
    for page in (light, dark):
        assert page.errors() == []
        page.close()


def test_names_from_files_are_text_and_never_code(page: Page):
    assert page.ask("document.title") == HOSTILE
    assert page.ask("document.querySelector('h1').textContent") == HOSTILE
    assert HOSTILE in page.ask("document.querySelector('#every-run').textContent")
    assert page.ask("document.querySelectorAll('img, b:not(.tip b)').length") == 0


def test_choices_outlive_a_reload(page: Page):
    page.click("#show-runs")
    page.click(".chip:nth-child(2)")
    page.drag(".panel svg", start=0.3, end=0.8)
    page.mouse("mouseMoved", 2, 2)
    before = curves(page), picture(page)
    page.ask("window.old = true")
    page.reload()
    assert page.ask("window.old === undefined")
    assert (curves(page), picture(page)) == before


def test_a_watched_page_follows_the_training_and_keeps_the_readers_choices(browser: Browser, tmp_path: Path):
    run = make_run(tmp_path, points=5, total=20_000)
    server = ReportServer(ReportSource([str(tmp_path)], by="settings"), port=0, title="live", seconds=0.1)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        page = browser.open(server.url)
        page.click("#show-runs")
        set_value(page, "#metric", "episode_return", "change")
        page.click("#every-run h2")
        with (run / "metrics.jsonl").open("a") as file:
            file.write('{"step": 20000, "metrics": {"episode_return": 777.0, "eval_return_mean": 888.0}}\n{"step": 2')
        page.wait("document.querySelector('#results').textContent.includes('888.0')")
        make_run(tmp_path, seed=2, algo="sac", env_id="Pendulum-v1")
        page.wait("document.querySelectorAll('.panel').length === 2")
        assert page.ask("document.querySelector('#show-runs').checked")
        assert page.ask("document.querySelector('#metric').value") == "episode_return"
        assert len(curves(page)) == 4
        assert page.ask("document.querySelector('#live').textContent").startswith("live")
        assert page.errors() == []
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    page.wait("document.querySelector('#live').classList.contains('lost')")
    page.close()
