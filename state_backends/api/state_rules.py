"""What the states of all backends have in common: the order of a map, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from state_backends.base import StateArgumentError
from state_backends.codec import StateCodec


def checked_elements(name: str, elements: Iterable[Any]) -> list[Any]:
    """What is added to the list state of that name, as a new list.

    :raises StateArgumentError: when the argument or an element is ``None``
    """
    if elements is None:
        raise StateArgumentError(f"list state {name!r} was given None: pass an empty list to mean nothing.")
    checked = list(elements)
    if any(element is None for element in checked):
        raise StateArgumentError(
            f"list state {name!r} was given an element that is None: store a value that stands for it."
        )
    return checked


def sorted_map(entries: dict[Any, Any], codec: StateCodec) -> dict[Any, Any]:
    """The same map with its entries in the order of their encoded keys."""
    return {key: entries[key] for key in sorted(entries, key=codec.encode)}


def lost_accumulator(name: str) -> StateArgumentError:
    """The error for an ``add`` of an aggregating state that returned nothing."""
    return StateArgumentError(
        f"the add function of aggregating state {name!r} returned None. It must return the "
        "accumulator, also when it changed it in place."
    )


def no_merge_function(name: str) -> StateArgumentError:
    """The error for merging namespaces of an aggregating state whose descriptor cannot."""
    return StateArgumentError(
        f"aggregating state {name!r} has no merge function, which merging windows need: "
        "give its descriptor merge=(accumulator, accumulator) -> accumulator."
    )
