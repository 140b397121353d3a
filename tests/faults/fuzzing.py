"""What the fuzz tests draw from: settings made from their own declarations, and rubbish.

`FUZZ_EXAMPLES` says how many (300 in `make test`, 10,000 and more in `make fuzz`), `FUZZ_SEED` which ones.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st

from rl_training.experiment.config import TrainConfig
from rl_training.options import algorithm_names, load_options_class
from rl_training.options._core import Options
from rl_training.options._words import _nested_metadata, members

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "300"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
CORPUS = Path(__file__).parent / "corpus"

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 300),
    st.sampled_from([2**31, 2**53 + 1, 2**63, -(2**63), 10**30]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["auto", "none", "1e5", "linear", "../..", "\x00", "ä", "cuda:99", "a" * 300]),
)
RUBBISH = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3), max_leaves=5
)


def fuzz(share: float = 1.0):
    """Decorates a test with a number of examples and the seed they come from."""
    checks = [
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
    ]
    count = max(5, round(EXAMPLES * share))
    how = settings(max_examples=count, deadline=None, database=None, suppress_health_check=checks)
    return lambda test: seed(SEED)(how(test))


def mostly(good: st.SearchStrategy[Any], bad: st.SearchStrategy[Any] = RUBBISH, *, one_in: int = 12) -> st.SearchStrategy[Any]:
    """`good`, and now and then `bad`."""
    return st.integers(1, one_in).flatmap(lambda number: bad if number == one_in else good)


def fitting(part: Any, bounds: dict[str, Any]) -> st.SearchStrategy[Any]:  # noqa: PLR0911 (one for each kind)
    """Values of one alternative of a declared type, within its bounds."""
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if part is bool:
        return st.booleans()
    if part is int:
        least = 0 if low is None else int(low) + ("gt" in bounds)
        most = least + 64 if high is None else int(high) - ("lt" in bounds)
        return st.integers(least, min(most, least + 64)) | st.sampled_from([least, most])
    if part is float:
        least, most = (-1e6 if low is None else float(low)), (1e6 if high is None else float(high))
        return st.floats(least, most, exclude_min="gt" in bounds, exclude_max="lt" in bounds) | st.sampled_from([most, 3e-4])
    if get_origin(part) is Literal:
        return st.sampled_from(get_args(part))
    if get_origin(part) is tuple:
        inner = members(get_args(part)[0])[0]
        return st.lists(fitting(inner, bounds), max_size=3)
    if isinstance(part, type) and issubclass(part, Options):
        return groups(part)
    return st.none() if part is NoneType else st.text(max_size=8)


def option_values(options: type[Options], name: str) -> st.SearchStrategy[Any]:
    """What an option is declared to take, and now and then what it is not."""
    field = options.model_fields[name]
    bounds: dict[str, Any] = {}
    for entry in [*field.metadata, *_nested_metadata(field.annotation)]:
        bounds |= {key: getattr(entry, key) for key in ("gt", "ge", "lt", "le") if getattr(entry, key, None) is not None}
    return mostly(st.one_of([fitting(part, bounds) for part in members(field.annotation)]))


def groups(options: type[Options], *, max_size: int = 4) -> st.SearchStrategy[dict[str, Any]]:
    """Some of a group's options, seldom one that it does not have."""
    names = mostly(st.sampled_from(sorted(options.model_fields)), st.text(max_size=8), one_in=20)
    pairs = names.flatmap(
        lambda name: st.tuples(st.just(name), option_values(options, name) if name in options.model_fields else RUBBISH)
    )
    return st.lists(pairs, max_size=max_size).map(dict)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """A configuration as a file would hold it."""
    algo = draw(st.sampled_from(algorithm_names()))
    env_id = "CartPole-v1" if load_options_class(algo).discrete else "Pendulum-v1"
    values: dict[str, Any] = {"algo": algo, "env_id": env_id, "seed": 1, "total_timesteps": 10, "output_dir": "runs"}
    values["algo_kwargs"] = draw(mostly(groups(load_options_class(algo), max_size=6), one_in=30))
    others = [name for name in TrainConfig.model_fields if name != "algo_kwargs"]
    for name in draw(st.lists(st.sampled_from(others), max_size=3)):
        values[name] = draw(option_values(TrainConfig, name))
    if draw(st.integers(0, 19)) == 0:
        values.pop(draw(st.sampled_from(sorted(values))))
    if draw(st.integers(0, 29)) == 0:
        values[draw(st.text(max_size=8) | st.integers())] = draw(RUBBISH)
    return values
