"""What `help(PPO)` and Shift-Tab in a notebook show: every setting as a keyword with its type and default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from typing import Any

from rl_training.errors import ConfigError
from rl_training.experiment.config import WITHOUT_PRESET, TrainConfig
from rl_training.options import load_options_class
from rl_training.options._foreign import keyword_hint

GIVEN_OTHERWISE = ("algo", "env_id", "algo_kwargs")  # by the class, the first argument and the algorithm's own keywords


class SettingsSignature:
    """As `__signature__` of a class, read by `inspect`: made when it is asked for, from the typed options, the only place
    where they stand."""

    def __get__(self, agent: Any, kind: type) -> Signature:
        algo = getattr(kind, "algo", None)
        if algo is None:
            raise AttributeError("__signature__")  # the base class has no settings of its own
        fields = {**load_options_class(algo).model_fields, **TrainConfig.model_fields}
        own = [name for name in (*TrainConfig.model_fields, *fields) if name not in GIVEN_OTHERWISE]
        keywords = [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=WITHOUT_PRESET.get(name, fields[name].get_default(call_default_factory=True)),
                annotation=fields[name].annotation,
            )
            for name in dict.fromkeys(own)
        ]
        return Signature([Parameter("env", Parameter.POSITIONAL_ONLY), *keywords])


def require_no_strangers(method: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """ConfigError for keywords that the method does not take, in the words of those who know them from other libraries."""
    known = [name for name, parameter in signature(method).parameters.items() if parameter.kind is not Parameter.VAR_KEYWORD]
    for name in given:
        raise ConfigError(f"{method.__name__} takes no {name!r}{keyword_hint(method.__name__, name, known)}")
