"""The forward pass: every block's records reduced by the edge kinds as soon as the block is done, then
dropped."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flowgraph import mixing
from flowgraph.capture import inputs as reading
from flowgraph.capture import memory
from flowgraph.capture.architectures import find_blocks
from flowgraph.capture.build import FrameReader, rest_weights
from flowgraph.capture.interface import Frame, our_attention, recording
from flowgraph.capture.record import LayerRecord
from flowgraph.capture.support import reasons_by_part
from flowgraph.capture.survey import Survey, stack_config
from flowgraph.capture.verify import check_mask
from flowgraph.capture.vision import INTERPOLATE, of_another_size
from flowgraph.errors import FlowgraphError
from flowgraph.mixing import EdgeKind, Heads


@dataclass
class Layers:
    """What one example has gathered in one stack, layer after layer."""

    arrays: dict[str, list[np.ndarray]] = field(default_factory=dict)
    extras: dict[str, list[np.ndarray]] = field(default_factory=dict)
    mass: list[np.ndarray] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    causal: bool = True
    heads: int = 0

    def add(self, record: LayerRecord, number: int, kinds: Sequence[EdgeKind], heads: Heads) -> None:
        for into, found in zip(
            (self.arrays, self.extras), mixing.reduce_record(record, kinds, heads), strict=True
        ):
            for name, tensor in found.items():
                into.setdefault(name, []).append(_as_numpy(tensor))
        self.mass.append(_as_numpy(record.weights.sum(-1, dtype=torch.float64).mean(0)))
        self.numbers.append(number)
        self.causal &= not bool(record.visible.triu(1).any())
        self.heads = record.num_heads

    @property
    def queries(self) -> int:
        return len(self.mass[0])


def _as_numpy(tensor: Tensor) -> np.ndarray:
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.float()  # NumPy has no bfloat16
    return tensor.detach().cpu().numpy()


@dataclass
class Job:
    """What to compute on which model."""

    model: Any
    survey: Survey
    kinds: tuple[EdgeKind, ...]
    heads: Heads
    limit: int
    verify: bool
    absent: dict[str, dict[str, str]] = field(default_factory=dict)
    """Kind -> part of an encoder-decoder model it cannot be had for -> why; known once the job has run."""

    def __post_init__(self) -> None:
        mixing.check_heads(
            self.kinds, self.heads, getattr(stack_config(self.model), "num_attention_heads", None)
        )

    def run(self, examples: Sequence[reading.Example]) -> list[dict[str, Layers]]:
        """What every example gathered, by stack of layers."""
        kinds = self._kinds_by_part(examples)
        limits = [self._batch_limit(example) for example in examples]
        gathered: dict[int, dict[str, Layers]] = {}
        for group in reading.batches(examples, limits):
            together = self._forward([examples[index] for index in group], kinds)
            gathered.update(zip(group, together, strict=True))
        return [gathered[index] for index in range(len(examples))]

    def _kinds_by_part(self, examples: Sequence[reading.Example]) -> dict[str, list[EdgeKind]]:
        """Part -> the kinds to reduce its layers by. A kind that no self-attention can give is an error."""
        crossed = self.survey.seq2seq or any("encoder_hidden_states" in e.inputs for e in examples)
        by_part: dict[str, list[EdgeKind]] = {}
        for kind in self.kinds:
            reasons = reasons_by_part(kind, self.survey, crossed)
            refused = [reason for part, reason in reasons.items() if reason is not None and part != "cross"]
            if len(refused) == len(reasons.keys() - {"cross"}):
                raise FlowgraphError(f"edges: {refused[0]}")
            absent = {part: reason for part, reason in reasons.items() if reason is not None}
            if absent:
                self.absent[kind.name] = absent
            for part in reasons.keys() - absent.keys():
                by_part.setdefault(part, []).append(kind)
        return by_part

    def _batch_limit(self, example: reading.Example) -> int:
        config = stack_config(self.model)
        sound = config.max_source_positions if "input_features" in example.inputs else 0
        tokens = max(example.longest, sound)
        one = memory.estimate(
            tokens=tokens,
            heads=getattr(config, "num_attention_heads", None) or 1,
            layers=self.survey.num_calls,
            width=getattr(config, "hidden_size", None) or 1,
            itemsize=dtype_of(self.model).itemsize,
            kinds=len(self.kinds),
            each=self.heads == "each",
            widened=self._widened(),
        )
        return memory.batch_limit(one, self.limit, tokens)

    def _widened(self) -> int:
        """Bytes of the largest block's weights in float32, where half precision is re-run in it."""
        rerun = [b for b in self.survey.blocks if any("rerun" in k.fields(b.layout.kind) for k in self.kinds)]
        weights = (4 * sum(t.numel() for _, t in rest_weights(b.module, b.layout)) for b in rerun)
        return max(weights, default=0)

    def _forward(
        self, examples: Sequence[reading.Example], kinds: Mapping[str, Sequence[EdgeKind]]
    ) -> list[dict[str, Layers]]:
        """One pass over texts of one length."""
        gathered: list[dict[str, Layers]] = [{} for _ in examples]

        def reduce(frame: Frame) -> None:
            reader = FrameReader(frame)
            for call in frame.calls:
                stack = "cross" if reader.part(call) == "cross" else frame.at.stack
                for example, stacks in enumerate(gathered):
                    layers = stacks.setdefault(stack, Layers())
                    count = len(layers.numbers) + 1
                    record = reader.record(call, count, example)
                    check_mask(record)
                    if self.verify:
                        reader.verify(record, example)
                    layers.add(record, self.survey.number(frame.at, count), kinds.get(stack, ()), self.heads)

        batch: dict[str, Any] = reading.stack(examples, device_of(self.model), dtype_of(self.model))
        runner = _without_heads(self.model, batch)
        parameters = inspect.signature(runner.forward).parameters
        if "use_cache" in parameters:
            batch["use_cache"] = False
        if INTERPOLATE in parameters and "pixel_values" in batch:  # checked when the inputs were read
            batch[INTERPOLATE] = of_another_size(stack_config(self.model), batch["pixel_values"])
        # what the model would keep of every layer if its configuration says so
        names = ("output_attentions", "output_hidden_states")
        batch |= {name: False for name in names if getattr(self.model.config, name, False)}
        with recording(self.survey.blocks, reduce) as recorder, our_attention(self.model):
            runner(**batch)
        self._check_all_ran(recorder.finished, gathered[0])
        return gathered

    def _check_all_ran(self, finished: set[str], stacks: Mapping[str, Layers]) -> None:
        silent = [block.path for block in self.survey.blocks if block.path not in finished]
        if silent:
            raise FlowgraphError(
                f"model: {len(silent)} of {len(self.survey.blocks)} blocks gave no attention (the first is "
                f"{silent[0]}); a compiled model keeps its old code: pass the model as it was before "
                "torch.compile"
            )
        ran = sum(len(layers.numbers) for stack, layers in stacks.items() if stack != "cross")
        if ran != self.survey.num_calls:
            raise FlowgraphError(
                f"model: {ran} attention calls where its layers make {self.survey.num_calls}; flowgraph "
                "would pair layers wrongly"
            )


def _without_heads(model: Any, inputs: Mapping[str, Any]) -> Any:
    """The part of ``model`` under its task heads, which need not run."""
    base = getattr(model, "base_model", model)
    # some models call a part of themselves their base that cannot read their inputs
    if base is model or not inputs.keys() <= inspect.signature(base.forward).parameters.keys():
        return model
    inside = {id(module) for module in base.modules()}
    return base if all(id(module) in inside for _, module, _ in find_blocks(model)) else model


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def dtype_of(model: nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
