"""Settings of DDPG (Lillicrap et al., 2015, arXiv:1509.02971)."""

from __future__ import annotations

from typing import ClassVar

from rl_training.options._deterministic import DeterministicActorOptions


class DDPGConfig(DeterministicActorOptions):
    """Deep deterministic policy gradient: the actor climbs the one critic that learns from replay."""

    algo: ClassVar[str] = "ddpg"
    summary: ClassVar[str] = "Deep deterministic policy gradient: one critic, and an actor that climbs it"
    paper: ClassVar[str] = "Lillicrap et al., 2015, arXiv:1509.02971"
    discrete: ClassVar[bool] = False
    continuous: ClassVar[bool] = True
    images: ClassVar[bool] = True
