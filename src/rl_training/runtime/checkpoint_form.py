"""What a checkpoint must look like, part by part: the one place where all of it is said, or who says it.

A new field of the trainer's state gets a line here; a new part of a loop, a buffer or the environments one in the `state_form`
beside its `state_dict`. A field that older versions do not have is optional. `tests/faults/test_strangers_state.py` finds
whatever has no form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_training.algorithms.base import Algorithm
from rl_training.errors import MisfitError
from rl_training.experiment.checkpoint import CheckpointState
from rl_training.forms import COUNT, MOST, Each, Maybe, Named, Number, Record, Whole, anything, flag, metric, text
from rl_training.options._core import LARGEST_NUMBER
from rl_training.runtime.loops import Loop
from rl_training.runtime.numerics import NUMERICS, not_finite
from rl_training.runtime.progress import PROGRESS
from rl_training.runtime.rng import TORCH_RNG
from rl_training.types import State

EVALUATION = Record({}, optional={"step": Whole(-1, MOST), "metrics": Named(metric), "due": flag})


def _evaluated_before(trainer: Mapping[str, Any]) -> str | None:
    step, now = trainer.get("evaluation", {}).get("step", -1), trainer["progress"]["global_step"]
    return f"it was evaluated at step {step} and is at step {now}" if step > now else None


TRAINER = Record(
    {
        "progress": PROGRESS,
        "loop": Named(anything),  # its own form is that of the loop
        "torch_rng": TORCH_RNG,
        "callbacks": Named(Named(anything)),  # each knows its memory
        "history_lines": COUNT,
    },
    optional={"numerics": NUMERICS, "update_metrics": Named(metric), "evaluation": EVALUATION},
    relation=_evaluated_before,
)


def _bounds_fit(spec: Mapping[str, Any]) -> str | None:
    low, high, wanted = spec["low"], spec["high"], 0 if spec["discrete"] else spec["action_dim"]
    if not len(low) == len(high) == wanted:
        return f"there are {len(low)} lower and {len(high)} upper bounds for {wanted} numbers"
    wrong = [f"{pair[0]:g} to {pair[1]:g}" for pair in zip(low, high, strict=True) if pair[0] > pair[1]]
    return f"actions cannot be from {wrong[0]}" if wrong else None


BOUND = Number(-LARGEST_NUMBER, LARGEST_NUMBER)


ENV_SPEC = Record(
    {
        "env_id": text,
        "obs_dim": Whole(1),
        "action_dim": Whole(1),
        "discrete": flag,
        "low": Each(BOUND),
        "high": Each(BOUND),
        "action_start": Whole(-MOST),
    },
    relation=_bounds_fit,
)

METADATA = Record(
    {"env_spec": ENV_SPEC},
    optional={
        "environment": Record({}, optional={"versions": Named(Maybe(text))}),
        "made_on": Maybe(Each(text)),
        "dataset_places": Named(text),
    },
)


def require_sound(saved: CheckpointState) -> None:
    """MisfitError for what can be seen without the objects that a run is made of; of a policy alone its metadata."""
    METADATA(saved.metadata, "metadata")
    if saved.trainer_state:
        TRAINER(saved.trainer_state, "trainer_state")


def checked(saved: CheckpointState, algorithm: Algorithm, loop: Loop) -> State:
    """The trainer's state; MisfitError unless all of the checkpoint fits these objects, none of which has been touched then."""
    require_sound(saved)
    steps: int = saved.trainer_state["progress"]["global_step"]
    loop.state_form(steps)(saved.trainer_state["loop"], "trainer_state/loop")
    Record(loop.buffer_forms(steps))(saved.buffer_state, "buffer_state")
    require_finite(saved.algorithm_state)
    algorithm.require_fitting(saved.algorithm_state)
    return saved.trainer_state


def require_finite(algorithm_state: State) -> None:
    """MisfitError for a learner that holds a number which is not finite: none is ever saved."""
    if bad := not_finite(algorithm_state):
        raise MisfitError(f"algorithm_state: {'; '.join(bad[:4])}")
