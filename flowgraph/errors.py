"""Every error flowgraph raises on purpose.

A message names the argument, what was wrong with it (with its numbers), and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_ARGUMENT = re.compile(r"\b([a-z_]+)=(True\b|'[^']*'|-?\d[\d.]*)?(?![\w'(\[{])")


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


def wrong_object(argument: str, value: object, expected: str, remedy: str) -> FlowgraphError:
    """The error for a ``value`` of another type than ``expected``; of a list, its items may be what was meant."""
    if isinstance(value, (list, tuple)) and value and type(value[0]).__name__ == expected:
        return FlowgraphError(f"{argument}: a list of {len(value)}; pass one of them, one call each")
    return FlowgraphError(f"{argument}: {type(value).__name__} is not a {expected}; {remedy}")


def check_trace(trace: object) -> None:
    """An error unless ``trace`` is what :func:`flowgraph.trace` returns, known by its parts: models may be absent."""
    if not hasattr(trace, "kinds"):
        raise wrong_object("trace", trace, "Trace", "pass what fg.trace returned for one text")


def in_options(message: str, options: Mapping[str, str]) -> str:
    """``message`` with the arguments of the library in it, ``truncate=True``, as the options a command has for them.

    ``options`` maps an argument's name to the option's; arguments without one stay as they are.
    """

    def replaced(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in options:
            return found[0]
        return options[name] if value in (None, "True") else f"{options[name]} {value.strip(chr(39))}"

    return _ARGUMENT.sub(replaced, message)
