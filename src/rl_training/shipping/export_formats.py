"""A policy network as the bytes of a file, and such bytes as something that acts, once for each format."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from rl_training.errors import CheckpointError, MissingExtraError
from rl_training.models.encoded_policy import EncodedPolicy, StandalonePolicy
from rl_training.models.policy_network import PolicyNetwork
from rl_training.shipping.export_traced import refuse_safetensors, traced, traced_onnx

if TYPE_CHECKING:
    from collections.abc import Iterator

Act: TypeAlias = Callable[..., np.ndarray]
"""From raw observations, an array (batch, ...) for each part of their space, to actions as the environment takes them; action
masks come last, where a policy was trained under them."""

ONNX_OPSET, ONNX_IR = 17, 8  # of 2022: whatever runs ONNX today knows them
SAFETENSORS_KEY = "rl_training_policy"


@dataclass(frozen=True)
class Format:
    """One way to write a policy down. `load` reads it with the software a user would take, never with our own module."""

    name: str
    suffix: str
    dump: Callable[[StandalonePolicy, Mapping[str, str]], bytes]
    load: Callable[[bytes], Act]


def to_onnx(network: StandalonePolicy, notes: Mapping[str, str]) -> bytes:
    """An ONNX graph of `obs` (batch, obs_dim), and `action_masks` of a policy trained under them, to `actions`.

    An MLP is written node by node: a dozen of them, in milliseconds, where torch's newer exporter takes eight seconds, and a
    package more.
    """
    if isinstance(network, EncodedPolicy):
        return traced_onnx(network, notes, opset=ONNX_OPSET, ir_version=ONNX_IR)
    try:
        import onnx
        from onnx import TensorProto, checker, helper
    except ImportError as error:
        raise MissingExtraError("onnx", extra="export", purpose="exporting to ONNX") from error
    graph = _OnnxGraph(network)
    inputs = [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["batch", network.linears()[0].in_features])]
    if network.masked:
        inputs.append(helper.make_tensor_value_info("action_masks", TensorProto.BOOL, ["batch", sum(network.choices)]))
    kind = TensorProto.INT64 if network.discrete else TensorProto.FLOAT
    columns = len(network.choices) if network.in_parts else len(graph.low)
    shape: list[str | int | None] = ["batch", columns] if network.in_parts or not network.discrete else ["batch"]
    actions = helper.make_tensor_value_info("actions", kind, shape)
    body = helper.make_graph(graph.nodes, "policy", inputs, [actions], graph.constants)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", ONNX_OPSET)], producer_name="rl-training")
    model.ir_version = ONNX_IR
    helper.set_model_props(model, dict(notes))
    checker.check_model(model, full_check=True)
    assert isinstance(model, onnx.ModelProto)
    return bytes(model.SerializeToString())


class _OnnxGraph:
    """The nodes of a policy network, one after another, and the constants they refer to."""

    def __init__(self, network: PolicyNetwork) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.low, self.high = (network.get_buffer(name).numpy() for name in ("action_low", "action_high"))
        h = self._normalized(network) if network.normalizes else "obs"
        linears = network.linears()
        for i, linear in enumerate(linears):
            weight, bias = linear.weight.numpy(), linear.bias.numpy()
            h = self._add("Gemm", h, self._constant(f"weight_{i}", weight), self._constant(f"bias_{i}", bias), transB=1)
            if i < len(linears) - 1:
                h = self._add("Relu" if network.activation == "relu" else "Tanh", h)
        if network.masked:
            h = self._add("Where", "action_masks", h, self._constant("forbidden", np.float32(-np.inf)))
        if network.discrete:
            self._choose(network, h)
        else:
            self._scale(self._add("Tanh", h) if network.squash else h)

    def _normalized(self, network: PolicyNetwork) -> str:
        shift, scale = (self._constant(name, network.get_buffer(name).numpy()) for name in ("obs_shift", "obs_scale"))
        h = self._add("Mul", self._add("Sub", "obs", shift), scale)
        bounds = [self._constant(f"obs_{end}", np.float32(sign * network.clip_obs)) for end, sign in (("low", -1), ("high", 1))]
        return self._add("Clip", h, *bounds)

    def _choose(self, network: PolicyNetwork, h: str) -> None:
        """The best choice of each part, counted from where the environment begins to count."""
        if not network.in_parts:
            index = self._add("ArgMax", h, axis=-1, keepdims=0)
            self._add("Add", index, self._constant("action_start", np.int64(network.starts[0])), output="actions")
            return
        edges = np.cumsum([0, *network.choices])
        axis, chosen = self._constant("axis", np.array([1])), []
        for i, (first, last) in enumerate(pairwise(edges)):
            bounds = [self._constant(f"{name}_{i}", np.array([at])) for name, at in (("first", first), ("last", last))]
            chosen.append(self._add("ArgMax", self._add("Slice", h, *bounds, axis), axis=-1, keepdims=1))
        together = self._add("Concat", *chosen, axis=-1)
        self._add("Add", together, self._constant("action_start", np.array(network.starts)), output="actions")

    def _scale(self, h: str) -> None:
        half, middle = (self.high - self.low) * np.float32(0.5), (self.low + self.high) * np.float32(0.5)
        h = self._add("Add", self._add("Mul", h, self._constant("half", half)), self._constant("middle", middle))
        # Clip takes scalars only
        h = self._add("Max", h, self._constant("action_low", self.low))
        self._add("Min", h, self._constant("action_high", self.high), output="actions")

    def _constant(self, name: str, value: Any) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _add(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        name = output or f"h{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name


def run_onnx(data: bytes) -> Act:
    """By onnxruntime, on one thread: the network is smaller than what it costs to wake another."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", extra="export", purpose="checking an ONNX file") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    return lambda *obs: np.asarray(session.run(None, dict(zip(names, obs, strict=True)))[0])


def to_torchscript(network: StandalonePolicy, notes: Mapping[str, str]) -> bytes:
    """A scripted module, or one that was traced; the notes lie in it as `notes.json`."""
    buffer = io.BytesIO()
    with _without_deprecations():
        module = traced(network) if isinstance(network, EncodedPolicy) else torch.jit.script(network.cpu())
        torch.jit.save(module, buffer, _extra_files={"notes.json": json.dumps(dict(notes))})
    return buffer.getvalue()


def run_torchscript(data: bytes) -> Act:
    with _without_deprecations():
        # runs no Python: TorchScript is a language of its own
        module = torch.jit.load(io.BytesIO(data), map_location="cpu")  # type: ignore[no-untyped-call]

    return _by_module(module)


@contextmanager
def _without_deprecations() -> Iterator[None]:
    """Torch warns at every use of TorchScript; the page on exporting says it once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def to_safetensors(network: StandalonePolicy, notes: Mapping[str, str]) -> bytes:
    """The tensors by name, and as JSON in the file's metadata how they are put together."""
    if isinstance(network, EncodedPolicy):
        raise refuse_safetensors(network)
    from safetensors.torch import save

    metadata = {**notes, SAFETENSORS_KEY: json.dumps(network.description())}
    return bytes(save({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, metadata))


def run_safetensors(data: bytes) -> Act:
    return _by_module(read_safetensors(data))


def _by_module(module: Callable[..., torch.Tensor]) -> Act:
    return lambda *inputs: module(*map(torch.from_numpy, inputs)).numpy()


def read_safetensors(data: bytes) -> PolicyNetwork:
    """The network in an exported file's bytes; CheckpointError for any other file."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return PolicyNetwork.from_description(json.loads(header["__metadata__"][SAFETENSORS_KEY]), tensors)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"this is no policy that `rl-training export` wrote: {error!r}") from error


FORMATS = {
    form.name: form
    for form in (
        Format("onnx", ".onnx", to_onnx, run_onnx),
        Format("torchscript", ".pt", to_torchscript, run_torchscript),
        Format("safetensors", ".safetensors", to_safetensors, run_safetensors),
    )
}
