"""The attention function registered with transformers, and the hooks that go with it.

Transformers routes attention through a table of functions. Ours hands every call on to the
``eager_attention_forward`` of the calling module's own modeling file, so weights and outputs are the model's
own bit for bit, soft caps, sinks, windows and position biases included; what passes by is noted for the
block it belongs to.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from flowgraph.capture.layout import Layout, first, resolve
from flowgraph.capture.survey import Block
from flowgraph.errors import FlowgraphError

NAME = "flowgraph"
"""Our entry in transformers' tables of attention and mask functions."""


@dataclass
class AttentionCall:
    """One call of the attention function, whole batch."""

    module: nn.Module
    weights: Tensor
    """(B, H, Tq, Tk)"""
    values: Tensor
    """(B, H_kv, Tk, d)"""
    mask: Tensor | None
    """(B or 1, H or 1, Tq, >= Tk), added to the scores (or bool, True = visible); None: all visible."""


@dataclass
class Frame:
    """One call of a block, whole batch: what went in, what came out, what happened inside."""

    at: Block
    stream: Tensor
    """(B, T, D)"""
    calls: list[AttentionCall] = field(default_factory=list)
    inputs: dict[str, list[Tensor]] = field(default_factory=dict)
    outputs: dict[str, list[Tensor]] = field(default_factory=dict)
    output: Tensor | None = None

    @property
    def block(self) -> nn.Module:
        return self.at.module

    @property
    def layout(self) -> Layout:
        return self.at.layout

    def taken(self, of: dict[str, list[Tensor]], role: str) -> Tensor | None:
        """What a watched module read or gave, (B, T, ...)."""
        parts = of.get(role)
        if not parts:
            return None
        # several where the model's feed-forward runs in chunks; flat where it joins batch and tokens
        whole = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return whole.view(*self.stream.shape[:2], -1) if whole.ndim == 2 else whole


class Recorder:
    """Keeps the frames of the blocks that are running; gives each to ``on_frame`` when its block is done."""

    def __init__(self, on_frame: Callable[[Frame], None]) -> None:
        self._on_frame = on_frame
        self._frames: list[Frame] = []
        self.finished: set[str] = set()
        """Paths of the blocks that ran with attention in them."""

    # --- called by the attention function ---

    def note_attention(
        self, module: nn.Module, weights: Tensor | None, values: Tensor, mask: Tensor | None
    ) -> None:
        if weights is None:
            raise FlowgraphError(
                f"model: the attention of {type(module).__name__} gave no weights, so there is nothing to "
                "trace"
            )
        if not self._frames:
            raise FlowgraphError(
                f"model: {type(module).__name__} attends outside of every block that flowgraph knows, so a "
                "graph of the blocks would miss it"
            )
        self._frames[-1].calls.append(AttentionCall(module, weights, values, mask))

    # --- called by the hooks ---

    def enter(self, at: Block, args: tuple, kwargs: dict[str, Any]) -> None:
        stream = args[0] if args else kwargs["hidden_states"]
        self._frames.append(Frame(at, stream))

    def leave(self, output: Any) -> None:
        frame = self._frames.pop()
        frame.output = first(output)
        if frame.calls:
            self.finished.add(frame.at.path)
        self._on_frame(frame)

    def last(self, role: str) -> Tensor:
        """What the watched module gave last, in the block that is running."""
        return self._frames[-1].outputs[role][-1]

    def note_module(self, block: nn.Module, role: str, args: tuple, output: Any) -> None:
        if self._frames and self._frames[-1].block is block:
            frame = self._frames[-1]
            frame.inputs.setdefault(role, []).append(first(args))
            frame.outputs.setdefault(role, []).append(first(output))


_active: ContextVar[Recorder | None] = ContextVar("flowgraph_recorder", default=None)


def eager_forward_of(module: nn.Module) -> Callable[..., tuple[Tensor, Tensor]]:
    """The ``eager_attention_forward`` of the file that defines the class of ``module`` (or a class it
    derives from)."""
    for cls in type(module).__mro__:
        function = getattr(sys.modules.get(cls.__module__), "eager_attention_forward", None)
        if function is not None:
            return function
    raise FlowgraphError(
        f"model: the file that defines {type(module).__name__} has no eager_attention_forward, so its "
        "attention weights cannot be had"
    )


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *args: Any,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Entry in ``AttentionInterface``: the module's own eager attention, noted."""
    output, weights = eager_forward_of(module)(module, query, key, value, attention_mask, *args, **kwargs)
    recorder = _active.get()
    if recorder is not None:
        recorder.note_attention(module, weights, value, attention_mask)
    return output, weights


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, eager_mask)


# --- a model lent out and given back ----------------------------------------------------------------------


_locks: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_locks_lock = threading.Lock()


@contextmanager
def alone(model: nn.Module) -> Iterator[None]:
    """One trace of a model at a time: hooks would see what another thread runs."""
    with _locks_lock:
        lock = _locks.setdefault(model, threading.RLock())
    with lock:
        yield


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Dropout off; every module's own mode given back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def uncompiled(model: nn.Module) -> Iterator[None]:
    """Compiled parts run as written, since compiled code does not see hooks added after it."""
    if not any(_is_compiled(module) for module in model.modules()):
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _is_compiled(module: nn.Module) -> bool:
    wrapped = type(module).__name__ == "OptimizedModule" or hasattr(
        module.forward, "_torchdynamo_orig_callable"
    )
    return wrapped or getattr(module, "_compiled_call_impl", None) is not None


def _configs(model: nn.Module) -> list[Any]:
    found: dict[int, Any] = {}

    def add(config: Any) -> None:
        if config is None or id(config) in found or not hasattr(config, "_attn_implementation_internal"):
            return
        found[id(config)] = config
        for name in getattr(config, "sub_configs", ()):
            add(getattr(config, name, None))

    for module in model.modules():
        add(getattr(module, "config", None))
    return list(found.values())


@contextmanager
def our_attention(model: nn.Module) -> Iterator[None]:
    """Every attention of ``model`` through our function; each configuration's own choice given back."""
    _register()
    # set one by one, as set_attn_implementation cannot give back what differs between parts of a model
    before = [(config, config._attn_implementation_internal) for config in _configs(model)]
    try:
        for config, _ in before:
            config._attn_implementation_internal = NAME
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


@contextmanager
def recording(blocks: Sequence[Block], on_frame: Callable[[Frame], None]) -> Iterator[Recorder]:
    """Hooks on the blocks and the modules their layouts name; none is left behind.

    To be entered before :func:`our_attention`, while the model still says how it attends itself.
    """
    recorder = Recorder(on_frame)
    with ExitStack() as stack:
        for block in blocks:
            for handle in _hook_block(recorder, block):
                stack.callback(handle.remove)
        token = _active.set(recorder)
        stack.callback(_active.reset, token)
        yield recorder


def _hook_block(recorder: Recorder, at: Block) -> Iterator[Any]:
    def before(_: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
        recorder.enter(at, args, kwargs)
        return (args, kwargs | {"output_attentions": True}) if at.layout.adapter else None

    def after(_: nn.Module, args: tuple, output: Any) -> None:
        recorder.leave(output)

    yield at.module.register_forward_pre_hook(before, with_kwargs=True)
    yield at.module.register_forward_hook(after)
    for role, path in at.layout.watched.items():
        module = resolve(at.module, path)
        if isinstance(module, nn.Module):
            yield module.register_forward_hook(_watcher(recorder, at.module, role))
    if at.layout.adapter is not None:
        attention = resolve(at.module, at.layout.attention)
        if at.layout.adapter.in_mask and attention.config._attn_implementation != "eager":
            yield attention.register_forward_pre_hook(_silencer(at.layout.adapter.in_mask), with_kwargs=True)
        yield attention.register_forward_hook(_adapted_call(recorder, at), with_kwargs=True)


def _watcher(recorder: Recorder, block: nn.Module, role: str) -> Callable[..., None]:
    def note(_: nn.Module, args: tuple, output: Any) -> None:
        recorder.note_module(block, role, args, output)

    return note


def _silencer(name: str) -> Callable[..., tuple[tuple, dict[str, Any]]]:
    def silence(_: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        bias = kwargs.get(name)
        return args, kwargs if bias is None else kwargs | {name: torch.zeros_like(bias)}

    return silence


def _adapted_call(recorder: Recorder, at: Block) -> Callable[..., None]:
    """A hook that reads weights and values of attention outside transformers' table."""
    adapter = at.layout.adapter
    assert adapter is not None

    def note(module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        mask = kwargs.get("attention_mask")
        additive = mask if isinstance(mask, Tensor) and mask.ndim == 4 and mask.is_floating_point() else None
        recorder.note_attention(module, output[1], adapter.split(module, recorder.last("values")), additive)

    return note
