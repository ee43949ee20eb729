"""Attention flow and attention rollout for transformers: exact, fast, and easy to look at.

>>> import flowgraph as fg
>>> attribution = fg.attribute(model, tokenizer, "The cat sat on the mat.", method="flow")  # doctest: +SKIP

The public names are imported when they are first used, so that ``import flowgraph`` costs nothing, not even NumPy.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowgraph import bench, mixing, solvers
    from flowgraph.attribution import Attribution, attribute, attribute_graph
    from flowgraph.capture.run import trace
    from flowgraph.capture.trace import Trace
    from flowgraph.corpus.dataset import open_run
    from flowgraph.errors import (
        CertificateError,
        FlowgraphError,
        FlowgraphWarning,
        MissingDependencyError,
        TimeLimitError,
    )
    from flowgraph.evaluation.alignment import align, alignment_error_rate, read_alignments
    from flowgraph.evaluation.report import Evaluation
    from flowgraph.evaluation.run import evaluate
    from flowgraph.flow import attention_flow, bottleneck, flow_matrix, max_flow
    from flowgraph.graph import Block, LayeredGraph, Level
    from flowgraph.mixing import mixing_ratio, norms
    from flowgraph.rollout import raw, rollout
    from flowgraph.shares import joint_flow
    from flowgraph.solvers import FlowResult, check_flow

    __version__: str

_HOME = {
    "Attribution": "attribution",
    "Block": "graph",
    "CertificateError": "errors",
    "Evaluation": "evaluation.report",
    "FlowResult": "solvers",
    "FlowgraphError": "errors",
    "FlowgraphWarning": "errors",
    "LayeredGraph": "graph",
    "Level": "graph",
    "MissingDependencyError": "errors",
    "TimeLimitError": "errors",
    "Trace": "capture.trace",
    "align": "evaluation.alignment",
    "alignment_error_rate": "evaluation.alignment",
    "attention_flow": "flow",
    "attribute": "attribution",
    "attribute_graph": "attribution",
    "bottleneck": "flow",
    "check_flow": "solvers",
    "evaluate": "evaluation.run",
    "flow_matrix": "flow",
    "joint_flow": "shares",
    "max_flow": "flow",
    "mixing_ratio": "mixing",
    "norms": "mixing",
    "open_run": "corpus.dataset",
    "raw": "rollout",
    "read_alignments": "evaluation.alignment",
    "rollout": "rollout",
    "trace": "capture.run",
}
"""Public name -> the module of this package that defines it."""

_ROOMS = ("bench", "mixing", "solvers")
"""Public modules."""

__all__ = [
    "Attribution",
    "Block",
    "CertificateError",
    "Evaluation",
    "FlowResult",
    "FlowgraphError",
    "FlowgraphWarning",
    "LayeredGraph",
    "Level",
    "MissingDependencyError",
    "TimeLimitError",
    "Trace",
    "__version__",
    "align",
    "alignment_error_rate",
    "attention_flow",
    "attribute",
    "attribute_graph",
    "bench",
    "bottleneck",
    "check_flow",
    "evaluate",
    "flow_matrix",
    "joint_flow",
    "max_flow",
    "mixing",
    "mixing_ratio",
    "norms",
    "open_run",
    "raw",
    "read_alignments",
    "rollout",
    "solvers",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    elif name in _ROOMS:
        value = import_module(f"{__name__}.{name}")
    elif name == "__version__":
        from importlib.metadata import version

        value = version("attention-flowgraph")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


class _Package(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # importing the module ``flowgraph.rollout`` would put it where the function of that name belongs
        if not (name == "rollout" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)  # cloudpickle knows the plain class of modules alone


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
