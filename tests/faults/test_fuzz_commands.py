"""Whatever is typed: an answer in words and an exit code, never a traceback."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout

import pytest
from fuzzing import CORPUS, fuzz
from hypothesis import given
from hypothesis import strategies as st

from rl_training.cli import main
from rl_training.cli.parser import command_names, load_command
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.options import load_options_class
from rl_training.tuning import tune as tuning

FOUND = json.loads((CORPUS / "commands.json").read_text())
WORDS = [
    *(
        "ppo/cartpole",
        "sac/pendulum",
        "ppo",
        "sac",
        "inspect",
        "missing.yaml",
        "missing.npz",
        "missing",
        ".",
        "..",
        "/",
        "/dev/null",
    ),
    *("", " ", "-", "--", "---", "=", "=1", "a=", "a=b", "a.b.c=1", "\x00", "ä=ö", "\ud800", "%s", "{}", "~", "*", "a" * 5000),
    *(
        "0",
        "-1",
        "1e5",
        "1_000",
        "1e400",
        "nan",
        "1,2,3",
        "1,1",
        "auto",
        "cuda:7",
        "[1, 2",
        "{a: 1}",
        "!!python/object:os.system x",
    ),
]
UNENDING = {"-h", "--help", "--watch"}  # the first two are answered by the parser alone, the last by a server
SETTINGS = ["algo_kwargs", "seed", "total_timesteps", "tags", "env_kwargs", *load_options_class("ppo").model_fields]


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command with some of its own options, some settings and some rubbish, in any order."""
    name = draw(st.sampled_from(command_names()))
    flags = sorted(load_command(name).parser()._option_string_actions.keys() - UNENDING)
    setting = st.tuples(st.sampled_from(SETTINGS), st.sampled_from(WORDS) | st.text(max_size=6)).map("=".join)
    word = st.sampled_from(WORDS) | st.sampled_from(flags) | setting | st.text(max_size=6)
    words = draw(st.lists(word, max_size=5))
    return [*draw(st.sampled_from([[], [], [], ["--verbose"], ["--nonsense"]])), name, *words]


@pytest.fixture
def nothing_trains(monkeypatch, tmp_path):
    """Every check is made, but no run is begun; and what is written is written elsewhere."""

    def refuse(name):
        raise ConfigError(f"the test trains nothing, {name!r} neither")

    monkeypatch.setattr(registry, "get_algorithm_spec", refuse)
    monkeypatch.setattr(tuning, "tune", lambda *arguments, **options: refuse("tune"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.delenv("RL_TRAINING_DEBUG", raising=False)


def answered(argv: list[str]) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(argv)
    text = err.getvalue()
    assert code in (0, 1, 2, 3), (argv, code)
    assert "Traceback" not in text, argv
    assert "This was not expected" not in text, (argv, text)
    assert code == 0 or text.strip() or out.getvalue().strip(), argv
    return code, text


@pytest.mark.parametrize("case", FOUND, ids=[case["why"] for case in FOUND])
def test_what_was_found_stays_mended(case, nothing_trains):
    code, text = answered(case["argv"])
    assert code == case["code"]
    assert case["says"] in text


@fuzz(share=0.7)
@given(argv=command_lines())
def test_any_words_are_answered(argv, nothing_trains):
    if "--debug" not in argv:  # which asks for the traceback
        answered(argv)


@pytest.mark.parametrize("name", command_names())
@pytest.mark.parametrize("word", ["", "\x00", "--", "-1", "missing", "=", "a=b"])
def test_every_command_answers_every_single_word(name, word, nothing_trains):
    answered([name, word])
