"""The example projects run as their README says, with a small budget, and leave what they promise."""

import pytest
from doc_blocks import run_script


@pytest.mark.learning
def test_custom_env_trains_resumes_and_exports(tmp_path, capsys):
    out = tmp_path / "runs"
    run_script(["examples/custom_env/train.py", "--total-timesteps", "300", "--output-dir", str(out)])
    printed = capsys.readouterr().out
    assert (out / "thermostat.safetensors").is_file()
    assert "at step 400" in printed  # resumed at 300
    assert len(list(out.glob("sac__*/config.yaml"))) == 2


@pytest.mark.learning
def test_logs_become_a_dataset_and_a_policy(tmp_path, capsys):
    out = tmp_path / "runs"
    small = ["--episodes", "3", "--offline-updates", "20", "--online-steps", "40", "--output-dir", str(out)]
    run_script(["examples/offline_to_online/train.py", *small])
    printed = capsys.readouterr().out
    assert "converted: 597 transitions" in printed  # of 600 lines the last of each episode leads nowhere
    assert "3 truncations" in printed
    assert (out / "policy.safetensors").is_file()
