"""The page of benchmarks/speed: what it refuses, and the sentences it makes from numbers."""

import importlib

import pytest

from conftest import REPOSITORY


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks/speed"))
    return importlib.import_module


def test_results_of_two_processors_are_refused_and_named(module):
    page = module("page")
    one, other = ({"machine": {"cpu": "a", "family": 26, "model": model, "avx512": True}} for model in (1, 2))
    page.refuse_several_processors({"sac": one, "peak": dict(one)})
    with pytest.raises(SystemExit, match="several processors") as refusal:
        page.refuse_several_processors({"sac": one, "peak": other})
    assert "model 1, avx512 True: sac" in str(refusal.value)


def test_equal_notes_are_printed_once_with_all_their_rows(module):
    records = [{"row": name, "title": name.upper(), "note": note} for name, note in (("a", "x"), ("b", "y"), ("c", "x"))]
    assert module("page_tables").notes(records) == "- A; C: x\n- B: y"


@pytest.mark.parametrize(("last", "said"), [(200, "Nothing grows"), (400, "plan with members (2.00, where 1 is expected)")])
def test_what_grows_faster_than_expected_is_said(module, last, said):
    curve = {"title": "plan", "axis": "members", "points": [(1, 100), (2, last)], "expected": 1}
    assert said in module("page_tables").scaling_table([curve])[1]


def test_a_second_copy_of_a_buffer_would_be_seen(module):
    presets = {"sac/pendulum": {"buffer_mb": 0, "peak_mb": 200}}
    for peak, said in ((310, "is no second copy"), (400, "may be a second copy")):
        found = module("page_tables").memory_sentence(presets | {"sac/halfcheetah": {"buffer_mb": 100, "peak_mb": peak}})
        assert said in found


def test_a_line_of_metrics_and_a_checkpoint_fall_into_what_is_timed(module, tmp_path):
    rows, ours = module("rows").ROWS, module("ours")
    for row in rows.values():
        if not row.skip:
            continue
        config = ours.recorded(ours.config_of(row, "ours", threads=1, seed=0, folder=str(tmp_path)), row)
        for interval in (config.log_interval, config.checkpoint_interval):
            assert (row.total - 1) // interval > (row.skip - 1) // interval, row.name
