"""ReBRAC's two penalties worked out by hand, what they do, and TD3 and TD3+BC as its limits."""

import copy

import pytest
import torch
from replay_batches import batch_of

from rl_training.algorithms.rebrac import ReBRAC, ReBRACAlgorithm, cloning_actor_loss, distance, rebrac_loss
from rl_training.algorithms.td3 import TD3
from rl_training.models.mlp_td3 import MLPTD3Model
from rl_training.options.rebrac import ReBRACConfig


def learner(**settings):
    return ReBRAC(MLPTD3Model(3, 2, (16, 16)), **{"learning_rate": 1e-2, "policy_noise": 0.0} | settings)


def whole_batch(rows=8):
    return batch_of(rows) | {"next_actions": torch.rand(rows, 2) * 2 - 1, "next_known": torch.ones(rows)}


def test_distances_are_summed_over_the_dimensions_by_hand():
    assert distance(torch.tensor([[0.5, -1.0]]), torch.tensor([[0.0, 1.0]])).tolist() == [4.25]


def test_the_actor_s_loss_by_hand():
    q_values = torch.tensor([[2.0, -4.0], [3.0, -2.0]])  # the lower are 2 and -4, of mean size 3
    actions, recorded = torch.tensor([[0.5], [0.0]]), torch.tensor([[0.0], [1.0]])
    losses, d = cloning_actor_loss.vjp(q_values, actions, recorded, penalty_coef=0.1)
    assert losses["actor_loss"].item() == pytest.approx(((0.025 - 2 / 3) + (0.1 + 4 / 3)) / 2)
    assert losses["actor_penalty"].item() == pytest.approx(0.625)
    # the lower critic of each row over the mean size, which itself is held fast; and 2 · 0.1 · difference over two rows
    torch.testing.assert_close(d.q_values, torch.tensor([[-1 / 6, -1 / 6], [0.0, 0.0]]))
    torch.testing.assert_close(d.actions, torch.tensor([[0.05], [-0.1]]))


def test_the_size_of_rewards_leaves_the_penalty_its_weight():
    q_values, actions, recorded = torch.randn(2, 8), torch.randn(8, 2), torch.randn(8, 2)
    small, large = (cloning_actor_loss(q_values * scale, actions, recorded, penalty_coef=0.3) for scale in (1.0, 1e3))
    torch.testing.assert_close(small["actor_loss"], large["actor_loss"])


def test_targets_by_hand():
    agent = learner(gamma=0.5, critic_penalty_coef=0.2)
    agent.target.actor.flat.data.zero_()  # does nothing
    agent.target.critics.flat.data.zero_()
    agent.target.critics.layers("net")[-1].bias.fill_(10.0)
    batch = whole_batch(3) | {
        "rewards": torch.ones(3),
        "next_actions": torch.full((3, 2), 0.5),  # at a squared distance of 0.5
        "next_known": torch.tensor([1.0, 0.0, 1.0]),
        "dones": torch.tensor([0.0, 0.0, 1.0]),
    }
    torch.testing.assert_close(agent.targets(batch), torch.tensor([1 + 0.5 * (10 - 0.2 * 0.5), 1 + 0.5 * 10, 1.0]))


def test_critics_without_a_penalty_ask_for_no_next_action():
    agent = learner(critic_penalty_coef=0.0)
    agent.update(batch_of(8))


def test_without_penalties_the_critics_learn_what_those_of_td3_learn():
    model, batch = MLPTD3Model(3, 2, (16, 16)), batch_of(8)
    settings = {"learning_rate": 1e-2, "policy_noise": 0.0}
    td3 = TD3(copy.deepcopy(model), **settings)
    rebrac = ReBRAC(model, actor_penalty_coef=0.0, critic_penalty_coef=0.0, **settings)
    for agent in (td3, rebrac):
        agent.update(batch)
    torch.testing.assert_close(rebrac.model.critics.flat, td3.model.critics.flat)


def test_a_step_of_the_actor_is_that_of_td3_bc():
    """Its loss is -2.5 Q / mean |Q| + the mean squared error over all numbers: ours times 2.5 at a penalty of 1 / (2.5 · 2)."""
    agent, batch = learner(actor_penalty_coef=1 / 5.0), batch_of(16)
    critics = agent.model.critics
    for part in critics.layers("net"):  # equal critics, of which the first is the lowest
        for tensor in part[:2]:
            tensor[1] = tensor[0]
    theirs = copy.deepcopy(agent.model)
    actions = theirs.actor(batch["obs"])
    q = theirs.q_values(batch["obs"], actions)[0]
    loss = -(2.5 / q.abs().mean().detach()) * q.mean() + (actions - batch["actions"]).square().mean()
    loss.backward()
    taken = []
    agent.actor_optimizer.step = taken.extend
    with torch.no_grad():
        agent.update_actor(batch)
    torch.testing.assert_close(taken[0] * 2.5, theirs.actor.flat.grad, atol=1e-6, rtol=1e-4)


def test_a_large_penalty_makes_it_clone_and_none_lets_it_climb():
    torch.manual_seed(0)
    cloned = {}
    for coef in (0.0, 100.0):
        agent = learner(actor_penalty_coef=coef, policy_delay=1)
        batch = whole_batch(64) | {"actions": torch.full((64, 2), 0.4)}
        for _ in range(150):
            agent.update(batch)
        cloned[coef] = (agent.act(batch["obs"]) - 0.4).abs().mean().item()
    assert cloned[100.0] < 0.05
    assert cloned[0.0] > 0.3


def test_the_critics_stay_as_they_are_while_the_actor_learns():
    agent, batch = learner(), whole_batch()
    before = agent.model.critics.flat.clone()
    with torch.no_grad():
        agent.update_actor(batch)
    assert torch.equal(agent.model.critics.flat, before)


def test_online_the_actor_s_penalty_falls_to_nothing_and_that_of_the_critics_is_gone_by_hand():
    options = ReBRACConfig(online_timesteps=50, actor_penalty_coef=0.2, critic_penalty_coef=0.1)
    values = [options.scheduled_values(step, 150) for step in (0, 99, 100, 125, 150)]
    assert [value["actor_penalty_coef"] for value in values] == pytest.approx([0.2, 0.2, 0.2, 0.1, 0.0])
    assert [value["critic_penalty_coef"] for value in values] == [0.1, 0.1, 0.0, 0.0, 0.0]
    offline = ReBRACConfig(actor_penalty_coef=0.2).scheduled_values(100, 100)
    assert offline["actor_penalty_coef"] == 0.2


def test_the_public_loss_is_both():
    batch = {name: torch.randn(6) for name in ("q1_values", "q2_values", "target_q_values", "sampled_q1", "sampled_q2")}
    batch |= {"sampled_actions": torch.randn(6, 2), "actions": torch.randn(6, 2)}
    losses = rebrac_loss(batch, actor_penalty_coef=0.5)
    q = torch.minimum(batch["sampled_q1"], batch["sampled_q2"])
    penalty = (batch["sampled_actions"] - batch["actions"]).square().sum(-1)
    torch.testing.assert_close(losses["actor_loss"], 0.5 * penalty.mean() - q.mean() / q.abs().mean())
    errors = torch.stack([batch[f"q{i}_values"] - batch["target_q_values"] for i in (1, 2)])
    torch.testing.assert_close(losses["critic_loss"], errors.square().mean(1).sum())


def test_the_metrics_name_both_losses_and_the_distance():
    assert ReBRACAlgorithm is ReBRAC
    metrics = learner(policy_delay=1).update(whole_batch(), global_step=0).metrics
    assert {"critic_loss", "target_q_mean", "actor_loss", "actor_penalty"} == metrics.keys()
    assert all(torch.isfinite(value) for value in metrics.values())
