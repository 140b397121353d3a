"""The network of an off-policy actor: over observations, or over what an encoder makes of them."""

from __future__ import annotations

from collections.abc import Sequence

from rl_training.models.encoded_policy import EncodedPolicy, StandalonePolicy
from rl_training.models.encoder import Encoder
from rl_training.models.flat_mlp import FlatMLP
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import EnvSpec


class ActorNetwork(FlatMLP):
    """From what it reads to what the algorithm makes actions of. It reads observations, or with an `encoder` features: whoever
    runs it asks the encoder first."""

    def __init__(
        self, obs_dim: int, hidden_sizes: Sequence[int], outputs: int, *, activation: str, encoder: Encoder | None = None
    ) -> None:
        reads = obs_dim if encoder is None else encoder.features_dim
        super().__init__((reads, *hidden_sizes, outputs), activation=activation)
        self.encoder, self.reads_bytes = encoder, encoder is not None and encoder.reads_bytes

    def policy_network(
        self, env: EnvSpec, *, squash: bool, normalizer: ObservationNormalizer | None = None
    ) -> StandalonePolicy:
        """A copy that stands alone; columns that are no action stay behind."""
        layers = [(layer.weight, layer.bias) for layer in self.layers("net")]
        activation = self.layout.activation
        if self.encoder is None:
            return PolicyNetwork.from_layers(layers, env, activation=activation, squash=squash, normalizer=normalizer)
        head = PolicyNetwork.from_layers(layers, env, activation=activation, squash=squash)
        return EncodedPolicy(self.encoder, head, normalizer=normalizer)
