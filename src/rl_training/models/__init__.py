"""The networks."""

from rl_training.models.flat_mlp import FlatMLP
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.models.mlp_bc import MLPBCModel
from rl_training.models.mlp_ddpg import MLPDDPGModel
from rl_training.models.mlp_iql import MLPIQLModel
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel
from rl_training.models.mlp_ppg import MLPPPGModel
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.models.mlp_td3 import MLPTD3Model
from rl_training.models.mlp_tqc import MLPTQCModel

__all__ = [
    "FlatMLP",
    "MLPARSModel",
    "MLPActorCritic",
    "MLPBCModel",
    "MLPDDPGModel",
    "MLPIQLModel",
    "MLPMOPOEnsembleModel",
    "MLPPPGModel",
    "MLPSACModel",
    "MLPTD3Model",
    "MLPTQCModel",
]
