"""Which networks an algorithm has: by name, or by the import path of a user's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import field_validator, model_validator

from rl_training.errors import ConfigError, did_you_mean
from rl_training.imports import is_import_path
from rl_training.options.base import CommonOptions, Options, Problem, option

MLP = "mlp"
IMAGE_NETWORKS = ("nature", "impala", "minatar")
NETWORKS = (MLP, "residual_mlp", *IMAGE_NETWORKS)

NAMES = f"{', '.join(map(repr, NETWORKS))} or package.module:Class"
MEANING = "mlp (hidden_sizes), residual_mlp, for images nature, impala or minatar, or a class of your own by its import path"


def checked_network(name: str) -> str:
    """ConfigError for what is neither a network nor written as an import path."""
    if name not in NETWORKS and not is_import_path(name):
        raise ConfigError(
            f"there is no network {name!r}{did_you_mean(name, NETWORKS)} Your own is written package.module:Class"
        )
    return name


class Network(Options):
    """One network with its arguments."""

    noun: ClassVar[str] = "a network"

    network: str = option(MLP, "As network.", words=NAMES)
    kwargs: dict[str, Any] = option({}, "As network_kwargs.")

    _known = field_validator("network")(checked_network)

    @classmethod
    def expand(cls, value: Any) -> Any:
        """A name is short for `{network: name}`."""
        return {"network": value} if isinstance(value, str) else value

    @classmethod
    def form(cls) -> str:
        return f"{NAMES}, {super().form()}"

    def contradictions(self) -> Iterator[Problem]:
        """Our own MLP has options of its own."""
        if self.network == MLP and self.kwargs:
            yield Problem(("kwargs",), "mlp takes no arguments; its layers are set by hidden_sizes and activation")


class NetworkOptions(CommonOptions):
    """What stands between observations and the algorithm's own outputs."""

    has_targets: ClassVar[bool] = True  # networks that follow others slowly

    network: str = option(MLP, f"What reads observations: {MEANING}.", words=NAMES)
    network_kwargs: dict[str, Any] = option({}, "Arguments of the network, such as channels of impala.")
    actor_network: Network | None = option(None, "The policy's, where it has one of its own; none means network.")
    critic_network: Network | None = option(None, "That of values, where they have one of their own; none means network.")

    _known = field_validator("network")(checked_network)

    @property
    def of_both(self) -> Network:
        return Network(network=self.network, kwargs=self.network_kwargs)

    @property
    def of_actor(self) -> Network:
        return self.actor_network or self.of_both

    @property
    def of_critic(self) -> Network:
        return self.critic_network or self.of_both

    @property
    def networks(self) -> dict[str, Network]:
        """Those that are used, by the option that names each."""
        both = self.actor_network is not None and self.critic_network is not None
        named = {"actor_network": self.actor_network, "critic_network": self.critic_network}
        named["network"] = None if both else self.of_both
        return {option: choice for option, choice in named.items() if choice is not None}

    def contradictions(self) -> Iterator[Problem]:
        """Arguments belong to a network that is used and takes some."""
        yield from super().contradictions()
        if not self.network_kwargs:
            return
        if self.network == MLP:
            yield Problem(("network_kwargs",), "mlp takes none; its layers are set by hidden_sizes and activation")
        elif self.actor_network is not None and self.critic_network is not None:
            text = "actor_network and critic_network take its place; write {network: ..., kwargs: {...}} there"
            yield Problem(("network_kwargs",), text)


class LinearHeads(NetworkOptions):
    """On-policy: behind another network than an mlp there are no hidden layers unless they are given."""

    has_targets: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _heads_are_linear(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or "hidden_sizes" in values:
            return values
        given = [Network.expand(values.get(key)) for key in ("actor_network", "critic_network")]
        names = [choice.get("network", MLP) if isinstance(choice, Mapping) else values.get("network", MLP) for choice in given]
        return {**values, "hidden_sizes": ()} if MLP not in names else values
