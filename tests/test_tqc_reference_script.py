from pathlib import Path

from scripts import run_reference


def test_the_reference_script_trains_and_evaluates(tmp_path):
    printed = run_reference("tqc_pendulum_reference", tmp_path, total_timesteps=520)
    assert Path(printed["checkpoint_path"]).is_file()
    assert float(printed["eval_return_mean"]) == float(printed["eval_return_mean"])  # a number, not nan
