"""``fg.trace``: a model and a text in, mixing matrices out."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from flowgraph.capture.interface import Frame, evaluation_mode, our_attention, recording, uncompiled
from flowgraph.capture.generation import continued
from flowgraph.capture.loading import load
from flowgraph.capture.record import LayerRecord
from flowgraph.capture.support import why_not
from flowgraph.capture.survey import Survey, survey, text_config
from flowgraph.capture.tokens import named_tokens
from flowgraph.capture.trace import Trace
from flowgraph.capture.verify import check_mask, check_record, row_tolerance
from flowgraph.errors import FlowgraphError, FlowgraphWarning
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
    job = _Job(model, survey(model, hybrid), kinds, heads, limit, verify)
    if job.survey.skipped:
        warnings.warn(_skipping(job.survey), FlowgraphWarning, stacklevel=2)
    with ExitStack() as lent:
        lent.enter_context(evaluation_mode(model))
        lent.enter_context(_on_device(model, device))
        lent.enter_context(torch.no_grad())
        lent.enter_context(uncompiled(model))
        examples, single = _read_examples(model, tokenizer, text, options, truncate=truncate)
        traces = job.run(examples)
    return traces[0] if single else traces


def _skipping(found: Survey) -> str:
    layers = ", ".join(map(str, found.skipped))
    return f"hybrid='skip': layers {layers} have no attention and are passed over; the graph does not show what they mix"


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
    if isinstance(model, nn.Module) and any(p.is_meta for p in model.parameters()):
        raise FlowgraphError(
            "model: some of its weights are not in memory (meta device, offloaded); load it whole onto one device"
        )
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
    model: Any, tokenizer: Any, text: Any, generate: dict[str, Any] | None, *, truncate: bool
) -> tuple[list[reading.Example], bool]:
    """The examples, and whether the caller gets one trace rather than a list."""
    if isinstance(text, Mapping):
        examples = reading.examples_from_inputs(model, tokenizer, text, writes=generate is not None)
        single = len(examples) == 1
    elif isinstance(text, str) or reading.is_pair(text):
        examples, single = [_text_example(model, tokenizer, text, generate, truncate)], True
    else:
        examples, single = _listed_examples(model, tokenizer, text, generate, truncate), False
    if generate is not None:
        examples = [continued(model, tokenizer, example, generate) for example in examples]
    return examples, single


def _text_example(
    model: Any, tokenizer: Any, text: Any, generate: dict[str, Any] | None, truncate: bool
) -> reading.Example:
    if generate is not None and model.config.is_encoder_decoder:
        if not isinstance(text, str):
            raise FlowgraphError("generate: the model writes the target itself; pass the source alone as text")
        return reading.source_example(model, tokenizer, text, truncate=truncate)
    return reading.examples_from_text(model, tokenizer, text, truncate=truncate)


def _listed_examples(
    model: Any, tokenizer: Any, texts: Any, generate: dict[str, Any] | None, truncate: bool
) -> list[reading.Example]:
    if not isinstance(texts, Sequence) or isinstance(texts, bytes):
        raise FlowgraphError(
            f"text: a {type(texts).__name__} is no text; pass a string, a list of strings, a pair (source, target), "
            "or a mapping of ready inputs"
        )
    if not texts:
        raise FlowgraphError("text: the list is empty; pass at least one text")
    examples = []
    for number, item in enumerate(texts):
        try:
            examples.append(_text_example(model, tokenizer, item, generate, truncate))
        except FlowgraphError as error:
            raise FlowgraphError(f"text[{number}]: {str(error).removeprefix('text: ')}") from None
    return examples


# --- the pass ---------------------------------------------------------------------------------------------


@dataclass
class _Layers:
    """What one example has gathered in one stack, layer after layer."""

    arrays: dict[str, list[np.ndarray]] = field(default_factory=dict)
    extras: dict[str, list[np.ndarray]] = field(default_factory=dict)
    mass: list[np.ndarray] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    causal: bool = True
    heads: int = 0

    def add(self, record: LayerRecord, number: int, kinds: Sequence[EdgeKind], heads: Heads) -> None:
        for into, found in zip((self.arrays, self.extras), mixing.reduce_record(record, kinds, heads), strict=True):
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
class _Job:
    """One call of :func:`trace`: what to compute on which model."""

    model: Any
    survey: Survey
    kinds: tuple[EdgeKind, ...]
    heads: Heads
    limit: int
    verify: bool

    def __post_init__(self) -> None:
        mixing.check_heads(self.kinds, self.heads, getattr(text_config(self.model), "num_attention_heads", None))

    def run(self, examples: Sequence[reading.Example]) -> list[Trace]:
        self._check_kinds(examples)
        most = min(self._batch_limit(example) for example in examples)
        traces: dict[int, Trace] = {}
        for group in reading.batches(examples, most):
            gathered = self._forward([examples[index] for index in group])
            for index, stacks in zip(group, gathered, strict=True):
                traces[index] = make_trace(self, examples[index], stacks)
        return [traces[index] for index in range(len(examples))]

    def _check_kinds(self, examples: Sequence[reading.Example]) -> None:
        crossed = self.survey.seq2seq or any("encoder_hidden_states" in e.inputs for e in examples)
        for kind in self.kinds:
            if (reason := why_not(kind, self.survey, crossed)) is not None:
                raise FlowgraphError(f"edges: {reason}")

    def _batch_limit(self, example: reading.Example) -> int:
        tokens = example.longest
        config = text_config(self.model)
        one = memory.estimate(
            tokens=tokens,
            heads=getattr(config, "num_attention_heads", None) or 1,
            layers=self.survey.num_calls,
            width=getattr(config, "hidden_size", None) or 1,
            itemsize=_dtype(self.model).itemsize,
            kinds=len(self.kinds),
            each=self.heads == "each",
        )
        return memory.batch_limit(one, self.limit, tokens)

    def _forward(self, examples: Sequence[reading.Example]) -> list[dict[str, _Layers]]:
        """One pass over texts of one length: what every example gathered, by stack of layers."""
        gathered: list[dict[str, _Layers]] = [{} for _ in examples]

        def reduce(frame: Frame) -> None:
            reader = FrameReader(frame)
            for call in frame.calls:
                stack = "cross" if reader.part(call) == "cross" else frame.at.stack
                for example, stacks in enumerate(gathered):
                    layers = stacks.setdefault(stack, _Layers())
                    count = len(layers.numbers) + 1
                    record = reader.record(call, count, example)
                    check_mask(record)
                    if self.verify:
                        check_record(record)
                    layers.add(record, self.survey.number(frame.at, count), self.kinds, self.heads)

        runner = _without_heads(self.model)
        batch = reading.stack(examples, _device(self.model), _dtype(self.model))
        if "use_cache" in inspect.signature(runner.forward).parameters:
            batch["use_cache"] = False
        with recording(self.survey.blocks, reduce) as recorder, our_attention(self.model):
            runner(**batch)
        self._check_all_ran(recorder.finished, gathered[0])
        return gathered

    def _check_all_ran(self, finished: set[str], stacks: Mapping[str, _Layers]) -> None:
        silent = [block.path for block in self.survey.blocks if block.path not in finished]
        if silent:
            raise FlowgraphError(
                f"model: {len(silent)} of {len(self.survey.blocks)} blocks gave no attention (the first is {silent[0]}); a "
                "compiled model keeps its old code: pass the model as it was before torch.compile"
            )
        ran = sum(len(layers.numbers) for stack, layers in stacks.items() if stack != "cross")
        if ran != self.survey.num_calls:
            raise FlowgraphError(
                f"model: {ran} attention calls where its layers make {self.survey.num_calls}; flowgraph would pair layers wrongly"
            )


def _without_heads(model: Any) -> Any:
    """The part of ``model`` under its task heads, which need not run."""
    base = getattr(model, "base_model", model)
    inside = {id(module) for module in base.modules()}
    return base if all(id(module) in inside for _, module, _ in find_blocks(model)) else model


# --- what comes back ----------------------------------------------------------------------------------------


def make_trace(job: _Job, example: reading.Example, stacks: Mapping[str, _Layers]) -> Trace:
    """One example's trace from what its layers left."""
    plain = len(stacks) == 1
    main = stacks["encoder"] if "encoder" in stacks else next(iter(stacks.values()))
    if not plain:
        stacks = {name: stacks[name] for name in ("encoder", "decoder", "cross") if name in stacks}
    tokens = _named(example.tokens, main.queries, example)
    fields: dict[str, Any] = {}
    if "encoder" in stacks and not plain:
        target = _named(example.target, stacks["decoder"].queries, example)
        fields = {
            "target_tokens": target.readable,
            "target_raw_tokens": target.raw,
            "target_token_ids": target.ids,
            "target_word_ids": target.word_ids,
            "target_special": target.special,
        }
    return Trace(
        arrays=_stacked(stacks, "arrays"),
        extras=_stacked(stacks, "extras"),
        tokens=tokens.readable,
        raw_tokens=tokens.raw,
        token_ids=tokens.ids,
        word_ids=tokens.word_ids,
        special=tokens.special,
        meta=_meta(job, example, stacks),
        **fields,
    )


def _named(tokens: Tokens | None, count: int, example: reading.Example) -> Tokens:
    if tokens is None:
        frames = "input_features" in example.inputs
        tokens = named_tokens([f"frame {k}" if frames else str(k) for k in range(count)])
    if len(tokens) != count:
        raise FlowgraphError(
            f"model: it made {count} positions of {len(tokens)} tokens, so flowgraph cannot name them"
        )
    return tokens


def _stacked(stacks: Mapping[str, _Layers], name: str) -> dict[str, Arrays]:
    """Kind -> array, or kind -> stack -> array where there is more than one stack."""
    if len(stacks) == 1:
        (layers,) = stacks.values()
        return {kind: np.stack(matrices) for kind, matrices in getattr(layers, name).items()}
    kinds = dict.fromkeys(kind for layers in stacks.values() for kind in getattr(layers, name))
    return {
        kind: {
            stack: np.stack(getattr(layers, name)[kind])
            for stack, layers in stacks.items()
            if kind in getattr(layers, name)
        }
        for kind in kinds
    }


def _by_stack(stacks: Mapping[str, _Layers], value: Callable[[_Layers], Any]) -> Any:
    if len(stacks) == 1:
        return value(next(iter(stacks.values())))
    return {name: value(layers) for name, layers in stacks.items()}


def _meta(job: _Job, example: reading.Example, stacks: Mapping[str, _Layers]) -> dict[str, Any]:
    causal = stacks.get("decoder") or next(iter(stacks.values()))
    dtype = _dtype(job.model)
    meta: dict[str, Any] = {
        "model": _model_name(job.model),
        "model_type": job.model.config.model_type,
        "dtype": str(dtype).removeprefix("torch."),
        "heads": job.heads,
        "num_heads": _by_stack(stacks, lambda layers: layers.heads),
        "layers": _by_stack(stacks, lambda layers: len(layers.numbers)),
        "layer_numbers": _by_stack(stacks, lambda layers: list(layers.numbers)),
        "causal": causal.causal and causal.queries > 1,
        "kinds": {
            kind.name: {"holds_residual": kind.holds_residual, "rows_sum_to_one": kind.rows_sum_to_one}
            for kind in job.kinds
        },
        "versions": _versions(),
    }
    if any(np.abs(np.stack(layers.mass) - 1).max() > row_tolerance(dtype) for layers in stacks.values()):
        meta["row_mass"] = _by_stack(stacks, lambda layers: np.stack(layers.mass).tolist())
    if job.survey.skipped:
        meta["skipped_layers"] = list(job.survey.skipped)
    return meta | example.facts


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
