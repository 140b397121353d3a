"""PPO's losses worked out by hand, its written gradient held against autograd, and what an update must do."""

import copy
import itertools
import math

import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal

from rl_training.algorithms.ppo import PPO, normalized, ppo_loss
from rl_training.models.heads import Categorical, DiagonalGaussian
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.normalizer import ObservationNormalizer

COEFFICIENTS = {"clip_coef": 0.2, "ent_coef": 0.1, "vf_coef": 0.5}


def minibatch(**changes):
    columns = {
        "logprobs": torch.zeros(2),
        "new_logprobs": torch.tensor([math.log(1.5), math.log(0.5)]),
        "advantages": torch.tensor([1.0, -1.0]),
        "returns": torch.tensor([1.0, 3.0]),
        "new_values": torch.tensor([0.0, 1.0]),
        "entropy": torch.tensor([0.6, 0.8]),
    }
    return columns | {name: torch.tensor(value) for name, value in changes.items()}


def test_the_loss_by_hand():
    losses = ppo_loss(minibatch(), **COEFFICIENTS)
    # ratios 1.5 and 0.5: min(1.5, 1.2)·1 = 1.2 and min(0.5·-1, 0.8·-1) = -0.8
    assert losses["policy_loss"].item() == pytest.approx(-(1.2 - 0.8) / 2)
    assert losses["value_loss"].item() == pytest.approx((1.0 + 4.0) / 2)
    assert losses["entropy_loss"].item() == pytest.approx(0.7)
    assert losses["loss"].item() == pytest.approx(-0.2 + 0.5 * 2.5 - 0.1 * 0.7)
    assert losses["clip_fraction"].item() == 1.0
    assert losses["approx_kl"].item() == pytest.approx(((0.5 - math.log(1.5)) + (-0.5 - math.log(0.5))) / 2, rel=1e-5)


def test_an_unmoved_policy_has_no_divergence_and_clips_nothing():
    losses = ppo_loss(minibatch(new_logprobs=[0.0, 0.0]), **COEFFICIENTS)
    assert losses["approx_kl"].item() == 0.0
    assert losses["clip_fraction"].item() == 0.0
    assert losses["policy_loss"].item() == 0.0  # advantages 1 and -1


def test_a_clipped_value_may_only_gain_within_the_range():
    columns = minibatch(new_values=[0.9, 1.0]) | {"values": torch.tensor([0.0, 1.0])}
    losses = ppo_loss(columns, **COEFFICIENTS, clip_value=True)
    assert losses["value_loss"].item() == pytest.approx((0.8**2 + 4.0) / 2)  # 0.9 counts as 0.2


@pytest.mark.parametrize("clip_value", [False, True])
def test_the_written_gradient_is_that_of_autograd(clip_value):
    columns = {name: torch.randn(64, dtype=torch.float64) for name in ("logprobs", "advantages", "returns", "values")}
    moved = {
        "new_logprobs": columns["logprobs"] + 0.3 * torch.randn(64, dtype=torch.float64),
        "new_values": columns["values"] + 0.3 * torch.randn(64, dtype=torch.float64),
        "entropy": torch.rand(64, dtype=torch.float64),
    }
    leaves = {name: value.clone().requires_grad_() for name, value in moved.items()}
    ppo_loss(columns | leaves, **COEFFICIENTS, clip_value=clip_value)["loss"].backward()
    _, d = ppo_loss.vjp(columns | moved, **COEFFICIENTS, clip_value=clip_value)
    for name, leaf in leaves.items():
        torch.testing.assert_close(getattr(d, name), leaf.grad)


def test_categorical_agrees_with_torch():
    logits, teacher_logits = torch.randn(50, 4), torch.randn(50, 4)
    actions = torch.randint(4, (50,))
    mine, theirs = Categorical(logits), TorchCategorical(logits=logits)
    torch.testing.assert_close(mine.log_prob(actions), theirs.log_prob(actions))
    torch.testing.assert_close(mine.entropy(), theirs.entropy())
    expected = torch.distributions.kl_divergence(TorchCategorical(logits=teacher_logits), theirs)
    torch.testing.assert_close(mine.kl_from(Categorical(teacher_logits)), expected)


def test_gaussian_agrees_with_torch():
    mean, log_std, teacher_mean = torch.randn(50, 3), torch.randn(3), torch.randn(50, 3)
    actions = torch.randn(50, 3)
    mine, theirs = DiagonalGaussian(mean, log_std), Independent(Normal(mean, log_std.exp()), 1)
    torch.testing.assert_close(mine.log_prob(actions), theirs.log_prob(actions))
    torch.testing.assert_close(mine.entropy(), theirs.entropy())
    teacher_std = torch.full((3,), 0.3)
    expected = torch.distributions.kl_divergence(Independent(Normal(teacher_mean, teacher_std.exp()), 1), theirs)
    torch.testing.assert_close(mine.kl_from(DiagonalGaussian(teacher_mean, teacher_std)), expected)


def test_categorical_samples_have_the_stated_frequencies():
    probabilities = torch.tensor([0.1, 0.2, 0.7])
    samples = Categorical(probabilities.log().expand(200_000, 3)).sample()
    frequencies = torch.bincount(samples, minlength=3) / 200_000
    torch.testing.assert_close(frequencies, probabilities, atol=5e-3, rtol=0)


def batch_for(model, rows=64):
    obs = torch.randn(rows, model.obs_dim)
    with torch.no_grad():
        output = model.act(obs)
    return {
        "obs": obs,
        "actions": output.actions,
        "logprobs": output.logprobs + 0.1 * torch.randn(rows),
        "advantages": torch.randn(rows),
        "returns": torch.randn(rows),
    }


class Wrapped(torch.nn.Module):
    """The same networks as any module of a user's."""

    def __init__(self, policy):
        super().__init__()
        self.policy = policy

    def evaluate_actions(self, obs, actions, **allowed):
        return self.policy.evaluate_actions(obs, actions, **allowed)


@pytest.mark.parametrize("discrete", [True, False])
def test_a_module_of_a_user_s_learns_what_ours_learns(discrete):
    model = MLPActorCritic(4, 2, (16, 16), discrete=discrete)
    twin = copy.deepcopy(model)
    ours, theirs = (PPO(m, learning_rate=1e-2, ent_coef=0.01) for m in (model, Wrapped(twin)))
    batch = batch_for(model)
    for _ in range(3):
        one, other = ours.update(batch), theirs.update(batch)
    torch.testing.assert_close(model.flat, twin.flat, atol=1e-6, rtol=1e-5)
    for name in one.metrics:
        torch.testing.assert_close(one.metrics[name], other.metrics[name], atol=1e-5, rtol=1e-4)


def masked_batch(model, rows=64):
    """As a rollout under masks that allow half of the choices: the last of the first part never, the first always."""
    obs, masks = torch.randn(rows, model.obs_dim), torch.rand(rows, model.action_dim) < 0.5
    firsts = [0, *itertools.accumulate(model.nvec[:-1])]
    masks[:, firsts], masks[:, (model.nvec or (model.action_dim,))[0] - 1] = True, False
    with torch.no_grad():
        output = model.act(obs, action_masks=masks)
    columns = {"obs": obs, "actions": output.actions, "logprobs": output.logprobs, "action_masks": masks}
    return columns | {"advantages": torch.randn(rows), "returns": torch.randn(rows)}


@pytest.mark.parametrize("nvec", [(), (3, 2, 4)])
def test_a_module_of_a_user_s_learns_under_masks_what_ours_learns(nvec):
    model = MLPActorCritic(4, 9, (16, 16), nvec=nvec)
    twin = copy.deepcopy(model)
    ours, theirs = (PPO(m, learning_rate=1e-2, ent_coef=0.01) for m in (model, Wrapped(twin)))
    batch = masked_batch(model)
    for _ in range(3):
        one, other = ours.update(batch), theirs.update(batch)
    torch.testing.assert_close(model.flat, twin.flat, atol=1e-6, rtol=1e-5)
    for name in one.metrics:
        torch.testing.assert_close(one.metrics[name], other.metrics[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("nvec", [(), (3, 2, 4)])
def test_an_unmoved_policy_has_a_ratio_of_one_under_the_masks_it_acted_under_and_no_other(nvec):
    model = MLPActorCritic(4, 9, (16,), nvec=nvec)
    batch = masked_batch(model)
    learner = PPO(model, learning_rate=1e-9)
    said = learner.log_prob(batch["obs"], batch["actions"], action_masks=batch["action_masks"])
    torch.testing.assert_close(said, batch["logprobs"])
    assert learner.update(batch).metrics["approx_kl"].abs() < 1e-6
    forgotten = {name: column for name, column in batch.items() if name != "action_masks"}
    assert learner.update(forgotten).metrics["approx_kl"] > 0.1


def test_what_is_never_allowed_is_never_learnt_about():
    model = MLPActorCritic(4, 5, (8,), nvec=(3, 2))
    before = [values.clone() for values in model.layers("policy")[-1][:2]]
    learner = PPO(model, learning_rate=1e-2, ent_coef=0.1)
    for _ in range(3):
        learner.update(masked_batch(model))
    for old, new in zip(before, model.layers("policy")[-1][:2], strict=True):
        assert torch.equal(new[..., 2], old[..., 2])
        assert not torch.equal(new[..., 1], old[..., 1])


def test_one_observation_takes_one_mask_and_nothing_forbidden_is_done():
    model = MLPActorCritic(3, 5, (8,), nvec=(2, 3))
    masks = torch.tensor([False, True, False, False, True])
    for deterministic in (True, False):
        output = model.act(torch.randn(3), deterministic=deterministic, action_masks=masks)
        assert output.actions.tolist() == [1, 2]
        assert (output.logprobs.item(), output.entropy.item()) == (0.0, 0.0)
    learner = PPO(model, learning_rate=1e-3)
    assert learner.act(torch.randn(3), action_masks=masks).tolist() == [1, 2]


def test_continuous_actions_have_no_masks():
    with pytest.raises(ValueError, match="continuous actions have no masks"):
        MLPActorCritic(3, 2, (8,), discrete=False).act(torch.randn(3), action_masks=torch.ones(2))


@pytest.mark.parametrize(("action_dim", "discrete"), [(4, True), (5, False)])
def test_parts_that_are_not_the_actions_are_refused(action_dim, discrete):
    with pytest.raises(ValueError, match=r"nvec=\(2, 3\)"):
        MLPActorCritic(3, action_dim, (8,), discrete=discrete, nvec=(2, 3))


def test_updates_make_a_rewarded_action_likelier_and_values_nearer():
    model = MLPActorCritic(3, 2, (16,))
    learner = PPO(model, learning_rate=1e-2, normalize_advantages=False)
    obs, actions = torch.randn(32, 3), torch.ones(32, dtype=torch.int64)
    batch = {
        "obs": obs,
        "actions": actions,
        "logprobs": learner.log_prob(obs, actions),
        "advantages": torch.ones(32),
        "returns": torch.full((32,), 2.0),
    }
    before = learner.log_prob(obs, actions).mean(), (learner.value(obs) - 2.0).abs().mean()
    result = [learner.update(batch) for _ in range(20)][-1]
    assert learner.log_prob(obs, actions).mean() > before[0]
    assert (learner.value(obs) - 2.0).abs().mean() < before[1]
    assert result.num_gradient_steps == 1


def test_a_module_of_the_users_learns_by_autograd():
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(3, 2)

        def act(self, obs, *, deterministic=False):
            return self.evaluate_actions(obs, Categorical(self.net(obs)).sample())

        def evaluate_actions(self, obs, actions):
            from rl_training.models.heads import PolicyOutput

            policy = Categorical(self.net(obs))
            return PolicyOutput(actions, policy.log_prob(actions), self.value(obs), policy.entropy())

        def value(self, obs):
            return self.net(obs)[..., 0]

    model = Own()
    model.obs_dim = 3
    learner = PPO(model, learning_rate=1e-2)
    before = model.net.weight.detach().clone()
    learner.update(batch_for(model))
    assert not torch.equal(before, model.net.weight)
    assert learner.act(torch.randn(5, 3)).shape == (5,)


class Acting(Wrapped):
    def act(self, obs, *, deterministic=False):
        return self.policy.act(obs, deterministic=deterministic)


@pytest.mark.parametrize("kept", [MLPActorCritic, Acting])
@pytest.mark.parametrize("hidden_sizes", [(16,), ()])
def test_whoever_acts_or_explores_sees_observations_as_the_statistics_show_them(kept, hidden_sizes):
    policy = MLPActorCritic(3, 2, hidden_sizes, discrete=False, log_std_init=-20.0)  # what is drawn is the mean
    normalizer = ObservationNormalizer(3)
    normalizer.observe(torch.tensor([[-1.0] * 3, [3.0] * 3]))  # mean 1, standard deviation 2
    model = policy if kept is MLPActorCritic else Acting(policy)
    learner = PPO(model, learning_rate=1e-3, observation_normalizer=normalizer)
    obs = torch.randn(5, 3)
    mean = policy.act(obs, deterministic=True).actions
    raw = 1 + 2 * obs
    for actions in (learner.explore(raw), learner.act(raw), learner.act(raw, deterministic=True)):
        torch.testing.assert_close(actions, mean, atol=1e-5, rtol=1e-5)


def test_a_single_observation_is_accepted():
    model = MLPActorCritic(4, 3, (8,))
    output = model.act(torch.randn(4))
    assert output.actions.shape == output.values.shape == output.logprobs.shape == ()


def test_normalised_advantages_have_mean_zero_and_spread_one():
    values = normalized(torch.tensor([1.0, 2.0, 3.0]))
    assert values.tolist() == pytest.approx([-1.0, 0.0, 1.0])
    assert normalized(torch.tensor([5.0])).item() == 0.0


def test_the_learner_goes_on_from_its_state_bit_for_bit():
    def learner():
        torch.manual_seed(3)
        return PPO(MLPActorCritic(4, 2, (8,)), learning_rate=1e-2, observation_normalizer=ObservationNormalizer(4))

    one, other = learner(), learner()
    batch = batch_for(one.policy)
    one.update(batch)
    one.observe(torch.randn(20, 4))
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    one.update(batch)
    other.update(batch)
    assert torch.equal(one.policy.flat, other.policy.flat)
    obs = torch.randn(5, 4)
    assert torch.equal(one.normalize(obs), other.normalize(obs))


def test_a_scheduled_learning_rate_moves_the_optimiser():
    learner = PPO(MLPActorCritic(4, 2, (8,)), learning_rate=1e-2)
    for _ in range(2):  # a value to be at, not a step to take
        learner.schedule("learning_rate", 5e-3)
    learner.schedule("clip_coef", 0.1)
    assert learner.optimizer.learning_rate == pytest.approx(5e-3)
    assert learner.clip_coef == 0.1
