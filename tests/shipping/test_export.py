"""Exported policies: whatever leaves the library acts as `predict` does."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from small_runs import small_config, train

from conftest import REPOSITORY
from rl_training import PPO, SAC
from rl_training.cli import main
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.experiment.registry import algorithm_names, get_algorithm_spec
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.models.policy_network import PolicyNetwork
from rl_training.runtime.policy import Policy
from rl_training.shipping.export import export_policy, load_exported, random_observations, verify
from rl_training.shipping.export_formats import FORMATS
from rl_training.shipping.export_traced import random_masks
from rl_training.types import EnvSpec

BOX = EnvSpec("Box-v0", 3, 2, low=(-2.0, 0.0), high=(2.0, 10.0))
CHOICE = EnvSpec("Choice-v0", 3, 4, discrete=True, action_start=5)
PARTS = EnvSpec("Parts-v0", 3, 9, discrete=True, nvec=(4, 2, 3), action_start=(0, 1, 7))
WITH_NETWORK = [name for name in algorithm_names() if name != "pets"]


def fresh_policy(algo: str, spec: EnvSpec, tmp_path: Path, **options: Any) -> Policy:
    """Weights as they are drawn, statistics that are not trivial."""
    config = small_config(algo, tmp_path, algo_kwargs=options)
    algorithm = get_algorithm_spec(algo).build_fn(config.options, spec, torch.device("cpu"))
    normalizer = getattr(algorithm, "observation_normalizer", None)
    if normalizer is not None:
        normalizer.take_in(mean=torch.tensor([1.0, -2.0, 30.0]).double(), var=torch.tensor([4.0, 0.01, 1e4]).double(), count=99)
    if algo in ("ars", "openai_es"):
        algorithm.model.set_flat_parameters(torch.randn(algorithm.model.num_parameters))
    return Policy(config, spec, algorithm, device=torch.device("cpu"))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("algo", WITH_NETWORK)
def test_every_algorithm_with_a_policy_network_exports_what_it_predicts(algo: str, form: str, tmp_path: Path):
    kinds = get_algorithm_spec(algo).config
    for spec in [BOX] * kinds.continuous + [CHOICE] * kinds.discrete + [PARTS] * kinds.in_parts:
        options = {"normalize_observations": True} if algo in ("ppo", "ppg") else {}
        policy = fresh_policy(algo, spec, tmp_path, **options)
        out = tmp_path / f"{spec.env_id}{FORMATS[form].suffix}"
        done = export_policy(policy, out)
        assert done.format == form
        assert done.max_difference <= 1e-5
        obs = (np.random.default_rng(7).normal(size=(50, 3)) * [1, 5, 100]).astype(np.float32)
        actions = FORMATS[form].load(out.read_bytes())(obs)
        np.testing.assert_allclose(actions, policy.predict(obs), atol=1e-4)
        assert len(np.unique(actions.round(3))) > 1  # a constant would agree for the wrong reason


def test_a_hand_made_policy_normalises_clips_and_scales(tmp_path: Path):
    normalizer = ObservationNormalizer(1, clip=2.0)
    normalizer.take_in(mean=torch.tensor([10.0]).double(), var=torch.tensor([4.0]).double(), count=5)
    spec = EnvSpec("One-v0", 1, 1, low=(-4.0,), high=(8.0,))
    network = PolicyNetwork.from_layers(
        [(torch.tensor([[0.25]]), torch.tensor([0.25]))], spec, activation="tanh", normalizer=normalizer
    )
    # (12 - 10) / 2 = 1 -> 0.5 -> 2 + 0.5 * 6; 100 is clipped to 2 -> 0.75; -100 to -2 -> -0.25
    obs = torch.tensor([[12.0], [100.0], [-100.0]])
    expected = torch.tensor([[5.0], [6.5], [0.5]])
    torch.testing.assert_close(network(obs), expected)
    for form in FORMATS.values():
        np.testing.assert_allclose(form.load(form.dump(network, {}))(obs.numpy()), expected.numpy(), rtol=1e-6)


def test_bounds_hold_however_far_the_network_reaches():
    network = PolicyNetwork.from_layers([(torch.full((3, 2), 1e6), None)], BOX, activation="relu")
    for form in FORMATS.values():
        actions = form.load(form.dump(network, {}))(np.array([[1, 1, 1], [-1, -1, -1]], dtype=np.float32))
        assert actions.tolist() == [[2.0, 10.0], [-2.0, 0.0]]


def test_discrete_actions_are_integers_that_count_from_where_the_space_does():
    weight = torch.eye(4)[:3]
    network = PolicyNetwork.from_layers([(weight, None)], CHOICE, activation="tanh")
    for form in FORMATS.values():
        actions = form.load(form.dump(network, {}))(np.eye(3, dtype=np.float32))
        assert actions.dtype == np.int64
        assert actions.tolist() == [5, 6, 7]


def test_each_part_of_an_action_is_chosen_among_its_own_and_counts_from_where_it_does():
    scores = torch.tensor([[3.0, 1.0, 2.0, 0.0, 5.0, 9.0, 1.0, 4.0, 2.0]])
    network = PolicyNetwork.from_layers([(scores.expand(3, 9), None)], PARTS, activation="tanh")
    for form in FORMATS.values():
        actions = form.load(form.dump(network, {}))(np.array([[1, 0, 0], [-1, 0, 0]], dtype=np.float32))
        assert actions.dtype == np.int64
        assert actions.tolist() == [[0, 1 + 1, 7 + 1], [3, 1, 7]]


def masks_for(spec: EnvSpec, count: int) -> np.ndarray:
    return random_masks(spec.choices, rng=np.random.default_rng(2), count=count)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("spec", [CHOICE, PARTS], ids=lambda spec: spec.env_id)
@pytest.mark.parametrize("algo", ["ppo", "ppg"])
def test_a_policy_trained_under_masks_is_exported_with_them(algo: str, spec: EnvSpec, form: str, tmp_path: Path):
    policy = fresh_policy(algo, replace(spec, masked=True), tmp_path, normalize_observations=True)
    out = tmp_path / f"masked{FORMATS[form].suffix}"
    done = export_policy(policy, out)
    assert done.max_difference == 0
    obs, masks = np.random.default_rng(1).normal(size=(64, 3)).astype(np.float32), masks_for(spec, 64)
    act = FORMATS[form].load(out.read_bytes())
    under, free = act(obs, masks), act(obs, np.ones_like(masks))
    np.testing.assert_array_equal(under, policy.predict(obs, action_masks=masks))
    np.testing.assert_array_equal(free, policy.predict(obs))
    assert (under != free).any()


@pytest.mark.parametrize("form", FORMATS)
def test_the_way_to_use_a_masked_policy_that_its_card_shows_works(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    policy = fresh_policy("ppo", replace(PARTS, masked=True), tmp_path)
    done = export_policy(policy, tmp_path / f"masked{FORMATS[form].suffix}")
    monkeypatch.chdir(tmp_path)
    seen: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, at every use of TorchScript
        exec(re.search(r"```python\n(.*?)```", done.card_path.read_text(), re.DOTALL)[1], seen)
    np.testing.assert_array_equal(np.asarray(seen["actions"]), policy.predict(np.zeros((1, 3))))


@pytest.mark.parametrize("form", ["onnx", "torchscript"])
@pytest.mark.parametrize("spec", [CHOICE, PARTS], ids=lambda spec: spec.env_id)
def test_a_policy_behind_an_encoder_is_exported_with_its_masks(spec: EnvSpec, form: str, tmp_path: Path):
    policy = fresh_policy("ppo", replace(spec, masked=True), tmp_path, network="residual_mlp", normalize_observations=True)
    out = tmp_path / f"encoded{FORMATS[form].suffix}"
    assert export_policy(policy, out).max_difference == 0
    obs, masks = np.random.default_rng(1).normal(size=(32, 3)).astype(np.float32), masks_for(spec, 32)
    actions = FORMATS[form].load(out.read_bytes())(obs, masks)
    np.testing.assert_array_equal(actions, policy.predict(obs, action_masks=masks))
    assert (actions != policy.predict(obs)).any()


def test_an_export_that_does_what_is_forbidden_is_refused(tmp_path: Path):
    policy = fresh_policy("ppo", replace(CHOICE, masked=True), tmp_path)
    network = policy.algorithm.policy_network(policy.spec)
    inputs = [np.zeros((4, 3), dtype=np.float32), np.eye(4, dtype=bool)]
    assert verify(policy, network, lambda rows, masks: np.asarray(policy.predict(rows, action_masks=masks)), inputs) == 0
    network.linears()[-1].weight.zero_()
    network.linears()[-1].bias.zero_()  # then any action is as good as another
    with pytest.raises(RLTrainingError, match="does not act as predict"):
        verify(policy, network, lambda rows, masks: np.full(len(rows), 5), inputs)


def test_a_filter_that_does_not_clip_survives_the_file():
    normalizer = ObservationNormalizer(3, clip=math.inf)
    normalizer.take_in(mean=torch.zeros(3).double(), var=torch.full((3,), 1e-6).double(), count=5)
    network = PolicyNetwork.from_layers([(torch.eye(3)[:, :2] * 1e-4, None)], BOX, activation="tanh", normalizer=normalizer)
    obs = np.array([[1.0, 2.0, 3.0]], dtype=np.float32)  # a thousand standard deviations away
    expected = network(torch.from_numpy(obs)).numpy()
    assert expected[0, 0] == pytest.approx(0.2, rel=0.01)
    for form in FORMATS.values():
        np.testing.assert_allclose(form.load(form.dump(network, {}))(obs), expected, rtol=1e-5)


def test_a_file_that_acts_otherwise_is_refused(tmp_path: Path):
    policy = fresh_policy("sac", BOX, tmp_path)
    network = policy.algorithm.policy_network(BOX)
    obs = random_observations(network, seed=0)
    assert verify(policy, network, lambda rows: np.asarray(policy.predict(rows)), obs) == 0
    with pytest.raises(RLTrainingError, match="does not act as predict"):
        verify(policy, network, lambda rows: np.asarray(policy.predict(rows)) * 0.999, obs)
    with pytest.raises(RLTrainingError, match="shape"):
        verify(policy, network, lambda rows: np.zeros(len(rows)), obs)
    discrete = fresh_policy("ppo", CHOICE, tmp_path)
    other = discrete.algorithm.policy_network(CHOICE)
    with pytest.raises(RLTrainingError, match="does not act as predict"):
        verify(discrete, other, lambda rows: (np.asarray(discrete.predict(rows)) - 4) % 4 + 5, obs)


def test_a_planner_is_refused_with_what_to_do_instead(tmp_path: Path):
    policy = fresh_policy("pets", BOX, tmp_path)
    assert policy.algorithm.policy_network(BOX) is None
    with pytest.raises(ConfigError, match="pets has no policy network to export"):
        export_policy(policy, tmp_path / "plan.onnx")
    assert not list(tmp_path.glob("plan*"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return train(small_config("sac", tmp_path_factory.mktemp("export")))


def test_the_command_writes_file_and_card_into_the_run(run: Any, capsys: pytest.CaptureFixture[str]):
    assert main(["export", str(run.run_dir), "--format", "onnx"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"max difference to predict \S+ on 1,024 random observations", text)
    path = Path(re.search(r"^export=(.*)$", text, re.MULTILINE)[1])
    assert path == run.run_dir / "exports" / f"{run.checkpoint_path.stem}.onnx"
    obs = np.array([[1.0, 0.0, 0.5]], dtype=np.float32)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"obs": obs})[0], SAC.load(run.run_dir).predict(obs), atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["algo"] == "sac"
    card = path.with_name(f"{path.name}.md").read_text()
    assert "# sac on Pendulum-v1" in card
    assert f"{run.metrics['global_step']:,} of" in card
    assert f"{run.metrics['eval_return_mean']:.6g}" in card


def test_formats_side_by_side_have_a_card_each(run: Any, tmp_path: Path):
    agent = SAC.load(run.run_dir)
    for form in FORMATS.values():
        agent.export(tmp_path / f"policy{form.suffix}")
    endings = [form.suffix for form in FORMATS.values()]
    assert {path.name for path in tmp_path.iterdir()} == {f"policy{end}{card}" for end in endings for card in ("", ".md")}
    for name, form in FORMATS.items():
        assert f"The deterministic policy as {name}," in (tmp_path / f"policy{form.suffix}.md").read_text()


def test_the_command_says_of_discrete_actions_how_many_are_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    result = train(small_config("ppo", tmp_path, eval_episodes=1))
    assert main(["export", str(result.run_dir), "--out", str(tmp_path / "p.safetensors")]) == 0
    assert "max difference to predict 0 (other actions) on 1,024 random observations" in capsys.readouterr().out
    card = (tmp_path / "p.safetensors.md").read_text()
    assert "the mean of 1 evaluation episode at this step" in card


@pytest.mark.parametrize("form", FORMATS)
def test_the_code_on_the_card_runs_beside_the_file(run: Any, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    done = SAC.load(run.run_dir).export(tmp_path / f"policy{FORMATS[form].suffix}")
    code = re.search(r"```python\n(.*?)```", done.card_path.read_text(), re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        exec(code, names)
    expected = SAC.load(run.run_dir).predict(np.zeros((1, 3)))
    np.testing.assert_allclose(np.asarray(names["actions"]), expected, atol=1e-5)


def test_what_cannot_be_meant_is_refused_before_anything_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    calls = [
        (["export", str(tmp_path)], "no format was given"),
        (["export", str(tmp_path), "--out", "policy.bin"], "names no format"),
        (["export", str(tmp_path), "--out", "policy.pt", "--format", "onnx"], "choose one"),
        (["export", str(tmp_path), "--format", "tflite"], "invalid choice"),
    ]
    for call, message in calls:
        assert main(call) == 2
        assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_checkpoint_is_not_overwritten_by_its_export(run: Any):
    with pytest.raises(ConfigError, match="is the checkpoint itself"):
        SAC.load(run.run_dir).export(run.checkpoint_path)


def test_a_foreign_file_is_no_exported_policy(run: Any, tmp_path: Path):
    with pytest.raises(CheckpointError, match="no policy"):
        load_exported(run.checkpoint_path)
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="no policy"):
        load_exported(tmp_path / "x.safetensors")


def test_nothing_learnt_is_nothing_to_export(tmp_path: Path):
    with pytest.raises(ValueError, match="nothing learnt yet"):
        PPO("CartPole-v1").export(tmp_path / "policy.onnx")


@pytest.mark.parametrize(("algo", "spec"), [("ppo", CHOICE), ("ppo", PARTS), ("ars", BOX), ("td3", BOX)])
def test_the_numpy_code_on_the_page_acts_as_predict_does(
    algo: str, spec: EnvSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    page = (REPOSITORY / "docs" / "howto" / "export.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[-1]
    policy = fresh_policy(algo, spec, tmp_path)
    export_policy(policy, tmp_path / "policy.safetensors")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"agent": policy}
    exec(code, names)
    obs = np.random.default_rng(1).normal(size=(20, 3)).astype(np.float32)
    np.testing.assert_allclose(names["act"](obs), policy.predict(obs), atol=1e-4)
    if algo == "ppo":
        masks = masks_for(spec, 20)
        np.testing.assert_array_equal(names["act"](obs, masks), policy.predict(obs, action_masks=masks))
