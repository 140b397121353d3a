"""Run directories and repositories of strangers: nothing is followed out of them, nothing waits for ever, nothing runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from offline_helpers import recorded
from small_runs import ALGORITHMS, small_config, train

from rl_training import PPO
from rl_training.cli import main
from rl_training.data.dataset_files import write_npz
from rl_training.errors import EnvError, RLTrainingError, readable
from rl_training.experiment import files
from rl_training.experiment.checkpoint import CheckpointState, save_checkpoint
from rl_training.experiment.lock import RunLock
from rl_training.experiment.metadata import run_metadata
from rl_training.experiment.run import WRITTEN
from rl_training.experiment.run_logger import RunLogger

Capture = pytest.CaptureFixture[str]
SECRET = "dear to somebody\n"


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """A test that waits for ever is a failure, not a test that waits."""

    def late(*_: Any) -> None:
        raise AssertionError(f"nothing came within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def run(half_run: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(half_run(name), tmp_path / half_run(name).name))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text(SECRET)
    return path


def lay_link(path: Path, target: Path) -> None:
    """In place of whatever has the name."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


# --- links


@pytest.mark.parametrize("name", WRITTEN)
def test_a_run_with_a_link_in_it_does_not_go_on_and_what_it_leads_to_stays(
    name: str, run: Callable[[str], Path], tmp_path: Path, victim: Path, capsys: Capture
):
    directory, models = run("ppo"), tmp_path / "models"
    checkpoint = max((directory / "checkpoints").glob("step_*.safetensors"))
    shutil.copytree(directory / "checkpoints", models)
    before = {path: path.read_bytes() for path in models.iterdir()}
    lay_link(directory / name, models if name in ("checkpoints", "tensorboard", "wandb") else victim)
    for path in (directory, checkpoint if checkpoint.exists() else directory):
        assert main(["resume", "--checkpoint", str(path), "--total-timesteps", "1000", "--quiet"]) == 2
        assert f"{directory / name}: is a symbolic link" in capsys.readouterr().err
    assert victim.read_text() == SECRET
    assert {path: path.read_bytes() for path in models.iterdir()} == before


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_algorithm_writes_through_a_link_in_its_run(name: str, run: Callable[[str], Path], victim: Path, capsys: Capture):
    directory = run(name)
    for link in (".lock", "metrics.jsonl"):
        lay_link(directory / link, victim)
    assert main(["resume", "--checkpoint", str(directory), "--quiet"]) == 2
    assert "is a symbolic link" in capsys.readouterr().err
    assert victim.read_text() == SECRET


def test_a_link_that_is_laid_after_all_was_looked_at_is_not_followed_either(tmp_path: Path, victim: Path):
    for name in (".lock", "metrics.jsonl"):
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(RLTrainingError, match="is a symbolic link"):
        RunLock(tmp_path)
    with pytest.raises(RLTrainingError, match="is a symbolic link"):
        RunLogger(tmp_path)
    assert victim.read_text() == SECRET


def test_a_run_goes_on_elsewhere_from_a_directory_with_links(run: Callable[[str], Path], victim: Path, tmp_path: Path):
    directory = run("ppo")
    lay_link(directory / "metrics.jsonl", victim)
    assert main(["resume", "--checkpoint", str(directory), "--output-dir", str(tmp_path / "mine"), "--quiet"]) == 0
    assert victim.read_text() == SECRET


WRITERS: dict[str, Callable[[Path], object]] = {
    "text": lambda path: files.write_text(path, "new"),
    "checkpoint": lambda path: save_checkpoint(path, CheckpointState()),
    "dataset": lambda path: write_npz(path.with_suffix(".npz"), recorded()),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_temporary_file_is_never_a_link_that_was_there(
    writer: str, tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, pid = tmp_path / "shared", os.getpid()
    folder.mkdir()
    path = folder / "out"
    for name in ("out", "out.npz"):  # names as they could be guessed, and as they could not
        for ending in (f".{pid}.partial", ".partial", ".00000000.partial"):
            (folder / f"{name}{ending}").symlink_to(victim)
    WRITERS[writer](path)
    assert victim.read_text() == SECRET
    for made in (path, path.with_suffix(".npz")):
        made.unlink(missing_ok=True)
    monkeypatch.setattr("secrets.token_hex", lambda count: "0" * 2 * count)
    with pytest.raises((OSError, RLTrainingError)):
        WRITERS[writer](path)
    assert victim.read_text() == SECRET


def test_a_saved_agent_is_no_link_that_was_there(half_run: Callable[[str], Path], tmp_path: Path, victim: Path):
    agent = PPO.load(half_run("ppo"))
    (tmp_path / "agent.safetensors.partial").symlink_to(victim)
    assert PPO.load(agent.save(tmp_path / "agent.safetensors")).config == agent.config
    assert victim.read_text() == SECRET


def test_what_is_replaced_keeps_its_mode_and_a_link_gives_way(half_run: Callable[[str], Path], tmp_path: Path, victim: Path):
    private, link, fresh = tmp_path / "private.html", tmp_path / "link.html", tmp_path / "fresh.html"
    private.write_text("old")
    private.chmod(0o600)
    link.symlink_to(victim)
    for out in (private, link, fresh):
        assert main(["report", str(half_run("ppo")), "--out", str(out)]) == 0
        assert out.read_text().startswith("<!DOCTYPE html>")
    usual = 0o666 & ~os.umask(os.umask(0o022) or 0o022)
    assert [stat.S_IMODE(path.lstat().st_mode) for path in (private, fresh)] == [0o600, usual]
    assert not link.is_symlink()
    assert victim.read_text() == SECRET


@pytest.mark.parametrize("folder", ["videos", "exports"])
def test_films_and_exports_are_not_written_through_a_link(
    folder: str, run: Callable[[str], Path], tmp_path: Path, capsys: Capture
):
    directory, elsewhere = run("sac"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (directory / folder).symlink_to(elsewhere)
    command = ["eval", str(directory), "--video"] if folder == "videos" else ["export", str(directory), "--format", "onnx"]
    assert main(command) == 2
    assert f"{directory / folder}: is a symbolic link" in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []


def page_of(directory: Path, out: Path) -> str:
    with within(60):
        assert main(["report", str(directory), "--out", str(out)]) == 0
    return out.read_text()


def test_a_report_shows_nothing_from_outside_of_the_run(run: Callable[[str], Path], tmp_path: Path):
    directory, outside = run("ppo"), tmp_path / "outside"
    outside.mkdir()
    words = "c2VjcmV0IHdvcmRz"  # "secret words", as a page would hold them
    (outside / "film.gif").write_bytes(b"secret words")
    (outside / "settings.yaml").write_text("algo: ppo\nenv_id: secret words\nseed: 1\n")
    (directory / "videos").mkdir()
    (directory / "videos" / "own.gif").write_bytes(b"GIF89a own")
    (directory / "videos" / "stolen.gif").symlink_to(outside / "film.gif")
    (directory / "stolen.gif").symlink_to(outside / "film.gif")
    lay_link(directory / "config.yaml", outside / "settings.yaml")
    page = page_of(directory, tmp_path / "page.html")
    assert "own.gif" in page
    for secret in (words, "stolen", "secret words"):
        assert secret not in page
    shutil.rmtree(directory / "videos")
    (directory / "videos").symlink_to(outside)
    (directory / "config.yaml").unlink()
    (directory / "config.yaml").write_text(f"config: {outside / 'settings.yaml'}\n")
    page = page_of(directory, tmp_path / "page.html")
    assert words not in page
    assert "secret words" not in page


# --- pipes, and metadata that mean nothing


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.yaml", "metadata.json", "result.json"])
def test_a_pipe_in_a_run_makes_nobody_wait(name: str, run: Callable[[str], Path], tmp_path: Path, capsys: Capture):
    directory = run("ppo")
    (directory / name).unlink(missing_ok=True)
    os.mkfifo(directory / name)
    page_of(directory, tmp_path / "page.html")
    with within(60):
        assert main(["plot", str(directory), "--out", str(tmp_path / "plot.png")]) in (0, 2)
        code = main(["resume", "--checkpoint", str(directory), "--run-suffix", "half", "--output-dir", str(tmp_path / "new")])
        assert code == 0
        capsys.readouterr()
        code = main(["resume", "--checkpoint", str(directory), "--quiet"])
    told = capsys.readouterr().err
    # a lost metadata.json keeps no run from going on; what is lost of a history does
    assert (code, "not expected" in told) == ({"metrics.jsonl": 2}.get(name, 0), False), told
    if name == "metrics.jsonl":
        assert str(directory / name) in told


@pytest.mark.parametrize("value", [None, "x", [1], -1, True, 1.5, 10**400, {}], ids=lambda value: str(value)[:9])
def test_a_history_that_is_elsewhere_in_no_number_of_lines_counts_as_none(
    value: Any, run: Callable[[str], Path], caplog: pytest.LogCaptureFixture
):
    directory = run("ppo")
    path = directory / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "history_lines_elsewhere": value}))
    assert main(["resume", "--checkpoint", str(directory), "--quiet"]) == 0
    assert "history_lines_elsewhere" in caplog.text


@pytest.mark.parametrize("text", ["[]", "null", '"x"', "5", '{"resume_history": 5}', "\xff", "[" * 10_000, '{"versions": 1}'])
def test_metadata_of_any_kind_keep_no_run_from_going_on(text: str, run: Callable[[str], Path]):
    directory = run("ppo")
    (directory / "metadata.json").write_bytes(text.encode("latin-1"))
    assert main(["resume", "--checkpoint", str(directory), "--quiet"]) == 0


# --- repositories


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With one commit, and one file changed since."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    (folder / "file").write_text("one")
    (folder / ".gitattributes").write_text("file filter=evil diff=evil\n")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    for words in (["init", "-q"], ["add", "file", ".gitattributes"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    (folder / "file").write_text("two")
    return folder


def own_settings(folder: Path, place: str, settings: str) -> None:
    """Into the settings that come with a repository, by one of the ways that git knows."""
    config = folder / ".git" / "config"
    if place == "config":
        config.write_text(config.read_text() + settings)
    elif place == "include":
        (folder / "more").write_text(settings)
        config.write_text(f"{config.read_text()}[include]\n\tpath = ../more\n")
    else:
        config.write_text(f"{config.read_text()}[extensions]\n\tworktreeConfig = true\n")
        (folder / ".git" / "config.worktree").write_text(settings)


@pytest.mark.parametrize("place", ["config", "include", "worktree"])
@pytest.mark.parametrize("key", ['filter "evil"].clean', 'filter "evil"].process', "core].fsmonitor", 'diff "evil"].textconv'])
def test_a_repository_runs_nothing_when_a_run_begins_in_it(key: str, place: str, repository: Path):
    section, _, name = key.partition(".")
    settings = f'[{section}\n\t{name} = "touch {repository.parent / "executed"}; cat"\n'
    own_settings(repository, place, settings)
    for _ in range(2):
        found = run_metadata()["git"]
        assert len(found["commit"]) == 40
        assert found["dirty"] is (None if "filter" in key else True)
        (repository / "file").write_text("six")  # as old as git's own list of files now
    assert not (repository.parent / "executed").exists()


def test_filters_of_the_users_own_count(repository: Path):
    """As those of git-lfs do: who has them wants them."""
    (repository.parent / "gitconfig").write_text('[filter "evil"]\n\tclean = "echo one"\n')
    assert run_metadata()["git"]["dirty"] is True
    (repository.parent / "gitconfig").write_text('[filter "evil"]\n\tclean = "printf one"\n')
    os.utime(repository / "file")
    assert run_metadata()["git"]["dirty"] is False


# --- words


def test_readable_text_is_short_and_moves_no_cursor():
    assert readable("a\n\tb") == "a\n\tb"
    assert readable("\x1b[2J\x00\r\x9b\u202ea\x7f") == r"\x1b[2J\x00\x0d\x9b\x202ea\x7f"
    assert readable("x" * 100, most=20) == "xxxxxxxxxx ... (100 characters) ... xxxxx"


LOUD = "\x1b]0;title\x07\x1b[2J\x00" + "long " * 1_000_000


class Loud(gym.Wrapper):
    """Says too much, and not to people, when it breaks."""

    def __init__(self, env: gym.Env, where: str) -> None:
        super().__init__(env)
        self.where = where

    def reset(self, **kwargs: Any) -> Any:
        if self.where == "reset":
            raise ValueError(LOUD)
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        raise ValueError(LOUD)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_an_environment_says_when_it_breaks_is_readable_in_every_algorithm(name: str, tmp_path: Path):
    config = small_config(name, tmp_path)
    with pytest.raises(EnvError) as error:
        train(config.replace(env_kwargs={}), env=lambda: Loud(gym.make(config.env_id), "step"))
    text = str(error.value)
    assert len(text) < 5_000
    assert text == readable(text)
    assert "step raised ValueError" in text


def shout() -> gym.Env:
    raise ValueError(LOUD)


def test_an_environment_that_cannot_be_made_or_begun_is_readable_too(tmp_path: Path, capsys: Capture):
    gym.register("Shouting-v0", entry_point=shout)
    gym.register("Louder-v0", entry_point=lambda **_: Loud(gym.make("Pendulum-v1"), "reset"))
    try:
        for env_id in ("Shouting-v0", "Louder-v0"):
            assert main(["train", "sac", f"env_id={env_id}", f"output_dir={tmp_path}"]) == 2
            text = capsys.readouterr().err
            assert len(text) < 5_000
            assert text == readable(text)
    finally:
        del gym.registry["Shouting-v0"], gym.registry["Louder-v0"]


def test_names_in_a_strangers_files_move_no_cursor(tmp_path: Path, capsys: Capture):
    path = write_npz(tmp_path / "data.npz", recorded(9), metadata={"env_id": "\x1b[2J:a"})
    assert main(["dataset", "inspect", str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert main(["train", "ppo/cartpole", "tags=[\x1b]", f"output_dir={tmp_path}", "total_timesteps=\x1b[2J"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_a_checkpoint_that_says_much_is_told_in_few_words(tmp_path: Path, capsys: Capture):
    path = save_checkpoint(tmp_path / "a.safetensors", CheckpointState(config={"algo": LOUD}, trainer_state={"a": 1}))
    assert main(["resume", "--checkpoint", str(path)]) == 2
    text = capsys.readouterr().err
    assert len(text) < 30_000
    assert "\x1b" not in text
