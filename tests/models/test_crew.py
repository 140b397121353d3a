"""Work that several threads share: the same results, in the same order, whoever does it."""

from __future__ import annotations

from threading import Barrier, current_thread
from threading import enumerate as enumerate_threads
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.pets import PETS
from rl_training.models import crew
from rl_training.models.crew import crew_of, shared_map
from rl_training.models.flat_mlp import FlatMLP
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel
from rl_training.runtime.torch_settings import torch_settings

CPU = torch.device("cpu")


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 6])
def test_results_come_in_the_order_of_the_items(threads: int, count: int) -> None:
    with crew_of(threads, large_by_numpy=False):
        assert shared_map(lambda i: i * i, range(count), device=CPU) == [i * i for i in range(count)]


def test_all_threads_are_at_it_at_once() -> None:
    barrier, names = Barrier(3, timeout=30), []

    def meet(_: int) -> None:
        names.append(current_thread().name)
        barrier.wait()  # nobody passes before all three are here

    with crew_of(3, large_by_numpy=False):
        shared_map(meet, range(3), device=CPU)
    assert len(names) == 3
    assert current_thread().name in names


def test_in_a_crew_every_thread_has_its_operations_for_itself_and_no_graph() -> None:
    before = torch.get_num_threads()
    barrier, seen = Barrier(2, timeout=30), []

    def look(_: int) -> None:
        barrier.wait()
        seen.append((torch.get_num_threads(), torch.is_grad_enabled()))

    torch.set_num_threads(2)
    try:
        with torch.no_grad(), crew_of(2, large_by_numpy=False):
            shared_map(look, range(2), device=CPU)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [(1, False)] * 2


@pytest.mark.parametrize("broken", [0, 1])
def test_what_goes_wrong_is_raised_when_all_are_done_and_the_crew_goes_on(broken: int) -> None:
    finished = []

    def work(i: int) -> int:
        if i == broken:
            raise ZeroDivisionError(f"part {i}")
        finished.append(i)
        return i

    with crew_of(2, large_by_numpy=False):
        with pytest.raises(ZeroDivisionError, match=f"part {broken}"):
            shared_map(work, range(2), device=CPU)
        assert finished == [1 - broken]
        assert shared_map(lambda i: i, range(4), device=CPU) == [0, 1, 2, 3]


def test_who_is_interrupted_while_it_waits_leaves_nothing_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt  # somebody presses Ctrl-C; the crew is not disturbed by it

    with crew_of(2, large_by_numpy=False):
        with monkeypatch.context() as patched:
            patched.setattr(crew, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                shared_map(lambda i: f"old {i}", range(2), device=CPU)
        assert shared_map(lambda i: f"new {i}", range(2), device=CPU) == ["new 0", "new 1"]


def test_threads_are_begun_when_needed_and_leave_at_the_end() -> None:
    before = set(enumerate_threads())  # one of another test may be about to end
    with crew_of(2, large_by_numpy=False):
        assert not set(enumerate_threads()) - before
        shared_map(lambda i: i, range(2), device=CPU)
        (helper,) = set(enumerate_threads()) - before
        assert helper.name.startswith("rl_training crew")
    helper.join(30)
    assert not helper.is_alive()


def plan(threads: int) -> np.ndarray:
    torch.manual_seed(3)
    learner = PETS(MLPMOPOEnsembleModel(3, 1, (128, 128), 5), 1e-3)
    with torch_settings(threads):
        sizes = {"horizon": 4, "num_candidates": 300, "num_iterations": 2, "num_topk": 20, "num_particles": 40}
        return np.asarray(learner.plan_action(np.ones(3, dtype=np.float32), action_low=-2.0, action_high=2.0, **sizes))


def test_a_plan_is_the_same_to_the_bit_with_two_threads() -> None:
    assert plan(1).tobytes() == plan(2).tobytes() == plan(3).tobytes()


def test_imagined_steps_are_the_same_to_the_bit_with_two_threads() -> None:
    model = MLPMOPOEnsembleModel(3, 1, (128, 128), 7)
    obs, actions = torch.randn(1_500, 3), torch.randn(1_500, 1)
    found = []
    for threads in (1, 2):
        torch.manual_seed(5)
        with torch_settings(threads):
            found.append(model.imagine(obs, actions))
    for one, two in zip(*found, strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_members_that_learn_one_by_one_learn_the_same(threads: int, layer_norm: bool) -> None:
    critics = FlatMLP((5, 160, 160, 1), members=2, activation="relu", layer_norm=layer_norm)
    x, wanted = torch.randn(1_100, 5), torch.randn(1_100, 1)  # enough for threads to share them
    with torch_settings(1):
        outputs, tape = critics.run(x)
        critics.backward(tape, outputs - wanted)
        expected = critics.gradient.clone()
    critics.gradient.zero_()
    with torch_settings(threads):
        assert torch.equal(critics.learn(x, lambda own: own - wanted), outputs)
    assert torch.equal(critics.gradient, expected)
