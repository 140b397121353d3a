"""The compiled library: found, refused, left out; threads and forks; and runs that are the same with any number of threads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from kernel_choice import KINDS, compute_with, needs_library
from small_runs import ALGORITHMS, difference, small_config, train
from torch import Tensor

from rl_training.algorithms import SAC
from rl_training.cli import main
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.metadata import environment_differences, numeric_environment
from rl_training.kernels import library
from rl_training.kernels.threads import num_threads, use_threads
from rl_training.models.flat_mlp import FlatMLP
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.runtime.torch_settings import torch_settings


@pytest.mark.parametrize("name", ["rewards", "dones", "obs", "next_obs"])
def test_a_batch_in_double_precision_is_learnt_from_or_refused_but_never_misread(name):
    def updated(dtype: torch.dtype) -> Tensor:
        torch.manual_seed(0)
        learner = SAC(MLPSACModel(3, 1, (16,)), learning_rate=1e-2)
        batch = {"obs": torch.randn(8, 3), "actions": torch.rand(8, 1), "next_obs": torch.randn(8, 3)}
        batch |= {"rewards": torch.randn(8), "dones": torch.zeros(8)}
        learner.update(batch | {name: batch[name].to(dtype)})
        return learner.model.critics.flat.detach()

    expected = updated(torch.float32)
    try:
        found = updated(torch.float64)
    except (RuntimeError, ValueError):
        return  # torch's own words about types that differ
    torch.testing.assert_close(found, expected)


@needs_library
def test_several_threads_of_python_may_call_at_once():
    net = FlatMLP((4, 128, 128, 2), members=3, activation="relu")
    inputs = torch.randn(40, 200, 4)
    with torch.no_grad(), use_threads(2):
        expected = [net(x) for x in inputs]
    with use_threads(2), ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: net(x).detach(), inputs))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@needs_library
@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_begins_threads_of_its_own(kind):
    program = """
import os, torch, warnings
from rl_training.kernels import compiled, library
from rl_training.kernels.threads import use_threads
from rl_training.models.flat_mlp import FlatMLP
compiled.library = lambda: library.load("KIND")
net, x = FlatMLP((4, 64, 64, 1), members=3, activation="relu"), torch.randn(300, 4)
with torch.no_grad(), use_threads(2):
    before = net(x)
    child = os.fork()
    same = torch.equal(net(x), before)
if child == 0:
    os._exit(0 if same else 1)
assert same and os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program.replace("KIND", kind)], check=True, timeout=120)


@needs_library
def test_a_runs_threads_are_those_of_compiled_ops_and_torch_has_one():
    before = torch.get_num_threads(), num_threads()
    with torch_settings(2):
        assert (torch.get_num_threads(), num_threads()) == (1, 2)
    assert (torch.get_num_threads(), num_threads()) == before


def test_without_the_library_a_runs_threads_are_torchs(monkeypatch):
    compute_with(None, monkeypatch)
    with torch_settings(2):
        assert torch.get_num_threads() == 2


TRAIN = """
import sys
from rl_training import SAC
SAC("Pendulum-v1", total_timesteps=60, learning_starts=20, hidden_sizes=[16, 16], seed=1, output_dir=sys.argv[1]).learn()
"""


def test_a_process_can_do_without_and_says_what_it_computed_with(tmp_path):
    for switch, expected in (("0", "none"), ("1", library.in_use())):
        folder = tmp_path / switch
        environment = {**os.environ, library.SWITCH: switch}
        subprocess.run([sys.executable, "-c", TRAIN, str(folder)], check=True, env=environment, timeout=120)
        (metadata,) = folder.rglob("metadata.json")
        assert json.loads(metadata.read_text())["passes"] == expected


@needs_library
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_run_is_the_same_with_any_number_of_threads(algo, tmp_path):
    # SAC's batches and layers are large enough to be cut into the blocks that threads share
    wide = {"batch_size": 200, "hidden_sizes": [160, 160], "buffer_capacity": 230, "learning_starts": 200}
    large = {"algo_kwargs": wide} if algo == "sac" else {}
    runs = [train(small_config(algo, tmp_path / str(threads), num_threads=threads, **large)) for threads in (1, 2)]
    one, other = (load_checkpoint(run.checkpoint_path) for run in runs)
    assert difference(one.algorithm_state, other.algorithm_state) is None
    assert difference(one.buffer_state, other.buffer_state) is None


def test_the_doctor_says_whether_passes_are_compiled(capsys, monkeypatch):
    assert main(["doctor"]) == 0
    assert ("compiled for" if library.library() else "not compiled") in capsys.readouterr().out
    compute_with(None, monkeypatch)
    assert main(["doctor"]) == 0
    assert "install again with a C compiler" in capsys.readouterr().out


def test_other_passes_are_a_difference_that_a_resume_tells_of():
    now = numeric_environment()
    (sentence,) = environment_differences({**now, "passes": "avx1"}, now)
    assert sentence == f"the kind of compiled passes was avx1 and is {library.in_use()}"


def test_another_build_of_the_same_sources_has_another_name(tmp_path, monkeypatch):
    """As by another compiler: the bits may be others, and nothing else tells."""
    kind, known = library.kind_of_processor(), library.build()
    if known is None:
        pytest.skip("the passes were not compiled for this processor")
    for path in library.FOLDER.glob("*.[ch]"):
        shutil.copy(path, tmp_path)
    built = (library.FOLDER / f"passes_{kind}.so").read_bytes()
    (tmp_path / f"passes_{kind}.so").write_bytes(built + b"\0")
    caches = library.library, library.load, library._file_digest
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    try:
        for cache in caches:
            cache.cache_clear()
        assert library.build() not in (None, known)
    finally:
        monkeypatch.undo()
        for cache in caches:
            cache.cache_clear()
    assert library.build() == known


def test_a_library_that_cannot_be_loaded_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    library.load.cache_clear()
    try:
        assert library.load("avx2") is None
        (tmp_path / "passes_avx512.so").write_bytes(b"not a library")
        assert library.load("avx512") is None
    finally:
        library.load.cache_clear()


@needs_library
def test_a_library_of_other_sources_is_left_alone_and_said_to_be(tmp_path, monkeypatch, caplog):
    """Python after a pull, C from before: what is called must be what was compiled."""
    for path in library.FOLDER.iterdir():
        if path.suffix in (".c", ".h", ".so"):
            shutil.copy(path, tmp_path)
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    library.load.cache_clear()
    try:
        assert library.load(KINDS[0]) is not None
        library.load.cache_clear()
        with (tmp_path / "adam.h").open("a") as file:
            file.write("\n")
        assert library.load(KINDS[0]) is None
        assert "compiled from other sources" in caplog.text
    finally:
        library.load.cache_clear()


@pytest.mark.skipif(not (Path(__file__).parents[2] / "hatch_build.py").is_file(), reason="not in a source tree")
def test_without_a_compiler_the_package_is_built_without_the_passes(tmp_path, capsys):
    pytest.importorskip("hatchling")
    from hatchling.builders.wheel import WheelBuilder

    root = tmp_path / "tree"
    source = Path(__file__).parents[2]
    root.mkdir()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(source / name, root)
    shutil.copytree(source / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", str(tmp_path / "no-such-compiler"))
        (wheel,) = WheelBuilder(str(root)).build(directory=str(tmp_path / "dist"), versions=["standard"])
    assert wheel.endswith("-py3-none-any.whl")
    assert not list(root.rglob("*.so"))
    assert "left out" in capsys.readouterr().err
