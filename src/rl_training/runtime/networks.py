"""From the networks that options name to encoders of an environment's observations."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from rl_training.envs.spaces import network_space
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.imports import imported, is_import_path, source_hash
from rl_training.models.encoder import Encoder, Encoders
from rl_training.models.normalizer import NumbersNormalizer, ObservationNormalizer
from rl_training.models.torsos import TORSOS, Combined
from rl_training.options._networks import IMAGE_NETWORKS, MLP, Network, NetworkOptions
from rl_training.rows import layout_of
from rl_training.runtime.rng import isolated_rng
from rl_training.runtime.torch_settings import single_precision
from rl_training.types import EnvSpec, ObsPart

log = logging.getLogger(__name__)

CONTRACT = "a network of your own is a class Torso(observation_space, **network_kwargs), an nn.Module with features_dim"


def policy_encoders(options: NetworkOptions, env: EnvSpec, *, shared: bool = True) -> Encoders | None:
    """What a policy and a value function read through; None where both are MLPs over observations. Without networks of their
    own they share one if `shared` says so."""
    choices = options.networks
    if not has_torsos(options):
        return None
    if shared and choices.keys() == {"network"}:
        return Encoders(encoder(choices["network"], env, option="network"))
    actor, critic = (option if option in choices else "network" for option in ("actor_network", "critic_network"))
    return Encoders(*(encoder(choices[option], env, option=option) for option in (actor, critic)))


def actor_and_critic_encoders(options: Any, env: EnvSpec) -> dict[str, Encoder | None]:
    """As the models of off-policy learners take them by name, None for an MLP over observations; MOPO's has no such options."""
    made: dict[str, Encoder | None] = {"actor_encoder": None, "critic_encoder": None}
    if has_torsos(options):
        for name in made:
            option = name.replace("encoder", "network")
            choice = getattr(options, option) or options.of_both
            used = option if getattr(options, option) else "network"
            made[name] = None if choice.network == MLP else _followed(encoder(choice, env, option=used), used)
    return made


def _followed(made: Encoder, option: str) -> Encoder:
    """The encoder, if target networks can follow it: they do so by its parameters alone."""
    for module in made.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            raise ConfigError(
                f"{option}: {made.name!r} has a {type(module).__name__}, whose statistics target networks do not follow; "
                "LayerNorm has none, and ppo and ppg have no targets"
            )
    return made


def encoder(choice: Network, env: EnvSpec, *, option: str) -> Encoder:
    """One network over an environment's rows, with weights of its own."""
    if choice.network not in TORSOS:
        found = imported(choice.network, option=option)
        if not callable(found):
            raise ConfigError(f"{option}: {choice.network!r} is a {type(found).__name__}; {CONTRACT}")
        return Encoder(_made(found, choice, network_space(env), option), layout_of(env), name=choice.network)
    kind, images = TORSOS[choice.network], [part for part in env.observation if part.image]
    if bool(images) != (choice.network in IMAGE_NETWORKS):
        raise _misfit(choice.network, env, option)
    if not images:
        row = replace(env, observation=())  # choices are one-hot in it, and it is read as the vector that it is
        return Encoder(_made(kind, choice, network_space(row), option), layout_of(row), name=choice.network)
    torsos = [_made(kind, choice, network_space(replace(env, observation=(_alone(part),))), option) for part in images]
    alone = not env.observation[0].path
    return Encoder(torsos[0] if alone else Combined(env.observation, torsos), layout_of(env), name=choice.network)


def observation_normalizer(env: EnvSpec) -> ObservationNormalizer:
    """Of the numbers that an environment's observations hold; ConfigError where they are images alone."""
    layout = layout_of(env)
    if not layout.num_numbers:
        raise ConfigError(
            f"normalize_observations: {env.env_id} observes nothing but images, which networks bring to [0, 1] themselves; "
            "leave it out"
        )
    return ObservationNormalizer(env.obs_dim) if layout.num_numbers == env.obs_dim else NumbersNormalizer(layout)


def require_networks(options: Any, env: EnvSpec) -> None:
    """ConfigError for a network that cannot be made for these observations, or does not give what it says: each is made once
    and tried on two of them. And for a normaliser that would have nothing to do."""
    if not isinstance(options, NetworkOptions):
        return
    if getattr(options, "normalize_observations", False):
        observation_normalizer(env)
    images = any(part.image for part in env.observation)
    for option, choice in options.networks.items():
        if choice.network == MLP and not images:
            continue
        with isolated_rng(0), single_precision(), torch.no_grad():
            tried = encoder(choice, env, option=option).eval()
            rows = torch.from_numpy(layout_of(env).zeros(2))
            try:
                tried(rows)
            except Exception as error:
                raise ConfigError(f"{option}: {choice.network!r} fails on two observations of {env.env_id}: {error}") from error
            if options.has_targets:
                _followed(tried, option)


def has_torsos(options: Any) -> bool:
    """Whether anything but MLPs reads observations."""
    return isinstance(options, NetworkOptions) and any(choice.network != MLP for choice in options.networks.values())


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


def _made(kind: Any, choice: Network, space: Any, option: str) -> nn.Module:
    given = "".join(f", {name}={value!r}" for name, value in choice.kwargs.items())
    call = f"{option}: {choice.network}(observation_space{given})"
    try:
        torso = kind(space, **choice.kwargs)
    except RLTrainingError:
        raise
    except Exception as error:
        raise ConfigError(f"{call} raised {type(error).__name__}: {error}; the space is {space}") from error
    if isinstance(torso, nn.Module) and isinstance(getattr(torso, "features_dim", None), int):
        return torso
    lacks = "has no integer features_dim" if isinstance(torso, nn.Module) else "is no nn.Module"
    raise ConfigError(f"{call} {lacks}; {CONTRACT}")


def _misfit(name: str, env: EnvSpec, option: str) -> ConfigError:
    images = [f"the image {part.name} of shape {part.shape}" for part in env.observation if part.image]
    reads, possible = ("vectors", IMAGE_NETWORKS) if images else ("images", (MLP, "residual_mlp"))
    what = images[0] if images else f"a vector of {env.obs_dim} numbers"
    return ConfigError(
        f"{option}: {name!r} reads {reads}; {env.env_id} observes {what}. Possible: {', '.join(possible)}, or a network of "
        "your own, package.module:Class"
    )


def _alone(part: ObsPart) -> ObsPart:
    return replace(part, path=())
