"""The mathematics of a learner stands once and can be followed: what it takes to read one update of SAC, counted."""

import re
import sys
from pathlib import Path

import pytest
import torch
from kernel_choice import needs_library

import rl_training
from rl_training.algorithms import SAC
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.models import MLPSACModel

SOURCE = Path(rl_training.__file__).parent
KERNELS = SOURCE / "kernels"


def python_files(*folders):
    return [path for folder in folders for path in (SOURCE / folder).rglob("*.py")]


def lines_of(path):
    return len(path.read_text().splitlines())


@pytest.fixture(scope="module")
def functions_of_one_update():
    """(file, function) of ours that run when a batch is drawn and SAC learns from it."""
    learner = SAC(MLPSACModel(3, 1, (8, 8)), learning_rate=1e-3)
    buffer = ReplayBuffer(32, obs_dim=3, action_dim=1, seed=0)
    rows = {name: torch.zeros(32, width).numpy() for name, width in (("obs", 3), ("actions", 1), ("next_obs", 3))}
    buffer.add({**rows, **{name: torch.zeros(32).numpy() for name in ("rewards", "dones", "cuts")}})
    learner.update(buffer.sample(8))  # what is made once is made
    seen = set()

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            seen.add((path, frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name))

    batch = buffer.sample(8)
    sys.setprofile(note)
    try:
        learner.update(batch)
    finally:
        sys.setprofile(None)
    return seen


@needs_library  # definitions in torch are other functions
def test_an_update_of_sac_runs_through_few_functions(functions_of_one_update):
    names = {(path, name) for path, name in functions_of_one_update if not name.startswith("<")}
    listed = "\n".join(sorted(f"{path.name}:{name}" for path, name in names))
    assert len(names) <= 40, listed


def test_an_update_of_sac_is_followed_through_few_lines(functions_of_one_update):
    files = {path for path, _ in functions_of_one_update}
    files |= {SOURCE / "data" / name for name in ("replay_buffer.py", "packed_rows.py")}
    assert sum(map(lines_of, files)) <= 1_700, sorted(f"{path.name} {lines_of(path)}" for path in files)


def test_the_file_of_sac_is_short():
    assert lines_of(SOURCE / "algorithms" / "sac.py") <= 165


def test_no_learner_knows_of_two_ways():
    words = re.compile(r"explicit\b|lean_|_lean\b|_autograd_|native|library_for")
    found = [
        f"{path.name}: {line.strip()}"
        for path in python_files("algorithms", "models")
        for line in path.read_text().splitlines()
        if words.search(line)
    ]
    assert not found


def test_one_place_decides_between_c_and_torch_and_each_op_asks_it_once():
    asking = {path: len(re.findall(r"\blibrary_for\((?!\*tensors: )", path.read_text())) for path in python_files("")}
    asked = {path.relative_to(SOURCE).as_posix(): count for path, count in asking.items() if count}
    assert asked == {f"kernels/{op}.py": 1 for op in ("adam", "imagine", "losses", "mlp", "population", "squash")}


def test_lines_that_exist_for_speed_alone_are_few():
    compiled = [path for path in KERNELS.rglob("*") if path.suffix in {".c", ".h"}]
    behind_ops = [KERNELS / name for name in ("library.py", "compiled.py", "threads.py", "imagine.py", "population.py")]
    assert sum(map(lines_of, [*compiled, *behind_ops])) <= 2_000
