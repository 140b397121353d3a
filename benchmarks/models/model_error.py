"""Draw how a learnt model's error and its own estimate of it grow over the steps of a rollout, for a run of PETS or MOPO.

    python benchmarks/models/model_error.py RUN_OR_CHECKPOINT --out docs/images/pets_model_error.svg

Real episodes are cut into stretches; from the start of each, particles follow the same actions through the model, with
the members as the algorithm uses them: each particle its own (TS∞), or another at every step (TS1, always so in MOPO).
Lengths are in units of the spread that the observations have in these episodes. The episodes are of random behaviour;
for MOPO also of the learnt policy, which is what it imagines, and the penalty is drawn below, in the reward's units.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure

from rl_training.envs.source import EnvSource
from rl_training.runtime.collecting import PolicyBehavior
from rl_training.runtime.policy import load_policy
from rl_training.runtime.recording import RandomBehavior, record


class Growth(NamedTuple):
    """Over the steps of a rollout, from step 0 on."""

    behavior: str
    stretches: int
    error: torch.Tensor  # of the particles' mean
    stated: torch.Tensor  # the particles' standard deviation
    copy: torch.Tensor  # the error of saying that nothing moves
    penalty: torch.Tensor  # before its weight; one fewer, as it belongs to a transition


def stretches(policy, behavior, *, horizon: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Observations (count, horizon + 1, obs_dim) and the actions between them, from episodes that were not cut."""
    source = EnvSource(policy.config.env_id, policy.config.env_kwargs)
    data = record(source, policy.spec, behavior, num_steps=count * horizon * 2, seed=7, stream=99, origin="behaviour")
    columns = data.columns(policy.spec)
    obs, actions, ends = (np.asarray(columns[name]) for name in ("obs", "actions", "cuts"))
    last = columns["next_obs"]
    starts = [i for i in range(0, len(obs) - horizon, horizon) if not ends[i : i + horizon - 1].any()][:count]
    paths = np.stack([np.concatenate([obs[i : i + horizon], last[i + horizon - 1][None]]) for i in starts])
    return torch.from_numpy(paths), torch.from_numpy(np.stack([actions[i : i + horizon] for i in starts]))


@torch.no_grad()
def rollouts(
    model, start: torch.Tensor, actions: torch.Tensor, *, particles: int, ts1: bool, penalty: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Particles (particles, count, horizon + 1, obs_dim), and their mean penalty at every step (horizon,)."""
    members = model.elites[torch.arange(particles) % len(model.elites)].repeat_interleave(len(start))
    obs, path, penalties = start.repeat(particles, 1), [start.repeat(particles, 1)], []
    for t in range(actions.shape[1]):
        drawn = model.imagine(obs, actions[:, t].repeat(particles, 1), members=None if ts1 else members)
        obs = drawn.next_obs
        path.append(obs)
        penalties.append(getattr(drawn, penalty).mean())
    return torch.stack(path, dim=1).view(particles, len(start), -1, start.shape[-1]), torch.stack(penalties)


def measure(policy, behavior, name: str, *, horizon: int, count: int, particles: int) -> Growth:
    options = policy.config.options
    truth, actions = stretches(policy, behavior, horizon=horizon, count=count)
    imagined, penalty = rollouts(
        policy.algorithm.dynamics_model,
        truth[:, 0],
        actions,
        particles=particles,
        ts1=getattr(options, "planning_propagation", "ts1") == "ts1",
        penalty=getattr(options, "penalty", "max_std"),
    )
    spread = truth.flatten(0, 1).std(0)
    error = ((imagined.mean(0) - truth) / spread).square().mean((0, 2)).sqrt()
    stated = (imagined.var(0, correction=0) / spread.square()).mean((0, 2)).sqrt()
    copy = ((truth[:, :1] - truth) / spread).square().mean((0, 2)).sqrt()
    return Growth(name, len(truth), error, stated, copy, penalty)


def draw_growth(axes, growth: Growth, title: str) -> None:
    steps = np.arange(len(growth.error))
    axes.plot(steps, growth.copy, color="0.7", label="if nothing moved")
    axes.plot(steps, growth.error, label="error of the particles' mean")
    axes.plot(steps, growth.stated, "--", label="standard deviation of the particles")
    axes.set(yscale="log")
    axes.set_title(f"{title}: {growth.stretches} stretches of {growth.behavior}", fontsize=9)


def draw_pets(growth: Growth, title: str) -> Figure:
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.subplots()
    draw_growth(axes, growth, title)
    axes.set(xlabel="steps into the rollout", ylabel="in units of the observations' spread")
    axes.legend(frameon=False, fontsize=8)
    return figure


def draw_mopo(growths: list[Growth], title: str, options: Any) -> Figure:
    """A column for each behaviour, the penalty below, and a line where rollouts end."""
    figure = Figure(figsize=(8.4, 4.6), layout="constrained")
    axes = figure.subplots(2, len(growths), sharex=True, sharey="row", height_ratios=(2, 1), squeeze=False)
    for column, growth in enumerate(growths):
        top, bottom = axes[:, column]
        draw_growth(top, growth, title)
        bottom.plot(np.arange(len(growth.penalty)), options.penalty_coef * growth.penalty, color="C2")
        top.set_ylim(bottom=0.5 * min(float(one.error[1]) for one in growths))  # at the start there is no error to speak of
        for panel in (top, bottom):
            panel.axvline(options.rollout_horizon, color="0.8", linewidth=0.8, zorder=0)
        bottom.set(xlabel="steps into the rollout", ylim=(0, None))
    axes[0, 0].set_ylabel("in units of the\nobservations' spread")
    axes[1, 0].set_ylabel("penalty, in units\nof the reward")
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--horizon", type=int, default=25)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--particles", type=int, default=50)
    args = parser.parse_args()
    torch.manual_seed(0)
    policy = load_policy(args.checkpoint, device="cpu")
    title = f"{policy.config.algo.upper()} on {policy.spec.env_id}"
    sizes = {name: getattr(args, name) for name in ("horizon", "count", "particles")}
    growths = [measure(policy, RandomBehavior(policy.spec, np.random.default_rng(7)), "random behaviour", **sizes)]
    if policy.config.algo == "mopo":
        learnt = PolicyBehavior(policy, np.random.default_rng(7), deterministic=False, noise=0.0, random_share=0.0)
        growths.append(measure(policy, learnt, "its policy", **sizes))
    mpl.rcParams["svg.hashsalt"] = "rl-training"  # the same picture, the same bytes
    options = policy.config.options
    figure = draw_mopo(growths, title, options) if policy.config.algo == "mopo" else draw_pets(growths[0], title)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, metadata={"Date": None})
    for growth in growths:
        numbers = {t: (round(float(growth.error[t]), 4), round(float(growth.stated[t]), 4)) for t in (1, 5, 10, args.horizon)}
        penalties = {t: round(float(growth.penalty[t]), 4) for t in (0, 5, args.horizon - 1)}
        print(f"{growth.behavior}: error and deviation {numbers}, penalty {penalties}")


if __name__ == "__main__":
    main()
