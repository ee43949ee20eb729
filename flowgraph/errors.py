"""Every error flowgraph raises on purpose.

A message names the argument, what was wrong with it (with its numbers), and what to do.
"""

from __future__ import annotations


class FlowgraphError(ValueError):
    """Base of all errors raised by flowgraph; the command line prints it as one line and exits with 2."""


class CertificateError(FlowgraphError):
    """A flow that is not what it claims: over capacity, not conserved, or not equal to its cut."""


class TimeLimitError(FlowgraphError):
    """A solver used more than the time it was given; nothing is known of the value."""


class MissingDependencyError(FlowgraphError, ImportError):
    """An optional library is needed for what was asked; the message says what to install."""


class FlowgraphWarning(UserWarning):
    """Something was adjusted that a careful user wants to know of (rows rescaled, text truncated)."""


def missing_dependency(library: str, extra: str, purpose: str) -> MissingDependencyError:
    """The error for an optional ``library`` that ``purpose`` needs; ``extra`` is the package extra with it."""
    return MissingDependencyError(
        f"{purpose} needs {library}, which is not installed: pip install 'attention-flowgraph[{extra}]'"
    )
