"""Check this installation and say what is missing.

Versions, processor and threads, which optional features are there and how to get the others, and whether runs can be
written. Exits with 1 when something that every training needs does not work.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from rl_training.cli.parser import Parser
from rl_training.cli.tables import emphasis, facts, heading, say, table

RESULT_IS_PRINTED = True
EXAMPLES = """\
  rl-training doctor
  rl-training doctor --output-dir /data/runs"""

NO_PASSES = "none for this machine and these sources, so training is slower: install again with a C compiler (Linux, x86-64)"
NEEDED = ("torch", "numpy", "gymnasium", "safetensors", "pyyaml", "pydantic", "rich")
# extra -> the modules it brings, and what they are for
EXTRAS = {
    "mujoco": (("mujoco",), "MuJoCo environments such as HalfCheetah-v5"),
    "box2d": (("Box2D",), "Box2D environments such as LunarLander-v3"),
    "atari": (("ale_py",), "Atari games such as ALE/Pong-v5"),
    "minatar": (("minatar",), "MinAtar's small games such as MinAtar/Breakout-v1"),
    "robotics": (("gymnasium_robotics",), "Adroit, AntMaze and PointMaze"),
    "offline": (("minari", "h5py", "PIL"), "offline datasets from Minari"),
    "tune": (("optuna", "matplotlib"), "search for settings"),
    "ray": (("ray",), "training on a Ray cluster"),
    "video": (("pygame", "imageio", "imageio_ffmpeg"), "videos of a policy"),
    "export": (("onnx", "onnxruntime"), "policies as ONNX files"),
    "report": (("matplotlib", "tensorboard"), "plots and TensorBoard"),
    "wandb": (("wandb",), "metrics in Weights & Biases"),
    "docs": (("material", "mkdocstrings"), "building the documentation"),
    "dev": (("pytest", "hypothesis", "ruff", "mypy"), "working on the library itself"),
}
# what no extra can bring: its metadata asks for an older numpy, and --no-deps is no part of an extra
WITHOUT_EXTRA = {"procgen": (("procgen",), "Procgen's games such as Procgen/bigfish-v0", "pip install --no-deps procgen2")}


def add_arguments(parser: Parser) -> None:
    """Where runs would go."""
    parser.add_argument("--output-dir", default="runs", metavar="DIR", help="where runs would be written (default: runs)")


def run(args: argparse.Namespace) -> int:
    """Look at everything before giving the verdict."""
    problems: list[str] = []
    heading("Software")
    facts([("python", f"{platform.python_version()} ({sys.executable})"), *_versions(problems)])
    heading("Machine")
    facts(_machine(problems))
    heading("Features")
    extras = [_feature(name, *EXTRAS[name], f"pip install 'rl-training[{name}]'") for name in EXTRAS]
    table(("extra", "state", "for", "how to get it"), extras + [_feature(name, *WITHOUT_EXTRA[name]) for name in WITHOUT_EXTRA])
    heading("Files")
    facts([("output", _writable(Path(args.output_dir), problems))])
    say()
    for problem in problems:
        say(f"{emphasis('problem:', '1;31')} {problem}")
    say(
        emphasis("Training will not work before this is put right." if problems else "Everything training needs is there.", "1")
    )
    return 1 if problems else 0


def _versions(problems: list[str]) -> list[tuple[str, str]]:
    from rl_training import __version__

    found = {name: _version(name) for name in NEEDED}
    problems += [f"{name} is missing; get it with: pip install {name}" for name, version in found.items() if version is None]
    return [("rl-training", __version__), *((name, version or "missing") for name, version in found.items())]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _machine(problems: list[str]) -> list[tuple[str, str]]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    rows = [("system", platform.platform()), ("processors", f"{usable} usable of {os.cpu_count()}")]
    try:
        import torch

        devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        from rl_training.kernels import library

        rows.append(("threads", f"torch would use {torch.get_num_threads()}; a run sets its own number (num_threads)"))
        rows.append(("passes", f"compiled for {kind}" if (kind := library.in_use()) != "none" else NO_PASSES))
        rows.append(("gpu", ", ".join(devices) or "none; networks run on the processor"))
    except Exception as error:  # noqa: BLE001 (a broken build fails in many ways, and the doctor must go on)
        problems.append(f"torch cannot be used: {error}")
    try:
        import gymnasium

        with gymnasium.make("CartPole-v1") as env:
            env.reset(seed=0)
        rows.append(("gymnasium", "CartPole-v1 can be made"))
        from rl_training.envs.filming import GL_ADVICE, headless_gl

        rows.append(("rendering", f"MuJoCo can be drawn without a screen ({gl})" if (gl := headless_gl()) else GL_ADVICE))
    except Exception as error:  # noqa: BLE001
        problems.append(f"gymnasium cannot be used: {error}")
    return rows


def _feature(name: str, modules: tuple[str, ...], purpose: str, command: str) -> tuple[str, str, str, str]:
    missing = [module for module in modules if find_spec(module) is None]
    return name, f"missing {', '.join(missing)}" if missing else "there", purpose, command if missing else ""


def _writable(folder: Path, problems: list[str]) -> str:
    """Tried with a file that vanishes at once, in the nearest folder that exists."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        problems.append(f"{folder} cannot be written: {error.strerror}; choose another with --output-dir")
        return f"{folder}: cannot be written"
    return f"{folder}: can be written{'' if existing == folder.absolute() else ' (it will be made)'}"
