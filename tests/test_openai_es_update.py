"""What one generation of OpenAI ES does to the parameters."""

from __future__ import annotations

import pytest
import torch

from rl_training.algorithms.openai_es import OpenAIES, centered_ranks, es_gradient, openai_es_loss, standardized_returns
from rl_training.errors import ConfigError
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.options.openai_es import OpenAIESConfig


def linear(parameters):
    """A linear policy of two observations and one action: two parameters."""
    model = MLPARSModel(2, 1, ())
    model.set_flat_parameters(torch.tensor(parameters))
    return model


def batch_of(perturbations, positive, negative):
    return {
        "perturbations": torch.tensor(perturbations),
        "positive_returns": torch.tensor(positive, dtype=torch.float64),
        "negative_returns": torch.tensor(negative, dtype=torch.float64),
    }


def random_batch(directions=16, parameters=2):
    return {
        "perturbations": torch.randn(directions, parameters),
        "positive_returns": torch.randn(directions, dtype=torch.float64),
        "negative_returns": torch.randn(directions, dtype=torch.float64),
    }


@pytest.mark.parametrize("shaping", ["centered_ranks", "standardized"])
def test_returns_may_be_whole_numbers_and_perturbations_of_double_precision(shaping):
    batch = batch_of([[1.0, 0.0], [0.0, 1.0]], [2**24 + 1, 5.0], [2**24, 7.0])
    whole = {name: column.long() if "returns" in name else column.double() for name, column in batch.items()}
    models = [linear([0.5, -0.5]) for _ in range(2)]
    for model, given in zip(models, (batch, whole), strict=True):
        OpenAIES(model, step_size=0.1, noise_std=0.03, fitness_shaping=shaping).update(given)
    assert torch.equal(models[0].flat, models[1].flat)


def test_the_loss_function_takes_plain_numbers():
    batch = {"reward_std": 1.5, "positive_returns": [1, 2], "negative_returns": torch.tensor([3, 4]), "utilities": [0.5, -0.5]}
    metrics = openai_es_loss(batch | {"update": torch.ones(4), "parameters": torch.zeros(4)})
    assert {name: float(value) for name, value in metrics.items()} == {
        "reward_std": 1.5,
        "utility_mean": 0.0,
        "update_norm": 2.0,
        "parameter_norm": 0.0,
        "positive_return_mean": 1.5,
        "negative_return_mean": 3.5,
    }


def test_centred_ranks_ignore_the_size_of_an_outlier():
    assert torch.equal(centered_ranks(torch.tensor([1.0, 2.0, 9e9])), torch.tensor([-0.5, 0.0, 0.5]))


def test_equal_returns_share_the_mean_of_their_ranks():
    # ranks 0, (1 + 2) / 2, (1 + 2) / 2, 3, 4 of 5
    assert torch.equal(centered_ranks(torch.tensor([1.0, 5.0, 5.0, 7.0, 9.0])), torch.tensor([-0.5, -0.125, -0.125, 0.25, 0.5]))


def test_returns_that_are_all_equal_have_no_rank():
    assert torch.equal(centered_ranks(torch.full((6,), 3.0)), torch.zeros(6))
    assert torch.equal(centered_ranks(torch.tensor([3.0])), torch.zeros(1))


def test_ranks_always_add_up_to_nothing():
    assert float(centered_ranks(torch.randint(0, 5, (101,)).double()).sum()) == pytest.approx(0.0, abs=1e-12)


def test_standardised_returns_by_hand():
    returns = torch.tensor([1.0, 1.0, 1.0, 5.0], dtype=torch.float64)  # mean 2, variance (3 · 1 + 9) / 4
    torch.testing.assert_close(standardized_returns(returns), torch.tensor([-1.0, -1.0, -1.0, 3.0]).double() / 3**0.5)


@pytest.mark.parametrize("value", [3.0, 0.1])
def test_returns_that_are_all_equal_are_nothing_out_of_the_common(value):
    returns = torch.full((7,), value, dtype=torch.float64)  # the mean of seven 0.1 is not 0.1
    assert torch.equal(standardized_returns(returns), torch.zeros(7).double())


def test_without_ranks_an_outlier_has_its_say_and_units_have_none():
    steps = []
    for factor, outlier in ((1.0, 4.0), (1.0, 400.0), (1000.0, 4.0)):
        model = linear([0.0, 0.0])
        learner = OpenAIES(model, step_size=0.1, noise_std=0.02, optimizer="sgd", fitness_shaping="standardized")
        learner.update(batch_of([[1.0, 0.0], [0.0, 1.0]], [outlier * factor, 3.0 * factor], [2.0 * factor, 1.0 * factor]))
        steps.append(model.flat_parameters())
    # returns 4, 3 | 2, 1 have mean 2.5 and variance 1.25: both directions are worth 2 / sqrt(1.25)
    torch.testing.assert_close(steps[0], torch.full((2,), 0.1 * 2 / 1.25**0.5 / 4))
    torch.testing.assert_close(steps[2], steps[0])
    assert steps[1][0] > 50 * steps[1][1]


def test_the_gradient_is_the_weighted_mean_of_the_perturbations():
    # returns 4, 1 | 2, 3 have the ranks 0.5, -0.5 | -1/6, 1/6: (2/3 · [1, 0] - 2/3 · [0, 3]) / 4
    utilities = centered_ranks(torch.tensor([4.0, 1.0, 2.0, 3.0]))
    gradient = es_gradient(torch.tensor([[1.0, 0.0], [0.0, 3.0]]), *utilities.chunk(2))
    torch.testing.assert_close(gradient, torch.tensor([1 / 6, -0.5]))


def test_sgd_climbs_the_gradient_and_decays_the_parameters():
    model = linear([1.0, -2.0])
    learner = OpenAIES(model, step_size=0.1, noise_std=0.02, weight_decay=0.5, optimizer="sgd")
    learner.update(batch_of([[1.0, 0.0], [0.0, 3.0]], [4.0, 1.0], [2.0, 3.0]))
    # θ + 0.1 (g - 0.5 θ)
    torch.testing.assert_close(model.flat_parameters(), torch.tensor([1.0 + 0.1 * (1 / 6 - 0.5), -2.0 + 0.1 * (-0.5 + 1.0)]))


def test_adam_descends_along_minus_the_gradient_plus_the_decay():
    model = linear([1.0, -2.0])
    learner = OpenAIES(model, step_size=0.1, noise_std=0.02, weight_decay=0.5)
    reference = torch.tensor([1.0, -2.0], requires_grad=True)
    adam = torch.optim.Adam([reference], lr=0.1)
    for _ in range(3):
        batch = random_batch()
        utilities = centered_ranks(torch.cat([batch["positive_returns"], batch["negative_returns"]]))
        reference.grad = -es_gradient(batch["perturbations"], *utilities.chunk(2)) + 0.5 * reference.detach()
        learner.update(batch)
        adam.step()
        torch.testing.assert_close(model.flat_parameters(), reference.detach())


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_monotone_transformation_of_the_returns_changes_nothing(optimizer):
    batch = random_batch()
    bent = batch | {name: (3 * batch[name]).exp() for name in ("positive_returns", "negative_returns")}
    results = []
    for given in (batch, bent):
        model = linear([0.3, 0.4])
        OpenAIES(model, step_size=0.1, noise_std=0.02, optimizer=optimizer).update(given)
        results.append(model.flat_parameters())
    assert torch.equal(*results)


def test_the_order_of_the_directions_does_not_matter():
    batch, order = random_batch(), torch.randperm(16)
    results = []
    for given in (batch, {name: column[order] for name, column in batch.items()}):
        model = linear([0.3, 0.4])
        OpenAIES(model, step_size=0.1, noise_std=0.02, optimizer="sgd").update(given)
        results.append(model.flat_parameters())
    torch.testing.assert_close(*results)


def test_exchanging_the_signs_turns_the_step_around():
    batch = random_batch()
    swapped = batch | {"positive_returns": batch["negative_returns"], "negative_returns": batch["positive_returns"]}
    steps = []
    for given in (batch, swapped):
        model = linear([0.0, 0.0])
        OpenAIES(model, step_size=0.1, noise_std=0.02, optimizer="sgd").update(given)
        steps.append(model.flat_parameters())
    torch.testing.assert_close(steps[0], -steps[1])


def test_metrics_tell_what_the_update_did():
    model = linear([3.0, 4.0])
    learner = OpenAIES(model, step_size=0.1, noise_std=0.02, optimizer="sgd")
    metrics = learner.update(batch_of([[1.0, 0.0], [0.0, 3.0]], [4.0, 1.0], [2.0, 3.0])).metrics
    assert float(metrics["positive_return_mean"]) == 2.5
    assert float(metrics["negative_return_mean"]) == 2.5
    assert float(metrics["reward_std"]) == pytest.approx((5 / 4) ** 0.5)
    assert float(metrics["utility_mean"]) == pytest.approx(0.0, abs=1e-7)
    assert float(metrics["update_norm"]) == pytest.approx(0.1 * (1 / 36 + 0.25) ** 0.5, rel=1e-5)
    assert float(metrics["parameter_norm"]) == pytest.approx(float(model.flat_parameters().norm()))


def test_the_loss_function_reports_the_named_tensors_it_is_given():
    told = openai_es_loss(
        {
            "positive_returns": torch.tensor([1.0, 3.0]),
            "negative_returns": torch.tensor([0.0, 1.0]),
            "utilities": torch.tensor([0.5, 0.25]),
            "reward_std": torch.tensor(2.0),
            "update": torch.tensor([0.6, 0.8]),
            "parameters": torch.tensor([3.0, 4.0]),
        }
    )
    assert {name: pytest.approx(float(value)) for name, value in told.items()} == {
        "reward_std": 2.0,
        "utility_mean": 0.375,
        "update_norm": 1.0,
        "parameter_norm": 5.0,
        "positive_return_mean": 2.0,
        "negative_return_mean": 0.5,
    }


def test_a_learner_that_was_saved_goes_on_as_if_nothing_had_happened():
    def fresh():
        normalizer = ObservationNormalizer(2, clip=5.0, eps=0.0, var_floor=1e-2)
        return OpenAIES(linear([0.5, 0.5]), step_size=0.1, noise_std=0.02, observation_normalizer=normalizer)

    first, second = fresh(), fresh()
    batches = [random_batch() for _ in range(4)]
    for batch in batches[:2]:
        first.update(batch)
        first.observe(mean=torch.tensor([1.0, 2.0]).double(), var=torch.tensor([4.0, 0.0]).double(), count=10)
    second.load_state_dict(first.state_dict())
    for batch in batches[2:]:
        first.update(batch)
        second.update(batch)
    assert torch.equal(first.model.flat_parameters(), second.model.flat_parameters())
    obs = torch.tensor([[0.3, 2.01], [100.0, 2.0]])
    assert torch.equal(first.act(obs), second.act(obs))


def test_the_filter_has_a_floor_for_the_variance_and_clips_at_five():
    normalizer = ObservationNormalizer(2, clip=5.0, eps=0.0, var_floor=1e-2)
    normalizer.take_in(mean=torch.tensor([1.0, 2.0]).double(), var=torch.tensor([4.0, 0.0]).double(), count=10)
    torch.testing.assert_close(normalizer(torch.tensor([[3.0, 2.1], [100.0, -9.0]])), torch.tensor([[1.0, 1.0], [5.0, -5.0]]))


def test_a_shaping_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match="possible: 'centered_ranks' or 'standardized'"):
        OpenAIESConfig(fitness_shaping="ranks")


def test_no_directions_are_refused():
    with pytest.raises(ConfigError, match="num_directions"):
        OpenAIESConfig(num_directions=0)


def test_the_common_learning_rate_schedule_moves_the_step_size():
    options = OpenAIESConfig(step_size=0.1, learning_rate_schedule="linear", warmup_steps=0)
    assert options.scheduled_values(0, 100)["step_size"] == 0.1
    assert options.scheduled_values(50, 100)["step_size"] == pytest.approx(0.05)
    assert OpenAIESConfig(step_size=0.1, warmup_steps=10).scheduled_values(5, 100)["step_size"] == pytest.approx(0.05)
