"""Encoders before our heads: their gradients are those of the whole by autograd, their initialisation keeps a signal's size."""

import pytest
import torch
from gymnasium.spaces import Box
from my_nets import Moody, OfOurLayers, Torso
from replay_batches import batch_of
from torch import nn

from rl_training.algorithms import PPG, PPO, SAC
from rl_training.algorithms.ppg import policy_columns, ppg_auxiliary_loss
from rl_training.algorithms.ppo import ppo_loss
from rl_training.models.encoder import CHUNK, Encoder, Encoders
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_ppg import MLPPPGModel
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.models.mlp_td3 import MLPTD3Model
from rl_training.models.torsos import TORSOS, Impala, MinAtar, Nature, ResidualMLP
from rl_training.rows import RowLayout
from rl_training.types import ObsPart

OBS, ROWS = 5, 24
SPACE = Box(-1, 1, (OBS,))
LAYOUT = RowLayout([ObsPart((), "box", (OBS,))])
COEFFICIENTS = {"clip_coef": 0.2, "ent_coef": 0.01, "vf_coef": 0.5}


def encoder(kind=Torso, **kwargs):
    return Encoder(kind(SPACE, **kwargs), LAYOUT, name="mine")


def encoders(*, shared, kind=Torso):
    return Encoders(encoder(kind)) if shared else Encoders(encoder(kind), encoder(kind, width=8))


def batch_for(*, discrete):
    columns = {name: torch.randn(ROWS) for name in ("logprobs", "advantages", "returns", "values")}
    actions = torch.randint(3, (ROWS,)) if discrete else torch.randn(ROWS, 3)
    return columns | {"obs": torch.randn(ROWS, OBS), "actions": actions}


MODELS = {
    f"{name} {'shared' if shared else 'apart'} {'discrete' if discrete else 'continuous'} {hidden}": (
        make,
        {"hidden_sizes": hidden, "discrete": discrete, **kwargs},
        shared,
    )
    for hidden in ((), (6,))
    for discrete in (True, False)
    for name, make, kwargs, shared in (
        ("ppo", MLPActorCritic, {}, True),
        ("ppo", MLPActorCritic, {}, False),
        ("ppg", MLPPPGModel, {"architecture": "shared"}, True),
        ("ppg", MLPPPGModel, {"architecture": "dual"}, False),
    )
}


def model_of(name):
    make, kwargs, shared = MODELS[name]
    torch.manual_seed(3)
    return make(OBS, 3, encoders=encoders(shared=shared), **kwargs), kwargs["discrete"]


@pytest.mark.parametrize("name", MODELS)
def test_the_pullback_through_heads_and_torso_is_the_gradient_of_the_whole(name):
    model, discrete = model_of(name)
    batch = batch_for(discrete=discrete)
    said = model.evaluate_actions(batch["obs"], batch["actions"])
    fresh = {"new_logprobs": said.logprobs, "new_values": said.values, "entropy": said.entropy}
    expected = torch.autograd.grad(ppo_loss(batch | fresh, **COEFFICIENTS)["loss"], list(model.parameters()), allow_unused=True)
    (_, logprobs, values, entropy), pull = model.evaluate_actions.vjp(batch["obs"], batch["actions"])
    _, d = ppo_loss.vjp(batch | {"new_logprobs": logprobs, "new_values": values, "entropy": entropy}, **COEFFICIENTS)
    gradients = pull(None, d.new_logprobs, d.new_values, d.entropy)
    assert len(gradients) == len(expected)
    for found, wanted in zip(gradients, expected, strict=True):
        torch.testing.assert_close(found, torch.zeros_like(found) if wanted is None else wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("ppg")])
def test_the_auxiliary_phase_reaches_the_torso_by_both_of_its_heads(name):
    model, discrete = model_of(name)
    batch = batch_for(discrete=discrete)
    batch |= policy_columns(model_of(name)[0].distribution(batch["obs"] + 0.1), prefix="teacher")
    said = model.auxiliary(batch["obs"])
    columns = policy_columns(said.distribution, prefix="policy") | {"values": said.values}
    loss = ppg_auxiliary_loss(batch | columns | {"auxiliary_values": said.auxiliary_values})["auxiliary_loss"]
    expected = torch.autograd.grad(loss, list(model.parameters()))
    before = [p.detach().clone() for p in model.parameters()]
    learner = PPG(model, learning_rate=1.0, max_grad_norm=1e9)
    captured: list[torch.Tensor] = []
    learner.auxiliary_optimizer.step = captured.extend  # type: ignore[method-assign]
    learner.auxiliary_update(batch)
    for found, wanted in zip(captured, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_the_value_function_of_a_shared_torso_leaves_it_alone_in_the_policy_phase():
    model, _ = model_of("ppg shared discrete ()")
    _, pull = model.value.vjp(torch.randn(ROWS, OBS))
    assert len(pull(torch.ones(ROWS))) == 1  # its own slice, and no torso
    assert torch.autograd.grad(
        model.value(torch.randn(ROWS, OBS)).sum(), list(model.encoders.parameters()), allow_unused=True
    ) == (None,) * len(list(model.encoders.parameters()))


@pytest.mark.parametrize("architecture", ["shared", "dual"])
def test_separate_value_epochs_move_the_value_function_and_what_it_alone_reads(architecture):
    shared = architecture == "shared"
    model = MLPPPGModel(OBS, 3, (), architecture=architecture, encoders=encoders(shared=shared))
    learner = PPG(model, learning_rate=0.1)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    batch = batch_for(discrete=True)
    learner.update({name: batch[name] for name in ("obs", "returns")})
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    own = {name for name, _ in model.named_parameters() if name.startswith("encoders.own_value")}
    assert moved == {"flat"} | own
    policy = slice(0, model.num_policy_parameters)
    assert torch.equal(model.flat[policy], before["flat"][policy])
    learner.update({name: column for name, column in batch.items() if name != "returns"})
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert {name for name in moved if name.startswith("encoders.policy")}


def off_policy(kind, **settings):
    torch.manual_seed(3)
    return kind(OBS, 2, (6,), actor_encoder=encoder(), critic_encoder=encoder(width=8), **settings)


def assert_all_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [MLPSACModel, MLPTD3Model])
def test_critics_behind_an_encoder_go_back_to_all_they_are_made_of_and_to_actions_alone(kind):
    model, obs, actions = off_policy(kind), torch.randn(ROWS, OBS), torch.randn(ROWS, 2).requires_grad_()
    d, parameters = torch.randn(2, ROWS), list(model.critics.parameters())
    expected = torch.autograd.grad(model.q_values(obs, actions), [*parameters, actions], d)
    q_values, pull = model.q_values.vjp(obs, actions.detach())
    torch.testing.assert_close(q_values, model.q_values(obs, actions).detach(), rtol=1e-4, atol=1e-5)
    assert_all_close(pull(d), expected[:-1])
    _, pull = model.q_values.vjp(obs, actions.detach(), wrt=1)
    torch.testing.assert_close(pull(d), expected[-1], rtol=1e-4, atol=1e-6)
    _, pull = model.q_values.vjp(obs, actions.detach(), members=torch.tensor([1]))
    alone = torch.autograd.grad(model.q_values(obs, actions)[1], parameters, d[1])
    assert_all_close(pull(d[1:]), alone)


def test_actors_behind_an_encoder_go_back_to_all_they_are_made_of():
    obs, d = torch.randn(ROWS, OBS), torch.randn(ROWS, 2)
    model = off_policy(MLPTD3Model)
    actions, pull = model.actor.actions.vjp(obs)
    torch.testing.assert_close(actions, model.actor(obs).detach())
    assert_all_close(pull(d), torch.autograd.grad(model.actor(obs), list(model.actor.parameters()), d))
    model, d_logprobs = off_policy(MLPSACModel), torch.randn(ROWS)
    torch.manual_seed(5)
    sample, pull = model.sample_actions.vjp(obs)
    torch.manual_seed(5)
    expected = model.sample_actions(obs)
    assert_all_close(sample, (column.detach() for column in expected))
    assert_all_close(pull(d, d_logprobs), torch.autograd.grad(list(expected), list(model.actor.parameters()), (d, d_logprobs)))


def test_target_critics_have_an_encoder_of_their_own_that_follows():
    learner = SAC(off_policy(MLPSACModel), learning_rate=1e-2, tau=0.5)
    source, target = (dict(critics.encoder.named_parameters()) for critics in (learner.model.critics, learner.target))
    before = {name: p.detach().clone() for name, p in target.items()}
    learner.update(batch_of(ROWS, OBS, 2))
    for name, p in target.items():
        assert not torch.equal(source[name], before[name])
        torch.testing.assert_close(p, (source[name] + before[name]) / 2)


def test_one_torso_for_both_runs_once_for_each_update(monkeypatch):
    calls = []
    forward = Torso.forward
    monkeypatch.setattr(Torso, "forward", lambda self, obs: calls.append(len(obs)) or forward(self, obs))
    learner = PPO(MLPActorCritic(OBS, 3, (), encoders=encoders(shared=True)), learning_rate=1e-3)
    learner.update(batch_for(discrete=True))
    assert calls == [ROWS]
    calls.clear()
    learner.log_prob(torch.zeros(ROWS, OBS), torch.zeros(ROWS))
    assert calls == [ROWS]


def test_a_torso_is_in_training_mode_where_it_is_differentiated_and_in_no_other_place():
    read, obs = encoder(Moody), torch.randn(ROWS, OBS)
    with torch.no_grad():
        calm = read(obs)
        assert torch.equal(read(obs), calm)
    features, _ = read.vjp(obs)
    assert (features == 0).sum() > ROWS  # half of them are dropped
    with torch.no_grad():
        assert torch.equal(read(obs), calm)


def test_long_batches_are_read_piece_by_piece_where_nothing_is_learnt_from_them(monkeypatch):
    read, obs = encoder(), torch.randn(2 * CHUNK + 3, OBS)
    sizes = []
    forward = Torso.forward
    monkeypatch.setattr(Torso, "forward", lambda self, obs: sizes.append(len(obs)) or forward(self, obs))
    with torch.no_grad():
        pieces = read(obs)
    whole = read(obs)
    assert sizes == [CHUNK, CHUNK, 3, len(obs)]
    torch.testing.assert_close(pieces, whole)


def test_a_torso_of_our_layers_learns_as_one_of_torchs_with_the_same_weights():
    ours, theirs = encoder(OfOurLayers), encoder(Torso)
    with torch.no_grad():
        for layer, linear in zip(ours.torso.net.layers("net"), (theirs.torso.layers[0], theirs.torso.layers[2]), strict=True):
            linear.weight.copy_(layer.weight.mT)
            linear.bias.copy_(layer.bias)
    obs, d = torch.randn(ROWS, OBS), torch.randn(ROWS, 16)
    (features, pull), (expected, pull_theirs) = ours.vjp(obs), theirs.vjp(obs)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)
    (flat,) = pull(d)
    by_layer = [part.reshape(-1) for part in (g.mT if g.dim() == 2 else g for g in pull_theirs(d))]
    torch.testing.assert_close(flat, torch.cat(by_layer), rtol=1e-4, atol=1e-5)


def test_a_torso_that_gives_another_width_is_named():
    broken = encoder()
    broken.features_dim = 17
    with pytest.raises(
        ValueError, match=r"network 'mine' gives shape \(4, 16\) for 4 observations; its features_dim wants \(4, 17\)"
    ):
        broken(torch.zeros(4, OBS))


IMAGES = [(4, 10, 10), (10, 10, 10), (1, 8, 8), (3, 64, 64), (4, 84, 84), (3, 96, 96), (1, 5, 7)]


@pytest.mark.parametrize("shape", IMAGES, ids=str)
@pytest.mark.parametrize("name", ["nature", "impala", "minatar"])
def test_packaged_networks_take_images_of_any_size_and_keep_them_apart(name, shape):
    """By torch's own initialisation features of different images are nearly the same, and heads learn little of them."""

    def apart(torso):
        with torch.no_grad():
            features = torso(images)
        assert features.shape == (8, torso.features_dim)
        return features.std(0).norm()

    torch.manual_seed(0)
    torso, images = TORSOS[name](Box(0, 255, shape, "uint8")), torch.rand(8, *shape)
    ours = apart(torso)
    for layer in torso.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.reset_parameters()
    assert ours > 3 * apart(torso)


def test_the_nature_network_has_the_shapes_of_the_paper():
    torso = Nature(Box(0, 255, (4, 84, 84), "uint8"))
    assert [tuple(p.shape) for p in torso.parameters() if p.dim() > 1] == [
        (32, 4, 8, 8),
        (64, 32, 4, 4),
        (64, 64, 3, 3),
        (512, 3136),
    ]


def test_impala_has_fifteen_convolutions_and_width_multiplies_their_channels():
    def channels(**kwargs):
        return [
            m.out_channels for m in Impala(Box(0, 255, (3, 64, 64), "uint8"), **kwargs).modules() if isinstance(m, nn.Conv2d)
        ]

    assert channels() == [16] * 5 + [32] * 10
    assert channels(width=0.5) == [8] * 5 + [16] * 10
    assert channels(channels=[4]) == [4] * 5


def test_minatar_s_network_is_one_layer_of_sixteen_and_one_of_128():
    torso = MinAtar(Box(0, 1, (4, 10, 10), "uint8"))
    assert [tuple(p.shape) for p in torso.parameters() if p.dim() > 1] == [(16, 4, 3, 3), (128, 1024)]


def test_residual_blocks_add_to_what_goes_past_them():
    torso = ResidualMLP(SPACE, width=8, num_blocks=2)
    with torch.no_grad():
        for block in torso.blocks:
            block.flat.zero_()
    obs = torch.randn(ROWS, OBS)
    torch.testing.assert_close(torso(obs), torch.layer_norm(torso.embedding(obs), (8,)))
