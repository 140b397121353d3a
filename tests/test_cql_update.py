"""CQL's penalty worked out by hand, its derived gradients, and what it does to the critics."""

import copy
import math

import pytest
import torch
from replay_batches import batch_of
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from rl_training.algorithms.cql import CQL, CQLAlgorithm, conservative_gap, cql_loss
from rl_training.algorithms.sac import SAC
from rl_training.models.mlp_sac import MLPSACModel


def tensors(critics=2, rows=6, samples=5):
    return {
        "q_values": torch.randn(critics, rows),
        "target_q_values": torch.randn(rows),
        "sampled_q_values": torch.randn(critics, rows, samples),
        "sampled_logprobs": torch.randn(rows, samples),
    }


def learner(**settings):
    return CQL(MLPSACModel(3, 2, (16, 16)), **{"learning_rate": 1e-2, "num_cql_samples": 4} | settings)


def test_the_gap_by_hand():
    q, sampled = torch.tensor([[1.0]]), torch.tensor([[[2.0, 3.0]]])
    logprobs = torch.tensor([[math.log(0.5), 0.0]])
    # mean of exp(2) / 0.5 and exp(3) / 1
    expected = math.log((math.exp(2) / 0.5 + math.exp(3)) / 2) - 1.0
    assert conservative_gap(q, sampled, logprobs).tolist() == pytest.approx([expected])


def test_the_weighted_mean_estimates_the_integral_whatever_the_actions_are_drawn_from():
    """Q(a) = a on [-1, 1]: log ∫ exp(a) da = log(e - 1/e), from uniform actions and from triangular ones."""
    uniform = torch.rand(1, 400_000) * 2 - 1
    triangular = (torch.rand(1, 400_000) + torch.rand(1, 400_000)) - 1
    densities = (torch.full_like(uniform, math.log(0.5)), (1 - triangular.abs()).log())
    for actions, logprobs in zip((uniform, triangular), densities, strict=True):
        gap = conservative_gap(torch.zeros(1, 1), actions.unsqueeze(0), logprobs)
        assert gap.item() == pytest.approx(math.log(math.e - 1 / math.e), abs=0.02)


def test_the_gap_is_moved_by_no_constant():
    t = tensors()
    gap = conservative_gap(t["q_values"], t["sampled_q_values"], t["sampled_logprobs"])
    shifted = conservative_gap(t["q_values"] + 7, t["sampled_q_values"] + 7, t["sampled_logprobs"])
    torch.testing.assert_close(gap, shifted)


def test_the_loss_is_the_bellman_error_and_the_weighted_gap():
    t = tensors()
    losses = cql_loss(t, cql_alpha=5.0)
    gap = conservative_gap(t["q_values"], t["sampled_q_values"], t["sampled_logprobs"])
    assert losses["cql_penalty"].item() == pytest.approx(gap.mean().item())
    assert losses["cql_loss"].item() == pytest.approx((losses["critic_loss"] + 5.0 * gap.sum()).item(), rel=1e-5)
    assert cql_loss(t, cql_alpha=0.0)["cql_loss"] == losses["critic_loss"]


def test_derived_gradients_are_those_of_autograd():
    t = tensors()
    leaves = {name: t[name].clone().requires_grad_() for name in ("q_values", "sampled_q_values")}
    cql_loss(t | leaves, cql_alpha=3.0)["cql_loss"].backward()
    _, d = cql_loss.vjp(t, cql_alpha=3.0)
    for name, leaf in leaves.items():
        torch.testing.assert_close(getattr(d, name), leaf.grad)


class Wrapped(torch.nn.Module):
    """The same networks as any module of a user's; samples are drawn in the same order as ours draws them."""

    def __init__(self, model):
        super().__init__()
        self.inner = [model]
        self.actor, self.critics, self.action_dim = model.actor, model.critics, model.action_dim

    def sample_actions(self, obs, *, deterministic=False):
        return self.inner[0].sample_actions(obs, deterministic=deterministic)

    def q_values(self, obs, actions):
        return self.critics(torch.cat([obs, actions], -1)).squeeze(-1)


def test_a_module_of_a_user_s_learns_what_ours_learns():
    model = MLPSACModel(3, 2, (16, 16))
    twin = copy.deepcopy(model)
    ours = CQL(model, learning_rate=1e-2, num_cql_samples=4, cql_target_gap=1.0)
    theirs = CQL(Wrapped(twin), learning_rate=1e-2, num_cql_samples=4, cql_target_gap=1.0)
    batch = batch_of()
    for i in range(3):
        torch.manual_seed(i)
        one = ours.update(batch).metrics
        torch.manual_seed(i)
        other = theirs.update(batch).metrics
    torch.testing.assert_close(model.critics.flat, twin.critics.flat, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(model.actor.flat, twin.actor.flat, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours.cql_alpha, theirs.cql_alpha)
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=1e-4, rtol=1e-3)


def test_it_is_a_sac_and_without_a_penalty_it_learns_what_sac_learns():
    assert CQLAlgorithm is CQL
    model = MLPSACModel(3, 2, (16, 16))
    cql = CQL(copy.deepcopy(model), learning_rate=1e-2, cql_alpha=0.0, backup_entropy=True)
    sac = SAC(model, learning_rate=1e-2)
    batch = batch_of()
    for each in (cql, sac):
        torch.manual_seed(1)
        each.update_critics(batch)
    torch.testing.assert_close(cql.model.critics.flat, sac.model.critics.flat, atol=1e-6, rtol=1e-5)


def test_unless_told_otherwise_targets_are_the_critics_alone():
    agent, batch = learner(alpha=7.0, gamma=0.5), batch_of(4)
    agent.target.flat.data.zero_()  # whatever is done next is worth nothing
    torch.testing.assert_close(agent.targets(batch), batch["rewards"])


def test_sampled_actions_are_a_third_each_and_know_their_density():
    agent, batch = learner(num_cql_samples=500), batch_of(8)
    actions, logprobs = agent.sampled_actions(batch)
    assert actions.shape == (8, 1500, 2)
    assert actions.abs().max() <= 1
    torch.testing.assert_close(logprobs[:, :500], torch.full((8, 500), 2 * math.log(0.5)))
    assert actions[:, :500].mean().abs() < 0.05
    for part, obs in ((actions[:, 500:1000], batch["obs"]), (actions[:, 1000:], batch["next_obs"])):
        mean = torch.stack([agent.act(obs) for _ in range(500)], 1).mean(1)
        torch.testing.assert_close(part.mean(1), mean, atol=0.15, rtol=0)
    # π's own actions: the mean of exp(-log density) over the samples is the volume of the space
    volume = (-logprobs[:, 500:1000]).exp().mean(1)
    torch.testing.assert_close(volume, torch.full((8,), 4.0), atol=1.5, rtol=0)


@pytest.mark.parametrize("wrapped", [False, True])
def test_each_sampled_action_has_its_log_density_at_the_state_it_was_drawn_at(wrapped):
    model, batch = MLPSACModel(3, 2, (16, 16)), batch_of(8)
    agent = CQL(Wrapped(model) if wrapped else model, learning_rate=1e-2, num_cql_samples=4)
    actions, logprobs = agent.sampled_actions(batch)
    torch.testing.assert_close(logprobs[:, :4], torch.full((8, 4), -math.log(4.0)))  # of the square [-1, 1]²
    for third, obs in ((slice(4, 8), batch["obs"]), (slice(8, 12), batch["next_obs"])):
        mean, log_std = model.actor(obs).detach().unsqueeze(1).chunk(2, dim=-1)
        squashed = TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform()])
        expected = squashed.log_prob(actions[:, third]).sum(-1)
        torch.testing.assert_close(logprobs[:, third], expected, atol=1e-3, rtol=1e-3)


def test_the_penalty_makes_recorded_actions_worth_more_than_others():
    torch.manual_seed(0)
    bold, careful = learner(cql_alpha=0.0), learner(cql_alpha=5.0)
    batch = batch_of(64) | {"actions": torch.full((64, 2), 0.5), "rewards": torch.zeros(64)}
    advantages = []
    for agent in (bold, careful):
        for _ in range(60):
            agent.update_critics(batch)
        recorded = agent.model.q_values(batch["obs"], batch["actions"]).mean()
        other = agent.model.q_values(batch["obs"], torch.rand(64, 2) * 2 - 1).mean()
        advantages.append((recorded - other).item())
    assert advantages[1] > advantages[0] + 0.5


def test_a_tuned_weight_rises_above_the_target_gap_and_falls_below():
    batch = batch_of()
    strict, lenient = learner(cql_target_gap=-10.0, cql_alpha=1.0), learner(cql_target_gap=50.0, cql_alpha=1.0)
    for agent in (strict, lenient):
        for _ in range(5):
            agent.update_critics(batch)
    assert lenient.cql_alpha < 1.0 < strict.cql_alpha


def test_a_fixed_weight_stays_unless_it_is_scheduled():
    agent = learner(cql_alpha=2.0)
    agent.update(batch_of())
    assert agent.cql_alpha.item() == pytest.approx(2.0)
    agent.schedule("cql_alpha", 0.5)
    assert agent.cql_alpha.item() == pytest.approx(0.5)


def test_the_metrics_name_both_parts_of_the_loss():
    metrics = learner().update(batch_of(), global_step=0).metrics
    assert {"critic_loss", "cql_penalty", "cql_loss", "actor_loss", "cql_alpha", "alpha"} <= metrics.keys()
    assert all(torch.isfinite(value) for value in metrics.values())
