"""Choices under masks and choices in several parts, worked out by hand."""

import math

import pytest
import torch

from rl_training.kernels.heads import Categorical, MultiCategorical, choices

LOG2 = math.log(2)


def logs(*weights):
    return torch.tensor(weights).log()


def test_what_a_mask_forbids_is_never_done_and_the_rest_shares_its_probability():
    policy = Categorical(logs(1.0, 2.0, 3.0).expand(2, 3), torch.tensor([[True, False, True], [False, True, False]]))
    # weights 1 and 3 are left in the first row: a quarter and three quarters; one action alone is certain
    assert policy.log_prob(torch.tensor([2, 1])).tolist() == pytest.approx([math.log(0.75), 0.0])
    assert policy.entropy().tolist() == pytest.approx([-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), 0.0])
    assert policy.mode().tolist() == [2, 1]
    assert policy.log_probabilities.exp()[:, 1].tolist() == [0.0, 1.0]


def test_the_likeliest_action_is_not_taken_where_it_is_forbidden():
    policy = Categorical(torch.tensor([[50.0, 0.0, 1.0]]), torch.tensor([[False, True, True]]))
    assert policy.mode().tolist() == [2]
    torch.manual_seed(0)
    drawn = Categorical(policy.logits.expand(10_000, 3), torch.tensor([False, True, True])).sample()
    assert drawn.min() == 1


def test_the_divergence_under_a_mask_is_that_between_what_is_left():
    masks = torch.tensor([[True, False, True]])
    student, teacher = Categorical(logs(1.0, 9.0, 3.0)[None], masks), Categorical(logs(1.0, 5.0, 1.0)[None], masks)
    # (1/2, 1/2) against (1/4, 3/4)
    assert student.kl_from(teacher).tolist() == pytest.approx([0.5 * math.log(2.0) + 0.5 * math.log(2 / 3)], rel=1e-5)


def test_a_mask_that_allows_everything_changes_no_bit():
    torch.manual_seed(0)
    logits, actions, d = torch.randn(50, 5), torch.randint(5, (50,)), torch.randn(50)
    plain, masked = Categorical(logits), Categorical(logits, torch.ones(50, 5, dtype=torch.bool))
    assert torch.equal(plain.log_prob(actions), masked.log_prob(actions))
    assert torch.equal(plain.entropy(), masked.entropy())
    assert torch.equal(plain.output_gradient(actions, d, d)[0], masked.output_gradient(actions, d, d)[0])
    drawn = []
    for policy in (plain, masked):
        torch.manual_seed(1)
        drawn.append(policy.sample())
    assert torch.equal(*drawn)


def test_a_forbidden_action_has_no_gradient():
    logits, masks = torch.randn(20, 4), torch.rand(20, 4) < 0.5
    masks[:, 0] = True
    gradient, _ = Categorical(logits, masks).output_gradient(
        torch.zeros(20, dtype=torch.int64), torch.randn(20), torch.randn(20)
    )
    assert gradient[~masks].eq(0).all()
    assert gradient.isfinite().all()


def test_the_parts_of_a_multi_discrete_action_are_chosen_independently():
    policy = MultiCategorical(torch.cat([logs(1.0, 1.0), logs(1.0, 1.0, 2.0)])[None], (2, 3))
    # halves, and (1/4, 1/4, 1/2), whose entropy is 3/2 log 2
    assert policy.log_prob(torch.tensor([[0, 2]])).tolist() == pytest.approx([-LOG2 - LOG2])
    assert policy.log_prob(torch.tensor([[1, 0]])).tolist() == pytest.approx([-LOG2 - 2 * LOG2])
    assert policy.entropy().tolist() == pytest.approx([LOG2 + 1.5 * LOG2])
    assert policy.mode()[:, 1].tolist() == [2]


def test_a_multi_binary_action_is_a_choice_between_two_for_each_bit():
    # on with probability 1/4 and with 2/3
    policy = MultiCategorical(logs(3.0, 1.0, 1.0, 2.0)[None], (2, 2))
    assert policy.log_prob(torch.tensor([[1, 1]])).tolist() == pytest.approx([math.log(1 / 4) + math.log(2 / 3)])
    bits = [0.25 * math.log(4) + 0.75 * math.log(4 / 3), (1 / 3) * math.log(3) + (2 / 3) * math.log(3 / 2)]
    assert policy.entropy().tolist() == pytest.approx([sum(bits)])
    assert policy.mode().tolist() == [[0, 1]]


def test_a_mask_of_a_multi_discrete_action_lists_the_choices_of_one_part_after_the_other():
    masks = torch.tensor([[True, False, True, False, True]])
    policy = MultiCategorical(torch.cat([logs(1.0, 8.0), logs(1.0, 7.0, 3.0)])[None], (2, 3), masks)
    assert policy.mode().tolist() == [[0, 2]]
    assert policy.log_prob(torch.tensor([[0, 2]])).tolist() == pytest.approx([math.log(3 / 4)])
    assert policy.entropy().tolist() == pytest.approx([-(0.25 * math.log(0.25) + 0.75 * math.log(0.75))])


def test_the_divergence_of_an_action_in_parts_is_the_sum_of_theirs():
    student = MultiCategorical(torch.zeros(1, 5), (2, 3))
    teacher = MultiCategorical(torch.cat([logs(1.0, 3.0), logs(1.0, 1.0, 2.0)])[None], (2, 3))
    first = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    second = 2 * 0.25 * math.log(0.25 * 3) + 0.5 * math.log(0.5 * 3)
    assert student.kl_from(teacher).tolist() == pytest.approx([first + second], rel=1e-5)


def test_one_part_is_a_plain_choice():
    torch.manual_seed(0)
    logits, actions, d = torch.randn(30, 4), torch.randint(4, (30,)), torch.randn(30)
    one, part = choices(logits), choices(logits, (4,))
    assert isinstance(one, Categorical)
    assert isinstance(part, MultiCategorical)
    torch.testing.assert_close(part.log_prob(actions[:, None]), one.log_prob(actions))
    torch.testing.assert_close(part.entropy(), one.entropy())
    torch.testing.assert_close(part.output_gradient(actions[:, None], d, d)[0], one.output_gradient(actions, d, d)[0])


def test_samples_of_every_part_have_the_stated_frequencies():
    torch.manual_seed(0)
    logits = torch.cat([logs(0.3, 0.7), logs(0.5, 0.2, 0.3)]).expand(100_000, 5)
    drawn = MultiCategorical(logits, (2, 3)).sample()
    assert drawn.shape == (100_000, 2)
    for part, shares in ((0, [0.3, 0.7]), (1, [0.5, 0.2, 0.3])):
        found = torch.bincount(drawn[:, part], minlength=len(shares)) / 100_000
        torch.testing.assert_close(found, torch.tensor(shares), atol=8e-3, rtol=0)
    together = ((drawn[:, 0] == 1) & (drawn[:, 1] == 0)).float().mean()
    assert together.item() == pytest.approx(0.35, abs=8e-3)
