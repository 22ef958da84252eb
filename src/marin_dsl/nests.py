"""Types for containers that hold expressions among their members; the plugin for type checkers speaks of them.

A `list[float]` is no `list[float | Expression[float]]`, because somebody could put an expression into it. An operator's
call does not: these protocols say what a container has to be and leave that door out, so that members are covariant.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator
from typing import Any, Protocol, SupportsIndex, TypeVar

K_co = TypeVar("K_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)


class ListOf(Protocol[T_co]):
    """A list of such members."""

    def __iter__(self) -> Iterator[T_co]:
        """Its members."""
        ...

    def reverse(self) -> None:
        """What a tuple has not."""  # `append` would name the type of members, `sort` asks for an order among them
        ...

    def __rmul__(self, count: SupportsIndex, /) -> object: ...  # what a deque has not


class MappingOf(Protocol[K_co, T_co]):
    """A mapping with such keys and values."""

    def items(self) -> ItemsView[K_co, T_co]:
        """Its keys and values."""
        ...

    def __len__(self) -> int:
        """How many."""
        ...


class DictOf(MappingOf[K_co, T_co], Protocol[K_co, T_co]):
    """A dict with such keys and values."""

    def popitem(self) -> tuple[K_co, T_co]:
        """What a mapping that cannot change has not."""
        ...


class GridOf(Protocol[T_co]):
    """A grid with such contents."""

    @property
    def cells(self) -> tuple[Any, ...]:
        """Contents with their coordinates."""
        ...

    def map(self, function: Callable[[T_co], Any], /) -> Any:
        """The same coordinates with other contents."""
        ...
