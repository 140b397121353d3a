"""Whether a checkpoint meets the environment it was made on, where its id does not say all about it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rl_training.envs.layers import FORGETFUL
from rl_training.envs.source import EnvSource
from rl_training.errors import CheckpointError

log = logging.getLogger(__name__)

CLASSES = {"openai_es": "OpenAIES"}  # the others are called as their algorithm, in capitals


def require_same_env(source: EnvSource, made_on: Sequence[str] | None, *, algo: str, env_id: str) -> None:
    """CheckpointError where only an id is left of the object or factory a run was made on; `made_on` are its layers.

    One that is given is the user's word, even if it is another: then there is a warning.
    """
    if made_on is None:  # the id says all; or the checkpoint is of a version that did not look
        return
    words = " on ".join(made_on)
    if source.named:
        name = CLASSES.get(algo, algo.upper())
        raise CheckpointError(
            f"made on an object or a factory that gives {words}, which is not what the id {env_id!r} gives; the command line "
            f"knows ids only, so give the same environment in Python: {name}.load(path, env=...), or env=... of "
            "evaluate_checkpoint and resume_training"
        )
    given = source.layers()
    if given != list(made_on):
        log.warning("the checkpoint was made on %s; the environment given now is %s", words, " on ".join(given))


def warn_of_forgotten_statistics(made_on: Sequence[str] | None) -> None:
    """Say that a wrapper's running statistics are not in the checkpoints, and what is."""
    for wrapper, option in FORGETFUL.items():
        if wrapper in (made_on or ()):
            log.warning(
                "%s: its statistics are saved in no checkpoint, so that evaluation, prediction and resume see other numbers; "
                "leave it out and set %s=True, where the algorithm has it: those are saved with the policy",
                wrapper,
                option,
            )
