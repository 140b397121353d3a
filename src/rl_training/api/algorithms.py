"""The managed classes. One line each; everything else about an algorithm is in its own files."""

from rl_training.api.managed import ManagedAlgorithm


class PPO(ManagedAlgorithm, algo="ppo"):
    """Proximal policy optimisation, for discrete and continuous actions."""


class PPG(ManagedAlgorithm, algo="ppg"):
    """Phasic policy gradient, for discrete and continuous actions."""


class SAC(ManagedAlgorithm, algo="sac"):
    """Soft actor-critic, for continuous actions."""


class TQC(ManagedAlgorithm, algo="tqc"):
    """Truncated quantile critics, for continuous actions."""


class RLPD(ManagedAlgorithm, algo="rlpd"):
    """SAC on prior and fresh data together, for continuous actions."""


class TD3(ManagedAlgorithm, algo="td3"):
    """Twin delayed DDPG, for continuous actions."""


class DDPG(ManagedAlgorithm, algo="ddpg"):
    """Deep deterministic policy gradient, for continuous actions."""


class BC(ManagedAlgorithm, algo="bc"):
    """Behaviour cloning of recorded data, for discrete and continuous actions."""


class CQL(ManagedAlgorithm, algo="cql"):
    """Conservative Q-learning from a fixed dataset, for continuous actions."""


class CalQL(ManagedAlgorithm, algo="cal_ql"):
    """Calibrated Q-learning from recorded data and online after it, for continuous actions."""


class IQL(ManagedAlgorithm, algo="iql"):
    """Implicit Q-learning from recorded data and online after it, for continuous actions."""


class ReBRAC(ManagedAlgorithm, algo="rebrac"):
    """TD3 kept near recorded data, offline and on online, for continuous actions."""


class MOPO(ManagedAlgorithm, algo="mopo"):
    """Model-based offline policy optimisation, for continuous actions."""


class PETS(ManagedAlgorithm, algo="pets"):
    """Planning with an ensemble of learnt models, for continuous actions."""


class ARS(ManagedAlgorithm, algo="ars"):
    """Augmented random search, for discrete and continuous actions."""


class OpenAIES(ManagedAlgorithm, algo="openai_es"):
    """Evolution strategies, for discrete and continuous actions."""
