"""Whether a model's episodes end where recorded ones did."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from rl_training.planning.known_functions import TransitionFn
from rl_training.types import Batch

log = logging.getLogger(__name__)

# what rounding to float32 may explain: of the recorded ends, and of all other rows
MISSED_SHARE, MISTAKEN_SHARE = 0.01, 0.001


def warn_of_endless_episodes(dones: Tensor, *, algo: str) -> bool:
    """Say that episodes end, where no function knows when; whether it was said."""
    ends = int((dones > 0).sum())
    if ends:
        log.warning(
            "%s: %s of %s transitions end an episode, but termination_fn is none: imagined episodes never end, and go on from "
            "states that there are not. Name the function that says when they do",
            *(algo, f"{ends:,}", f"{dones.numel():,}"),
        )
    return ends > 0


@torch.no_grad()
def warn_of_other_ends(transitions: Batch, termination_fn: TransitionFn, *, name: str, algo: str) -> bool:
    """Say that `termination_fn` is wrong about transitions whose `next_obs` is what the actions, in [-1, 1], led to; whether it
    was said. Their leading axes are those that the function takes."""
    recorded = transitions["dones"] > 0
    said = termination_fn(*(transitions[column] for column in ("obs", "actions", "next_obs")))
    ends, others = int(recorded.sum()), int((~recorded).sum())
    missed, mistaken = int((recorded & ~said).sum()), int((said & ~recorded).sum())
    if missed <= MISSED_SHARE * ends and mistaken <= MISTAKEN_SHARE * others:
        return False
    log.warning(
        "%s: termination_fn %r is not what ended these episodes: it misses %s of %s ends, and takes %s of the other %s "
        "transitions for ends. Imagined episodes end elsewhere than real ones",
        *(algo, name, f"{missed:,}", f"{ends:,}", f"{mistaken:,}", f"{others:,}"),
    )
    return True
