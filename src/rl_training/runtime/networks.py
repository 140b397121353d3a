"""From the networks that options name to encoders of an environment's observations."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from rl_training.envs.spaces import network_space
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.imports import imported, is_import_path, source_hash
from rl_training.models.encoder import Encoder, Encoders
from rl_training.models.torsos import TORSOS
from rl_training.options._networks import IMAGE_NETWORKS, MLP, Network, NetworkOptions
from rl_training.rows import layout_of
from rl_training.runtime.rng import isolated_rng
from rl_training.runtime.torch_settings import single_precision
from rl_training.types import EnvSpec

log = logging.getLogger(__name__)

CONTRACT = "a network of your own is a class Torso(observation_space, **network_kwargs), an nn.Module with features_dim"


def policy_encoders(options: NetworkOptions, env: EnvSpec, *, shared: bool = True) -> Encoders | None:
    """What a policy and a value function read through; None where both are MLPs over observations. Without networks of their
    own they share one if `shared` says so."""
    choices = options.networks
    if all(choice.network == MLP for choice in choices.values()):
        return None
    if shared and choices.keys() == {"network"}:
        return Encoders(encoder(choices["network"], env, option="network"))
    actor, critic = (option if option in choices else "network" for option in ("actor_network", "critic_network"))
    return Encoders(*(encoder(choices[option], env, option=option) for option in (actor, critic)))


def encoder(choice: Network, env: EnvSpec, *, option: str) -> Encoder:
    """One network over an environment's rows, with weights of its own."""
    kind, space = _torso_class(choice.network, env, option), network_space(env)
    given = "".join(f", {name}={value!r}" for name, value in choice.kwargs.items())
    call = f"{option}: {choice.network}(observation_space{given})"
    try:
        torso = kind(space, **choice.kwargs)
    except RLTrainingError:
        raise
    except Exception as error:
        raise ConfigError(f"{call} raised {type(error).__name__}: {error}; the space is {space}") from error
    if not isinstance(torso, nn.Module) or not isinstance(getattr(torso, "features_dim", None), int):
        lacks = "is no nn.Module" if not isinstance(torso, nn.Module) else "has no integer features_dim"
        raise ConfigError(f"{call} {lacks}; {CONTRACT}")
    return Encoder(torso, layout_of(env), name=choice.network)


def require_networks(options: Any, env: EnvSpec) -> None:
    """ConfigError for a network that cannot be made for these observations, or does not give what it says: each is made once
    and tried on two of them."""
    if not isinstance(options, NetworkOptions):
        return
    for option, choice in options.networks.items():
        if choice.network == MLP:
            continue
        with isolated_rng(0), single_precision(), torch.no_grad():
            tried = encoder(choice, env, option=option).eval()
            rows = torch.from_numpy(layout_of(env).zeros(2))
            try:
                tried(rows)
            except Exception as error:
                raise ConfigError(f"{option}: {choice.network!r} fails on two observations of {env.env_id}: {error}") from error


def network_sources(options: Any) -> dict[str, str]:
    """The hash of the source of every network that is the user's own, by its path."""
    if not isinstance(options, NetworkOptions):
        return {}
    paths = [choice.network for choice in options.networks.values() if is_import_path(choice.network)]
    return {path: source_hash(imported(path, option="network")) or "unknown" for path in paths}


def source_differences(saved: Mapping[str, str], options: Any) -> list[str]:
    """A sentence for each network whose source is not what it was."""
    now = network_sources(options)
    return [
        f"the source of network {path!r} was {saved[path][:12]} and is {found[:12]}"
        for path, found in now.items()
        if path in saved and saved[path] != found
    ]


def _torso_class(name: str, env: EnvSpec, option: str) -> Any:
    if name in TORSOS:
        if name in IMAGE_NETWORKS and not env.observation:
            what = f"{option}: {name!r} reads images; {env.env_id} observes a vector of {env.obs_dim}"
            raise ConfigError(f"{what}; possible: {MLP}, residual_mlp, or a network of your own")
        return TORSOS[name]
    found = imported(name, option=option)
    if not callable(found):
        raise ConfigError(f"{option}: {name!r} is a {type(found).__name__}; {CONTRACT}")
    return found
