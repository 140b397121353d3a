"""What one iteration of ARS does to the parameters, and the policy it searches for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training.algorithms.ars import ARS, ars_loss, top_directions
from rl_training.errors import ConfigError
from rl_training.kernels.population import definition
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.options.ars import ARSConfig


def linear(parameters):
    model = MLPARSModel(2, 1, ())
    model.set_flat_parameters(torch.tensor(parameters))
    return model


def hand_batch():
    return {
        "perturbations": torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]]),
        "positive_returns": torch.tensor([6.0, 1.0, -7.0], dtype=torch.float64),
        "negative_returns": torch.tensor([2.0, 3.0, -9.0], dtype=torch.float64),
    }


def test_the_step_is_scaled_by_the_spread_of_the_returns_that_were_used():
    model = linear([0.5, -0.5])
    ARS(model, step_size=0.1, noise_std=0.03, num_top_directions=2).update(hand_batch())
    # the best two have max 6 and 3; of their returns 6, 2, 1, 3 the standard deviation is sqrt(3.5)
    sigma = 3.5**0.5
    expected = torch.tensor([0.5 + 0.1 / (2 * sigma) * (6 - 2), -0.5 + 0.1 / (2 * sigma) * (1 - 3)])
    torch.testing.assert_close(model.flat_parameters(), expected)


def test_without_a_number_of_top_directions_all_are_used():
    model = linear([0.0, 0.0])
    metrics = ARS(model, step_size=0.3, noise_std=0.03).update(hand_batch()).metrics
    returns = torch.tensor([6.0, 1.0, -7.0, 2.0, 3.0, -9.0], dtype=torch.float64)
    sigma = float(returns.std(correction=0))
    torch.testing.assert_close(model.flat_parameters(), torch.tensor([4.0 + 2 * 5, -2.0 + 2 * 5]) * (0.3 / (3 * sigma)))
    assert float(metrics["selected_directions"]) == 3
    assert float(metrics["reward_std"]) == pytest.approx(sigma)


def test_directions_are_chosen_by_the_better_of_their_signs():
    assert top_directions(torch.tensor([1.0, 0.0, 5.0]), torch.tensor([2.0, 9.0, 4.0]), 2).tolist() == [1, 2]


def test_of_equal_directions_the_first_is_taken():
    assert top_directions(torch.tensor([1.0, 3.0, 3.0]), torch.tensor([3.0, 0.0, 1.0]), 2).tolist() == [0, 1]


def test_a_shift_and_a_scale_of_the_returns_change_nothing():
    batch = hand_batch()
    moved = batch | {name: 100 + 7 * batch[name] for name in ("positive_returns", "negative_returns")}
    results = []
    for given in (batch, moved):
        model = linear([0.3, 0.4])
        ARS(model, step_size=0.1, noise_std=0.03, num_top_directions=2).update(given)
        results.append(model.flat_parameters())
    torch.testing.assert_close(*results)


def test_an_outlier_counts_where_ranks_would_not():
    batch = hand_batch()
    batch["positive_returns"][0] = 600.0
    model, usual = linear([0.0, 0.0]), linear([0.0, 0.0])
    ARS(model, step_size=0.1, noise_std=0.03, num_top_directions=2).update(batch)
    ARS(usual, step_size=0.1, noise_std=0.03, num_top_directions=2).update(hand_batch())
    assert float(model.flat_parameters()[1].abs()) < 0.05 * float(usual.flat_parameters()[1].abs())


def shown(normalizer, *rows):
    return normalizer(torch.tensor(rows)).tolist()


def test_a_column_that_has_not_varied_yet_is_shown_as_nothing_also_when_it_begins_to():
    normalizer = ObservationNormalizer(1, clip=float("inf"), hide_still=True)
    normalizer.observe(torch.full((100, 1), 0.7))
    assert shown(normalizer, [0.7], [0.71], [500.0]) == [[0.0], [0.0], [0.0]]
    normalizer.observe(torch.tensor([[0.7], [0.9]] * 50))  # what was seen counts from the next generation on
    mean, std = 0.75, (0.0025 + 0.01 / 2) ** 0.5  # a half at 0.7 (spread 0), a half around 0.8 (spread 0.1)
    assert shown(normalizer, [0.9])[0] == pytest.approx([(0.9 - mean) / std], rel=1e-5)


def test_a_deviation_above_the_authors_limit_counts_however_small_it_is():
    normalizer = ObservationNormalizer(2, clip=float("inf"), hide_still=True)
    moments = {"mean": torch.zeros(2).double(), "var": torch.tensor([0.9e-7, 1.1e-7]).double().square()}
    normalizer.take_in(**moments, count=10)
    assert shown(normalizer, [1e-7, 1e-7])[0] == pytest.approx([0.0, 1e-7 / 1.2e-7], rel=1e-5)


def test_equal_returns_leave_the_policy_where_it_is():
    model = linear([0.3, 0.4])
    flat = hand_batch() | {"positive_returns": torch.ones(3).double(), "negative_returns": torch.ones(3).double()}
    ARS(model, step_size=0.1, noise_std=0.03).update(flat)
    torch.testing.assert_close(model.flat_parameters(), torch.tensor([0.3, 0.4]))


def test_version_two_sees_filtered_observations_and_version_one_raw_ones():
    normalizer = ObservationNormalizer(2, clip=float("inf"))
    two = ARS(linear([0.1, 0.0]), step_size=0.1, noise_std=0.03, observation_normalizer=normalizer)
    one = ARS(linear([0.1, 0.0]), step_size=0.1, noise_std=0.03)
    obs = torch.tensor([[7.0, 0.0]])
    assert torch.equal(one.act(obs), two.act(obs))  # nothing was observed yet
    for learner in (one, two):
        learner.observe(mean=torch.tensor([5.0, 0.0]).double(), var=torch.tensor([4.0, 1.0]).double(), count=8)
    assert float(one.act(obs)) == pytest.approx(0.7)
    assert float(two.act(obs)) == pytest.approx(0.1 * (7 - 5) / 2)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float16, torch.float32])
def test_returns_may_be_of_any_type(dtype):
    models = [linear([0.5, -0.5]) for _ in range(2)]
    other = {name: column.to(dtype) if "returns" in name else column.double() for name, column in hand_batch().items()}
    for model, batch in zip(models, (hand_batch(), other), strict=True):
        ARS(model, step_size=0.1, noise_std=0.03, num_top_directions=2).update(batch)
    torch.testing.assert_close(models[0].flat, models[1].flat)


def test_the_loss_function_takes_plain_numbers_and_counts_a_mask():
    told = {"reward_std": 1.5, "update": torch.ones(4), "parameters": torch.zeros(4)}
    batch = {name: column for name, column in hand_batch().items() if "returns" in name} | told
    selected = (2, np.int64(2), torch.tensor(2), torch.tensor([0, 1]), torch.tensor([True, False, True]), [0, 2])
    for chosen in selected:
        metrics = ars_loss(batch | {"selected_directions": chosen})
        assert float(metrics["selected_directions"]) == 2.0
        assert float(metrics["reward_std"]) == 1.5
        assert float(metrics["utility_mean"]) == pytest.approx((4 - 2 + 2) / 3)
        assert float(metrics["update_norm"]) == 2.0


def test_the_loss_function_counts_the_selected_directions():
    given = {
        "positive_returns": torch.tensor([1.0, 3.0]),
        "negative_returns": torch.tensor([0.0, 1.0]),
        "reward_std": torch.tensor(2.0),
        "update": torch.tensor([0.6, 0.8]),
        "parameters": torch.tensor([3.0, 4.0]),
    }
    by_index, by_count = (
        ars_loss(given | {"selected_directions": chosen}) for chosen in (torch.tensor([1, 0]), torch.tensor(2.0))
    )
    assert float(by_index["selected_directions"]) == float(by_count["selected_directions"]) == 2.0
    assert float(by_index["update_norm"]) == pytest.approx(1.0)


def test_more_top_directions_than_directions_are_refused():
    with pytest.raises(ConfigError, match="the best 5 cannot be chosen from 4 directions"):
        ARSConfig(num_directions=4, num_top_directions=5)


def test_the_linear_policy_begins_at_zero_without_a_bias():
    model = MLPARSModel(3, 2)
    assert model.num_parameters == 6
    assert torch.equal(model.flat_parameters(), torch.zeros(6))
    model.set_flat_parameters(torch.tensor([1.0, 2.0, 0.0, 0.0, 0.0, 1.0]))
    # weights are (in, out): the first observation reaches both actions, the third only the second
    assert model.actor(torch.tensor([0.25, 9.0, 0.125])).tolist() == [0.25, 0.625]
    assert model.actor(torch.tensor([[9.0, 0.0, 0.0], [-9.0, 0.0, 0.0]])).tolist() == [[1.0, 1.0], [-1.0, -1.0]]


def test_every_unit_begins_with_weights_of_norm_one_and_of_the_last_layer_a_hundredth():
    model = MLPARSModel(5, 3, (8, 8), initial="normc", bias=True)
    norms = [weight.norm(dim=0) for weight, _ in model.shape.layers(model.flat_parameters())]
    for norm, wanted in zip(norms, (1.0, 1.0, 0.01), strict=True):
        torch.testing.assert_close(norm, torch.full_like(norm, wanted))
    assert model.num_parameters == 5 * 8 + 8 + 8 * 8 + 8 + 8 * 3 + 3


def test_a_discrete_policy_takes_the_largest_output():
    model = MLPARSModel(2, 3, discrete=True)
    model.set_flat_parameters(torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0, 1.0]))
    assert model.actor(torch.tensor([[2.0, 1.0], [1.0, 2.0]])).tolist() == [0, 2]
    assert int(model.actor(torch.tensor([1.0, 2.0]))) == 2


def test_parameters_of_another_length_are_refused():
    with pytest.raises(ValueError, match="6 parameters"):
        MLPARSModel(3, 2).set_flat_parameters(torch.zeros(7))


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("hidden_sizes", [(), (16,), (64, 64)])
@pytest.mark.parametrize("rows", [1, 2, 8])
def test_many_policies_at_once_are_each_policy_alone(hidden_sizes, discrete, rows):
    model = MLPARSModel(3, 2, hidden_sizes, discrete=discrete)
    parameters, obs = torch.randn(20, model.num_parameters), torch.randn(20, rows, 3)
    together = definition(model.shape, parameters, obs)
    for member, vector in enumerate(parameters):
        model.set_flat_parameters(vector)
        torch.testing.assert_close(together[member], model.actor(obs[member]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("hidden_sizes", [(), (16,), (64, 64)])
@pytest.mark.parametrize("rows", [1, 2, 8])
def test_who_else_is_evaluated_does_not_change_a_bit(hidden_sizes, rows):
    model = MLPARSModel(3, 2, hidden_sizes)
    parameters, obs = torch.randn(40, model.num_parameters), torch.randn(40, rows, 3)
    together = definition(model.shape, parameters, obs)
    for members in ([0, 1], [7, 30], [5, 6, 39], list(range(17))):
        assert torch.equal(definition(model.shape, parameters[members], obs[members]), together[members])
