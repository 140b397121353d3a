"""The auxiliary phase of PPG through lean networks."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.models.lean_actor_critic import LeanActorCritic


class LeanPPG(LeanActorCritic):
    """PPG's networks; the last output of the policy network is the auxiliary value."""

    def run_auxiliary(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The policy's outputs (rows, actions), values and auxiliary values (rows,)."""
        inputs = self.policy.inputs(obs)
        outputs = torch.from_numpy(self.policy.run(inputs))
        return outputs[: self.policy_outputs].mT, torch.from_numpy(self._values(inputs)), outputs[self.policy_outputs]

    def backward_auxiliary(self, *, d_policy: Tensor, d_values: Tensor, d_auxiliary_values: Tensor) -> None:
        """Fill the gradient of everything from those at what `run_auxiliary` gave."""
        d_outputs = torch.cat([d_policy.mT, d_auxiliary_values.unsqueeze(0)]).numpy()
        at_values = d_values.numpy()
        self.value.backward(at_values[None])
        self.policy.backward(d_outputs, extra=self.value.kernels[0].array * at_values if self.shared else None)
