"""Tab on the command line: what is offered, how fast, and by bash itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPOSITORY
from rl_training.cli import main
from rl_training.cli.commands.completion import SCRIPTS
from rl_training.cli.completion import FILES, candidates, split_line
from rl_training.cli.parser import command_names
from rl_training.options import load_options_class
from rl_training.resources import list_presets


def test_the_first_word_is_a_command():
    assert candidates("rl-training ") == command_names()
    assert candidates("rl-training tr") == ["train"]
    assert candidates("rl-training --ver") == ["--verbose", "--version"]
    assert candidates("rl-training nonsense x") == []


def test_train_wants_a_preset_and_then_settings_of_its_algorithm():
    assert candidates("rl-training train ppo/") == [name for name in list_presets() if name.startswith("ppo/")]
    keys = candidates("rl-training train sac/pendulum ")
    assert {f"{name}=" for name in load_options_class("sac").model_fields} <= set(keys)
    assert {"seed=", "env_kwargs=", "early_stopping.patience="} <= set(keys)
    assert candidates("rl-training train sac/pendulum clip_c") == []  # not SAC's
    assert candidates("rl-training train ppo/cartpole clip_coef_s") == sorted(
        f"clip_coef_schedule{rest}=" for rest in ("", ".type", ".start", ".end", ".warmup_steps", ".until")
    )


def test_an_algorithm_serves_as_well_as_a_preset():
    assert candidates("rl-training train sa") == ["sac", "sac/halfcheetah", "sac/hopper", "sac/pendulum"]
    assert candidates("rl-training train sac env_i") == ["env_id="]
    assert candidates("rl-training tune sac/pendulum --search ta") == ["tau"]
    assert candidates("rl-training tune --search ") == []


def test_values_are_offered_where_there_are_few():
    assert candidates("rl-training train ppo/cartpole activation=") == ["activation=relu", "activation=tanh"]
    assert candidates("rl-training config sac/pendulum layer_norm=t") == ["layer_norm=true"]
    assert candidates("rl-training config sac/pendulum gamma=") == ["gamma=0.99"]
    assert candidates("rl-training train ppo/cartpole --execution-backend local_") == ["local_async", "local_sync"]
    assert candidates("rl-training export runs/x --format o") == ["onnx"]


def test_options_and_files():
    assert candidates("rl-training eval --num") == ["--num-episodes"]
    assert candidates("rl-training eval --checkpoint ") == [FILES]
    assert candidates("rl-training plot ") == [FILES]
    assert candidates("rl-training show ars") == ["ars", "ars/cartpole", "ars/pendulum", "ars/swimmer"]
    assert candidates("rl-training dataset ") == ["inspect"]
    assert candidates("rl-training completion ") == ["bash", "fish", "zsh"]


def test_a_line_is_cut_as_the_shell_cuts_it():
    assert split_line("a b") == ["a", "b"]
    assert split_line("a b ") == ["a", "b", ""]
    assert split_line("a 'b c") == ["a", "b c"]
    assert split_line('a "b') == ["a", "b"]


def test_neither_torch_nor_gymnasium_is_imported_for_a_tab():
    code = """
import sys
from rl_training.cli import main
for line in ("rl-training ", "rl-training train ppo/cartpole ", "rl-training train --sinks ", "rl-training tune ppo/"):
    main(["completion", "--candidates", line])
assert not {"torch", "gymnasium", "optuna"} & set(sys.modules)
"""
    settings = {"PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A folder with `rl-training` in it, of these sources."""
    script = tmp_path / "rl-training"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY / "src"} exec {sys.executable} -m rl_training "$@"\n')
    script.chmod(0o755)
    return str(tmp_path)


def bash_offers(program: str, line: str) -> list[str]:
    """What bash puts in place of the last word, words cut as readline does."""
    code = f"""
export PATH={program}:$PATH
eval "$(rl-training completion bash)"
COMP_LINE={line!r}; COMP_POINT=${{#COMP_LINE}}
read -ra COMP_WORDS <<< "$(sed 's/=/ = /g' <<< "$COMP_LINE")"
[[ "$COMP_LINE" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_rl_training 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_commands_presets_and_values_after_the_equals_sign(program: str):
    assert bash_offers(program, "rl-training tra") == ["train"]
    assert bash_offers(program, "rl-training train ppo/cart") == ["ppo/cartpole"]
    assert bash_offers(program, "rl-training train ppo/cartpole activation=r") == ["relu"]
    assert bash_offers(program, "rl-training train ppo/cartpole activation=") == ["relu", "tanh"]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_every_script_is_understood_by_its_shell(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert "rl-training completion --candidates" in text
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    script = tmp_path / "script"
    script.write_text(text)
    check = [shell, "-n", str(script)] if shell != "fish" else [shell, "--no-execute", str(script)]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0


def test_no_shell_is_answered_with_those_there_are(capsys: pytest.CaptureFixture[str]):
    assert main(["completion"]) == 2
    assert "possible: bash, zsh, fish" in capsys.readouterr().err
