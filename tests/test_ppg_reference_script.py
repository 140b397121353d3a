from pathlib import Path

from scripts import run_reference


def test_the_reference_script_trains_and_evaluates(tmp_path):
    printed = run_reference("ppg_cartpole_reference", tmp_path, total_timesteps=600)
    assert Path(printed["checkpoint_path"]).is_file()
    assert 1 <= float(printed["eval_return_mean"]) <= 500
