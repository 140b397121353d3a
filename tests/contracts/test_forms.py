"""Forms of saved state: what they take, and the words with which they refuse the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.errors import MisfitError
from rl_training.forms import (
    COUNT,
    GENERATOR,
    NUMBER,
    Array,
    Each,
    Form,
    Maybe,
    Named,
    Number,
    Record,
    Row,
    Whole,
    flag,
    like,
    metric,
    scalar,
    text,
)

NAN, INF = float("nan"), float("inf")
PAIR = Record({"a": COUNT}, optional={"b": flag}, relation=lambda value: "a is 7" if value["a"] == 7 else None)

# form, what it takes, what it does not
KINDS: list[tuple[Form, list[Any], list[Any]]] = [
    (COUNT, [0, 5, 10**15], [-1, 10**15 + 1, 2**70, 1.0, True, NAN, "1", None, [], np.int64(3)]),
    (Whole(-1, 3), [-1, 3], [-2, 4]),
    (NUMBER, [0, -2.5, 1e300], [NAN, INF, -INF, True, "1", None]),
    (Number(0, 2), [0, 2.0], [-0.1, 2.1]),
    (metric, [0, NAN, -INF, True], ["1", None, [1]]),
    (flag, [True, False], [0, 1, "true", None]),
    (text, ["", "a"], [b"a", 1, None]),
    (Maybe(COUNT), [None, 3], [-1, "3"]),
    (Named(COUNT), [{}, {"a": 1}], [{"a": -1}, {1: 1}, [], None]),
    (Each(COUNT, 2), [[], [1], (1, 2)], [[1, 2, 3], [-1], "12", None]),
    (Row((COUNT, NUMBER)), [[1, 0.5], (1, 2)], [[1], [1, NAN], [0.5, 1], {}]),
    (PAIR, [{"a": 1}, {"a": 1, "b": True}, {"a": 1, "stranger": object()}], [{}, {"a": -1}, {"a": 1, "b": 0}, {"a": 7}, []]),
    (Array((2,)), [torch.zeros(2), np.zeros(2)], [torch.zeros(1), torch.zeros(()), torch.zeros(2, 1), [0.0, 0.0], None]),
    (Array((2,)), [torch.zeros(2, dtype=torch.float64)], [torch.zeros(2, dtype=torch.int64), torch.tensor([1.0, NAN])]),
    (Array((None, 2)), [np.zeros((0, 2)), np.ones((5, 2))], [np.zeros((2, 3)), np.array([[INF, 0]])]),
    (Array((), "i", least=0, most=3), [np.array(3), torch.tensor(0)], [torch.tensor(-1), np.array(4)]),
    (Array((1,), finite=False), [torch.tensor([INF])], [torch.tensor([1])]),
    (Array((2,), "b"), [np.array([True, False])], [np.array([1, 0])]),
    (scalar, [1.5, torch.tensor(2.0), np.array(3)], [NAN, torch.zeros(1), torch.tensor(NAN), "1"]),
    (GENERATOR, [np.random.default_rng(3).bit_generator.state], [{}, np.random.MT19937(3).state]),
]


@pytest.mark.parametrize(("form", "good", "bad"), KINDS, ids=[f"{number}" for number in range(len(KINDS))])
def test_a_form_takes_what_is_of_it_and_refuses_the_rest_by_its_place(form: Form, good: list[Any], bad: list[Any]):
    for value in good:
        form(value, "here")
    for value in bad:
        with pytest.raises(MisfitError, match=r"^here"):
            form(value, "here")


@pytest.mark.parametrize(
    ("form", "value", "words"),
    [
        (Named(COUNT), {"step": -5.5}, "here/step is -5.5; it must be a whole number from 0 to 1000000000000000"),
        (Record({"a": COUNT}), {}, "here has no a"),
        (PAIR, {"a": 7}, "here: a is 7"),
        (Each(NUMBER), [0, NAN], "here/1 is nan; it must be a finite number"),
        (Array((None, 3)), torch.zeros(2), "here is an array of shape (2,) and float32; it must be floats of shape (any, 3)"),
        (text, 2**70, "here is 1180591620717411303424; it must be a text"),
        (COUNT, "x" * 500, "here is '" + "x" * 79 + "; it must be a whole number from 0 to 1000000000000000"),
        (COUNT, 10**4000, "here is of type int; it must be a whole number from 0 to 1000000000000000"),
    ],
)
def test_a_refusal_says_where_and_what_and_what_must_be(form: Form, value: Any, words: str):
    with pytest.raises(MisfitError) as error:
        form(value, "here")
    assert str(error.value) == words


@pytest.mark.parametrize("change", [{"inc": 4}, {"inc": True}, {"state": -1}, {"state": 2**128}, {"state": 1.5}])
def test_a_generator_has_two_numbers_of_128_bits_one_of_them_odd(change: dict[str, Any]):
    state = np.random.default_rng(3).bit_generator.state
    with pytest.raises(MisfitError):
        GENERATOR({**state, "state": {**state["state"], **change}}, "here")


FRESH = {
    "count": 0,
    "best": -1,
    "rate": 0.5,
    "done": False,
    "name": "a",
    "weights": torch.zeros(3, 2),
    "running": torch.zeros(0),
    "steps": [torch.zeros(()), 0],
    "later": None,
    "more": {},
}


def test_what_was_saved_later_is_like_what_is_fresh():
    later = {**FRESH, "count": 7, "best": 3, "rate": 2, "done": True, "name": "b", "weights": torch.ones(3, 2).double()}
    later |= {"running": torch.ones(5), "steps": [torch.tensor(9.0), 9], "later": torch.ones(2), "more": {0: [1]}}
    for state in (FRESH, later):
        like(FRESH)(state, "here")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", -1),
        ("count", 0.5),
        ("best", -2),
        ("rate", NAN),
        ("done", 1),
        ("name", None),
        ("weights", torch.zeros(3, 1)),
        ("weights", torch.zeros(3)),
        ("weights", torch.zeros(3, 2, dtype=torch.int64)),
        ("running", torch.zeros(2, 2)),
        ("steps", [torch.zeros(())]),
        ("steps", [torch.zeros(1), 0]),
    ],
)
def test_what_is_not_like_what_is_fresh_is_refused(name: str, value: Any):
    with pytest.raises(MisfitError, match=f"^here/{name}"):
        like(FRESH)({**FRESH, name: value}, "here")
    with pytest.raises(MisfitError, match=f"^here has no {name}"):
        like(FRESH)({key: part for key, part in FRESH.items() if key != name}, "here")
