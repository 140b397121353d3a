"""The timers of benchmarks/speed: whose time a moment is."""

import importlib.util
import time
from types import SimpleNamespace

import pytest

from conftest import REPOSITORY


@pytest.fixture
def clock(monkeypatch):
    """Stands still unless it is moved."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(time, "thread_time", lambda: now.seconds)
    return now


@pytest.fixture
def timers():
    spec = importlib.util.spec_from_file_location("timers", REPOSITORY / "benchmarks/speed/timers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def work(clock):
    """`outer` takes 1 second, calls `inner` for 4, and takes 2 more."""

    def wait(seconds):
        clock.seconds += seconds

    def outer():
        wait(1)
        owner.inner()
        wait(2)

    owner = SimpleNamespace(outer=outer, inner=lambda: wait(4))
    return owner


@pytest.mark.parametrize(
    ("whole", "expected"),
    [(False, {"out": 3.0, "in": 4.0, "the rest": 8.0}), (True, {"out": 7.0, "the rest": 8.0})],
    ids=["apart", "whole"],
)
def test_a_moment_counts_for_the_innermost_timed_call_unless_one_around_it_is_whole(timers, clock, whole, expected):
    owner = work(clock)
    timed = timers.Timers([timers.Timed(owner, "outer", "out", whole=whole), timers.Timed(owner, "inner", "in")])
    timed.start()
    clock.seconds += 8
    owner.outer()
    timed.stop()
    assert timed.seconds == expected


def test_after_a_stop_functions_are_as_they_were_and_nothing_counts(timers, clock):
    owner = work(clock)
    bare = owner.outer
    timed = timers.Timers([timers.Timed(owner, "outer", "out")])
    timed.start()
    timed.stop()
    owner.outer()
    assert owner.outer is bare
    assert timed.seconds == {"the rest": 0.0}


def test_a_call_that_fails_gives_the_time_back_to_its_caller(timers, clock):
    def fails():
        clock.seconds += 1
        raise KeyError

    owner = SimpleNamespace(call=fails)
    timed = timers.Timers([timers.Timed(owner, "call", "out")])
    timed.start()
    with pytest.raises(KeyError):
        owner.call()
    clock.seconds += 2
    timed.stop()
    assert timed.seconds == {"out": 1.0, "the rest": 2.0}
