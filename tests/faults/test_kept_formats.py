"""A checkpoint that was once released can be read for ever: predict gives its old numbers, and training goes on from it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from conftest import REPOSITORY
from rl_training.experiment.checkpoint import load_checkpoint, read_header
from rl_training.experiment.checkpoint_file import FORMAT_VERSION
from rl_training.experiment.registry import algorithm_names
from rl_training.runtime.workflows import predict_checkpoint, resume_training

DATA = REPOSITORY / "tests" / "kept"
FILES = sorted(DATA.glob("format*/*.safetensors"))


def label(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def test_every_format_has_a_checkpoint_of_every_algorithm():
    for version in range(1, FORMAT_VERSION + 1):
        kept = {path.stem for path in (DATA / f"format{version}").glob("*.safetensors")}
        assert kept >= set(algorithm_names()), "make it once with tests/kept/make_format1.py and commit it"


def test_kept_files_are_those_that_were_once_written():
    for folder in DATA.glob("format*"):
        sums = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
        assert sums == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.safetensors")}


@pytest.mark.parametrize("path", FILES, ids=label)
def test_a_kept_checkpoint_acts_as_it_did(path: Path):
    known = json.loads(path.with_suffix(".json").read_text())
    assert read_header(path).config["algo"] == path.stem
    # another processor or torch may change the last bits, and nothing else
    np.testing.assert_allclose(predict_checkpoint(path, known["obs"]), known["actions"], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", FILES, ids=label)
def test_training_goes_on_from_a_kept_checkpoint(path: Path, tmp_path: Path):
    began = json.loads(path.with_suffix(".json").read_text())["global_step"]
    before = load_checkpoint(path)
    assert before.trainer_state["progress"]["global_step"] == began
    done = resume_training(path, output_dir=tmp_path)
    assert done.metrics["global_step"] >= before.config["total_timesteps"] > began
    assert done.metrics["updates"] > before.trainer_state["progress"]["updates"]
    assert json.loads((done.run_dir / "metadata.json").read_text())["exact"] is True
