"""From an id, an environment object or a factory to environments."""

from __future__ import annotations

import logging
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium as gym

from rl_training.envs.layers import layers_of
from rl_training.envs.spaces import describe_env
from rl_training.errors import ConfigError, EnvError, MissingExtraError, RLTrainingError
from rl_training.types import EnvSpec

log = logging.getLogger(__name__)

Env: TypeAlias = "gym.Env[Any, Any]"
EnvFactory: TypeAlias = Callable[[], Env]

FACTORY_ADVICE = "pass a factory that makes a new environment on every call, e.g. env=lambda: MyEnv(...)"
EXTRAS = {"mujoco": "mujoco", "box2d": "Box2D"}  # extra of this distribution: the package it brings
VERSION = re.compile(r"-v(\d+)$")


class EnvSource:
    """Knows where environments come from, and gives as many as are asked for.

    An environment object is the user's: it is lent, never closed, and given out once at a time;
    more of its kind are made from its `spec` where that says all about it.
    """

    def __init__(
        self, env_id: str | None = None, env_kwargs: Mapping[str, Any] | None = None, env: Env | EnvFactory | None = None
    ) -> None:
        if env is None and not env_id:
            raise ConfigError("no environment: give env_id, e.g. 'CartPole-v1', or an environment object or factory")
        if env is not None and env_kwargs:
            raise ConfigError("env_kwargs go to gymnasium.make with an env_id; an object or a factory is complete by itself")
        self._env_id = env_id
        self._kwargs = {"disable_env_checker": True, **(env_kwargs or {})}
        self._object = env if isinstance(env, gym.Env) else None
        self._factory = None if env is None or self._object is not None else _checked_factory(env)
        self._lent = False
        self._made: list[weakref.ref[Env]] = []  # by the factory, to notice one that returns the same object twice
        self._said: set[str] = set()
        self._more: bool | None = None
        self._layers: list[str] | None = None

    @property
    def env_id(self) -> str:
        """The id as it was given, or the spec id or class name of an object."""
        if self._env_id is None:
            with self._one() as env:
                self._env_id = _name_of(env)
        return self._env_id

    @property
    def named(self) -> bool:
        """Whether environments are made by their id, not by an object or a factory."""
        return self._object is None and self._factory is None

    @property
    def can_make_more(self) -> bool:
        """Whether `make` can be called any number of times: always, but for an object that nothing can rebuild."""
        if self._more is None:
            try:
                if self._object is not None:
                    close_env(self._rebuild(self._object))
                self._more = True
            except EnvError:
                self._more = False
        return self._more

    def spec(self) -> EnvSpec:
        """Shapes and bounds, from one environment that is made for it."""
        with self._one() as env:
            self._env_id = self._env_id or _name_of(env)
            self._layers = layers_of(env)
            return describe_env(env, self._env_id)

    def layers(self) -> list[str]:
        """What its environments are made of (`layers_of`), by the one that was looked at for `spec`."""
        if self._layers is None:
            with self._one() as env:
                self._layers = layers_of(env)
        return self._layers

    def made_otherwise(self, env_id: str, env_kwargs: Mapping[str, Any]) -> list[str] | None:
        """The layers, where `env_id` and `env_kwargs` alone would not make the same."""
        if self.named or (not env_kwargs and env_id in gym.registry and self.layers() == [env_id]):
            return None
        module, colon, _ = env_id.partition(":")
        if colon and module not in sys.modules:  # an object is given: what its id would import is nobody's wish
            return self.layers()
        try:
            return None if self.layers() == EnvSource(env_id, env_kwargs).layers() else self.layers()
        except RLTrainingError:
            return self.layers()

    def make(self) -> Env:
        """One more environment."""
        if self._factory is not None:
            return self._fresh(self._call(self._factory, "the environment factory"))
        if self._object is None:
            return self._call(partial(gym.make, self.env_id, **self._kwargs), self.env_id)
        if self._lent:
            return self._rebuild(self._object)
        self._lent = True
        return self._object

    def release(self, env: Env) -> None:
        """Close an environment that `make` gave; the user's own object is only put back."""
        if env is self._object:
            self._lent = False
        else:
            close_env(env)

    def recipe(self) -> EnvFactory:
        """What makes one environment in a worker process, which need not have run whatever registered the id."""
        if self._factory is not None:
            return self._factory
        if self._object is not None:
            another = self._rebuild(self._object)
            close_env(another)
            return partial(gym.make, another.spec or self.env_id, disable_env_checker=True)
        with self._one() as env:  # imports and registers what the id needs
            registered = gym.registry.get(env.unwrapped.spec.id) if env.unwrapped.spec else None
        return partial(gym.make, registered or self.env_id, **self._kwargs)

    @contextmanager
    def _one(self) -> Iterator[Env]:
        env = self.make() if self._object is None else self._object
        try:
            yield env
        finally:
            if env is not self._object:
                close_env(env)

    def _call(self, factory: EnvFactory, name: str) -> Env:
        with self._warnings_logged():
            try:
                env = factory()
            except RLTrainingError:
                raise
            except Exception as error:
                raise _explained(error, name, self._kwargs) from error
        if not isinstance(env, gym.Env):
            origin = f"{type(env).__module__}.{type(env).__qualname__}"
            raise EnvError(f"{name} must give a gymnasium.Env; it gave {origin}")
        return env

    def _fresh(self, env: Env) -> Env:
        self._made = [made for made in self._made if made() is not None]
        if any(made() is env for made in self._made):
            raise EnvError(f"the environment factory returned the same {_name_of(env)} object twice; {FACTORY_ADVICE}")
        self._made.append(weakref.ref(env))
        return env

    def _rebuild(self, original: Env) -> Env:
        """Another environment like the user's object, if its `spec` says all about it."""
        needed = f"a second {_name_of(original)} is needed, but one object was given and"
        with self._warnings_logged():
            spec = original.spec
        if spec is None:
            raise EnvError(f"{needed} it has no spec to make more from; {FACTORY_ADVICE}")
        try:
            env = self._call(partial(gym.make, spec, disable_env_checker=True), spec.id)
        except RLTrainingError as error:
            raise EnvError(f"{needed} its spec cannot make another ({error}); {FACTORY_ADVICE}") from error
        if (made := _layers(env)) != (given := _layers(original)):
            close_env(env)
            raise EnvError(f"{needed} its spec makes {' on '.join(made)} where it is {' on '.join(given)}; {FACTORY_ADVICE}")
        return env

    @contextmanager
    def _warnings_logged(self) -> Iterator[None]:
        """Warnings while an environment is made (an old version, say) go to the log, each once."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            text = re.sub(r"\x1b\[\d+m", "", str(warning.message))
            if text not in self._said:
                self._said.add(text)
                # gymnasium's own begin so; other packages' deprecations are no business of the user's
                ours = text.startswith("WARN: ") or not issubclass(warning.category, DeprecationWarning)
                log.log(logging.WARNING if ours else logging.DEBUG, "%s", text.removeprefix("WARN: "))


def is_registered(env_id: str | None) -> bool:
    """Whether making it imports nothing but what registered it: no id of the form `module:Id`, which imports the module."""
    return env_id is not None and ":" not in env_id and env_id in gym.registry


def close_env(env: Env) -> None:
    """Close it; if it cannot be closed, others still can, and whatever went before matters more."""
    try:
        env.close()
    except Exception as error:  # noqa: BLE001 (it may be anything)
        log.warning("%s: close raised %s: %s", _name_of(env), type(error).__name__, error)


def _checked_factory(env: Any) -> EnvFactory:
    if isinstance(env, gym.vector.VectorEnv):
        raise EnvError(f"{type(env).__name__} is a vector of environments; pass one environment or a factory, and set num_envs")
    if not callable(env):
        origin = f"{type(env).__module__}.{type(env).__qualname__}"
        raise EnvError(f"env must be a gymnasium.Env or a factory that takes no arguments; got {origin}")
    return env  # type: ignore[no-any-return]


def _name_of(env: Env) -> str:
    spec = env.unwrapped.spec
    return str(spec.id) if spec is not None else type(env.unwrapped).__name__


def _layers(env: Env) -> list[str]:
    """Class names from the outermost wrapper inwards; the passive checker changes nothing and does not count."""
    names = []
    while isinstance(env, gym.Wrapper):
        names.append(type(env).__name__)
        env = env.env
    return [name for name in names if name != "PassiveEnvChecker"] + [type(env).__name__]


def _explained(error: Exception, name: str, kwargs: Mapping[str, Any]) -> RLTrainingError:
    text = str(error)
    if isinstance(error, gym.error.DependencyNotInstalled | ModuleNotFoundError):
        for extra, package in EXTRAS.items():
            if extra in text.lower():
                return MissingExtraError(package, extra=extra, purpose=name)
        module = name.partition(":")[0]
        if module != name and any(f"No module named '{missing}'" in text for missing in (module, module.partition(".")[0])):
            where = f"neither in the current folder ({Path.cwd()}) nor among the installed packages"
            return EnvError(f"{name}: there is no module {module!r}, {where}; run from the folder that {module}.py is in")
        return EnvError(f"{name} needs a package that is not installed: {text}")
    if isinstance(error, gym.error.Error):
        return EnvError(f"there is no environment {name!r}{_suggestion(name)}")
    if isinstance(error, ImportError):
        return EnvError(f"{name} could not be imported: {text}{_suggestion(name, limit=1)}")
    given = {key: value for key, value in kwargs.items() if key != "disable_env_checker"}
    return EnvError(f"{name} failed{f' with env_kwargs={given}' if given else ''}: {type(error).__name__}: {text}")


def _suggestion(name: str, *, limit: int = 3) -> str:
    """The ids most like `name`: other versions of the same environment, the newest first, else those spelt like it."""
    known = {env_id.lower(): env_id for env_id in gym.registry}
    stem = VERSION.sub("", name.rpartition(":")[2].lower())
    versions = {int(match[1]): known[key] for key in known if (match := VERSION.search(key)) and key[: match.start()] == stem}
    like = [versions[version] for version in sorted(versions, reverse=True) if versions[version] != name]
    like = like or [known[key] for key in get_close_matches(name.lower(), known, n=limit, cutoff=0.6)]
    if like:
        return f"; did you mean {' or '.join(map(repr, like[:limit]))}?"
    return (
        "; an environment from a package is written 'package:Name-v0', so that the package is imported and can register it; "
        "gymnasium.pprint_registry() lists what is known"
    )
