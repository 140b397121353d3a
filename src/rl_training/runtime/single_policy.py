"""One action for one observation, in numpy: a network's own work there is a fraction of what calling torch costs."""

from __future__ import annotations

import numpy as np

from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import EnvSpec


class SinglePolicy:
    """The deterministic policy of a `PolicyNetwork` for single observations; a copy, which later learning does not move."""

    def __init__(self, network: PolicyNetwork, spec: EnvSpec) -> None:
        self.spec = spec
        self.layers = [(linear.weight.numpy().T.copy(), linear.bias.numpy().copy()) for linear in network.linears()]
        self.tanh, self.squash = network.activation == "tanh", network.squash
        self.view = (network.obs_shift.numpy(), network.obs_scale.numpy(), np.float32(network.clip_obs))
        self.normalizes, self.starts = network.normalizes, spec.starts

    def __call__(self, obs: np.ndarray, masks: np.ndarray | None = None) -> int | np.ndarray:
        """What the environment takes, for `obs` (obs_dim,) float32, of what `masks` (action_dim,) allow."""
        h = obs
        if self.normalizes:
            shift, scale, clip = self.view
            h = np.minimum(np.maximum((h - shift) * scale, -clip), clip)
        for weight, bias in self.layers[:-1]:
            h = np.dot(h, weight)
            h += bias
            np.tanh(h, out=h) if self.tanh else np.maximum(h, 0.0, out=h)
        weight, bias = self.layers[-1]
        outputs = np.dot(h, weight)
        outputs += bias
        if masks is not None:
            outputs = np.where(masks, outputs, np.float32(-np.inf))
        if self.spec.nvec:
            parts = np.split(outputs, np.cumsum(self.spec.nvec[:-1]))
            return self.spec.to_env(np.array([part.argmax() for part in parts]))
        if self.spec.discrete:
            return int(outputs.argmax()) + self.starts[0]
        return self.spec.to_env(np.tanh(outputs) if self.squash else outputs)
