"""What a resume refuses, what it tells of, and what it puts right."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from small_runs import StopAt, small_config, train

from rl_training.cli import load_config, main
from rl_training.errors import ConfigError
from rl_training.experiment.checkpoint import read_header
from rl_training.experiment.locate import resolve_checkpoint, step_files
from rl_training.runtime.workflows import resume_training


def left(run_dir: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run_dir)): path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["ppo", "mopo", "openai_es"])
def test_a_budget_that_is_spent_already_is_refused_and_nothing_is_written(name, tmp_path):
    run_dir = train(small_config(name, tmp_path)).run_dir
    before = left(run_dir)
    with pytest.raises(ConfigError, match=r"total_timesteps: given 10, but the run is at step \d+; possible: more"):
        resume_training(run_dir, total_timesteps=10)
    assert left(run_dir) == before


def test_the_budget_the_run_has_and_the_step_it_is_at_are_no_slip(tmp_path):
    ended = train(small_config("ppo", tmp_path, total_timesteps=50))
    assert ended.metrics["global_step"] == 60  # turns of 20 steps
    assert resume_training(ended.run_dir, total_timesteps=50).metrics["global_step"] == 60
    assert resume_training(ended.run_dir, total_timesteps=60).metrics["global_step"] == 60


# --- config.yaml


def test_a_config_file_edited_by_hand_is_told_of_and_put_right(tmp_path, caplog):
    run_dir = train(small_config("ppo", tmp_path), callbacks=[StopAt(120)]).run_dir
    path = run_dir / "config.yaml"
    true = load_config(path)
    edited = path.read_text().replace("total_timesteps: 240", "total_timesteps: 480")
    path.write_text(edited.replace("update_epochs: 2", "update_epochs: 3"))
    assert resume_training(run_dir).metrics["global_step"] == 240
    (said,) = [record.getMessage() for record in caplog.records if "config.yaml" in record.getMessage()]
    assert "says total_timesteps: 480, and the run was trained with 240; " in said
    assert "says algo_kwargs.update_epochs: 3, and the run was trained with 2. The checkpoint counts" in said
    assert load_config(path) == true


def test_what_changes_no_number_may_be_edited(tmp_path, caplog):
    run_dir = train(small_config("ppo", tmp_path), callbacks=[StopAt(120)]).run_dir
    path = run_dir / "config.yaml"
    path.write_text(path.read_text().replace("tags: []", "tags: [mine]"))
    resume_training(run_dir)
    assert caplog.records == []
    assert load_config(path).tags == ("mine",)


def test_a_resume_that_died_before_its_first_checkpoint_left_what_it_was_given_in_the_file(tmp_path, caplog):
    run_dir = train(small_config("ppo", tmp_path)).run_dir
    path = run_dir / "config.yaml"
    path.write_text(path.read_text().replace("total_timesteps: 240", "total_timesteps: 280"))
    assert resume_training(run_dir, total_timesteps=280).metrics["global_step"] == 280  # as the first time: nothing to tell
    assert caplog.records == []


@pytest.mark.parametrize(("content", "said"), [(None, "was lost"), ("algo: pppo\n", "cannot be read")])
def test_a_config_file_that_is_lost_or_spoilt_is_written_anew(content, said, tmp_path, caplog):
    run_dir = train(small_config("ppo", tmp_path), callbacks=[StopAt(120)]).run_dir
    path = run_dir / "config.yaml"
    true = load_config(path)
    path.unlink() if content is None else path.write_text(content)
    rest = resume_training(run_dir)
    assert (rest.run_dir, rest.metrics["global_step"]) == (run_dir, 240)
    assert said in caplog.text
    assert load_config(path) == true


def test_a_checkpoint_that_lies_elsewhere_goes_on_in_a_new_directory_and_says_so(tmp_path, caplog):
    ended = train(small_config("ppo", tmp_path / "runs"), callbacks=[StopAt(120)])
    copy = shutil.copy(ended.checkpoint_path, tmp_path / "copy.safetensors")
    rest = resume_training(copy)
    assert rest.run_dir != ended.run_dir
    assert f"{copy}: lies in no run directory; the run goes on in a new one, below {tmp_path / 'runs'}" in caplog.text


# --- the best policy


def best(run_dir: Path) -> tuple[int, int]:
    """The step of the best policy, and by how many episodes it was judged."""
    header = read_header(run_dir / "checkpoints" / "best.safetensors")
    return header.metadata["step"], header.config["eval_episodes"]


def test_a_best_policy_of_a_future_that_was_undone_is_set_aside(tmp_path, caplog):
    run_dir = train(small_config("ppo", tmp_path, checkpoint_interval=20, keep_checkpoints=99)).run_dir
    found, episodes = best(run_dir)
    earlier = next(path for path in step_files(run_dir / "checkpoints") if int(path.stem[5:]) < found)
    content = (run_dir / "checkpoints" / "best.safetensors").read_bytes()
    resume_training(earlier, total_timesteps=int(earlier.stem[5:]) + 20, eval_episodes=0)
    assert (run_dir / "checkpoints" / "best.safetensors").read_bytes() == content  # nothing takes its place
    resume_training(earlier, total_timesteps=found + 20)
    assert f"of step {found}, judged by {episodes} episodes" in caplog.text
    assert best(run_dir)[0] <= found + 20
    assert (run_dir / "checkpoints" / "best.safetensors.aside").read_bytes() == content


def test_policies_judged_by_other_numbers_of_episodes_are_not_compared(tmp_path):
    run_dir = train(small_config("ppo", tmp_path), callbacks=[StopAt(120)]).run_dir
    assert best(run_dir)[1] == 1
    resume_training(run_dir, eval_episodes=3)
    assert best(run_dir)[1] == 3


def test_the_best_policy_stays_where_all_is_as_it_was(tmp_path, caplog):
    run_dir = train(small_config("ppo", tmp_path), callbacks=[StopAt(120)]).run_dir
    resume_training(run_dir)
    assert not (run_dir / "checkpoints" / "best.safetensors.aside").exists()
    assert caplog.records == []


# --- before the first checkpoint


def test_a_run_that_ended_before_its_first_checkpoint_is_begun_anew_by_the_command_that_resume_prints(tmp_path, capsys, caplog):
    config = small_config("ppo", tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml())
    begin = ["train", "--config", str(path), "--run-suffix", "x", "--quiet"]
    assert main(begin) == 0
    (run_dir,) = tmp_path.glob("ppo__*")
    for file in (run_dir / "checkpoints").iterdir():  # as SIGKILL would have left it
        file.unlink()
    capsys.readouterr()
    assert main(["resume", "--checkpoint", str(run_dir)]) == 2
    command = re.search(r"begin again with: rl-training (.*)", capsys.readouterr().err)[1]
    assert main([*shlex.split(command), "--quiet"]) == 0
    assert resolve_checkpoint(run_dir).name == "step_000000240.safetensors"
    assert main(begin) == 2  # now there is something to lose
    assert "exists and is never overwritten; resume it" in capsys.readouterr().err
