"""The learners, under their names and as `<Name>Algorithm`, and their loss functions."""

from rl_training.algorithms.ars import ARS, ARSAlgorithm, ars_loss
from rl_training.algorithms.base import Algorithm, OnPolicyAlgorithm
from rl_training.algorithms.bc import BC, BCAlgorithm, bc_loss
from rl_training.algorithms.cal_ql import CalQL, CalQLAlgorithm, cal_ql_loss
from rl_training.algorithms.cql import CQL, CQLAlgorithm, cql_loss
from rl_training.algorithms.ddpg import DDPG, DDPGAlgorithm, ddpg_loss
from rl_training.algorithms.iql import IQL, IQLAlgorithm, iql_loss
from rl_training.algorithms.mopo import MOPO, MOPOAlgorithm, mopo_loss, mopo_model_loss
from rl_training.algorithms.openai_es import OpenAIES, OpenAIESAlgorithm, openai_es_loss
from rl_training.algorithms.pets import PETS, PETSAlgorithm, pets_loss
from rl_training.algorithms.ppg import PPG, PPGAlgorithm, ppg_auxiliary_loss, ppg_loss
from rl_training.algorithms.ppo import PPO, PPOAlgorithm, ppo_loss
from rl_training.algorithms.rebrac import ReBRAC, ReBRACAlgorithm, rebrac_loss
from rl_training.algorithms.rlpd import RLPD, RLPDAlgorithm, rlpd_loss
from rl_training.algorithms.sac import SAC, SACAlgorithm, sac_loss
from rl_training.algorithms.td3 import TD3, TD3Algorithm, td3_loss
from rl_training.algorithms.tqc import TQC, TQCAlgorithm, tqc_loss

__all__ = [
    "ARS",
    "BC",
    "CQL",
    "DDPG",
    "IQL",
    "MOPO",
    "PETS",
    "PPG",
    "PPO",
    "RLPD",
    "SAC",
    "TD3",
    "TQC",
    "ARSAlgorithm",
    "Algorithm",
    "BCAlgorithm",
    "CQLAlgorithm",
    "CalQL",
    "CalQLAlgorithm",
    "DDPGAlgorithm",
    "IQLAlgorithm",
    "MOPOAlgorithm",
    "OnPolicyAlgorithm",
    "OpenAIES",
    "OpenAIESAlgorithm",
    "PETSAlgorithm",
    "PPGAlgorithm",
    "PPOAlgorithm",
    "RLPDAlgorithm",
    "ReBRAC",
    "ReBRACAlgorithm",
    "SACAlgorithm",
    "TD3Algorithm",
    "TQCAlgorithm",
    "ars_loss",
    "bc_loss",
    "cal_ql_loss",
    "cql_loss",
    "ddpg_loss",
    "iql_loss",
    "mopo_loss",
    "mopo_model_loss",
    "openai_es_loss",
    "pets_loss",
    "ppg_auxiliary_loss",
    "ppg_loss",
    "ppo_loss",
    "rebrac_loss",
    "rlpd_loss",
    "sac_loss",
    "td3_loss",
    "tqc_loss",
]
