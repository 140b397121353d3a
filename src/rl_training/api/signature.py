"""What `help(PPO)` and Shift-Tab in a notebook show: every setting as a keyword with its type and default."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

from rl_training.experiment.config import WITHOUT_PRESET, TrainConfig
from rl_training.options import load_options_class

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
