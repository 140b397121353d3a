"""A positive weight that is learnt or scheduled: SAC's temperature, CQL's penalty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rl_training.types import State


class Temperature:
    """α, kept as its logarithm so that it stays positive; 0 is allowed when it is fixed."""

    def __init__(self, alpha: float, *, device: torch.device) -> None:
        self.log_alpha = torch.tensor(alpha, dtype=torch.float32, device=device).log()

    @property
    def alpha(self) -> Tensor:
        return self.log_alpha.exp()

    def set(self, alpha: float) -> None:
        self.log_alpha.copy_(torch.tensor(alpha, dtype=torch.float32).log())

    def state_dict(self) -> State:
        return {"log_alpha": self.log_alpha}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.log_alpha.copy_(state["log_alpha"])
