"""Modules of a user's own, which the learners differentiate by autograd: what they may leave out, freeze, and how they may
say what they say."""

import copy
from typing import NamedTuple

import pytest
import torch
from torch import nn

from replay_batches import batch_of
from rl_training.algorithms import CQL, DDPG, MOPO, PETS, PPG, PPO, RLPD, SAC, TD3
from rl_training.models.heads import Categorical, PolicyOutput

OBS, ACTIONS, ROWS = 3, 2, 16


class Policy(nn.Module):
    """What PPO and PPG ask for, with a trunk that can be frozen and a layer that nothing reads."""

    obs_dim, action_dim = OBS, ACTIONS

    def __init__(self):
        super().__init__()
        self.trunk, self.spare = nn.Linear(OBS, 8), nn.Linear(4, 4)
        self.logits, self.values, self.auxiliary_values = nn.Linear(8, ACTIONS), nn.Linear(8, 1), nn.Linear(8, 1)

    def distribution(self, obs):
        return Categorical(self.logits(self.trunk(obs).tanh()))

    def value(self, obs):
        return self.values(self.trunk(obs).tanh().detach()).squeeze(-1)

    def evaluate_actions(self, obs, actions):
        policy = self.distribution(obs)
        return PolicyOutput(actions, policy.log_prob(actions), self.value(obs), policy.entropy())

    def act(self, obs, *, deterministic=False):
        policy = self.distribution(obs)
        return self.evaluate_actions(obs, policy.mode() if deterministic else policy.sample())

    def auxiliary(self, obs):
        return Auxiliary(self.distribution(obs), self.value(obs), self.auxiliary_values(self.trunk(obs).tanh()).squeeze(-1))


class Auxiliary(NamedTuple):
    distribution: object
    values: torch.Tensor
    auxiliary_values: torch.Tensor


class Sample(NamedTuple):
    actions: torch.Tensor
    logprobs: torch.Tensor


class Critics(nn.Module):
    """Each a network of its own, with a trunk in common and a layer that nothing reads."""

    def __init__(self, count):
        super().__init__()
        self.trunk, self.spare = nn.Linear(OBS + ACTIONS, 8), nn.Linear(4, 4)
        self.heads = nn.ModuleList(nn.Linear(8, 1) for _ in range(count))

    def forward(self, obs, actions):
        hidden = self.trunk(torch.cat([obs, actions], -1)).tanh()
        return torch.stack([head(hidden).squeeze(-1) for head in self.heads])


class ActorCritic(nn.Module):
    """What the off-policy learners ask for; `said` is how the critics' values (critics, batch) come out."""

    obs_dim, action_dim = OBS, ACTIONS

    def __init__(self, num_critics=2, said=lambda q: q):
        super().__init__()
        self.actor, self.critics, self.said = nn.Sequential(nn.Linear(OBS, ACTIONS), nn.Tanh()), Critics(num_critics), said

    def sample_actions(self, obs, *, deterministic=False):
        actions = self.actor(obs)
        return Sample(actions if deterministic else actions + 0.1 * torch.randn_like(actions), -actions.square().sum(-1))

    def q_values(self, obs, actions):
        return self.said(self.critics(obs, actions))


class Ensemble(nn.Module):
    """What PETS and MOPO ask for."""

    obs_dim, action_dim, num_ensembles = OBS, ACTIONS, 2

    def __init__(self):
        super().__init__()
        self.trunk, self.spare, self.head = nn.Linear(OBS + ACTIONS, 8), nn.Linear(4, 4), nn.Linear(8, 2 * (OBS + 1))

    def ensemble_parameters(self):
        return list(self.parameters())

    def predict_distribution(self, obs, actions):
        means, logvars = self.head(self.trunk(torch.cat([obs, actions], -1)).tanh()).expand(2, -1, -1).chunk(2, -1)
        return means, logvars


def policy_batch():
    columns = {name: torch.randn(ROWS) for name in ("logprobs", "advantages", "returns", "values")}
    return columns | {"obs": torch.randn(ROWS, OBS), "actions": torch.randint(ACTIONS, (ROWS,))}


LEARNERS = {
    "ppo": lambda: PPO(Policy(), learning_rate=1e-2),
    "ppg": lambda: PPG(Policy(), learning_rate=1e-2),
    "sac": lambda: SAC(ActorCritic(), learning_rate=1e-2),
    "rlpd": lambda: RLPD(ActorCritic(), learning_rate=1e-2),
    "cql": lambda: CQL(ActorCritic(), learning_rate=1e-2),
    "td3": lambda: TD3(ActorCritic(), learning_rate=1e-2, policy_delay=1),
    "ddpg": lambda: DDPG(ActorCritic(1), learning_rate=1e-2),
    "pets": lambda: PETS(Ensemble(), learning_rate=1e-2),
    "mopo": lambda: MOPO(ActorCritic(), Ensemble(), policy_learning_rate=1e-2, model_learning_rate=1e-2),
}


def learnt(learner):
    """One step of everything that the learner can take."""
    if isinstance(learner, PPO):
        batch = policy_batch()
        learner.update(batch)
        if isinstance(learner, PPG):
            learner.auxiliary_update(batch, teacher_model=copy.deepcopy(learner.policy))
    else:
        learner.update(batch_of(ROWS, OBS, ACTIONS))
        if isinstance(learner, MOPO):
            learner.update_model(batch_of(ROWS, OBS, ACTIONS))


def modules(learner):
    if isinstance(learner, MOPO):
        return [learner.sac.model, learner.dynamics_model]
    return [learner.policy if isinstance(learner, PPO) else getattr(learner, "model", None) or learner.dynamics_model]


def named_parameters(learner):
    return {f"{i}.{name}": p for i, module in enumerate(modules(learner)) for name, p in module.named_parameters()}


@pytest.mark.parametrize("name", LEARNERS)
def test_layers_that_no_loss_reaches_stay_and_all_others_learn(name):
    learner = LEARNERS[name]()
    before = {name: p.detach().clone() for name, p in named_parameters(learner).items()}
    learnt(learner)
    for place, parameter in named_parameters(learner).items():
        idle = "spare" in place or (name == "ppo" and "auxiliary" in place)
        assert torch.equal(parameter, before[place]) == idle, place


@pytest.mark.parametrize("name", LEARNERS)
def test_a_frozen_trunk_stays_as_it_is_while_the_rest_learns(name):
    learner = LEARNERS[name]()
    for module in modules(learner):
        for place, part in module.named_modules():
            if place.endswith("trunk"):
                part.requires_grad_(False)
    before = {name: p.detach().clone() for name, p in named_parameters(learner).items()}
    learnt(learner)
    for place, parameter in named_parameters(learner).items():
        idle = any(part in place for part in ("spare", "trunk")) or (name == "ppo" and "auxiliary" in place)
        assert torch.equal(parameter, before[place]) == idle, place
