"""Compiles the passes in C when the package is built or installed, where there is a C compiler; without one it goes on without
them, and networks go through torch and numpy as they then do."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER, LIBRARY = "src/rl_training/kernels/c", "src/rl_training/kernels/library.py"
FLAGS = ("-std=gnu11", "-O2", "-funroll-loops", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=fast")
KINDS = {"avx512": ("-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mfma"), "avx2": ("-mavx2", "-mfma")}
SYSTEM = ("Linux", "x86_64")


class PassesBuildHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (the same for every kind of build)
        if self.target_name != "wheel" or (platform.system(), platform.machine()) != SYSTEM:
            return
        built = [path for kind in KINDS if (path := self._compiled(kind)) is not None]
        if built:
            build_data["artifacts"] += [f"/{path.relative_to(self.root).as_posix()}" for path in built]
            build_data["tag"] = "py3-none-linux_x86_64"  # no part of it asks for a version of Python
            build_data["pure_python"] = False

    def _digest(self) -> str:
        """As the package will work it out when it loads what is compiled here."""
        spec = importlib.util.spec_from_file_location("library", Path(self.root) / LIBRARY)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return str(module.digest())

    def _compiled(self, kind: str) -> Path | None:
        compiler = shlex.split(os.environ.get("CC", "")) or [name for name in ("cc", "gcc", "clang") if shutil.which(name)][:1]
        folder = Path(self.root) / FOLDER
        made, part = folder / f"passes_{kind}.so", folder / f"passes_{kind}.so.partial"
        made.unlink(missing_ok=True)  # one from other sources would be worse than none
        if not compiler:
            self.app.display_warning("no C compiler: the package is installed without its compiled passes, and is slower")
            return None
        flags = [*FLAGS, *KINDS[kind], f'-DSOURCES="{self._digest()}"']
        command = [*compiler, *flags, str(folder / "passes.c"), "-o", str(part), "-lm", "-lpthread"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 (the words are ours, and CC)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", "") or error
            self.app.display_warning(f"the compiled passes for {kind} could not be made, and are left out: {said}")
            part.unlink(missing_ok=True)
            return None
        part.replace(made)  # a process that has the old one open keeps it
        return made
