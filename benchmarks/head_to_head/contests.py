"""What is contested: one of our presets against a peer's program on the same task, for the same steps, on the same seeds.

No library of ours or theirs is imported here, since every contestant reads it in an environment of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Contest:
    """One row: `steps` are environment steps, of CQL updates. `settings` are the peer's; ours are the preset's."""

    preset: str
    env_id: str
    steps: int
    peer: str  # the program, as people call it
    settings: dict[str, Any] = field(default_factory=dict)
    num_envs: int = 1
    policy: str = "MlpPolicy"
    normalize: bool = False  # observations, by the peer's own wrapper
    note: str = ""

    @property
    def algo(self) -> str:
        return self.preset.partition("/")[0]

    @property
    def name(self) -> str:
        return self.preset.replace("/", "_")


SB3, CONTRIB, D3RLPY = "Stable-Baselines3", "SB3-contrib", "d3rlpy"
SCRIPTS = {SB3: "peer_sb3.py", CONTRIB: "peer_sb3.py", D3RLPY: "peer_d3rlpy.py"}
EARLY = "RL zoo's settings, but learning from step 500 on as ours does; the zoo's own begins after 10,000 steps"
DETERMINISTIC = {
    "learning_rate": 1e-3,
    "gamma": 0.98,
    "buffer_size": 200_000,
    "learning_starts": 500,
    "train_freq": 1,
    "gradient_steps": 1,
    "policy_kwargs": {"net_arch": [400, 300]},
}
CONTESTS = {
    contest.name: contest
    for contest in (
        Contest(
            "ppo/cartpole",
            "CartPole-v1",
            60_000,
            SB3,
            {
                "n_steps": 32,
                "batch_size": 256,
                "gae_lambda": 0.8,
                "gamma": 0.98,
                "n_epochs": 20,
                "ent_coef": 0.0,
                "learning_rate": "falling 1e-3",
                "clip_range": "falling 0.2",
            },
            num_envs=8,
            note="RL zoo's settings",
        ),
        Contest(
            "ppo/pendulum",
            "Pendulum-v1",
            100_000,
            SB3,
            {
                "n_steps": 1024,
                "gae_lambda": 0.95,
                "gamma": 0.9,
                "n_epochs": 10,
                "ent_coef": 0.0,
                "learning_rate": 1e-3,
                "clip_range": 0.2,
                "use_sde": True,
                "sde_sample_freq": 4,
            },
            num_envs=4,
            note="RL zoo's settings (state-dependent exploration)",
        ),
        Contest("sac/pendulum", "Pendulum-v1", 10_000, SB3, {"learning_rate": 1e-3}, note="RL zoo's settings"),
        Contest("td3/pendulum", "Pendulum-v1", 10_000, SB3, {**DETERMINISTIC, "action_noise": 0.1}, note=EARLY),
        Contest("ddpg/pendulum", "Pendulum-v1", 10_000, SB3, {**DETERMINISTIC, "action_noise": 0.1}, note=EARLY),
        Contest("ars/cartpole", "CartPole-v1", 50_000, CONTRIB, num_envs=2, policy="LinearPolicy", note="RL zoo's settings"),
        Contest(
            "ars/pendulum",
            "Pendulum-v1",
            2_000_000,
            CONTRIB,
            {"learning_rate": 0.018, "n_delta": 4, "n_top": 1, "delta_std": 0.1, "policy_kwargs": {"net_arch": [16]}},
            normalize=True,
            note="RL zoo's settings and steps",
        ),
        Contest(
            "cql/pendulum",
            "Pendulum-v1",
            6_000,
            D3RLPY,
            {
                "hidden": [128, 128],
                "batch_size": 128,
                "critic_learning_rate": 1e-3,
                "temp_learning_rate": 1e-3,
                "actor_learning_rate": 3e-4,
                "alpha_learning_rate": 0.0,
                "conservative_weight": 5.0,
                "n_action_samples": 5,
            },
            note="our settings and the same packaged recordings",
        ),
    )
}
