"""The same work in plain torch modules, and the matrix products alone: `plain_torch.py WHO ROW THREADS SEED`.

`separate` and `modules` are written as the usual libraries do it, one module per network; `sgemm` is what the machine's
matrix product (MKL's or OpenBLAS's) takes for those of the work.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from rows import ROWS, now, report
from torch import Tensor, nn
from torch.nn import functional as F

OBS, ACTION, BATCH = 3, 1, 256  # Pendulum-v1
SIZES = {"Pendulum-v1": (3, 1), "HalfCheetah-v5": (17, 6)}
ROLLED = 1_000  # rows of a rollout at a time


def seconds_per_call(function: Callable[[], object], *, calls: int, warm_up: int = 3) -> float:
    for _ in range(warm_up):
        function()
    began = now()
    for _ in range(calls):
        function()
    return (now() - began) / calls


def separate_critics(*, critics: int, width: int, updates: int) -> float:
    """Critic updates per second of RLPD with a module, an autograd graph and a target per critic."""
    rows = torch.randn(50_000, 2 * OBS + ACTION + 1)
    actor = nn.Sequential(nn.Linear(OBS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2 * ACTION))
    nets, targets = ([_critic(width) for _ in range(critics)] for _ in range(2))
    parameters = [p for net in nets for p in net.parameters()]
    critic_adam, actor_adam = torch.optim.Adam(parameters, lr=3e-4), torch.optim.Adam(actor.parameters(), lr=3e-4)

    def act(obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = actor(obs).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        raw = normal.rsample()
        actions = raw.tanh()
        return actions, (normal.log_prob(raw) - 2 * (0.6931472 - raw - F.softplus(-2 * raw))).sum(-1, keepdim=True)

    def one_round() -> None:
        for _ in range(updates):
            obs, actions, rewards, next_obs = rows[torch.randint(0, len(rows), (BATCH,))].split([OBS, ACTION, 1, OBS], 1)
            with torch.no_grad():
                next_actions, logprobs = act(next_obs)
                chosen = random.sample(targets, 2)
                values = torch.stack([net(torch.cat([next_obs, next_actions], 1)) for net in chosen]).amin(0)
                wanted = rewards + 0.99 * (values - 0.1 * logprobs)
            inputs = torch.cat([obs, actions], 1)
            loss = sum((net(inputs) - wanted).square().mean() for net in nets)
            critic_adam.zero_grad()
            loss.backward()
            critic_adam.step()
            with torch.no_grad():
                for net, target in zip(nets, targets, strict=True):
                    for p, t in zip(net.parameters(), target.parameters(), strict=True):
                        t.mul_(0.995).add_(p, alpha=0.005)
        actions, logprobs = act(obs)
        loss = (0.1 * logprobs - torch.stack([net(torch.cat([obs, actions], 1)) for net in nets]).mean(0)).mean()
        actor_adam.zero_grad()
        loss.backward()
        actor_adam.step()

    return updates / seconds_per_call(one_round, calls=2, warm_up=1)


def _critic(width: int) -> nn.Module:
    hidden = [
        nn.Linear(OBS + ACTION, width),
        nn.LayerNorm(width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.LayerNorm(width),
        nn.ReLU(),
    ]
    return nn.Sequential(*hidden, nn.Linear(width, 1))


def products(shapes: Sequence[tuple[int, int, int, int]]) -> float:
    """Seconds for these batched matrix products (members, rows, in, out), one after the other, into memory that is there; by
    torch's library or by numpy's, whichever is faster here."""
    prepared = []
    for members, rows, n_in, n_out in shapes:
        a, b = torch.randn(members, rows, n_in), torch.randn(members, n_in, n_out)
        prepared.append((a, b, torch.empty(members, rows, n_out)))

    arrays = [[x.numpy() for x in each] for each in prepared]

    def by_torch() -> None:
        for a, b, out in prepared:
            torch.bmm(a, b, out=out)

    def by_numpy() -> None:
        for a, b, out in arrays:
            np.matmul(a, b, out=out)

    with torch.inference_mode():
        return min(seconds_per_call(run, calls=20) for run in (by_torch, by_numpy))


def learning_products(members: int, sizes: Sequence[int], rows: int = BATCH) -> list[tuple[int, int, int, int]]:
    """Forward, gradient of the weights, and gradient of the inputs of all layers but the first."""
    shapes = []
    for i, (n_in, n_out) in enumerate(pairwise(sizes)):
        shapes += [(members, rows, n_in, n_out), (members, n_in, rows, n_out)]
        shapes += [(members, rows, n_out, n_in)] if i else []
    return shapes


def forward_products(members: int, sizes: Sequence[int], rows: int = BATCH) -> list[tuple[int, int, int, int]]:
    return [(members, rows, n_in, n_out) for n_in, n_out in pairwise(sizes)]


def back_products(members: int, sizes: Sequence[int], rows: int = BATCH) -> list[tuple[int, int, int, int]]:
    """From the gradient at the outputs to that at the inputs."""
    return [(members, rows, n_out, n_in) for n_in, n_out in reversed(list(pairwise(sizes)))]


def off_policy_products(name: str) -> list[tuple[int, int, int, int]]:
    """Of one update of SAC, TD3, DDPG or CQL; what TD3 does at every other update is half as many rows of it at each."""
    row = ROWS[name]
    obs, action = SIZES[row.env_id]
    hidden = row.settings["hidden_sizes"]
    critic, critics = [obs + action, *hidden, 1], 1 if row.algo == "ddpg" else 2
    stochastic = row.algo in ("sac", "cql")
    actor = [obs, *hidden, 2 * action if stochastic else action]
    share = BATCH // 2 if row.algo == "td3" else BATCH
    samples = 3 * row.settings["num_cql_samples"] if row.algo == "cql" else 0
    work = forward_products(1, actor) + forward_products(critics, critic)  # the target
    work += learning_products(critics, critic, BATCH * (1 + samples))
    work += forward_products(1, actor, 2 * BATCH) if samples else []
    # the actor climbs the lowest critic, or the first: backwards each row passes through one of them
    work += forward_products(critics if stochastic else 1, critic, share) + back_products(1, critic, share)
    return work + learning_products(1, actor, share)


def work_of(name: str) -> tuple[list[tuple[int, int, int, int]], float]:
    """Matrix products, and how many of the row's units of work they are."""
    settings = ROWS[name].settings
    if ROWS[name].algo in ("sac", "td3", "ddpg", "cql"):
        return off_policy_products(name), 1
    if name == "pets_plan":  # a step of all particles
        rows = settings["candidates"] * settings["particles"] // settings["members"]
        step = forward_products(settings["members"], [OBS + ACTION, *settings["hidden"], 2 * (OBS + 1)], rows)
        return step, 1 / (settings["horizon"] * settings["iterations"])
    if name == "rlpd":
        hidden = settings["hidden_sizes"]
        critic, actor = [OBS + ACTION, *hidden, 1], [OBS, *hidden, 2 * ACTION]
        return learning_products(settings["num_critics"], critic) + forward_products(2, critic) + forward_products(1, actor), 1
    if name.startswith("mopo_rollouts"):
        sizes = [OBS + ACTION, *settings["model_hidden_sizes"], 2 * (OBS + 1)]
        policy = [OBS, *settings["hidden_sizes"], 2 * ACTION]
        return forward_products(7, sizes, ROLLED) + forward_products(1, policy, ROLLED), ROLLED
    return learning_products(7, [OBS + ACTION, 200, 200, 200, 200, 2 * (OBS + 1)]), BATCH


def blas_alone(name: str) -> float:
    """What the row's number would be if nothing but the matrix products took time."""
    shapes, units = work_of(name)
    seconds = products(shapes) / units
    return 1e3 * seconds if name == "pets_plan" else 1 / seconds


def gflop(name: str) -> float:
    """Billions of additions and multiplications in the matrix products of one unit of a row's work."""
    shapes, units = work_of(name)
    return sum(2 * math.prod(shape) for shape in shapes) / units / 1e9


def modules_plan() -> float:
    """Milliseconds of one CEM plan with a module per member of the ensemble, each called in turn on its share of particles."""
    s = ROWS["pets_plan"].settings
    sizes = [OBS + ACTION, *s["hidden"], 2 * OBS]
    nets = [_dynamics(sizes) for _ in range(s["members"])]
    lowest, highest = torch.full((OBS,), -10.0), torch.full((OBS,), 0.5)
    rows = s["candidates"] * s["particles"]

    def returns(start: Tensor, plans: Tensor) -> Tensor:
        obs, actions, total = start.expand(rows, OBS).clone(), plans.repeat_interleave(s["particles"], 0), torch.zeros(rows)
        order = torch.randperm(rows)
        back = order.argsort()
        for t in range(s["horizon"]):
            inputs = torch.cat([obs, actions[:, t]], -1)[order]
            outputs = torch.cat([net(share) for net, share in zip(nets, inputs.chunk(s["members"]), strict=True)])[back]
            mean, logvar = outputs.chunk(2, -1)
            logvar = highest - F.softplus(highest - logvar)
            logvar = lowest + F.softplus(logvar - lowest)
            obs = obs + torch.distributions.Normal(mean, (0.5 * logvar).exp()).sample()
            angle = torch.atan2(obs[:, 1], obs[:, 0])
            total -= angle.square() + 0.1 * obs[:, 2].square() + 0.001 * actions[:, t, 0].square()
        return total.view(s["candidates"], s["particles"]).mean(1)

    @torch.no_grad()
    def plan() -> Tensor:
        mean, var = torch.zeros(s["horizon"], ACTION), torch.ones(s["horizon"], ACTION)
        for _ in range(s["iterations"]):
            noise = nn.init.trunc_normal_(torch.empty(s["candidates"], s["horizon"], ACTION), a=-2, b=2)
            plans = (mean + var.sqrt() * noise).clamp(-2, 2)
            elite = plans[returns(torch.zeros(OBS), plans).topk(s["topk"]).indices]
            mean, var = 0.1 * mean + 0.9 * elite.mean(0), 0.1 * var + 0.9 * elite.var(0)
        return mean[0]

    return 1e3 * seconds_per_call(plan, calls=2, warm_up=1)


def _dynamics(sizes: Sequence[int]) -> nn.Module:
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


def main() -> None:
    who, name, threads, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    if who == "sgemm":
        values = {ROWS[name].measures[0].key: blas_alone(name)}
    elif who == "modules":
        values = {"milliseconds": modules_plan()}
    else:
        settings = ROWS[name].settings
        width, updates = settings["hidden_sizes"][0], settings["gradient_updates_per_step"]
        values = {"rate": separate_critics(critics=settings["num_critics"], width=width, updates=updates)}
    report(values, "torch", "numpy")


if __name__ == "__main__":
    main()
