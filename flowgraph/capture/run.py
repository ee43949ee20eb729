"""``fg.trace``: a model and a text in, mixing matrices out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from flowgraph import mixing
from flowgraph.capture.assemble import make_trace
from flowgraph.capture.forward import Job
from flowgraph.capture.generation import continued, read_options
from flowgraph.capture.inputs import Example, check_indices
from flowgraph.capture.interface import alone, evaluation_mode, uncompiled
from flowgraph.capture.loading import load, move
from flowgraph.capture.memory import read_max_memory
from flowgraph.capture.ready import examples_from_inputs
from flowgraph.capture.survey import Survey, is_seq2seq, survey
from flowgraph.capture.texts import example_from_text, is_pair, source_example
from flowgraph.capture.trace import Trace
from flowgraph.errors import FlowgraphError, FlowgraphWarning
from flowgraph.mixing import EdgeKind, Heads


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
        A loaded Hugging Face model (PEFT-wrapped too), or a name or folder to load. It comes back as it was,
        also after an error: training mode, attention implementation, hooks, device.
    tokenizer
        The model's own. None is fine where a name or folder was given, or inputs are ready.
    text
        A string; a list (a list of traces comes back); a pair ``(source, target)`` for an encoder-decoder
        model, two sentences for an encoder; or ready inputs, a mapping of tensors (one example gives a
        trace, more a list). Pads never become nodes.
    edges
        One edge kind or several; ``flowgraph.mixing.names()`` lists them.
    heads
        ``"all"`` (the kind's own way to join heads), ``"mean"``, ``"max"``, ``"min"``, ``"each"`` (an axis
        more), or one head from 0. Kinds that hold the residual stream take ``"all"`` only.
    generate
        Options of ``model.generate``, such as ``{"max_new_tokens": 20}``: the model writes first, and prompt
        and continuation are traced in one teacher-forced pass. ``meta["generated"]`` says which positions it
        wrote.
    truncate
        Cut a text that is longer than the model reads; otherwise it is refused with the numbers.
    device
        Where to run; the model is moved back afterwards.
    max_memory
        Bytes (or ``"4GB"``) the pass may take above the model; more is refused before it starts.
    verify
        Check every layer against the model: attention times values through the output projection is the
        module's output, frozen norms give what the norms gave, the re-run of a block gives its output.
    hybrid
        ``"skip"`` passes over layers without attention in models that mix both sorts; ``"error"`` refuses
        such models.

    Raises
    ------
    FlowgraphError
        For an argument that cannot be used and for a model that cannot be traced, with what is missing.
    """
    kinds = _read_kinds(edges)
    mixing.check_heads(kinds, heads)
    limit = read_max_memory(max_memory)
    options = read_options(generate)
    if isinstance(model, (str, os.PathLike)):
        model, loaded = load(model, generate=options is not None)
        tokenizer = loaded if tokenizer is None else tokenizer
    if tokenizer is not None and not callable(tokenizer):
        raise FlowgraphError(
            f"tokenizer: {tokenizer!r} is no tokenizer; pass what AutoTokenizer.from_pretrained returns, or None "
            "with a model given by name"
        )
    model = _unwrap(model)
    job = Job(model, survey(model, hybrid), kinds, heads, limit, verify)
    if job.survey.skipped:
        warnings.warn(_skipping(job.survey), FlowgraphWarning, stacklevel=2)
    with ExitStack() as lent:
        lent.enter_context(alone(model))
        lent.enter_context(evaluation_mode(model))
        lent.enter_context(_on_device(model, device))
        lent.enter_context(torch.no_grad())
        lent.enter_context(uncompiled(model))
        examples, single = _read_examples(model, tokenizer, text, options, truncate=truncate)
        traces = [make_trace(job, *pair) for pair in zip(examples, job.run(examples), strict=True)]
    return traces[0] if single else traces


def _skipping(found: Survey) -> str:
    layers = ", ".join(map(str, found.skipped))
    return (
        f"hybrid='skip': layers {layers} have no attention and are passed over; the graph does not show "
        "what they mix, and its levels are named by the layers that have attention"
    )


# --- arguments --------------------------------------------------------------------------------------------


def _read_kinds(edges: str | Iterable[str]) -> tuple[EdgeKind, ...]:
    if not isinstance(edges, (str, Iterable)):
        raise FlowgraphError(
            f"edges: {edges!r} is no edge kind; pass one name or several of {', '.join(mixing.names())}"
        )
    names = [edges] if isinstance(edges, str) else list(edges)
    if not names:
        raise FlowgraphError(f"edges: none given; choose from {', '.join(mixing.names())}")
    kinds = {kind.name: kind for kind in map(mixing.get, names)}
    return tuple(kinds.values())


def _unwrap(model: Any) -> Any:
    """The plain model inside a compiled or PEFT-wrapped one; adapters stay in their places."""
    model = getattr(model, "_orig_mod", model)
    if hasattr(model, "get_base_model") and hasattr(model, "peft_config"):
        if any(getattr(config, "is_prompt_learning", False) for config in model.peft_config.values()):
            raise FlowgraphError(
                "model: prompt-learning adapters add tokens that are no text; trace the base model, "
                "model.get_base_model()"
            )
        model = model.get_base_model()
    if isinstance(model, nn.Module) and any(p.is_meta for p in model.parameters()):
        raise FlowgraphError(
            "model: some of its weights are not in memory (meta device, offloaded); load it whole onto one "
            "device"
        )
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise FlowgraphError(
            f"model: a {type(model).__name__} is no Hugging Face model; pass a loaded model, a name or a "
            "folder"
        )
    return model


@contextmanager
def _on_device(model: nn.Module, device: Any) -> Iterator[None]:
    if device is None:
        yield
        return
    before = next(model.parameters()).device
    move(model, device)
    try:
        yield
    finally:
        model.to(before)


def _read_examples(
    model: Any, tokenizer: Any, text: Any, generate: dict[str, Any] | None, *, truncate: bool
) -> tuple[list[Example], bool]:
    """The examples, and whether the caller gets one trace rather than a list."""
    if isinstance(text, Mapping):
        examples = examples_from_inputs(model, tokenizer, text, writes=generate is not None)
        single = len(examples) == 1
    elif isinstance(text, str) or is_pair(text):
        examples, single = [_text_example(model, tokenizer, text, generate, truncate)], True
    else:
        examples, single = _listed_examples(model, tokenizer, text, generate, truncate), False
    if generate is not None:
        examples = [continued(model, tokenizer, example, generate) for example in examples]
    return examples, single


def _text_example(
    model: Any, tokenizer: Any, text: Any, generate: dict[str, Any] | None, truncate: bool
) -> Example:
    if generate is not None and is_seq2seq(model):
        if not isinstance(text, str):
            raise FlowgraphError(
                "generate: the model writes the target itself; pass the source alone as text"
            )
        example = source_example(model, tokenizer, text, truncate=truncate)
    else:
        example = example_from_text(model, tokenizer, text, truncate=truncate)
    check_indices(model, example.inputs)
    return example


def _listed_examples(
    model: Any, tokenizer: Any, texts: Any, generate: dict[str, Any] | None, truncate: bool
) -> list[Example]:
    if not isinstance(texts, Sequence) or isinstance(texts, bytes):
        raise FlowgraphError(
            f"text: a {type(texts).__name__} is no text; pass a string, a list of strings, a pair (source, "
            "target), or a mapping of ready inputs"
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
