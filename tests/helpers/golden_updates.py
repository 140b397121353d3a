"""Twenty updates of every learner at fixed seeds, and the parameters they end with.

`python tests/helpers/golden_updates.py` writes `tests/kept/golden_updates.npz`, with which `tests/contracts` compares.
The committed file was made by the learners of commit 12d9fbf, whose gradients were written out by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rl_training import algorithms as learners
from rl_training.models import (
    MLPActorCritic,
    MLPARSModel,
    MLPDDPGModel,
    MLPMOPOEnsembleModel,
    MLPPPGModel,
    MLPSACModel,
    MLPTD3Model,
)

PATH = Path(__file__).parents[1] / "kept" / "golden_updates.npz"
UPDATES, ROWS, OBS, ACTIONS, RATE = 20, 24, 5, 3, 3e-4
HIDDEN = (16, 12)


def transitions(rows: int = ROWS) -> dict[str, Tensor]:
    return {
        "obs": torch.randn(rows, OBS),
        "actions": torch.rand(rows, ACTIONS) * 2 - 1,
        "rewards": torch.randn(rows),
        "next_obs": torch.randn(rows, OBS),
        "dones": (torch.rand(rows) < 0.2).float(),
    }


def rollout(actions: Tensor) -> dict[str, Tensor]:
    columns = ("logprobs", "advantages", "returns", "values")
    return {"obs": torch.randn(ROWS, OBS), "actions": actions, **{name: torch.randn(ROWS) for name in columns}}


def indices() -> Tensor:
    return torch.randint(ACTIONS, (ROWS,))


def sac() -> torch.nn.Module:
    model = MLPSACModel(OBS, ACTIONS, HIDDEN)
    train(learners.SAC(model, learning_rate=RATE))
    return model


def td3() -> torch.nn.Module:
    model = MLPTD3Model(OBS, ACTIONS, HIDDEN)
    train(learners.TD3(model, learning_rate=RATE))
    return model


def ddpg() -> torch.nn.Module:
    model = MLPDDPGModel(OBS, ACTIONS, HIDDEN)
    train(learners.DDPG(model, learning_rate=RATE))
    return model


def rlpd() -> torch.nn.Module:
    model = MLPSACModel(OBS, ACTIONS, HIDDEN, num_critics=5, layer_norm=True)
    learner = learners.RLPD(model, learning_rate=RATE)
    for _ in range(UPDATES // 4):
        learner.update_round(transitions(4 * ROWS), 4)
    return model


def cql() -> torch.nn.Module:
    model = MLPSACModel(OBS, ACTIONS, HIDDEN)
    train(learners.CQL(model, learning_rate=RATE, num_cql_samples=4, cql_target_gap=1.0))
    return model


def train(learner: learners.Algorithm) -> None:
    for _ in range(UPDATES):
        learner.update(transitions())


def ppo(*, discrete: bool) -> torch.nn.Module:
    model = MLPActorCritic(OBS, ACTIONS, HIDDEN, discrete=discrete)
    learner = learners.PPO(model, learning_rate=RATE, ent_coef=0.01, clip_value_loss=not discrete)
    for _ in range(UPDATES):
        learner.update(rollout(indices() if discrete else torch.randn(ROWS, ACTIONS)))
    return model


def ppg(architecture: str, *, discrete: bool) -> torch.nn.Module:
    model = MLPPPGModel(OBS, ACTIONS, HIDDEN, discrete=discrete, architecture=architecture)
    learner = learners.PPG(model, learning_rate=RATE, ent_coef=0.01)
    for _ in range(UPDATES // 2):
        learner.update(rollout(indices() if discrete else torch.randn(ROWS, ACTIONS)))
    batch = {"obs": torch.randn(ROWS, OBS), "returns": torch.randn(ROWS)}
    batch |= learner.teacher_columns(batch["obs"])
    for _ in range(UPDATES // 2):
        learner.auxiliary_update(batch)
    return model


def ensemble(**settings: object) -> MLPMOPOEnsembleModel:
    return MLPMOPOEnsembleModel(OBS, ACTIONS, HIDDEN, num_ensembles=4, **settings)


def mopo() -> torch.nn.Module:
    both = torch.nn.ModuleDict({"policy": MLPSACModel(OBS, ACTIONS, HIDDEN), "dynamics": ensemble()})
    learner = learners.MOPO(both["policy"], both["dynamics"], policy_learning_rate=RATE, model_learning_rate=RATE)
    for _ in range(UPDATES // 2):
        learner.update_model(transitions())
    for _ in range(UPDATES // 2):
        imagined = learner.imagine(torch.randn(ROWS, OBS), horizon=2)
        learner.update(imagined)
    return both


def pets(*, deterministic: bool) -> torch.nn.Module:
    model = ensemble(deterministic=deterministic)
    learner = learners.PETS(model, RATE, weight_decays=(1e-4, 2e-4, 3e-4))
    for _ in range(UPDATES):
        batch = [transitions() for _ in range(4)]
        learner.update({name: torch.stack([part[name] for part in batch]) for name in batch[0]})
    return model


def openai_es() -> torch.nn.Module:
    model = MLPARSModel(OBS, ACTIONS, HIDDEN)
    learner = learners.OpenAIES(model, step_size=0.02, noise_std=0.05, weight_decay=0.005)
    for _ in range(UPDATES):
        columns = {"positive_returns": torch.randn(6), "negative_returns": torch.randn(6)}
        learner.update({"perturbations": torch.randn(6, model.num_parameters), **columns})
    return model


def ars() -> torch.nn.Module:
    model = MLPARSModel(OBS, ACTIONS)
    learner = learners.ARS(model, step_size=0.02, noise_std=0.05, num_top_directions=4)
    for _ in range(UPDATES):
        columns = {"positive_returns": torch.randn(6), "negative_returns": torch.randn(6)}
        learner.update({"perturbations": torch.randn(6, model.num_parameters), **columns})
    return model


CASES: dict[str, Callable[[], torch.nn.Module]] = {
    "ppo_discrete": lambda: ppo(discrete=True),
    "ppo_continuous": lambda: ppo(discrete=False),
    "ppg_shared_discrete": lambda: ppg("shared", discrete=True),
    "ppg_dual_discrete": lambda: ppg("dual", discrete=True),
    "ppg_shared_continuous": lambda: ppg("shared", discrete=False),
    "sac": sac,
    "td3": td3,
    "ddpg": ddpg,
    "rlpd": rlpd,
    "cql": cql,
    "mopo": mopo,
    "pets": lambda: pets(deterministic=False),
    "pets_deterministic": lambda: pets(deterministic=True),
    "ars": ars,
    "openai_es": openai_es,
}


def parameters_after(case: str) -> np.ndarray:
    """All parameters of a learner's model, in their order."""
    torch.manual_seed(20261119)
    return torch.cat([p.detach().reshape(-1) for p in CASES[case]().parameters()]).numpy()


if __name__ == "__main__":
    np.savez_compressed(PATH, **{case: parameters_after(case) for case in CASES})
    print(f"{PATH}: {PATH.stat().st_size} bytes")
