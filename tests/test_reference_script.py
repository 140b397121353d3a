"""Every registered algorithm has a reference script, and all of them take the same options."""

import ast
import subprocess
import sys

import pytest

from conftest import REPOSITORY
from rl_training.experiment.yaml_loader import load_config_file
from rl_training.options import algorithm_names
from rl_training.resources import find_preset

EXAMPLES = REPOSITORY / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*_reference.py"))


def preset_of(script):
    """The preset that a script hands to the `main` that all of them share."""
    calls = [node for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.Call)]
    (preset,) = [ast.literal_eval(call.args[0]) for call in calls if ast.unparse(call.func) == "main"]
    return preset


@pytest.mark.parametrize("name", algorithm_names())
def test_every_algorithm_has_a_script_that_trains_a_preset_of_its_own(name):
    (script,) = [path for path in SCRIPTS if path.name.startswith(f"{name}_")]
    config = load_config_file(find_preset(preset_of(script)))
    assert config.algo == name
    assert script.stem == f"{preset_of(script).replace('/', '_')}_reference"


def test_there_is_no_script_of_an_algorithm_that_is_not_there():
    assert len(SCRIPTS) == len(algorithm_names()) + 1  # and `_reference.py`, which they share


def test_the_scripts_take_a_budget_and_a_number_of_episodes():
    command = [sys.executable, str(SCRIPTS[-1]), "--help"]
    words = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for option in ("--total-timesteps", "--eval-episodes", "--output-dir"):
        assert option in words
