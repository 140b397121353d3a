"""The work that is measured, the same for every program: one entry per row of the speed table."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

# on a crowded machine one thread is better timed by what it computes than by what it waits for
now = time.process_time if os.environ.get("SPEED_CLOCK") == "processor" else time.perf_counter


def report(values: dict[str, float], *packages: str, **more: Any) -> None:
    """The one line that a contestant prints; `packages` are those whose versions matter, its own first."""
    print(json.dumps({"values": values, "versions": {name: version(name) for name in packages}, **more}))


@dataclass(frozen=True)
class Goal:
    """`factor` times better than a contestant, or with `against` none a number that ours may not miss."""

    against: str | None
    factor: float
    threads: int = 1
    who: str = "ours"


@dataclass(frozen=True)
class Measure:
    """One number that every contestant of a row prints."""

    key: str
    unit: str
    higher: bool = True  # whether more of it is better
    goals: tuple[Goal, ...] = ()
    digits: int = 0
    how: str = "median"  # of the repeats; seconds to a return are an interquartile mean


@dataclass(frozen=True)
class Row:
    """`contestants` are scripts with their first argument; each is called as `SCRIPT WHO ROW THREADS SEED`.

    Where a rate is taken, `skip` steps are not timed (start-up, warm-up); from there to `total` they are.
    """

    name: str
    title: str
    contestants: dict[str, str]
    measures: tuple[Measure, ...]
    threads: tuple[int, ...] = (1,)
    algo: str = ""
    env_id: str = "Pendulum-v1"
    num_envs: int | None = 1
    skip: int = 0
    total: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    note: str = ""


STEPS = "env steps/s"
ZOO = {
    "num_steps": 32,
    "minibatch_size": 256,
    "update_epochs": 20,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "learning_rate": 1e-3,
}
LINEAR = {"learning_rate_schedule": "linear", "clip_coef_schedule": "linear"}
OFF_POLICY = {"learning_rate": 1e-3, "learning_starts": 1_000, "batch_size": 256, "hidden_sizes": [256, 256]}
RANDOM_DATA = {"dataset_kind": "random", "dataset_size": 5_000}

OURS_BATCHED = {"ours": "ours.py", "ours_batched": "ours.py"}
PRODUCTS = "*BLAS alone* is the matrix products of an update, without environment, losses or Adam."


def off_policy(
    name: str, title: str, *, algo: str, env_id: str, goals: tuple[Goal, ...], sbx: bool, threads: tuple[int, ...]
) -> Row:
    peers = {"sb3": "peer_sb3.py"} | ({"sbx": "peer_sb3.py"} if sbx else {})
    return Row(
        name=name,
        title=f"{title}, 256×256, one update per step",
        contestants={"ours": "ours.py", **peers, "sgemm": "plain_torch.py"},
        measures=(Measure("rate", STEPS, goals=goals),),
        threads=threads,
        algo=algo,
        env_id=env_id,
        skip=1_050,
        total=2_250,
        settings=OFF_POLICY,
        note=PRODUCTS,
    )


def against_sb3(one: float, two: float | None = None, *, sbx: bool = False) -> tuple[Goal, ...]:
    goals = [Goal("sb3", one)] + ([Goal("sb3", two, threads=2)] if two else [])
    return (*goals, *((Goal("sbx", 1.0), Goal("sbx", 1.0, threads=2)) if sbx else ()))


TRAINING = (
    Row(
        name="ppo",
        title="PPO, CartPole-v1, RL-zoo settings",
        contestants=OURS_BATCHED | {"sb3": "peer_sb3.py", "sbx": "peer_sb3.py"},
        measures=(Measure("rate", STEPS, goals=(Goal("sb3", 4), Goal("sbx", 2), Goal("sb3", 5, who="ours_batched"))),),
        algo="ppo",
        env_id="CartPole-v1",
        num_envs=8,
        skip=2_048,
        total=61_440,
        settings=ZOO,
    ),
    Row(
        name="ppo_solve",
        title="PPO, CartPole-v1: to a mean return of 475 over 20 training episodes",
        contestants={"ours": "ours.py", "sb3": "peer_sb3.py"},
        measures=(Measure("seconds", "s", higher=False, goals=(Goal("sb3", 3),), digits=1, how="IQM"),),
        algo="ppo",
        env_id="CartPole-v1",
        num_envs=8,
        total=100_000,
        settings=ZOO | LINEAR,
        note="Both schedules fall to 0 over 100,000 steps, as in the zoo; a run that never gets there counts with all its "
        "time.",
    ),
    off_policy(
        "sac",
        "SAC, Pendulum-v1",
        algo="sac",
        env_id="Pendulum-v1",
        goals=against_sb3(1.8, 2.2, sbx=True),
        sbx=True,
        threads=(1, 2),
    ),
    off_policy(
        "sac_halfcheetah",
        "SAC, HalfCheetah-v5",
        algo="sac",
        env_id="HalfCheetah-v5",
        goals=against_sb3(1.8, 2.2, sbx=True),
        sbx=True,
        threads=(1, 2),
    ),
    Row(
        name="sac_small",
        title="SAC, Pendulum-v1, 64×64, batches of 100, one update per step",
        contestants={"ours": "ours.py", "sb3": "peer_sb3.py", "sbx": "peer_sb3.py"},
        measures=(Measure("rate", STEPS, goals=(Goal("sb3", 1.8), Goal("sbx", 1.0))),),
        algo="sac",
        skip=1_050,
        total=6_050,
        settings=OFF_POLICY | {"batch_size": 100, "hidden_sizes": [64, 64]},
        note="Networks so small that most of a step is what lies between the products.",
    ),
    Row(
        name="sac_own",
        title="SAC, Pendulum-v1, with a network of the user's own made of our layers, 256×256",
        contestants={"ours_own": "ours.py", "ours": "ours.py"},
        measures=(Measure("rate", STEPS, goals=(Goal("ours", 0.85, who="ours_own"),)),),
        algo="sac",
        skip=1_050,
        total=2_250,
        settings=OFF_POLICY,
        note="The own network is an `nn.Module` with two of our `FlatMLP`; autograd goes through it.",
    ),
    *(
        off_policy(
            algo + suffix,
            f"{algo.upper()}, {env_id}",
            algo=algo,
            env_id=env_id,
            goals=against_sb3(1.8),
            sbx=False,
            threads=(1,),
        )
        for algo in ("td3", "ddpg")
        for suffix, env_id in (("", "Pendulum-v1"), ("_halfcheetah", "HalfCheetah-v5"))
    ),
    Row(
        name="ppg",
        title="PPG, CartPole-v1, with PPO's settings and one auxiliary phase in 16 rollouts",
        contestants={"ours": "ours.py", "ours_ppo": "ours.py"},
        measures=(Measure("rate", STEPS, goals=(Goal("ours_ppo", 0.77),)),),
        algo="ppg",
        env_id="CartPole-v1",
        num_envs=8,
        skip=4_096,
        total=20_480,
        settings=ZOO | {"aux_frequency": 16, "aux_buffer_rollouts": 16, "aux_epochs": 6, "aux_minibatch_size": 256},
        note="6 auxiliary epochs over 16 rollouts beside 20 epochs over each: 30 % more passes over the data, "
        "which explain 1/1.3 = 0.77 of PPO's speed.",
    ),
)

UPDATES = (
    Row(
        name="rlpd",
        title="RLPD, 10 LayerNorm critics 256×256, 20 updates per step",
        contestants={"ours": "ours.py", "separate": "plain_torch.py", "sgemm": "plain_torch.py"},
        measures=(Measure("rate", "critic updates/s", goals=(Goal("separate", 1.5), Goal("sgemm", 0.5)), digits=1),),
        threads=(1, 2),
        algo="rlpd",
        skip=300,
        total=330,
        settings={
            "learning_starts": 256,
            "batch_size": 256,
            "hidden_sizes": [256, 256],
            "gradient_updates_per_step": 20,
            "num_critics": 10,
            **RANDOM_DATA,
        },
        note="*Separate nets* is a loop over ten nn.Sequential critics; *BLAS alone* the matrix products of a critics' update.",
    ),
    Row(
        name="cql",
        title="CQL, 10 sampled actions, 256×256",
        contestants={"ours": "ours.py", "d3rlpy": "peer_d3rlpy.py", "sgemm": "plain_torch.py"},
        measures=(Measure("rate", "updates/s", goals=(Goal("d3rlpy", 1.2), Goal("d3rlpy", 2.0, threads=2)), digits=1),),
        threads=(1, 2),
        algo="cql",
        skip=10,
        total=110,
        settings={"batch_size": 256, "hidden_sizes": [256, 256], "num_cql_samples": 10, **RANDOM_DATA},
        note=PRODUCTS,
    ),
    Row(
        name="mopo_model",
        title="MOPO's dynamics, 7 networks 4×200, batch 256",
        contestants={"ours": "ours.py", "sgemm": "plain_torch.py"},
        measures=(Measure("rate", "samples/s", goals=(Goal("sgemm", 0.6),)),),
        threads=(1, 2),
        algo="mopo",
        skip=50,
        total=450,
        settings={**RANDOM_DATA, "model_updates": 500, "model_patience": None, "model_holdout_ratio": 0.0, "max_updates": 450},
        note="A sample is a row of data, which every network sees; *BLAS alone* is the matrix products of fitting.",
    ),
    *(
        Row(
            name=name,
            title=f"MOPO's rollouts, 7 networks {title}, 50,000 starts, 5 steps",
            contestants={"ours": "ours_parts.py", "sgemm": "plain_torch.py"},
            measures=(Measure("rate", "transitions/s", goals=(Goal(None, 100_000), Goal(None, 100_000, threads=2))),),
            threads=threads,
            algo="mopo",
            settings={**RANDOM_DATA, "model_updates": 50, "model_patience": None, "rollout_batch_size": 50_000, **sizes},
        )
        for name, title, threads, sizes in (
            ("mopo_rollouts", "4×200", (1, 2), {"model_hidden_sizes": [200] * 4, "hidden_sizes": [256] * 2}),
            (
                "mopo_rollouts_preset",
                "2×128 as in mopo/pendulum",
                (1,),
                {"model_hidden_sizes": [128] * 2, "hidden_sizes": [128] * 2},
            ),
        )
    ),
)

PARTS = (
    Row(
        name="pets_plan",
        title="PETS, one plan: 400 candidates, horizon 20, 5 iterations, 20 particles, 5 networks 3×200",
        contestants={"ours": "ours_parts.py", "mbrl": "peer_mbrl.py", "modules": "plain_torch.py", "sgemm": "plain_torch.py"},
        measures=(Measure("milliseconds", "ms", higher=False, goals=(Goal("mbrl", 2.5), Goal("mbrl", 2.5, threads=2))),),
        threads=(1, 2),
        algo="pets",
        settings={
            "candidates": 400,
            "horizon": 20,
            "iterations": 5,
            "topk": 40,
            "particles": 20,
            "members": 5,
            "hidden": [200] * 3,
        },
        note="*Modules in turn* is a network per member, called in turn on shuffled particles, with torch's Normal for the "
        "noise; *BLAS alone* is the matrix products.",
    ),
    Row(
        name="pets_preset",
        title="PETS, one plan of the preset pets/pendulum, from its own run",
        contestants={"ours": "ours.py"},
        measures=(Measure("milliseconds", "ms", higher=False, goals=(Goal(None, 30),), digits=1),),
        algo="pets",
        total=300,
    ),
    Row(
        name="predict",
        title="`predict` on one observation",
        contestants={"ours": "ours_parts.py"},
        measures=tuple(
            Measure(name, f"µs, {label}", higher=False, goals=(Goal(None, 60),), digits=1)
            for name, label in (("sac", "SAC 256×256"), ("ppo", "PPO 64×64"))
        ),
    ),
    Row(
        name="startup",
        title="Start-up of the command line",
        contestants={"ours": "ours_parts.py"},
        measures=(
            Measure("help", "s, `rl-training --help`", higher=False, goals=(Goal(None, 0.2),), digits=2),
            Measure("list", "s, `rl-training list`", higher=False, goals=(Goal(None, 0.2),), digits=2),
            Measure("first_step", "s to the first training step", higher=False, goals=(Goal(None, 3.0),), digits=2),
        ),
    ),
    Row(
        name="checkpoint",
        title="Checkpoint of SAC on HalfCheetah-v5 with 1,000,000 transitions",
        contestants={"ours": "ours_parts.py"},
        measures=(
            Measure("saved", "s to save", higher=False, goals=(Goal(None, 2.0),), digits=2),
            Measure("opened", "s to open for `predict`", higher=False, goals=(Goal(None, 0.1),), digits=3),
            Measure("resumed", "s to resume", higher=False, goals=(Goal(None, 2.0),), digits=2),
        ),
    ),
)


GENERATION = 64 * 200  # steps of a population's episodes
PEER_GENERATIONS = 4  # that peers are timed over: one takes them as long as ours takes for ten to fifty


def evolution(algo: str, title: str) -> Row:
    evotorch = {"evotorch": "peer_evotorch.py", "evotorch_vec": "peer_evotorch.py"}
    plain = {"observation_filter": False} | ({"action_noise": 0.0} if algo == "openai_es" else {})  # as theirs
    return Row(
        name=algo,
        title=f"{title}, Pendulum-v1, population 64, 64×64",
        contestants=OURS_BATCHED | evotorch | ({"sb3": "peer_sb3.py"} if algo == "ars" else {}),
        measures=(Measure("rate", STEPS, goals=(Goal("evotorch", 2.5), Goal("evotorch", 40, who="ours_batched"))),),
        algo=algo,
        num_envs=None,
        skip=2 * GENERATION,
        total=43 * GENERATION,
        settings={"num_directions": 32, "hidden_sizes": [64, 64], **plain},
        note=f"EvoTorch's PGPE with a population of 64, one environment after the other (GymNE) and *vectorised* (VecGymNE); "
        f"peers are timed over {PEER_GENERATIONS} generations, ours over 41"
        + (". SB3 is SB3-contrib's ARS." if algo == "ars" else "."),
    )


ROWS = {row.name: row for row in (*TRAINING, *UPDATES, *PARTS, evolution("openai_es", "OpenAI ES"), evolution("ars", "ARS"))}
