"""Modules of a user's own, which the learners differentiate by autograd: what they may leave out, freeze, and how they may
say what they say."""

import copy
from typing import NamedTuple

import pytest
import torch
from replay_batches import batch_of
from torch import distributions, nn

from rl_training.algorithms import BC, CQL, DDPG, IQL, MOPO, PETS, PPG, PPO, RLPD, SAC, TD3, TQC, CalQL, ReBRAC
from rl_training.models import MLPDDPGModel, MLPPPGModel, MLPSACModel, MLPTD3Model
from rl_training.models.heads import Categorical, DiagonalGaussian, PolicyOutput
from rl_training.planning.plan_values import PlanValues

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


class Imitator(nn.Module):
    """What BC asks for."""

    def __init__(self):
        super().__init__()
        self.trunk, self.spare, self.head = nn.Linear(OBS, 8), nn.Linear(4, 4), nn.Linear(8, ACTIONS)

    def forward(self, obs):
        return self.head(self.trunk(obs).tanh()).tanh()


class WithQuantiles(ActorCritic):
    """What TQC asks for beside what SAC does."""

    def quantiles(self, obs, actions):
        return self.critics(obs, actions).unsqueeze(-1) + torch.tensor([-1.0, 0.0, 1.0])


class WithValues(ActorCritic):
    """And what IQL asks for beside that."""

    def __init__(self, num_critics=2, said=lambda q: q):
        super().__init__(num_critics, said)
        self.value_net = nn.ModuleDict({"trunk": nn.Linear(OBS, 8), "spare": nn.Linear(4, 4), "head": nn.Linear(8, 1)})

    def log_prob(self, obs, actions):
        return -(actions - self.actor(obs)).square().sum(-1)

    def values(self, obs):
        return self.value_net["head"](self.value_net["trunk"](obs).tanh())  # a column


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
    "tqc": lambda: TQC(WithQuantiles(), learning_rate=1e-2, num_dropped_quantiles=1),
    "cal_ql": lambda: CalQL(ActorCritic(), learning_rate=1e-2),
    "cql": lambda: CQL(ActorCritic(), learning_rate=1e-2),
    "bc": lambda: BC(Imitator(), learning_rate=1e-2),
    "iql": lambda: IQL(WithValues(), learning_rate=1e-2),
    "td3": lambda: TD3(ActorCritic(), learning_rate=1e-2, policy_delay=1),
    "rebrac": lambda: ReBRAC(ActorCritic(), learning_rate=1e-2, policy_delay=1, critic_penalty_coef=0.0),
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
        learner.update(batch_of(ROWS, OBS, ACTIONS) | {"returns": torch.randn(ROWS)})
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


WAYS_TO_SAY = {
    "a tuple": tuple,
    "a list of columns": lambda q: [values.unsqueeze(-1) for values in q],
    "with an axis of one": lambda q: q.unsqueeze(-1),
}
ONE_CRITIC = {"a vector": lambda q: q[0], "a column": lambda q: q[0].unsqueeze(-1)}
OFF_POLICY = {
    "sac": lambda model: SAC(model, learning_rate=1e-2),
    "rlpd": lambda model: RLPD(model, learning_rate=1e-2),
    "cql": lambda model: CQL(model, learning_rate=1e-2),
    "iql": lambda model: IQL(model, learning_rate=1e-2),
    "td3": lambda model: TD3(model, learning_rate=1e-2, policy_delay=1),
    "rebrac": lambda model: ReBRAC(model, learning_rate=1e-2, policy_delay=1, critic_penalty_coef=0.0),
    "ddpg": lambda model: DDPG(model, learning_rate=1e-2),
    "mopo": lambda model: MOPO(model, Ensemble(), policy_learning_rate=1e-2, model_learning_rate=1e-2),
}


def parameters_after_an_update(make, num_critics, said):
    torch.manual_seed(0)
    model = WithValues(num_critics, said)
    batch = batch_of(ROWS, OBS, ACTIONS)
    make(model).update(batch)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("say", WAYS_TO_SAY.values(), ids=WAYS_TO_SAY)
@pytest.mark.parametrize("make", OFF_POLICY.values(), ids=OFF_POLICY)
def test_critics_may_say_their_values_one_after_another(make, say):
    wanted = parameters_after_an_update(make, 2, lambda q: q)
    assert torch.equal(parameters_after_an_update(make, 2, say), wanted)


@pytest.mark.parametrize("say", ONE_CRITIC.values(), ids=ONE_CRITIC)
@pytest.mark.parametrize("make", OFF_POLICY.values(), ids=OFF_POLICY)
def test_a_single_critic_needs_no_axis_of_critics(make, say):
    wanted = parameters_after_an_update(make, 1, lambda q: q)
    assert torch.equal(parameters_after_an_update(make, 1, say), wanted)


class Doubled(nn.Module):
    """Actor and critics are ours; what the critics say is worth twice as much."""

    obs_dim, action_dim = OBS, ACTIONS

    def __init__(self, model):
        super().__init__()
        self.actor, self.critics = model.actor, model.critics
        self.inner = [model]

    def sample_actions(self, obs, *, deterministic=False):
        return self.inner[0].sample_actions(obs, deterministic=deterministic)

    def q_values(self, obs, actions):
        return 2 * self.critics.q_values(obs, actions)


OURS_WITHIN = {"sac": MLPSACModel, "rlpd": MLPSACModel, "cql": MLPSACModel}
OURS_WITHIN |= {"td3": MLPTD3Model, "rebrac": MLPTD3Model, "ddpg": MLPDDPGModel}


@pytest.mark.parametrize("name", OURS_WITHIN)
def test_values_are_those_of_the_module_also_where_its_critics_are_ours(name):
    model = OURS_WITHIN[name](OBS, ACTIONS, (8,))
    learner, batch = OFF_POLICY[name](Doubled(model)), batch_of(ROWS, OBS, ACTIONS)
    for ask in (learner.q_values, learner.target_q_values, lambda *rows: learner.q_values.vjp(*rows)[0]):
        torch.testing.assert_close(ask(batch["obs"], batch["actions"]), 2 * model.q_values(batch["obs"], batch["actions"]))
    learner.update(batch)


class Borrowing(nn.Module):
    """Its policy is one of ours, word for word; beside it there is a layer that nothing reads."""

    def __init__(self, policy):
        super().__init__()
        self.policy, self.spare = policy, nn.Linear(4, 4)
        self.act, self.evaluate_actions, self.value = policy.act, policy.evaluate_actions, policy.value
        self.distribution, self.auxiliary = policy.distribution, policy.auxiliary


def test_a_module_that_borrows_the_methods_of_ours_learns_what_ours_learns():
    batch, policies = policy_batch(), [MLPPPGModel(OBS, ACTIONS, (8,))]
    policies.append(copy.deepcopy(policies[0]))
    teacher = copy.deepcopy(policies[0])
    for model in (policies[0], Borrowing(policies[1])):
        learner = PPG(model, learning_rate=1e-2)
        learner.update(batch)
        learner.auxiliary_update(batch, teacher_model=teacher)
    torch.testing.assert_close(policies[0].flat, policies[1].flat, atol=1e-5, rtol=1e-4)


def test_values_with_rows_before_critics_are_refused():
    learner = SAC(ActorCritic(2, lambda q: q.T), learning_rate=1e-2)
    with pytest.raises(ValueError, match=r"q_values have shape \(2,\); there must be one number for each of 16 rows"):
        learner.update(batch_of(ROWS, OBS, ACTIONS))


def with_columns(output):
    """The same answer with (rows, 1) for every number of a row."""
    named = {name: value.unsqueeze(-1) for name, value in output._asdict().items() if name not in {"actions", "distribution"}}
    return output._replace(**named)


class InColumns(Policy):
    def value(self, obs):
        return super().value(obs).unsqueeze(-1)

    def evaluate_actions(self, obs, actions):
        policy = self.distribution(obs)
        output = PolicyOutput(actions, policy.log_prob(actions), Policy.value(self, obs), policy.entropy())
        return with_columns(output)

    def auxiliary(self, obs):
        features = self.trunk(obs).tanh()
        plain = Auxiliary(self.distribution(obs), Policy.value(self, obs), self.auxiliary_values(features).squeeze(-1))
        return with_columns(plain)


def test_numbers_of_rows_may_come_as_columns():
    batch, obs = policy_batch(), torch.randn(4, OBS)
    learnt = []
    for kind in (Policy, InColumns):
        torch.manual_seed(0)
        learner = PPG(kind(), learning_rate=1e-2)
        learner.update(batch)
        learner.auxiliary_update(batch, teacher_model=copy.deepcopy(learner.policy))
        learnt.append(
            [*(p.detach() for p in learner.parameters), learner.value(obs), learner.log_prob(batch["obs"], batch["actions"])]
        )
    assert all(map(torch.equal, *learnt))


class Torchs(Policy):
    """The same policy in the words of torch.distributions, or another kind of policy."""

    def __init__(self, distribution):
        super().__init__()
        self.head = distribution

    def distribution(self, obs):
        return self.head(self.logits(self.trunk(obs).tanh()))

    def auxiliary(self, obs):
        return Auxiliary(self.distribution(obs), self.value(obs), self.auxiliary_values(self.trunk(obs).tanh()).squeeze(-1))


SPREAD = torch.tensor([0.3, 0.7])
SAME_POLICIES = {
    "categorical": (Categorical, lambda out: distributions.Categorical(logits=out)),
    "normal": (lambda out: DiagonalGaussian(out, SPREAD.log()), lambda out: distributions.Normal(out, SPREAD)),
    "independent": (
        lambda out: DiagonalGaussian(out, SPREAD.log()),
        lambda out: distributions.Independent(distributions.Normal(out, SPREAD), 1),
    ),
}


@pytest.mark.parametrize(("ours", "torchs"), SAME_POLICIES.values(), ids=SAME_POLICIES)
def test_the_auxiliary_phase_understands_torchs_distributions(ours, torchs):
    batch, told = policy_batch(), []
    for head in (ours, torchs):
        torch.manual_seed(0)
        learner = PPG(Torchs(head), learning_rate=1e-2)
        teacher = Torchs(head)
        told.append(learner.auxiliary_update(batch, teacher_model=teacher).metrics)
    assert told[0]["behavior_clone_loss"] > 0
    for name, value in told[0].items():
        torch.testing.assert_close(value, told[1][name], msg=name)


def test_a_distribution_of_another_kind_is_named_with_those_that_are_known():
    learner = PPG(Torchs(lambda out: distributions.Laplace(out, 1.0)), learning_rate=1e-2)
    with pytest.raises(TypeError, match=r"is a Laplace.*possible: Categorical and Normal"):
        learner.auxiliary_update(policy_batch(), teacher_model=learner.policy)


@pytest.mark.parametrize("name", LEARNERS)
def test_all_networks_of_a_learner_change_their_mode_together(name):
    learner = LEARNERS[name]()
    targets = [learner.target] if hasattr(learner, "target") else []
    parts = [part for module in [*modules(learner), *targets] for part in module.modules()]
    assert learner.eval() is learner
    assert not any(part.training for part in parts)
    assert learner.train() is learner
    assert all(part.training for part in parts)
    assert not any(part.training for part in parts if learner.train(mode=False))


def test_values_at_the_end_of_plans_change_their_mode_too():
    learner = PETS(Ensemble(), learning_rate=1e-2, values=PlanValues(OBS, ACTIONS, (4,))).eval()
    assert not learner.values.model.training
    assert not learner.values.target.training
