"""Named things a user can add to: solvers and edge kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from flowgraph.errors import FlowgraphError

T = TypeVar("T")


def normalise(name: str) -> str:
    """``"Push_Relabel "`` and ``"push-relabel"`` are one name."""
    return name.strip().lower().replace("_", "-").replace(" ", "-")


class Registry(Generic[T]):
    """A dictionary with ``register``, ``get``, ``names``; refuses to overwrite, and lists what it knows."""

    def __init__(self, what: str, argument: str) -> None:
        self._what = what
        self._argument = argument
        self._items: dict[str, T] = {}

    def register(self, name: str, item: T, *, overwrite: bool = False) -> T:
        if not isinstance(name, str) or not name.strip():
            raise FlowgraphError(f"name: a {self._what} needs a non-empty string as its name, not {name!r}")
        key = normalise(name)
        if key in self._items and not overwrite:
            raise FlowgraphError(
                f"name: a {self._what} called {key!r} is registered already; "
                "choose another name or pass overwrite=True"
            )
        self._items[key] = item
        return item

    def unregister(self, name: str) -> None:
        self.get(name)
        del self._items[normalise(name)]

    def get(self, name: str) -> T:
        key = normalise(name) if isinstance(name, str) else name
        try:
            return self._items[key]
        except (KeyError, TypeError):
            raise FlowgraphError(
                f"{self._argument}: unknown {self._what} {name!r}; choose one of {', '.join(self.names())}"
            ) from None

    def names(self) -> list[str]:
        return sorted(self._items)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and normalise(name) in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())
