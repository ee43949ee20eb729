"""``fg.trace``: a model and a text in, mixing matrices out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flowgraph import mixing
from flowgraph.capture import inputs as reading
from flowgraph.capture import memory
from flowgraph.capture.architectures import find_blocks
from flowgraph.capture.build import FrameReader
from flowgraph.capture.interface import Frame, evaluation_mode, our_attention, recording
from flowgraph.capture.loading import load
from flowgraph.capture.record import LayerRecord
from flowgraph.capture.tokens import named_tokens
from flowgraph.capture.trace import Trace
from flowgraph.capture.verify import check_record, row_tolerance
from flowgraph.errors import FlowgraphError
from flowgraph.mixing import EdgeKind

Heads = str | int


def trace(
    model: Any,
    tokenizer: Any,
    text: Any,
    *,
    edges: str | Iterable[str] = "attention",
    heads: Heads = "all",
    generate: Mapping[str, Any] | int | None = None,
    truncate: bool = False,
    device: Any = None,
    max_memory: int | str | None = None,
    verify: bool = False,
    hybrid: str = "error",
) -> Trace | list[Trace]:
    """Mixing matrices of every layer for one text or many, in one forward pass.

    Parameters
    ----------
    model
        A loaded Hugging Face model (PEFT-wrapped too), or a name or folder to load. It comes back as it was, also
        after an error: training mode, attention implementation, hooks, device.
    tokenizer
        The model's own. None is fine where a name or folder was given, or inputs are ready.
    text
        A string; a list (a list of traces comes back); a pair ``(source, target)`` for an encoder-decoder model, two
        sentences for an encoder; or ready inputs, a mapping of tensors (one example gives a trace, more a
        list). Pads never become nodes.
    edges
        One edge kind or several; ``flowgraph.mixing.names()`` lists them.
    heads
        ``"all"`` (the kind's own way to join heads), ``"mean"``, ``"max"``, ``"min"``, ``"each"`` (an axis more), or one
        head from 0. Kinds that hold the residual stream take ``"all"`` only.
    generate
        Options of ``model.generate``, such as ``{"max_new_tokens": 20}``: the model writes first, and prompt and
        continuation are traced in one teacher-forced pass. ``meta["generated"]`` says which positions it wrote.
    truncate
        Cut a text that is longer than the model reads; otherwise it is refused with the numbers.
    device
        Where to run; the model is moved back afterwards.
    max_memory
        Bytes (or ``"4GB"``) the pass may take above the model; more is refused before it starts.
    verify
        Check every layer against the model: attention times values through the output projection is the module's output,
        frozen norms give what the norms gave, the re-run of a block gives its output.
    hybrid
        ``"skip"`` passes over layers without attention in models that mix both sorts; ``"error"`` refuses such models.

    Raises
    ------
    FlowgraphError
        For an argument that cannot be used and for a model that cannot be traced, with what is missing.
    """
    kinds = _read_kinds(edges)
    mixing.check_heads(kinds, heads)
    limit = memory.read_max_memory(max_memory)
    options = _read_generate(generate)
    if isinstance(model, (str, os.PathLike)):
        model, loaded = load(model, generate=options is not None)
        tokenizer = loaded if tokenizer is None else tokenizer
    model = _unwrap(model)
    job = _Job(model, kinds, heads, limit, verify)
    with ExitStack() as lent:
        lent.enter_context(evaluation_mode(model))
        lent.enter_context(_on_device(model, device))
        lent.enter_context(torch.no_grad())
        examples, single = _read_examples(model, tokenizer, text, truncate=truncate)
        traces = job.run(examples)
    return traces[0] if single else traces


# --- arguments --------------------------------------------------------------------------------------------


def _read_kinds(edges: str | Iterable[str]) -> tuple[EdgeKind, ...]:
    names = [edges] if isinstance(edges, str) else list(edges)
    if not names:
        raise FlowgraphError(f"edges: none given; choose from {', '.join(mixing.names())}")
    kinds = {kind.name: kind for kind in map(mixing.get, names)}
    return tuple(kinds.values())


def _read_generate(generate: Mapping[str, Any] | int | None) -> dict[str, Any] | None:
    if generate is None:
        return None
    if isinstance(generate, Mapping):
        return dict(generate)
    if isinstance(generate, int) and not isinstance(generate, bool) and generate > 0:
        return {"max_new_tokens": generate}
    raise FlowgraphError(
        f"generate: {generate!r} is not a mapping of options; pass for example {{'max_new_tokens': 20}}"
    )


def _unwrap(model: Any) -> Any:
    """The plain model inside a compiled or PEFT-wrapped one; adapters stay in their places."""
    model = getattr(model, "_orig_mod", model)
    if hasattr(model, "get_base_model") and hasattr(model, "peft_config"):
        if any(getattr(config, "is_prompt_learning", False) for config in model.peft_config.values()):
            raise FlowgraphError(
                "model: prompt-learning adapters add tokens that are no text; trace the base model, model.get_base_model()"
            )
        model = model.get_base_model()
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise FlowgraphError(
            f"model: a {type(model).__name__} is no Hugging Face model; pass a loaded model, a name or a folder"
        )
    return model


@contextmanager
def _on_device(model: nn.Module, device: Any) -> Iterator[None]:
    if device is None:
        yield
        return
    places = {p.device for p in model.parameters()}
    if len(places) > 1:
        raise FlowgraphError(f"device: the model lies on {len(places)} devices already; leave device out")
    try:
        wanted = torch.device(device)
        model.to(wanted)
    except (RuntimeError, TypeError, AssertionError) as error:
        model.to(places.pop())
        raise FlowgraphError(f"device: {device!r} cannot be used ({str(error).splitlines()[0]})") from None
    try:
        yield
    finally:
        model.to(places.pop())


def _read_examples(
    model: Any, tokenizer: Any, text: Any, *, truncate: bool
) -> tuple[list[reading.Example], bool]:
    """The examples, and whether the caller gets one trace rather than a list."""
    if isinstance(text, Mapping):
        examples = reading.examples_from_inputs(model, tokenizer, text)
        return examples, len(examples) == 1
    if isinstance(text, str) or reading.is_pair(text):
        return [reading.examples_from_text(model, tokenizer, text, truncate=truncate)], True
    if not isinstance(text, Sequence) or isinstance(text, bytes):
        raise FlowgraphError(
            f"text: a {type(text).__name__} is no text; pass a string, a list of strings, a pair (source, target), or a "
            "mapping of ready inputs"
        )
    if not text:
        raise FlowgraphError("text: the list is empty; pass at least one text")
    examples = []
    for number, item in enumerate(text):
        try:
            examples.append(reading.examples_from_text(model, tokenizer, item, truncate=truncate))
        except FlowgraphError as error:
            raise FlowgraphError(f"text[{number}]: {str(error).removeprefix('text: ')}") from None
    return examples, False


# --- the pass ---------------------------------------------------------------------------------------------


@dataclass
class _Layers:
    """What one example has gathered, layer after layer."""

    arrays: dict[str, list[np.ndarray]] = field(default_factory=dict)
    extras: dict[str, list[np.ndarray]] = field(default_factory=dict)
    mass: list[np.ndarray] = field(default_factory=list)
    causal: bool = True
    heads: int = 0

    def add(self, record: LayerRecord, kinds: Sequence[EdgeKind], heads: Heads) -> None:
        for kind in kinds:
            self.arrays.setdefault(kind.name, []).append(_as_numpy(kind.compute(record, heads)))
            if kind.extras is not None:
                for name, tensor in kind.extras(record).items():
                    self.extras.setdefault(name, []).append(_as_numpy(tensor))
        self.mass.append(_as_numpy(record.weights.float().sum(-1).mean(0)))
        self.causal &= not bool(record.visible.triu(1).any())
        self.heads = record.num_heads


def _as_numpy(tensor: Tensor) -> np.ndarray:
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.float()  # NumPy has no bfloat16
    return tensor.detach().cpu().numpy()


@dataclass
class _Job:
    """One call of :func:`trace`: what to compute on which model."""

    model: Any
    kinds: tuple[EdgeKind, ...]
    heads: Heads
    limit: int
    verify: bool

    def __post_init__(self) -> None:
        self.blocks = list(find_blocks(self.model))
        if not self.blocks:
            raise FlowgraphError(_why_no_blocks(self.model))
        mixing.check_heads(self.kinds, self.heads, _config_heads(self.model))

    def run(self, examples: Sequence[reading.Example]) -> list[Trace]:
        traces: dict[int, Trace] = {}
        most = min(self._batch_limit(example) for example in examples)
        for group in reading.batches(examples, most):
            gathered = self._forward([examples[index] for index in group])
            for index, layers in zip(group, gathered, strict=True):
                traces[index] = self._trace(examples[index], layers)
        return [traces[index] for index in range(len(examples))]

    def _batch_limit(self, example: reading.Example) -> int:
        tokens = max(t.shape[1] for t in example.inputs.values() if t.ndim > 1)
        config = self.model.config.get_text_config()
        one = memory.estimate(
            tokens=tokens,
            heads=_config_heads(self.model) or 1,
            layers=len(self.blocks),
            width=getattr(config, "hidden_size", 1),
            itemsize=_dtype(self.model).itemsize,
            kinds=len(self.kinds),
            each=self.heads == "each",
        )
        return memory.batch_limit(one, self.limit, tokens)

    def _forward(self, examples: Sequence[reading.Example]) -> list[dict[str, _Layers]]:
        """One pass over texts of one length: what every example gathered, by stack of layers."""
        gathered: list[dict[str, _Layers]] = [{} for _ in examples]
        batch = reading.stack(examples, _device(self.model), _dtype(self.model))

        def reduce(frame: Frame) -> None:
            reader = FrameReader(frame)
            for call in frame.calls:
                part = reader.part(call)
                number = len(gathered[0].get(part, _Layers()).mass) + 1
                for example, record in enumerate(reader.records(call, number)):
                    if self.verify:
                        check_record(record)
                    gathered[example].setdefault(part, _Layers()).add(record, self.kinds, self.heads)

        with our_attention(self.model), recording(self.model, reduce) as recorder:
            self.model(**batch)
        silent = [path for path, _, _ in self.blocks if path not in recorder.finished]
        if silent:
            raise FlowgraphError(
                f"model: {len(silent)} of {len(self.blocks)} blocks did not run through their hooks (the first is {silent[0]}); a "
                "compiled model keeps its old code: pass the model as it was before torch.compile"
            )
        return gathered

    def _trace(self, example: reading.Example, gathered: Mapping[str, _Layers]) -> Trace:
        layers = gathered["self"]
        tokens = example.tokens or named_tokens([str(k) for k in range(layers.mass[0].shape[0])])
        return Trace(
            arrays={name: np.stack(matrices) for name, matrices in layers.arrays.items()},
            extras={name: np.stack(values) for name, values in layers.extras.items()},
            tokens=tokens.readable,
            raw_tokens=tokens.raw,
            token_ids=tokens.ids,
            word_ids=tokens.word_ids,
            special=tokens.special,
            meta=self._meta(example, layers),
        )

    def _meta(self, example: reading.Example, layers: _Layers) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "model": _model_name(self.model),
            "model_type": self.model.config.model_type,
            "dtype": str(_dtype(self.model)).removeprefix("torch."),
            "heads": self.heads,
            "num_heads": layers.heads,
            "layers": len(layers.mass),
            "layer_numbers": list(range(1, len(layers.mass) + 1)),
            "causal": layers.causal and layers.mass[0].shape[0] > 1,
            "kinds": {
                kind.name: {"holds_residual": kind.holds_residual, "rows_sum_to_one": kind.rows_sum_to_one}
                for kind in self.kinds
            },
            "versions": _versions(),
        }
        mass = np.stack(layers.mass)
        if np.abs(mass - 1).max() > row_tolerance(_dtype(self.model)):
            meta["row_mass"] = [[float(m) for m in row] for row in mass]
        return meta | example.facts


def _why_no_blocks(model: nn.Module) -> str:
    name = type(model).__name__
    if not any("attention" in type(m).__name__.lower() for m in model.modules()):
        return f"model: {name} has no attention, so there is nothing to trace"
    return f"model: {name} is not among the architectures flowgraph knows; `flowgraph models` lists them"


def _config_heads(model: Any) -> int | None:
    config = model.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None)
    return heads if isinstance(heads, int) else None


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _dtype(model: nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _model_name(model: Any) -> str:
    name = getattr(model, "name_or_path", "") or getattr(model.config, "_name_or_path", "")
    return os.path.basename(name.rstrip("/")) if os.path.isabs(name) else name or type(model).__name__


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    import transformers

    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    try:
        versions["flowgraph"] = version("attention-flowgraph")
    except PackageNotFoundError:
        versions["flowgraph"] = "uninstalled"
    return versions
