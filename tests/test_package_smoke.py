"""The package as it is shipped: presets, assets, metadata."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import train

from conftest import REPOSITORY
from rl_training.cli import load_config
from rl_training.experiment.registry import algorithm_names
from rl_training.resources import find_packaged_asset, list_presets
from rl_training.runtime.callbacks import Callback

PLANNED = {"ppo": "cartpole", "ppg": "cartpole"}  # the others have a pendulum


@pytest.mark.parametrize("algo", algorithm_names())
def test_every_algorithm_ships_its_preset_script_page_and_tests(algo):
    env = PLANNED.get(algo, "pendulum")
    assert f"{algo}/{env}" in list_presets()
    wanted = [
        f"examples/{algo}_{env}_reference.py",
        f"docs/algorithms/{algo}.md",
        f"src/rl_training/algorithms/{algo}.py",
        f"src/rl_training/runtime/{algo}_trainer.py",
        f"tests/test_{algo}_update.py",
        f"tests/test_{algo}_trainer_smoke.py",
        f"tests/test_{algo}_reference_script.py",
    ]
    assert [path for path in wanted if not (REPOSITORY / path).is_file()] == []


class TwoTurns(Callback):
    turns = 0

    def on_collect_end(self, trainer, result):
        self.turns += 1
        if self.turns == 2:
            trainer.request_stop("two turns are enough")


@pytest.mark.parametrize("preset", list_presets())
def test_every_preset_loads_and_does_two_turns(preset, tmp_path):
    config = load_config(find_packaged_asset(f"configs/{preset}.yaml"))
    assert config.algo == preset.split("/")[0]
    callback = TwoTurns()
    result = train(config.replace(output_dir=tmp_path, eval_episodes=0), callbacks=[callback])
    assert callback.turns == 2
    assert result.checkpoint_path.is_file()


def test_assets_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = find_packaged_asset("configs/ppo/cartpole.yaml")
    assert load_config(path).env_id == "CartPole-v1"
    assert load_config("configs/ppo/cartpole.yaml").algo == "ppo"


@pytest.mark.parametrize("path", ["../errors.py", "/etc/passwd", "configs/../../errors.py", "configs/nothing.yaml"])
def test_nothing_outside_the_assets_is_found(path):
    assert find_packaged_asset(path) is None


def test_the_configs_at_the_root_are_those_of_the_package():
    link = REPOSITORY / "configs"
    assert link.is_symlink()
    assert link.resolve() == (REPOSITORY / "src/rl_training/assets/configs").resolve()


@pytest.mark.slow
def test_a_wheel_holds_the_presets_and_works_elsewhere(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(REPOSITORY)]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("rl_training-0.1.0-*.whl")
    code = "import rl_training; from rl_training.resources import list_presets; print(rl_training.__file__, list_presets())"
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    done = subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(tmp_path / "site")], check=True)
    environment["PYTHONPATH"] = str(tmp_path / "site")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert str(Path(tmp_path / "site")) in done.stdout
    assert "ppo/cartpole" in done.stdout
