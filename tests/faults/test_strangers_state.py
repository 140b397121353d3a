"""State of strangers, sealed and senseless: refused by name and place before anything is restored, or harmless."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import ALGORITHMS, NAMES, small_config, train
from spoiling import MISSING, Mutation, Outcomes, Subject, leaves, mutated, mutations

from rl_training.cli import main
from rl_training.errors import CheckpointError, MisfitError
from rl_training.experiment.checkpoint import CheckpointState, load_checkpoint, save_checkpoint
from rl_training.forms import Each, Form, Maybe, Named, Record, Row
from rl_training.models.normalizer import ObservationNormalizer, RewardNormalizer
from rl_training.models.optim import Adam
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoint_form import METADATA, TRAINER
from rl_training.runtime.policy import load_policy

Capture = pytest.CaptureFixture[str]
NAN, INF = float("nan"), float("inf")
RANDOM_MUTATIONS = 8  # for each algorithm; `make faults` tries a thousand in all


# --- nothing without a form


def without_form(form: Form, value: Any, where: str) -> Iterator[str]:
    """Places that nobody looks at before they are restored."""
    if isinstance(form, Record) and isinstance(value, Mapping):
        forms = {**form.parts, **form.optional}
        for name, item in value.items():
            yield from without_form(forms[name], item, f"{where}/{name}") if name in forms else [f"{where}/{name}"]
    elif isinstance(form, Named) and isinstance(value, Mapping):
        for name, item in value.items():
            yield from without_form(form.form, item, f"{where}/{name}")
    elif isinstance(form, Maybe) and value is not None:
        yield from without_form(form.form, value, where)
    elif isinstance(form, Each | Row):
        forms = form.forms if isinstance(form, Row) else [form.form] * len(value)
        for number, (inner, item) in enumerate(zip(forms, value, strict=True)):
            yield from without_form(inner, item, f"{where}/{number}")


class Watch(Callback):
    """Keeps the loop."""

    def on_train_end(self, trainer: Any, result: Any) -> None:
        self.loop = trainer.loop


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_is_saved_has_a_form(name: str, tmp_path: Path):
    watch = Watch()
    state = load_checkpoint(train(small_config(name, tmp_path), callbacks=[watch]).checkpoint_path)
    steps = state.trainer_state["progress"]["global_step"]
    trainer = Record({**TRAINER.parts, "loop": watch.loop.state_form(steps)}, TRAINER.optional)
    found = [
        *without_form(trainer, state.trainer_state, "trainer_state"),
        *without_form(Record(watch.loop.buffer_forms(steps)), state.buffer_state, "buffer_state"),
        *without_form(METADATA, {**state.metadata, "environment": {}}, "metadata"),
    ]
    assert found == [], "say what it must look like: runtime/checkpoint_form.py, or `state_form` beside its state_dict"


# --- the kinds that were once taken, or broke something without a name

COLLECTOR = ("trainer_state", "loop", "collector")
KINDS: list[tuple[str, tuple[Any, ...], Any]] = [
    *(("ppo", ("trainer_state", "progress", "global_step"), value) for value in (NAN, INF, 2**70, -1, 1.5, True, None, "x")),
    *(("sac", ("trainer_state", "progress", "updates"), value) for value in (-5.5, NAN, [], MISSING)),
    *(("ppo", ("trainer_state", "progress", "recent_returns", 0), value) for value in (NAN, "x", None)),
    *(("ppo", ("trainer_state", "progress", "recent_lengths", 0), value) for value in (10**10, -1, 0.5)),
    ("ppo", ("trainer_state", "progress", "recent_returns"), [1.0] * 1000),
    *(("ars", ("trainer_state", "history_lines"), value) for value in (-1, NAN, "many", None, 2**70)),
    *(("td3", ("trainer_state", "numerics", "means", "critic_loss", 0), value) for value in (NAN, "x", None)),
    *(("td3", ("trainer_state", "numerics", "means", "critic_loss", 1), value) for value in (-1, 0.5)),
    ("td3", ("trainer_state", "numerics", "means", "critic_loss"), []),
    *(("sac", ("buffer_state", "replay", "added"), value) for value in (10**9, 119, -1, 0.5, NAN, None)),
    ("sac", ("buffer_state", "replay", "rows"), torch.zeros(5, 3)),
    *(("sac", ("trainer_state", "loop", "turns"), value) for value in (10**12, -1, "x", NAN)),
    *(("ppo", ("algorithm_state", "observation_normalizer", "count"), value) for value in (NAN, -1, "x", 2**70)),
    *(("sac", (*COLLECTOR, "rng", "state", "state"), value) for value in (True, -1, 2**128, 0.5)),
    *(("sac", ("buffer_state", "replay", "rng", name), True) for name in ("has_uint32", "uinteger", "state")),
    ("sac", (*COLLECTOR, "envs", "lengths"), np.array([-1, 21])),
    ("sac", (*COLLECTOR, "envs", "lengths"), np.array([10**10, 0])),
    ("sac", (*COLLECTOR, "envs", "episodes"), np.array([0.5, 1])),
    ("sac", (*COLLECTOR, "envs", "exact"), "yes"),
    ("sac", (*COLLECTOR, "envs", "obs"), np.full((2, 3), NAN, dtype=np.float32)),
    *(("ars", ("trainer_state", "loop", "mean_length"), value) for value in (1e10, -1.0, NAN, "x")),
    *(("pets", ("trainer_state", "loop", name), 10**10) for name in ("new_steps", "fitted_steps", "turns")),
    *(("pets", ("trainer_state", "loop", "fit", "max_updates"), value) for value in (10**10, -1)),
    *(("mopo", ("trainer_state", "loop", "fit", "batch"), value) for value in (10**12, -1, NAN)),
    ("pets", ("trainer_state", "loop", "explorer", "plans"), torch.zeros(2, 1, 9, 1)),
    ("pets", ("algorithm_state", "dynamics", "model", "elites"), torch.tensor([0, 10**6])),
    ("ppg", ("trainer_state", "loop", "auxiliary_metrics", "auxiliary_loss"), "x"),
    ("rlpd", ("trainer_state", "loop", "pretrain_updates_done"), -(10**10)),
    ("td3", ("algorithm_state", "actor_metrics"), "x"),
    ("ppo", ("trainer_state", "evaluation", "step"), 10**10),
    ("ppo", ("trainer_state", "evaluation", "metrics", "eval_return_mean"), "x"),
    ("sac", ("metadata", "env_spec", "high", 0), -1e300),
    ("sac", ("metadata", "env_spec", "obs_dim"), 10**14),
    ("sac", ("metadata", "made_on"), 5),
    ("cql", ("metadata", "dataset_places"), [1]),
]


@pytest.fixture
def run(half_run: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(half_run(name), tmp_path / half_run(name).name))


def label(path: tuple[Any, ...], value: Any) -> str:
    return f"{'/'.join(map(str, path[1:]))}={'missing' if value is MISSING else str(value)[:12]}"


@pytest.mark.parametrize(("name", "path", "value"), KINDS, ids=[label(path, value) for _, path, value in KINDS])
def test_senseless_state_is_refused_by_file_and_place_and_leaves_the_run_as_it_was(
    name: str, path: tuple[Any, ...], value: Any, run: Callable[[str], Path], capsys: Capture
):
    directory = run(name)
    file = max((directory / "checkpoints").glob("step_*"))
    save_checkpoint(file, mutated(load_checkpoint(file), Mutation(path, "", value)))
    before = {kept: kept.read_bytes() for kept in [*(directory / "checkpoints").iterdir(), directory / "metrics.jsonl"]}
    assert main(["resume", "--checkpoint", str(directory), "--quiet"]) == 2
    told = capsys.readouterr().err
    assert f"error: {file}: " in told
    assert any(key in told for key in path[-3:] if isinstance(key, str))
    assert {kept: kept.read_bytes() for kept in [*(directory / "checkpoints").iterdir(), directory / "metrics.jsonl"]} == before
    json.loads((directory / "metadata.json").read_text(), parse_constant=pytest.fail)


# --- whatever it is


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_leaf_of_anything_is_refused_or_harmless(name: str, half_run: Callable[[str], Path], tmp_path: Path):
    subject, outcomes = Subject(half_run(name), tmp_path), Outcomes()
    chosen = random.Random(20261119).sample(subject.every_mutation(), RANDOM_MUTATIONS)
    for mutation in chosen:
        outcomes.add(*((found := subject.put(mutation))[0], mutation, found[1]))
    assert outcomes.faults == []
    assert sum(outcomes.counts.values()) == RANDOM_MUTATIONS


def test_the_mutations_reach_every_leaf_in_many_ways(half_run: Callable[[str], Path]):
    state = load_checkpoint(max((half_run("ppg") / "checkpoints").glob("step_*")))
    places = leaves(state)
    assert {path[0] for path in places} == {"algorithm_state", "buffer_state", "trainer_state", "metadata"}
    assert ("trainer_state", "progress", "global_step") in places
    for path in places:
        found = mutations(state, path)
        assert len(found) >= 6
        assert found[-1].value is MISSING
    changed = mutated(state, Mutation(("trainer_state", "progress", "recent_lengths", 1), "", 99))
    assert changed.trainer_state["progress"]["recent_lengths"][:3] == [
        state.trainer_state["progress"]["recent_lengths"][0],
        99,
        state.trainer_state["progress"]["recent_lengths"][2],
    ]


SHAPES: list[Callable[[tuple[int, ...]], tuple[int, ...]]] = [
    lambda shape: () if shape else (2,),
    lambda shape: (1,) if shape != (1,) else (2,),
    lambda _: (0,),
    lambda shape: (*shape[:-1], shape[-1] + 1) if shape else (1, 1),
    lambda shape: (*shape[:-1], max(shape[-1] - 1, 0)) if shape else (3,),
    lambda shape: (1, *shape),
    lambda shape: (*shape, 2),
]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_tensor_of_another_shape_is_always_refused(name: str, half_run: Callable[[str], Path], tmp_path: Path):
    state = load_checkpoint(max((half_run(name) / "checkpoints").glob("step_*")))
    tensors = [path for path in leaves(state) if isinstance(at(state, path), torch.Tensor) and path[0] == "algorithm_state"]
    assert tensors
    for path in tensors:
        for number, change in enumerate(SHAPES):
            other = torch.zeros(change(tuple(at(state, path).shape)), dtype=at(state, path).dtype)
            if path[-1] == "running" and other.dim() == 1:
                continue  # one for each environment, however many there are
            file = save_checkpoint(tmp_path / f"{number}.safetensors", mutated(state, Mutation(path, "", other)))
            with pytest.raises(CheckpointError, match=rf"{number}\.safetensors"):
                load_policy(file)


def at(state: CheckpointState, path: tuple[Any, ...]) -> Any:
    found = getattr(state, path[0])
    for key in path[1:]:
        found = found[key]
    return found


def test_normalisers_and_optimisers_compare_shapes_by_themselves():
    pairs = [
        (ObservationNormalizer(4), {"mean": torch.zeros(1), "var": torch.ones(4), "count": 3}),
        (ObservationNormalizer(4), {"mean": torch.zeros(4), "var": -torch.ones(4), "count": 3}),
        (ObservationNormalizer(4), {"mean": torch.zeros(4), "var": torch.ones(4), "count": -3}),
        (RewardNormalizer(gamma=0.9), {"mean": torch.zeros(1), "var": torch.ones(()), "count": 3, "running": torch.zeros(2)}),
        (Adam([torch.zeros(3)], learning_rate=0.1), adam_state(exp_avg=torch.zeros(1))),
        (Adam([torch.zeros(3)], learning_rate=0.1), adam_state(exp_avg_sq=torch.zeros(()))),
        (Adam([torch.zeros(3)], learning_rate=0.1), adam_state(exp_avg_sq=-torch.ones(3))),
        (Adam([torch.zeros(3)], learning_rate=0.1), adam_state(steps=torch.tensor(-1.0))),
        (Adam([torch.zeros(3)], learning_rate=0.1), {**adam_state(), "steps": []}),
    ]
    for owner, state in pairs:
        with pytest.raises(MisfitError):
            owner.load_state_dict(state)


def adam_state(**changes: torch.Tensor) -> dict[str, Any]:
    parts = {"exp_avg": torch.zeros(3), "exp_avg_sq": torch.zeros(3), "steps": torch.tensor(1.0), **changes}
    return {name: [part] for name, part in parts.items()}
