"""PPG's two phases: what each may move, its losses by hand, its written gradients held against autograd."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn

from rl_training.algorithms.ppg import PPG, PPGAlgorithm, ppg_auxiliary_loss, ppg_loss
from rl_training.algorithms.ppo import PPO, ppo_loss
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_ppg import MLPPPGModel

ARCHITECTURES = ("shared", "dual")
DISCRETE = (True, False)


class Foreign(nn.Module):
    """A user's own module, which PPG differentiates by autograd."""

    def __init__(self, model):
        super().__init__()
        self.model, self.obs_dim = model, model.obs_dim

    def __getattr__(self, name):
        if name in ("act", "evaluate_actions", "value", "distribution", "auxiliary"):
            return getattr(self.model, name)
        return super().__getattr__(name)


def policy_batch(model, rows=64):
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


def auxiliary_batch(rows=64, obs_dim=4):
    obs = torch.randn(rows, obs_dim)
    return {"obs": obs, "returns": obs.sum(-1)}


def auxiliary_columns(discrete, rows=16):
    columns = {name: torch.randn(rows, dtype=torch.float64) for name in ("values", "auxiliary_values", "returns")}
    names = ("logits",) if discrete else ("mean", "log_std")
    return columns | {f"{who}_{n}": torch.randn(rows, 3, dtype=torch.float64) for who in ("policy", "teacher") for n in names}


def test_the_auxiliary_loss_by_hand():
    batch = {
        "policy_logits": torch.zeros(2, 2),
        "teacher_logits": torch.tensor([[0.75, 0.25], [0.5, 0.5]]).log(),
        "values": torch.tensor([2.0, 1.0]),
        "auxiliary_values": torch.tensor([1.0, 3.0]),
        "returns": torch.tensor([0.0, 1.0]),
    }
    losses = ppg_auxiliary_loss(batch, aux_value_coef=2.0, behavior_clone_coef=3.0, value_clone_coef=0.5)
    clone = (0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)) / 2  # the second row agrees
    assert losses["aux_value_loss"].item() == pytest.approx((1.0 + 4.0) / 2 / 2)
    assert losses["value_clone_loss"].item() == pytest.approx(4.0 / 2 / 2)
    assert losses["behavior_clone_loss"].item() == pytest.approx(clone)
    assert losses["auxiliary_loss"].item() == pytest.approx(2.0 * 1.25 + 3.0 * clone + 0.5 * 1.0)


def test_the_divergence_is_taken_from_the_teacher_not_from_the_student():
    certain, even = torch.tensor([[0.0, -200.0]]), torch.zeros(1, 2)
    rest = {name: torch.zeros(1) for name in ("values", "auxiliary_values", "returns")}
    losses = ppg_auxiliary_loss(rest | {"teacher_logits": certain, "policy_logits": even})
    assert losses["behavior_clone_loss"].item() == pytest.approx(math.log(2))  # the other way round it would be 100 − log 2


def test_a_gaussian_policy_one_deviation_away_has_a_divergence_of_one_half():
    batch = {name: torch.zeros(1) for name in ("values", "auxiliary_values", "returns")}
    batch |= {f"policy_{name}": torch.zeros(1, 2) for name in ("mean", "log_std")}
    batch |= {"teacher_mean": torch.tensor([[1.0, 0.0]]), "teacher_log_std": torch.zeros(1, 2)}
    assert ppg_auxiliary_loss(batch)["behavior_clone_loss"].item() == pytest.approx(0.5)


def test_the_policy_phase_has_the_loss_of_ppo():
    assert ppg_loss is ppo_loss
    assert PPGAlgorithm is PPG


@pytest.mark.parametrize("discrete", DISCRETE)
def test_the_derived_auxiliary_gradient_is_that_of_autograd(discrete):
    coefficients = {"aux_value_coef": 0.7, "behavior_clone_coef": 1.3, "value_clone_coef": 0.4}
    columns = auxiliary_columns(discrete)
    moving = [n for n in columns if n.startswith("policy") or n.endswith("values")]
    leaves = {name: columns[name].clone().requires_grad_() for name in moving}
    ppg_auxiliary_loss(columns | leaves, **coefficients)["auxiliary_loss"].backward()
    _, d = ppg_auxiliary_loss.vjp(columns, wrt=moving, **coefficients)
    for name, leaf in leaves.items():
        torch.testing.assert_close(getattr(d, name), leaf.grad)


@pytest.mark.parametrize("hidden_sizes", [(16, 16), (8,), ()])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_in_the_policy_phase_the_value_gradient_does_not_reach_the_trunk(architecture, hidden_sizes):
    model = MLPPPGModel(4, 2, hidden_sizes, architecture=architecture)
    batch = policy_batch(model)
    nothing = torch.zeros(64)
    _, pull = model.evaluate_actions.vjp(batch["obs"], batch["actions"])
    (gradient,) = pull(None, nothing, torch.randn(64), nothing)
    d_policy, d_value = (model.slice_of(gradient, name) for name in ("policy", "value"))
    assert torch.equal(d_policy, torch.zeros_like(d_policy))
    assert (d_value != 0).any()

    model.evaluate_actions(batch["obs"], batch["actions"]).values.square().sum().backward()
    by_autograd = model.flat.grad.tensor_split([model.num_policy_parameters])
    assert torch.equal(by_autograd[0], torch.zeros_like(by_autograd[0]))
    assert (by_autograd[1] != 0).any()


def test_in_the_auxiliary_phase_it_reaches_a_shared_trunk_but_never_a_separate_policy():
    for architecture, reaches in (("shared", True), ("dual", False)):
        model = MLPPPGModel(4, 2, (8, 8), architecture=architecture)
        obs = torch.randn(32, 4)
        _, pull = model.auxiliary.vjp(obs)
        (gradient,) = pull(torch.zeros(32, 2), None, torch.randn(32), torch.zeros(32))
        *hidden, heads = model.policy_net.layers(model.slice_of(gradient, "policy"))
        assert all((layer.weight != 0).any() for layer in hidden) == reaches
        assert not (heads.weight != 0).any()


def test_the_policy_phase_leaves_the_auxiliary_head_alone():
    model = MLPPPGModel(4, 2, (8,))
    before = model.layers("policy")[-1].weight.clone()
    learner = PPG(model, learning_rate=1e-2)
    for _ in range(3):
        learner.update(policy_batch(model))
    after = model.layers("policy")[-1].weight
    assert torch.equal(after[:, -1], before[:, -1])
    assert not torch.equal(after[:, :-1], before[:, :-1])


@pytest.mark.parametrize("discrete", DISCRETE)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_module_of_a_user_s_learns_what_ours_learns_in_both_phases(architecture, discrete):
    model = MLPPPGModel(4, 2, (16, 16), architecture=architecture, discrete=discrete)
    twin, teacher = Foreign(copy.deepcopy(model)), copy.deepcopy(model)
    nn.init.normal_(teacher.flat, std=0.3)
    ours, theirs = (PPG(m, learning_rate=1e-2, aux_learning_rate=3e-3, ent_coef=0.01) for m in (model, twin))
    batch, auxiliary = policy_batch(model), auxiliary_batch()
    for _ in range(3):
        one = ours.update(batch).metrics | ours.auxiliary_update(auxiliary, teacher_model=teacher).metrics
        other = theirs.update(batch).metrics | theirs.auxiliary_update(auxiliary, teacher_model=teacher).metrics
    torch.testing.assert_close(model.flat, twin.model.flat, atol=1e-6, rtol=1e-5)
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=1e-5, rtol=1e-4)


def under_masks(model, rows=64):
    """Observations, and masks that allow half of the choices, the last of each part always."""
    masks = torch.rand(rows, model.action_dim) < 0.5
    masks[:, [last - 1 for last in itertools.accumulate(model.nvec or (model.action_dim,))]] = True
    return torch.randn(rows, 4), masks


@pytest.mark.parametrize("nvec", [(), (3, 2)])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_module_of_a_user_s_learns_under_masks_what_ours_learns_in_both_phases(architecture, nvec):
    model = MLPPPGModel(4, 5, (16, 16), architecture=architecture, nvec=nvec)
    twin, teacher = Foreign(copy.deepcopy(model)), copy.deepcopy(model)
    nn.init.normal_(teacher.flat, std=0.3)
    ours, theirs = (PPG(m, learning_rate=1e-2, aux_learning_rate=3e-3, ent_coef=0.01) for m in (model, twin))
    obs, masks = under_masks(model)
    with torch.no_grad():
        output = model.act(obs, action_masks=masks)
    columns = {"obs": obs, "action_masks": masks, "returns": torch.randn(64)}
    batch = columns | {"actions": output.actions, "logprobs": output.logprobs, "advantages": torch.randn(64)}
    for _ in range(3):
        one = ours.update(batch).metrics | ours.auxiliary_update(columns, teacher_model=teacher).metrics
        other = theirs.update(batch).metrics | theirs.auxiliary_update(columns, teacher_model=teacher).metrics
    torch.testing.assert_close(model.flat, twin.model.flat, atol=1e-6, rtol=1e-5)
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("nvec", [(), (3, 2)])
def test_the_teacher_is_followed_where_it_could_act_and_nowhere_else(nvec):
    model = MLPPPGModel(4, 5, (8,), nvec=nvec)
    learner, teacher = PPG(model, learning_rate=1e-3), copy.deepcopy(model)
    nn.init.normal_(teacher.flat, std=0.5)
    obs, masks = under_masks(model)
    said = learner.auxiliary_update({"obs": obs, "returns": torch.zeros(64), "action_masks": masks}, teacher_model=teacher)
    student = PPG(copy.deepcopy(teacher), learning_rate=1e-3)  # whose divergence from the teacher is nothing
    agrees = student.auxiliary_update({"obs": obs, "returns": torch.zeros(64), "action_masks": masks}, teacher_model=teacher)
    assert said.metrics["behavior_clone_loss"] > 0.01
    assert agrees.metrics["behavior_clone_loss"].abs() < 1e-6


def test_the_divergence_of_an_action_in_parts_is_summed_over_them_and_averaged_over_rows():
    """Two rows of two parts: halves against (1/4, 3/4) in one part of one row, agreement elsewhere."""
    even = torch.zeros(2, 2, 2)
    teacher = even.clone()
    teacher[0, 1] = torch.tensor([0.25, 0.75]).log()
    rest = {name: torch.zeros(2) for name in ("values", "auxiliary_values", "returns")}
    losses = ppg_auxiliary_loss(rest | {"policy_logits": even, "teacher_logits": teacher})
    expected = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert losses["behavior_clone_loss"].item() == pytest.approx(expected / 2)


def test_under_a_mask_that_leaves_one_action_nothing_is_cloned():
    model = MLPPPGModel(4, 3, (8,))
    teacher = copy.deepcopy(model)
    nn.init.normal_(teacher.flat, std=1.0)
    masks = torch.tensor([False, True, False]).expand(16, 3)
    batch = {"obs": torch.randn(16, 4), "returns": torch.zeros(16), "action_masks": masks}
    metrics = PPG(model, learning_rate=1e-3).auxiliary_update(batch, teacher_model=teacher).metrics
    assert metrics["behavior_clone_loss"].item() == 0.0


def test_without_an_auxiliary_phase_and_with_two_networks_it_is_ppo():
    model, plain = MLPPPGModel(4, 2, (16, 16), architecture="dual"), MLPActorCritic(4, 2, (16, 16))
    for mine, theirs in zip(
        model.layers("policy") + model.layers("value"), plain.layers("policy") + plain.layers("value"), strict=True
    ):
        theirs.weight.copy_(mine.weight[:, : theirs.weight.shape[1]])
        theirs.bias.copy_(mine.bias[: len(theirs.bias)])
    batch = policy_batch(model)
    ppg, ppo = PPG(model, learning_rate=1e-2, ent_coef=0.01), PPO(plain, learning_rate=1e-2, ent_coef=0.01)
    for _ in range(5):
        one, other = ppg.update(batch), ppo.update(batch)
    assert one.metrics.keys() == other.metrics.keys()
    for name in one.metrics:
        torch.testing.assert_close(one.metrics[name], other.metrics[name], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ppg.value(batch["obs"]), ppo.value(batch["obs"]), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("discrete", DISCRETE)
def test_a_strong_clone_term_keeps_the_policy_where_the_teacher_had_it(discrete):
    moved = {}
    for coefficient in (0.0, 1e4):
        torch.manual_seed(1)
        model = MLPPPGModel(4, 2, (32,), discrete=discrete)
        teacher = copy.deepcopy(model)
        learner = PPG(model, learning_rate=1e-3, behavior_clone_coef=coefficient, max_grad_norm=None)
        batch = auxiliary_batch()
        for _ in range(300):
            learner.auxiliary_update(batch, teacher_model=teacher)
        moved[coefficient] = model.distribution(batch["obs"]).kl_from(teacher.distribution(batch["obs"])).mean().item()
    assert moved[1e4] < 1e-4
    assert moved[0.0] > 100 * moved[1e4]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_auxiliary_phase_brings_both_value_heads_to_their_targets(architecture):
    model = MLPPPGModel(4, 2, (32,), architecture=architecture)
    teacher, learner, batch = copy.deepcopy(model), PPG(model, learning_rate=1e-2), auxiliary_batch()
    results = [learner.auxiliary_update(batch, teacher_model=teacher) for _ in range(200)]
    for name in ("aux_value_loss", "value_clone_loss"):
        assert results[-1].metrics[name] < 0.1 * results[0].metrics[name]
    assert results[0].num_gradient_steps == 1
    torch.testing.assert_close(learner.value(batch["obs"]), batch["returns"], atol=1.0, rtol=0)


def test_a_teacher_may_be_a_model_or_what_it_said():
    model = MLPPPGModel(4, 3, (8,))
    twin, teacher = copy.deepcopy(model), copy.deepcopy(model)
    nn.init.normal_(teacher.flat, std=0.3)
    one, other = PPG(model, learning_rate=1e-2), PPG(twin, learning_rate=1e-2)
    batch = auxiliary_batch()
    said = other.teacher_columns(batch["obs"], teacher)
    for _ in range(3):
        one.auxiliary_update(batch, teacher_model=teacher, global_step=7)
        other.auxiliary_update(batch | said)
    assert torch.equal(model.flat, twin.flat)


@pytest.mark.parametrize(("left_out", "moves"), [("advantages", (False, True)), ("returns", (True, False))])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_separate_epochs_move_only_what_they_train(architecture, left_out, moves):
    model = MLPPPGModel(4, 2, (8,), architecture=architecture)
    learner, batch = PPG(model, learning_rate=1e-2), policy_batch(model)
    learner.update(batch)  # gives both optimisers momentum, which must not go on by itself
    before = model.flat.detach().clone().tensor_split([model.num_policy_parameters])
    metrics = learner.update({name: column for name, column in batch.items() if name != left_out}).metrics
    after = model.flat.detach().tensor_split([model.num_policy_parameters])
    assert tuple(not torch.equal(a, b) for a, b in zip(before, after, strict=True)) == moves
    assert ("value_loss" in metrics) == moves[1]
    assert ("policy_loss" in metrics) == moves[0]


def test_separate_epochs_make_the_same_step_as_joint_ones_where_no_clipping_couples_them():
    model = MLPPPGModel(4, 2, (8,), architecture="shared")
    twin, batch = copy.deepcopy(model), policy_batch(model)
    joint, apart = (PPG(m, learning_rate=1e-3, max_grad_norm=None) for m in (model, twin))
    joint.update(batch)
    apart.update({name: column for name, column in batch.items() if name != "advantages"})
    apart.update({name: column for name, column in batch.items() if name != "returns"})
    torch.testing.assert_close(model.flat, twin.flat, atol=1e-7, rtol=1e-6)


def test_the_learner_goes_on_from_its_state_bit_for_bit():
    def learner():
        torch.manual_seed(3)
        return PPG(MLPPPGModel(4, 2, (8,)), learning_rate=1e-2, aux_learning_rate=1e-3)

    one, other = learner(), learner()
    batch, auxiliary, teacher = policy_batch(one.model), auxiliary_batch(), copy.deepcopy(one.model)
    one.update(batch)
    one.auxiliary_update(auxiliary, teacher_model=teacher)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for each in (one, other):
        each.update(batch)
        each.auxiliary_update(auxiliary, teacher_model=teacher)
    assert torch.equal(one.model.flat, other.model.flat)
    assert (other.policy_updates, other.auxiliary_updates) == (2, 2)


def test_each_phase_has_its_own_optimiser_and_a_schedule_scales_them_together():
    learner = PPG(MLPPPGModel(4, 2, (8,)), learning_rate=1e-2, aux_learning_rate=4e-3)
    learner.update(policy_batch(learner.model))
    assert (float(learner.optimizer.steps[0]), float(learner.auxiliary_optimizer.steps[0])) == (1, 0)
    learner.schedule("learning_rate", 5e-3)
    rates = [each.learning_rate for each in (learner.optimizer, learner.value_optimizer, learner.auxiliary_optimizer)]
    assert rates == pytest.approx([5e-3, 5e-3, 2e-3])


@pytest.mark.parametrize("discrete", DISCRETE)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_model_acts_on_one_observation_as_on_a_batch(architecture, discrete):
    model = MLPPPGModel(4, 3, (8,), architecture=architecture, discrete=discrete)
    obs = torch.randn(5, 4)
    batch, single = model.act(obs, deterministic=True), model.act(obs[2], deterministic=True)
    for whole, one in zip(batch, single, strict=True):
        torch.testing.assert_close(whole[2], one)
    again = model.evaluate_actions(obs, batch.actions)
    torch.testing.assert_close(again.logprobs, batch.logprobs)
    torch.testing.assert_close(again.values, model.value(obs))
    seen, (columns, _) = model.auxiliary(obs), model.auxiliary.vjp(obs)
    for values in (seen.values, columns.values):
        torch.testing.assert_close(values, again.values)
    torch.testing.assert_close(seen.auxiliary_values, columns.auxiliary_values)
    torch.testing.assert_close(seen.distribution.mode(), model.head(columns.policy).mode())


def test_every_head_begins_with_weights_of_norm_one_tenth():
    for architecture in ARCHITECTURES:
        model = MLPPPGModel(4, 2, (16,), architecture=architecture)
        norms = torch.cat([model.layers(name)[-1].weight.norm(dim=0) for name in ("policy", "value")])
        torch.testing.assert_close(norms, torch.full((4,), 0.1))


def test_an_unknown_architecture_is_refused():
    with pytest.raises(ValueError, match="shared, dual"):
        MLPPPGModel(4, 2, (8,), architecture="siamese")
