"""What holds for TD3 and DDPG alike: how they act, what they copy, and that a user's module learns alike."""

import copy

import pytest
import torch
from replay_batches import batch_of

from rl_training.algorithms.ddpg import DDPG
from rl_training.algorithms.td3 import TD3
from rl_training.models.mlp_ddpg import MLPDDPGModel
from rl_training.models.mlp_td3 import MLPTD3Model

KINDS = [(TD3, MLPTD3Model), (DDPG, MLPDDPGModel)]
both = pytest.mark.parametrize(("learner_class", "model_class"), KINDS, ids=["td3", "ddpg"])


class Wrapped(torch.nn.Module):
    """The same networks as any module of a user's."""

    def __init__(self, model):
        super().__init__()
        self.actor, self.critics = model.actor, model.critics

    def q_values(self, obs, actions):
        return self.critics(torch.cat([obs, actions], -1)).squeeze(-1)


def parameters(learner):
    networks = (learner.model, learner.target)
    return torch.cat([vector for each in networks for vector in (each.actor.flat.detach(), each.critics.flat.detach())])


@both
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_module_of_a_user_s_learns_what_ours_learns(learner_class, model_class, activation):
    model = model_class(3, 2, (16, 16), activation=activation)
    ours = learner_class(model, learning_rate=1e-2, tau=0.1)
    theirs = learner_class(Wrapped(copy.deepcopy(model)), learning_rate=1e-2, tau=0.1)
    batch = batch_of()
    for i in range(4):
        torch.manual_seed(i)
        one = ours.update(batch).metrics
        torch.manual_seed(i)
        other = theirs.update(batch).metrics
        assert one.keys() == other.keys()
    torch.testing.assert_close(parameters(ours), parameters(theirs), atol=1e-5, rtol=1e-4)
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=1e-4, rtol=1e-3)


@both
def test_an_actor_that_climbs_a_known_slope_takes_the_step_worked_out_by_hand(learner_class, model_class):
    model = model_class(1, 1, ())
    model.actor.flat.data.zero_()  # the action is tanh(0) = 0 wherever it is
    model.critics.flat.data.zero_()
    model.critics.flat.data[1] = 3.0  # the first critic: Q(s, a) = 3 a
    learner = learner_class(model, learning_rate=0.01)
    losses = learner.update_actor({"obs": torch.tensor([[2.0], [4.0]])})
    assert losses["actor_loss"].item() == 0.0
    # d loss / d (weight, bias) = -3 · (mean obs, 1) = (-9, -3), and Adam's first step has the length of its rate
    torch.testing.assert_close(learner.actor_optimizer.exp_avg[0], 0.1 * torch.tensor([-9.0, -3.0]))
    torch.testing.assert_close(model.actor.flat.detach(), torch.tensor([0.01, 0.01]))


@both
def test_the_actor_step_leaves_the_critics_alone_and_the_critic_step_the_actor(learner_class, model_class):
    learner = learner_class(model_class(3, 2, (8,)), learning_rate=1e-2)
    critics, actor = learner.model.critics.flat.detach().clone(), learner.model.actor.flat.detach().clone()
    learner.update_critics(batch_of())
    assert torch.equal(actor, learner.model.actor.flat)
    assert not torch.equal(critics, learner.model.critics.flat)
    critics = learner.model.critics.flat.detach().clone()
    learner.update_actor(batch_of())
    assert torch.equal(critics, learner.model.critics.flat)


@both
def test_actor_and_critics_have_target_copies_and_both_follow_by_tau(learner_class, model_class):
    learner = learner_class(model_class(3, 2, (8,)), learning_rate=1e-2, tau=0.25)
    for network in (learner.model.actor, learner.model.critics):
        network.flat.data += 1.0
    before = [learner.target.actor.flat.clone(), learner.target.critics.flat.clone()]
    learner.move_targets()
    for was, target, online in zip(
        before,
        (learner.target.actor.flat, learner.target.critics.flat),
        (learner.model.actor.flat, learner.model.critics.flat),
        strict=True,
    ):
        torch.testing.assert_close(target, was + 0.25)
        torch.testing.assert_close(online.detach(), was + 1.0)


@both
def test_the_next_action_is_the_target_actor_s_not_the_current_one_s(learner_class, model_class):
    learner = learner_class(model_class(3, 2, (8,)), learning_rate=1e-2)
    batch = batch_of()
    torch.manual_seed(1)
    before = learner.targets(batch)
    learner.model.actor.flat.data += 1.0
    learner.model.critics.flat.data += 1.0
    torch.manual_seed(1)
    assert torch.equal(learner.targets(batch), before)
    learner.target.actor.flat.data += 1.0
    torch.manual_seed(1)
    assert not torch.equal(learner.targets(batch), before)


@both
def test_a_cut_keeps_the_future_value_and_a_real_end_does_not(learner_class, model_class):
    model = model_class(1, 1, ())
    model.critics.flat.data.zero_()
    learner = learner_class(model, learning_rate=1e-3, gamma=0.5)
    learner.target.critics.flat.data[-learner.target.num_critics :] = 10.0  # the biases: every value is 10
    rewards, dones, cuts = torch.ones(3), torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 1.0, 1.0])
    batch = batch_of(3, 1, 1) | {"rewards": rewards, "dones": dones, "cuts": cuts}
    assert learner.targets(batch).tolist() == [6.0, 6.0, 1.0]


@both
def test_exploration_has_the_noise_asked_for_and_acting_has_none(learner_class, model_class):
    learner = learner_class(model_class(3, 2, (8,)), learning_rate=1e-3, exploration_noise=0.1)
    learner.model.actor.flat.data *= 0.1  # far from the bounds, where nothing is clipped
    obs = torch.randn(20_000, 3)
    noise = learner.explore(obs) - learner.act(obs)
    assert noise.mean().abs() < 0.002
    assert noise.std().item() == pytest.approx(0.1, rel=0.02)
    state = torch.get_rng_state()
    assert torch.equal(learner.act(obs), learner.act(obs, deterministic=True))
    assert torch.equal(state, torch.get_rng_state())
    torch.testing.assert_close(learner.act(obs), learner.model.actor(obs).detach())


@both
def test_explored_actions_stay_within_the_bounds(learner_class, model_class):
    learner = learner_class(model_class(3, 2, (8,)), learning_rate=1e-3, exploration_noise=5.0)
    actions = learner.explore(torch.randn(1_000, 3))
    assert actions.min() == -1.0
    assert actions.max() == 1.0


@both
def test_exploration_noise_can_follow_a_schedule(learner_class, model_class):
    learner = learner_class(model_class(3, 2, (8,)), learning_rate=1e-3)
    learner.schedule("exploration_noise", 0.0)
    obs = torch.randn(4, 3)
    assert torch.equal(learner.explore(obs), learner.act(obs))


@both
def test_the_actor_may_have_a_rate_of_its_own(learner_class, model_class):
    learner = learner_class(model_class(3, 2, (8,)), learning_rate=1e-3, actor_learning_rate=1e-4)
    learner.schedule("learning_rate", 5e-4)  # half of all rates
    assert learner.critic_optimizer.learning_rate == pytest.approx(5e-4)
    assert learner.actor_optimizer.learning_rate == pytest.approx(5e-5)


@both
def test_a_single_observation_is_answered_like_the_same_one_in_a_batch(learner_class, model_class):
    model = model_class(3, 2, (8,))
    obs, actions = torch.randn(4, 3), torch.rand(4, 2)
    q = model.q_values(obs, actions)
    assert q.shape == (model.num_critics, 4)
    torch.testing.assert_close(model.q_values(obs[1], actions[1]), q[:, 1])
    torch.testing.assert_close(model.actor(obs[1]), model.actor(obs)[1])
    assert model.actor(100 * obs).abs().max() <= 1.0


@both
def test_the_learner_goes_on_from_its_state_bit_for_bit(learner_class, model_class):
    def learner(seed):
        torch.manual_seed(seed)
        return learner_class(model_class(3, 2, (8,)), learning_rate=1e-2)

    one, other, batch = learner(1), learner(2), batch_of()
    for _ in range(3):  # an odd number: TD3 stands between two updates of its actor
        one.update(batch)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    results, metrics = [], []
    for each in (one, other):
        torch.manual_seed(7)
        metrics.append(each.update(batch).metrics)
        results.append(parameters(each))
    assert torch.equal(*results)
    assert metrics[0] == metrics[1]


def test_td3_without_what_it_adds_is_ddpg():
    single, twin = MLPDDPGModel(3, 2, (8,)), MLPTD3Model(3, 2, (8,))
    twin.actor.load_state_dict(single.actor.state_dict())
    for mine, theirs in zip(twin.critics.layers("net"), single.critics.layers("net"), strict=True):
        mine.weight.copy_(theirs.weight.expand_as(mine.weight))
        mine.bias.copy_(theirs.bias.expand_as(mine.bias))
    ddpg = DDPG(single, learning_rate=1e-2, tau=0.1)
    td3 = TD3(twin, learning_rate=1e-2, tau=0.1, policy_noise=0.0, policy_delay=1)
    for _ in range(4):
        batch = batch_of()
        one, other = ddpg.update(batch).metrics, td3.update(batch).metrics
    torch.testing.assert_close(single.actor.flat, twin.actor.flat)
    torch.testing.assert_close(ddpg.target.actor.flat, td3.target.actor.flat)
    torch.testing.assert_close(other["critic_loss"], 2 * one["critic_loss"])  # the same error, counted for each critic
    torch.testing.assert_close(other["actor_loss"], one["actor_loss"])
