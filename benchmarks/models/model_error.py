"""Draw how a learnt model's error and its own estimate of it grow over the steps of a rollout.

    python benchmarks/models/model_error.py RUN_OR_CHECKPOINT --out docs/images/pets_model_error.svg

Real episodes of random behaviour are cut into stretches; from the start of each, particles follow the same actions
through the model (TS∞). All lengths are in units of the spread that the observations have in these episodes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure

from rl_training.envs.source import EnvSource
from rl_training.runtime.policy import load_policy
from rl_training.runtime.recording import RandomBehavior, record


def stretches(policy, *, horizon: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Observations (count, horizon + 1, obs_dim) and the actions between them, from episodes that were not cut."""
    source = EnvSource(policy.config.env_id, policy.config.env_kwargs)
    behavior = RandomBehavior(policy.spec, np.random.default_rng(7))
    data = record(source, policy.spec, behavior, num_steps=count * horizon * 2, seed=7, stream=99, origin="random behaviour")
    columns = data.columns(policy.spec)
    obs, actions, ends = (np.asarray(columns[name]) for name in ("obs", "actions", "cuts"))
    last = columns["next_obs"]
    starts = [i for i in range(0, len(obs) - horizon, horizon) if not ends[i : i + horizon - 1].any()][:count]
    paths = np.stack([np.concatenate([obs[i : i + horizon], last[i + horizon - 1][None]]) for i in starts])
    return torch.from_numpy(paths), torch.from_numpy(np.stack([actions[i : i + horizon] for i in starts]))


@torch.no_grad()
def rollouts(model, start: torch.Tensor, actions: torch.Tensor, *, particles: int) -> torch.Tensor:
    """Particles (particles, count, horizon + 1, obs_dim), each with a member of its own."""
    members = model.elites[torch.arange(particles) % len(model.elites)].repeat_interleave(len(start))
    obs, path = start.repeat(particles, 1), [start.repeat(particles, 1)]
    for t in range(actions.shape[1]):
        obs = model.sample_transition(obs, actions[:, t].repeat(particles, 1), members=members).next_obs
        path.append(obs)
    return torch.stack(path, dim=1).view(particles, len(start), -1, start.shape[-1])


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
    truth, actions = stretches(policy, horizon=args.horizon, count=args.count)
    imagined = rollouts(policy.algorithm.dynamics_model, truth[:, 0], actions, particles=args.particles)
    spread = truth.flatten(0, 1).std(0)
    error = ((imagined.mean(0) - truth) / spread).square().mean((0, 2)).sqrt()
    stated = (imagined.var(0, correction=0) / spread.square()).mean((0, 2)).sqrt()
    copy = ((truth[:, :1] - truth) / spread).square().mean((0, 2)).sqrt()
    steps = np.arange(args.horizon + 1)
    mpl.rcParams["svg.hashsalt"] = "rl-training"  # the same picture, the same bytes
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, copy, color="0.7", label="if nothing moved")
    axes.plot(steps, error, label="error of the particles' mean")
    axes.plot(steps, stated, "--", label="standard deviation of the particles")
    axes.set(xlabel="steps into the rollout", ylabel="in units of the observations' spread", yscale="log")
    title = f"{policy.config.algo.upper()} on {policy.spec.env_id}: {len(truth)} stretches of random behaviour"
    axes.set_title(title, fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, metadata={"Date": None})
    print({int(t): (round(float(error[t]), 4), round(float(stated[t]), 4)) for t in (1, 5, 10, args.horizon)})


if __name__ == "__main__":
    main()
