"""Statistics over runs, against numbers worked out by hand, their symmetries, and the coverage they claim."""

from __future__ import annotations

from itertools import product
from math import erf, sqrt

import numpy as np
import pytest

from rl_training.errors import ConfigError, NumericsError
from rl_training.reports.statistics import (
    Summary,
    aggregate_curves,
    interquartile_mean,
    probability_of_improvement,
    probability_of_improvement_interval,
    steps_to_threshold,
    stratified_bootstrap_interval,
    summarize,
)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# interquartile mean


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 4.0], 2.5),
        ([0.0, 0.0, 9.0], 3.0),  # three scores: a quarter of them is less than one, nothing is cut
        ([1.0, 2.0, 3.0, 100.0], 2.5),
        ([0.0, 1.0, 2.0, 6.0, 100.0], 3.0),  # one cut at each end: (1 + 2 + 6) / 3
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 1000.0], 4.5),  # two cut at each end: (3 + 4 + 5 + 6) / 4
    ],
)
def test_a_quarter_of_the_scores_in_whole_scores_is_cut_off_each_end(scores, expected):
    assert interquartile_mean(scores) == expected


def test_tasks_are_pooled_before_cutting():
    assert interquartile_mean([[1.0, 100.0], [2.0, 3.0]]) == 2.5


def test_an_axis_gives_one_mean_per_row_or_column():
    scores = np.array([[1.0, 2.0, 3.0, 100.0], [0.0, 10.0, 20.0, 30.0]])
    assert interquartile_mean(scores, axis=-1).tolist() == [2.5, 15.0]
    assert interquartile_mean(scores.T, axis=0).tolist() == [2.5, 15.0]


def test_the_interquartile_mean_does_not_know_the_order_of_the_seeds_to_the_last_bit():
    rng = generator()
    scores = rng.normal(size=11)
    assert len({interquartile_mean(rng.permutation(scores)) for _ in range(50)}) == 1


def test_the_interquartile_mean_ignores_the_size_of_an_outlier():
    assert interquartile_mean([1.0, 2.0, 3.0, 9e9]) == interquartile_mean([1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize(("scale", "shift"), [(3.0, -7.0), (-2.0, 100.0)])
def test_the_interquartile_mean_moves_and_scales_with_the_scores(scale, shift):
    scores = generator().normal(size=(3, 5))
    assert interquartile_mean(scale * scores + shift) == pytest.approx(scale * interquartile_mean(scores) + shift)


# bootstrap interval


def test_the_interval_of_two_scores_follows_the_three_means_a_resample_can_have():
    # means 0, 0.5 and 1 with probabilities 1/4, 1/2 and 1/4
    assert stratified_bootstrap_interval([0.0, 1.0], np.mean, confidence=0.95, rng=generator()) == (0.0, 1.0)
    assert stratified_bootstrap_interval([0.0, 1.0], np.mean, confidence=0.40, rng=generator()) == (0.5, 0.5)


def test_seeds_are_resampled_within_their_task_only():
    # pooled resampling would give means anywhere between 0 and 10
    assert stratified_bootstrap_interval([[0.0, 0.0], [10.0, 10.0]], np.mean, rng=generator()) == (5.0, 5.0)


def test_tasks_may_have_different_numbers_of_seeds():
    low, high = stratified_bootstrap_interval([[4.0], [0.0, 0.0, 0.0], np.array([8.0, 8.0])], np.median, rng=generator())
    assert (low, high) == (2.0, 2.0)


@pytest.mark.parametrize("statistic", [interquartile_mean, np.mean, np.median])
def test_one_seed_per_task_collapses_the_interval_to_the_statistic(statistic):
    scores = np.array([[1.0], [2.0], [4.0], [9.0]])
    low, high = stratified_bootstrap_interval(scores, statistic, rng=generator())
    assert low == high == statistic(scores.ravel(), axis=0)


def test_equal_scores_leave_no_uncertainty():
    low, high = stratified_bootstrap_interval(np.full((2, 6), -148.25), rng=generator())
    assert low == high == -148.25


def test_equal_generators_give_equal_intervals_and_others_others():
    scores = generator(1).normal(size=(2, 6))
    first, again, other = (stratified_bootstrap_interval(scores, rng=generator(seed)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.parametrize(("scale", "shift"), [(3.0, -7.0), (-2.0, 100.0)])
def test_the_interval_moves_and_scales_with_the_scores(scale, shift):
    scores = generator(1).normal(size=(2, 6))
    ends = sorted(scale * end + shift for end in stratified_bootstrap_interval(scores, rng=generator()))
    assert stratified_bootstrap_interval(scale * scores + shift, rng=generator()) == pytest.approx(ends)


def test_more_confidence_is_a_wider_interval():
    scores = generator(1).normal(size=20)
    narrow, wide = (stratified_bootstrap_interval(scores, confidence=level, rng=generator()) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize(("confidence", "least", "most"), [(0.95, 0.90, 0.98), (0.5, 0.42, 0.58)])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(confidence, least, most):
    rng = generator(7)
    # three tasks placed symmetrically, so that the truth of the pooled interquartile mean is 0
    centres = np.array([[-3.0], [0.0], [3.0]])
    hits = 0
    for _ in range(400):
        low, high = stratified_bootstrap_interval(
            centres + rng.normal(size=(3, 12)), confidence=confidence, num_resamples=400, rng=rng
        )
        hits += low <= 0.0 <= high
    assert least < hits / 400 < most


# probability of improvement


@pytest.mark.parametrize(("seeds", "covered"), [(3, 0.74), (5, 0.89), (10, 0.93)])
def test_with_few_seeds_the_interval_is_as_much_too_narrow_as_the_docs_say(seeds, covered):
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(1_500):
        low, high = stratified_bootstrap_interval([rng.standard_normal(seeds)], num_resamples=400, rng=rng)
        hits.append(low <= 0 <= high)
    assert np.mean(hits) == pytest.approx(covered, abs=0.035)


def test_ties_count_half():
    assert probability_of_improvement([3.0, 2.0], [1.0, 2.0]) == 3.5 / 4
    assert probability_of_improvement([1.0, 2.0, 3.0], [2.0, 2.0]) == 0.5


def test_improvement_is_averaged_over_tasks_not_over_pairs():
    # one of one pair won in the first task, none of four in the second
    assert probability_of_improvement([[1.0], [0.0, 0.0]], [[0.0], [5.0, 5.0]]) == 0.5


def test_the_two_directions_of_improvement_add_up_to_one():
    rng = generator()
    x, y = rng.integers(5, size=(3, 6)), rng.integers(5, size=(3, 4))
    assert probability_of_improvement(x, y) + probability_of_improvement(y, x) == pytest.approx(1.0)


def test_improvement_knows_only_the_order_of_the_scores():
    rng = generator()
    x, y = rng.normal(size=8), rng.normal(size=9)
    assert probability_of_improvement(np.exp(x), np.exp(y)) == probability_of_improvement(x, y)
    assert probability_of_improvement(rng.permutation(x), y) == probability_of_improvement(x, y)


def test_complete_separation_is_certain_whatever_is_drawn():
    assert probability_of_improvement_interval([3.0, 4.0, 5.0], [0.0, 1.0], rng=generator()) == (1.0, 1.0)


def test_the_improvement_interval_agrees_with_all_resamples_enumerated():
    x, y = [0.0, 2.0, 2.5], [1.0, 2.0]
    everything = [probability_of_improvement(a, b) for a in product(x, repeat=3) for b in product(y, repeat=2)]
    # both ends lie inside a step of the exact distribution, so that the draws give them exactly
    interval = probability_of_improvement_interval(x, y, confidence=0.74, num_resamples=20_000, rng=generator())
    assert interval == pytest.approx(tuple(np.percentile(everything, [13, 87])))
    assert interval == pytest.approx((2 / 6, 5.5 / 6))


def test_the_improvement_interval_covers_the_truth_about_as_often_as_it_says():
    rng = generator(11)
    truth = 0.5 * (1.0 + erf(0.5 / sqrt(2.0) / sqrt(2.0)))  # Φ(0.5 / √2) for N(0.5, 1) against N(0, 1)
    hits = 0
    for _ in range(300):
        x, y = rng.normal(0.5, size=20), rng.normal(size=20)
        low, high = probability_of_improvement_interval(x, y, num_resamples=400, rng=rng)
        hits += low <= truth <= high
    assert 0.89 < hits / 300 < 0.985


# steps to threshold


def test_the_first_step_at_the_threshold_counts_even_if_the_curve_falls_again():
    assert steps_to_threshold([10, 20, 30, 40], [1.0, 5.0, 2.0, 6.0], 5.0) == 20


def test_a_window_asks_for_the_mean_of_the_last_returns():
    # means of two: 3, 3.5, 4
    assert steps_to_threshold([10, 20, 30, 40], [1.0, 5.0, 2.0, 6.0], 3.5, window=2) == 30
    assert steps_to_threshold([10, 20, 30, 40], [1.0, 5.0, 2.0, 6.0], 5.0, window=2) is None


def test_a_threshold_out_of_reach_and_a_window_longer_than_the_curve_give_none():
    assert steps_to_threshold([10, 20], [1.0, 2.0], 3.0) is None
    assert steps_to_threshold([10, 20], [9.0, 9.0], 3.0, window=3) is None


def test_a_window_of_equal_returns_at_the_threshold_reaches_it_despite_rounding():
    value, window = 0.1, 6
    assert np.add.accumulate(np.full(window, value))[-1] / window < value  # why it needs care
    assert steps_to_threshold(np.arange(1, 11), np.full(10, value), value, window=window) == window


# curves


def test_runs_evaluated_at_equal_steps_keep_their_steps_and_numbers():
    steps = [0, 100, 250]
    returns = [[1.0, 2.0, 3.0], [1.0, 4.0, 5.0], [1.0, 3.0, 4.0], [1.0, 90.0, -90.0]]
    band = aggregate_curves([(steps, row) for row in returns], rng=generator())
    assert band.steps.tolist() == steps
    assert band.iqm.tolist() == [1.0, 3.5, 3.5]
    assert band.num_runs == 4
    assert (band.low[0], band.high[0]) == (1.0, 1.0)
    assert (band.low <= band.iqm).all()
    assert (band.iqm <= band.high).all()


def test_runs_evaluated_at_other_steps_meet_on_straight_lines_where_both_have_been():
    curves = [([0, 10, 20], [0.0, 10.0, 20.0]), ([1, 11, 19], [2.0, 12.0, 20.0])]  # return = step, return = step + 1
    band = aggregate_curves(curves, rng=generator())
    assert band.steps.tolist() == [1.0, 10.0, 19.0]
    assert band.iqm.tolist() == [1.5, 10.5, 19.5]
    # of two runs a resample is either run alone or both
    assert band.low.tolist() == [1.0, 10.0, 19.0]
    assert band.high.tolist() == [2.0, 11.0, 20.0]


def test_the_order_of_the_runs_changes_neither_grid_nor_curve():
    rng = generator()
    curves = [(np.arange(5) * 100 + rng.integers(5), rng.normal(size=5)) for _ in range(6)]
    forward, backward = aggregate_curves(curves, rng=rng), aggregate_curves(curves[::-1], rng=rng)
    assert np.array_equal(forward.steps, backward.steps)
    assert np.array_equal(forward.iqm, backward.iqm)


def test_a_point_of_the_band_is_the_interval_of_the_returns_there():
    returns = generator(2).normal(size=(7, 3))
    band = aggregate_curves([([1, 2, 3], row) for row in returns], rng=generator())
    assert (band.low[1], band.high[1]) == stratified_bootstrap_interval(returns[:, 1], rng=generator())


def test_a_run_that_stopped_early_ends_the_band_and_is_not_continued():
    curves = [([0, 10, 20, 30], [0.0] * 4), ([0, 10], [1.0, 1.0])]
    assert aggregate_curves(curves, rng=generator()).steps.tolist() == [0.0, 10.0]
    with pytest.raises(ConfigError, match=r"evaluated from 0 to 10; the grid asks for 0\.0 to 30\.0"):
        aggregate_curves(curves, grid=[0, 30], rng=generator())


def test_a_single_run_is_its_own_band():
    band = aggregate_curves([([5, 6], [1.0, 2.0])], rng=generator())
    assert band.iqm.tolist() == band.low.tolist() == band.high.tolist() == [1.0, 2.0]


# summary


def test_a_summary_holds_the_seven_numbers_of_its_sample():
    summary = summarize([100.0, 0.0, 6.0, 1.0, 2.0], rng=generator())
    assert (summary.n, summary.mean, summary.median, summary.iqm) == (5, 21.8, 2.0, 3.0)
    assert summary.std == pytest.approx(sqrt(7664.8 / 4))  # 21.8², 20.8², 19.8², 15.8² and 78.2² add up to 7664.8
    assert (summary.low, summary.high) == stratified_bootstrap_interval([100.0, 0.0, 6.0, 1.0, 2.0], rng=generator())


def test_one_score_is_a_summary_without_spread():
    assert summarize([-3.5], rng=generator()) == Summary(n=1, mean=-3.5, std=0.0, median=-3.5, iqm=-3.5, low=-3.5, high=-3.5)


def test_a_summary_reads_as_the_interquartile_mean_and_its_interval():
    summary = Summary(n=5, mean=0.0, std=0.0, median=0.0, iqm=-148.21, low=-153.04, high=-144.08)
    assert summary.format() == "-148.2 [-153.0, -144.1]"
    assert summary.format(decimals=0) == "-148 [-153, -144]"


# what is refused


def test_a_diverged_run_is_not_silently_left_out():
    with pytest.raises(NumericsError, match="score 1 is nan"):
        summarize([1.0, float("nan")], rng=generator())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rng: interquartile_mean([]), "at least one"),
        (lambda rng: summarize([[1.0], []], rng=rng), "at least one"),
        (lambda rng: interquartile_mean(np.ones((2, 2, 2))), "flat sample or tasks × seeds"),
        (lambda rng: summarize([1.0], confidence=95, rng=rng), "for 95 % give 0.95"),
        (lambda rng: stratified_bootstrap_interval([1.0], num_resamples=0, rng=rng), "at least 1; given 0"),
        (lambda rng: stratified_bootstrap_interval([1.0], lambda x, axis: 0.0, rng=rng), "one number per resample"),
        (lambda rng: probability_of_improvement([[1.0], [2.0]], [1.0]), "same tasks; given 2 and 1"),
        (lambda rng: steps_to_threshold([1, 2], [1.0], 0.0), "equal length"),
        (lambda rng: steps_to_threshold([2, 1], [1.0, 1.0], 0.0), "increase strictly"),
        (lambda rng: steps_to_threshold([1], [1.0], 0.0, window=0), "at least 1; given 0"),
        (lambda rng: aggregate_curves([], rng=rng), "at least one run"),
        (lambda rng: aggregate_curves([([1, 2], [0, 0]), ([3, 4], [0, 0])], rng=rng), "begins at 3, another ends at 2"),
    ],
)
def test_what_cannot_be_computed_is_refused_with_a_reason(call, message):
    with pytest.raises(ConfigError, match=message):
        call(generator())
