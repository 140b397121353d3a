"""What is exported, and that it is there."""

import importlib
import subprocess
import sys

import pytest

import rl_training
from rl_training.experiment.registry import algorithm_names

PACKAGES = [
    "rl_training",
    "rl_training.api",
    "rl_training.algorithms",
    "rl_training.models",
    "rl_training.data",
    "rl_training.experiment",
]
CLASS_NAMES = {"openai_es": "OpenAIES", "rebrac": "ReBRAC", "cal_ql": "CalQL"}


def class_name(algo):
    return CLASS_NAMES.get(algo, algo.upper())


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_what_is_there(package):
    module = importlib.import_module(package)
    missing = [name for name in module.__all__ if not hasattr(module, name)]
    assert missing == []
    assert sorted(module.__all__) == sorted(set(module.__all__))


@pytest.mark.parametrize("algo", algorithm_names())
def test_every_algorithm_has_its_managed_class_and_its_learner(algo):
    name = class_name(algo)
    managed = getattr(importlib.import_module("rl_training.api"), name)
    assert getattr(rl_training, name) is managed
    assert managed.algo == algo
    learners = importlib.import_module("rl_training.algorithms")
    assert getattr(learners, name) is getattr(learners, f"{name}Algorithm")
    assert hasattr(learners, f"{algo}_loss")
    assert name in rl_training.__all__


def test_the_version_is_that_of_the_distribution():
    assert rl_training.__version__ == "0.1.0"


def test_importing_the_package_imports_neither_torch_nor_gymnasium():
    code = "import rl_training, rl_training.cli, sys; print({'torch', 'gymnasium'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'DQN'"):
        _ = rl_training.DQN
