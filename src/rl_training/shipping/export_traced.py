"""A policy behind an encoder, which may be anybody's module, as the bytes of a file: its operations are recorded by torch."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rl_training.errors import ConfigError, MissingExtraError
from rl_training.kernels.compiled import definitions_only
from rl_training.models.encoded_policy import EncodedPolicy
from rl_training.models.encoder import tree

NUM_EXAMPLES = 2  # more than one, or a recorder might take the size of the batch for a constant


def random_inputs(network: EncodedPolicy, *, rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """Observations, an array for each part: images over their whole range, choices among all, numbers as spread as those that
    the normaliser saw, a quarter of them ten times as far. Behind them come masks, where the policy takes them."""
    scale, shift = network.get_buffer("obs_scale").numpy(), network.get_buffer("obs_shift").numpy()
    inputs: list[np.ndarray] = []
    for part, start, end in network.layout.pieces:
        shape = (count, *part.shape)
        if part.in_bytes:
            inputs.append(rng.integers(int(part.high) + 1, size=shape, dtype=np.uint8))
        elif part.choices:
            first = np.reshape(part.start, part.shape)
            inputs.append(rng.integers(first, first + np.reshape(part.choices, part.shape), size=shape))
        elif part.image:
            inputs.append(rng.random(shape, dtype=np.float32))
        else:
            noise = rng.standard_normal((count, end - start))
            noise[: count // 4] *= 10
            inputs.append((shift[start:end] + noise / scale[start:end]).astype(np.float32).reshape(shape))
    return inputs + [random_masks(network.choices, rng=rng, count=count)] * network.masked


def random_masks(choices: Sequence[int], *, rng: np.random.Generator, count: int) -> np.ndarray:
    """Half of the choices are allowed, and at least one of each part of the action."""
    parts = []
    for many in choices:
        masks = rng.random((count, many)) < 0.5
        masks[np.arange(count), rng.integers(many, size=count)] = True
        parts.append(masks)
    return np.concatenate(parts, axis=1)


def as_observations(network: EncodedPolicy, inputs: Sequence[np.ndarray]) -> Any:
    """The same as `predict` takes them: one array, a dict or a tuple of arrays."""
    return tree([part.path for part in network.parts], inputs)


def traced_onnx(network: EncodedPolicy, notes: Mapping[str, str], *, opset: int, ir_version: int) -> bytes:
    """An ONNX graph with one input for each part of the observation, named as it."""
    try:
        import onnx
        from onnx import checker, helper
    except ImportError as error:
        raise MissingExtraError("onnx", extra="export", purpose="exporting to ONNX") from error
    names = [part.name for part in network.parts] + ["action_masks"] * network.masked
    buffer: Any = io.BytesIO()
    axes = {name: {0: "batch"} for name in [*names, "actions"]}
    # by the older of torch's two exporters, which takes a tenth of the time of the other and no package more
    settings: dict[str, Any] = {"input_names": names, "output_names": ["actions"], "dynamic_axes": axes, "dynamo": False}
    with _recording(network, "ONNX"):
        torch.onnx.export(network, _examples(network), buffer, opset_version=opset, **settings)
    model = onnx.load_from_string(buffer.getvalue())
    model.ir_version = ir_version
    helper.set_model_props(model, dict(notes))
    checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def traced(network: EncodedPolicy) -> torch.jit.ScriptModule:
    """A TorchScript module by the operations that observations run through."""
    with _recording(network, "TorchScript"):
        module: torch.jit.ScriptModule = torch.jit.trace(network, _examples(network), check_trace=False)  # type: ignore[no-untyped-call]
    return module


def refuse_safetensors(network: EncodedPolicy) -> ConfigError:
    """An error for a format that has tensors and no operations."""
    return ConfigError(
        f"safetensors holds the weights of MLPs alone, and this policy has the network {network.encoder.name!r}; choose onnx "
        "or torchscript, which hold what it does as well"
    )


def _examples(network: EncodedPolicy) -> tuple[torch.Tensor, ...]:
    inputs = random_inputs(network, rng=np.random.default_rng(0), count=NUM_EXAMPLES)
    return tuple(torch.from_numpy(array) for array in inputs)


@contextmanager
def _recording(network: EncodedPolicy, format: str) -> Iterator[None]:  # noqa: A002 (as the options call it)
    with definitions_only(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecation, and of constants, which are checked afterwards by what comes out
        try:
            yield
        except Exception as error:
            text = f"network {network.encoder.name!r} cannot be written as {format}: {type(error).__name__}: {error}"
            raise ConfigError(text) from error
