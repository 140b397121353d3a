"""Procgen's games (Cobbe et al., 2020, arXiv:1912.01588) as Gymnasium environments, from the package procgen2.

Only its compiled library is used, through the C interface that it was built for (libenv): its Python modules want the old gym.
`pip install --no-deps procgen2` is therefore enough; what its metadata asks for would put an older numpy here.
"""

from __future__ import annotations

import ctypes
import json
import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from rl_training.errors import ConfigError, MissingExtraError, did_you_mean

GAMES = (
    *("bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot"),
    *("heist", "jumper", "leaper", "maze", "miner", "ninja", "plunder", "starpilot"),
)
MODES = {"easy": 0, "hard": 1, "extreme": 2, "memory": 10}
# which arrow or letter key each action presses does not matter to a learner; there are 15 combinations
NUM_ACTIONS = 15
MOST_STATE = 1 << 20  # bytes
NAME = ctypes.c_char * 128
BYTES, WHOLE = 1, 2  # libenv's words for kinds of numbers
INSTALL = "pip install --no-deps procgen2"


class _Option(ctypes.Structure):
    _fields_: ClassVar = [("name", NAME), ("dtype", ctypes.c_int), ("count", ctypes.c_int), ("data", ctypes.c_void_p)]


class _Options(ctypes.Structure):
    _fields_: ClassVar = [("items", ctypes.POINTER(_Option)), ("count", ctypes.c_int)]


class _Buffers(ctypes.Structure):
    """Where the library writes what happened and reads what to do; columns are pointers to arrays, one for each name."""

    _fields_: ClassVar = [
        ("observations", ctypes.POINTER(ctypes.c_void_p)),
        ("rewards", ctypes.c_void_p),
        ("first", ctypes.c_void_p),
        ("infos", ctypes.POINTER(ctypes.c_void_p)),
        ("actions", ctypes.POINTER(ctypes.c_void_p)),
    ]


class Procgen(gym.Env[np.ndarray, Any]):
    """One game. An episode's seed decides its level, among `num_levels` from `start_level` on (0 means all there are), and
    everything in it.

    The library begins the next level in the same step that ends one, so the last observation of an episode is the one before
    its end. A time limit is inside the games and cannot be told from a loss.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 (as Gymnasium has it)
    observation_space = gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = gym.spaces.Discrete(NUM_ACTIONS)

    def __init__(
        self,
        game: str,
        *,
        distribution_mode: str = "hard",
        num_levels: int = 0,
        start_level: int = 0,
        use_backgrounds: bool = True,
        restrict_themes: bool = False,
        use_monochrome_assets: bool = False,
        center_agent: bool = True,
        render_mode: str | None = None,
    ) -> None:
        for what, given, possible in (("game", game, GAMES), ("distribution_mode", distribution_mode, tuple(MODES))):
            if given not in possible:
                raise ConfigError(f"{what}: given {given!r}{did_you_mean(str(given), possible)}")
        self.render_mode = render_mode
        self._library, assets = _library()
        self._options: dict[str, str | int] = {
            "env_name": game,
            "distribution_mode": MODES[distribution_mode],
            "num_levels": num_levels,
            "start_level": start_level,
            "use_backgrounds": bool(use_backgrounds),
            "restrict_themes": bool(restrict_themes),
            "use_monochrome_assets": bool(use_monochrome_assets),
            "center_agent": bool(center_agent),
            **dict.fromkeys(("use_sequential_levels", "use_generated_assets", "paint_vel_info", "render_human"), False),
            **dict.fromkeys(("debug_mode", "num_threads"), 0),
            "num_actions": NUM_ACTIONS,
            "resource_root": assets,
        }
        self._picture, self._action = np.zeros((64, 64, 3), dtype=np.uint8), np.zeros(1, dtype=np.int32)
        self._reward, self._first = np.zeros(1, dtype=np.float32), np.zeros(1, dtype=np.uint8)
        self._facts = {name: np.zeros(1, dtype=np.int32) for name in ("prev_level_seed", "prev_level_complete", "level_seed")}
        self._handle: int | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:  # noqa: ARG002
        super().reset(seed=seed)
        # a new instance: it takes a tenth of a millisecond, and a running one draws its levels from where it happens to be
        self._begin(int(self.np_random.integers(2**31 - 1)))
        return self._picture.copy(), self._info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        before = self._picture.copy()
        self._action[0] = action
        self._library.libenv_act(self._handle)
        self._library.libenv_observe(self._handle)
        over = bool(self._first[0])
        return before if over else self._picture.copy(), float(self._reward[0]), over, False, self._info()

    def render(self) -> Any:
        return self._picture.copy()

    def get_state(self) -> bytes:
        """All that decides what comes next, for `set_state` of this or another instance."""
        buffer = ctypes.create_string_buffer(MOST_STATE)
        length = self._library.get_state(self._handle, 0, buffer, MOST_STATE)
        return json.dumps(self.np_random.bit_generator.state).encode() + b"\n" + buffer.raw[:length]

    def set_state(self, state: bytes) -> None:
        """Go to where `get_state` was called."""
        stream, _, game = state.partition(b"\n")
        self.np_random.bit_generator.state = json.loads(stream)
        if self._handle is None:
            self._begin(0)
        self._library.set_state(self._handle, 0, game, len(game))
        self._library.libenv_observe(self._handle)

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.libenv_close(handle)

    def _begin(self, seed: int) -> None:
        self.close()
        # kept, as the library reads them for as long as it lives
        self._given = [_option(name, value) for name, value in {**self._options, "rand_seed": seed}.items()]
        items = (_Option * len(self._given))(*(option for option, _ in self._given))
        self._handle = self._library.libenv_make(1, _Options(items, len(items)))
        self._buffers = _Buffers(
            observations=_pointers(self._picture),
            rewards=self._reward.ctypes.data,
            first=self._first.ctypes.data,
            infos=_pointers(*self._facts.values()),
            actions=_pointers(self._action),
        )
        self._library.libenv_set_buffers(self._handle, ctypes.byref(self._buffers))
        self._library.libenv_observe(self._handle)

    def _info(self) -> dict[str, Any]:
        return {name: int(value[0]) for name, value in self._facts.items()}


def _option(name: str, value: str | int) -> tuple[_Option, Any]:
    """An option, and the memory that it points to."""
    if isinstance(value, str):
        kind, memory = BYTES, np.frombuffer(value.encode(), dtype=np.uint8)
    elif isinstance(value, bool):
        kind, memory = BYTES, np.array([value], dtype=np.uint8)
    else:
        kind, memory = WHOLE, np.array([value], dtype=np.int32)
    return _Option(name.encode(), kind, len(memory), memory.ctypes.data), memory


def _pointers(*arrays: np.ndarray) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


@lru_cache(maxsize=1)
def _library() -> tuple[Any, str]:
    """The compiled library and where its pictures lie; the package around it is found and not imported."""
    found = find_spec("procgen")
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError("procgen2", purpose="a Procgen environment", command=INSTALL)
    data = Path(next(iter(found.submodule_search_locations))) / "data"
    names = ("libenv.so", "libenv.dylib", "env.dll")
    path = next((data / "prebuilt" / name for name in names if (data / "prebuilt" / name).exists()), None)
    if path is None:
        raise ConfigError(f"{data.parent} has no compiled library; procgen2's wheel for this Python and machine brings one")
    # its own symbols before those of whoever came first: it brings a C++ runtime of its own
    library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0))
    library.libenv_make.argtypes, library.libenv_make.restype = [ctypes.c_int, _Options], ctypes.c_void_p
    library.libenv_set_buffers.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Buffers)]
    for name in ("libenv_observe", "libenv_act", "libenv_close"):
        getattr(library, name).argtypes, getattr(library, name).restype = [ctypes.c_void_p], None
    for name in ("get_state", "set_state"):
        getattr(library, name).argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
    return library, f"{data / 'assets'}{os.sep}"


def register() -> None:
    """`Procgen/bigfish-v0` and the others."""
    for game in GAMES:
        if (name := f"Procgen/{game}-v0") not in gym.registry:
            gym.register(name, entry_point="rl_training.envs.procgen:Procgen", kwargs={"game": game})
