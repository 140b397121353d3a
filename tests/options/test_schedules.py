"""Schedules are pure functions of the step; the numbers are worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.errors import ConfigError
from rl_training.options import algorithm_names, load_options_class
from rl_training.options.base import Schedule
from rl_training.options.ppo import PPOConfig
from rl_training.options.rlpd import RLPDConfig
from rl_training.options.sac import SACConfig

TYPES = ["constant", "linear", "cosine"]


def test_linear_goes_straight_from_the_options_value_to_zero():
    schedule = Schedule(type="linear")
    assert [schedule.value(step, 100, 0.2) for step in (0, 25, 50, 100)] == pytest.approx([0.2, 0.15, 0.1, 0.0])


def test_linear_between_given_ends_ignores_the_options_value():
    schedule = Schedule(type="linear", start=1.0, end=3.0)
    assert [schedule.value(step, 8, 99.0) for step in (0, 2, 4, 8)] == [1.0, 1.5, 2.0, 3.0]


def test_cosine_is_slow_at_both_ends_and_half_way_in_the_middle():
    schedule = Schedule(type="cosine", start=1.0, end=0.0)
    quarter = 0.5 * (1.0 + math.sqrt(0.5))  # cos 45 degrees
    assert [schedule.value(step, 4, 0.0) for step in range(5)] == pytest.approx([1.0, quarter, 0.5, 1.0 - quarter, 0.0])


def test_constant_stays_at_its_start_or_at_the_options_value():
    assert {Schedule(type="constant").value(step, 10, 0.7) for step in (0, 5, 10, 99)} == {0.7}
    assert {Schedule(type="constant", start=0.4).value(step, 10, 0.7) for step in (0, 5, 10, 99)} == {0.4}


def test_the_end_is_reached_at_the_fraction_until_and_kept():
    schedule = Schedule(type="linear", start=1.0, end=0.2, until=0.5)
    assert [schedule.value(step, 100, 0.0) for step in (25, 50, 75, 100, 10_000)] == pytest.approx([0.6, 0.2, 0.2, 0.2, 0.2])


def test_warm_up_multiplies_whatever_the_schedule_says():
    schedule = Schedule(type="linear", start=1.0, end=0.0, warmup_steps=20)
    # at step 10 the line is at 0.9 and the warm-up half-way; from step 20 on only the line is left
    assert [schedule.value(step, 100, 0.0) for step in (0, 10, 20, 50)] == pytest.approx([0.0, 0.45, 0.8, 0.5])


@given(
    kind=st.sampled_from(["linear", "cosine"]),
    start=st.floats(0, 1e6),
    end=st.floats(0, 1e6),
    total=st.integers(1, 10**9),
)
@settings(max_examples=100)
def test_both_ends_are_met_exactly_and_everything_lies_between(kind, start, end, total):
    schedule = Schedule(type=kind, start=start, end=end)
    assert schedule.value(0, total, 5.0) == start
    assert schedule.value(total, total, 5.0) == end
    assert min(start, end) * (1 - 1e-12) <= schedule.value(total // 3, total, 5.0) <= max(start, end) * (1 + 1e-12)


@pytest.mark.parametrize("kind", TYPES)
def test_a_bare_word_means_the_schedule_of_that_type(kind):
    assert PPOConfig(ent_coef_schedule=kind).ent_coef_schedule == Schedule(type=kind)


def test_a_misspelt_type_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"ent_coef_schedule.type: given 'liner' \(str\).*did you mean 'linear'"):
        PPOConfig(ent_coef_schedule="liner")


@pytest.mark.parametrize("bad", [{"start": -1.0}, {"until": 0.0}, {"until": 1.5}, {"warmup_steps": -1}, {"end": float("inf")}])
def test_values_out_of_range_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Schedule(**bad)


def test_a_constant_with_an_end_contradicts_itself():
    with pytest.raises(ConfigError, match="type, end"):
        Schedule(type="constant", end=0.1)


def test_an_algorithm_reports_every_schedulable_option_at_its_current_value():
    options = PPOConfig(learning_rate=1.0, clip_coef=0.4, ent_coef=0.01, clip_coef_schedule="linear")
    assert options.scheduled_values(50, 100) == {"learning_rate": 1.0, "ent_coef": 0.01, "clip_coef": 0.2, "vf_coef": 0.5}


def test_the_learning_rates_warm_up_composes_with_its_schedule():
    options = PPOConfig(learning_rate=1.0, learning_rate_schedule="linear", warmup_steps=20)
    rates = [options.scheduled_values(step, 100)["learning_rate"] for step in (0, 10, 20, 100)]
    assert rates == pytest.approx([0.0, 0.45, 0.8, 0.0])


def test_a_turn_learns_at_the_warm_ups_height_where_it_ends_and_at_the_schedules_where_it_began():
    options = PPOConfig(learning_rate=1.0, learning_rate_schedule="linear", warmup_steps=40)
    # turns of 20 steps: the first teaches something, and so does the last, at whose end the line is at 0
    rates = [options.scheduled_values(step, 100, reached=step + 20)["learning_rate"] for step in (0, 20, 40, 80)]
    assert rates == pytest.approx([0.5 * 1.0, 1.0 * 0.8, 0.6, 0.2])
    warmed = Schedule(type="constant", start=0.4, warmup_steps=80)
    assert [warmed.value(step, 100, 0.0, reached=step + 20) for step in (0, 20, 60)] == pytest.approx([0.1, 0.2, 0.4])


@pytest.mark.parametrize("name", algorithm_names())
def test_whatever_the_learning_rate_is_called_its_schedule_is_reported_under_its_own_name(name):
    schedule = {"type": "linear", "start": 0.1, "end": 0.0}
    options = load_options_class(name)(learning_rate_schedule=schedule, warmup_steps=100)
    values = options.scheduled_values(50, 100)
    assert values["learning_rate"] == pytest.approx(0.05 * 0.5)
    other = {"ars": "step_size", "openai_es": "step_size", "pets": "model_learning_rate", "mopo": "policy_learning_rate"}
    assert values[other.get(name, "learning_rate")] == values["learning_rate"]


@pytest.mark.parametrize("name", ["ars", "openai_es", "pets", "mopo"])
def test_without_a_schedule_a_rate_of_another_name_is_reported_under_that_alone(name):
    assert "learning_rate" not in load_options_class(name)().scheduled_values(50, 100)


def test_two_warm_ups_of_one_learning_rate_contradict_each_other():
    with pytest.raises(ConfigError, match=r"warmup_steps, learning_rate_schedule\.warmup_steps"):
        PPOConfig(warmup_steps=5, learning_rate_schedule={"type": "linear", "warmup_steps": 5})


@pytest.mark.parametrize("warm_up", [{"warmup_steps": 5}, {"learning_rate_schedule": {"type": "linear", "warmup_steps": 5}}])
def test_pretraining_before_the_first_step_does_not_go_with_a_warm_up(warm_up):
    with pytest.raises(ConfigError, match="pretraining comes before the first environment step"):
        RLPDConfig(offline_pretrain_updates=10, **warm_up)
    RLPDConfig(**warm_up)


def test_an_automatic_alpha_has_no_scheduled_value_and_a_fixed_one_has():
    assert "alpha" not in SACConfig().scheduled_values(0, 10)
    assert SACConfig(alpha=0.2, alpha_schedule="linear").scheduled_values(5, 10)["alpha"] == pytest.approx(0.1)
