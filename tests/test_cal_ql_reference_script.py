from pathlib import Path

from scripts import run_reference


def test_the_reference_script_trains_and_evaluates(tmp_path):
    printed = run_reference("cal_ql_pendulum_reference", tmp_path, total_timesteps=30)
    assert Path(printed["checkpoint_path"]).is_file()
    assert float(printed["eval_return_mean"]) < 0  # Pendulum only ever costs
