"""Descriptors: the name and the functions of one keyed state, as a program declares it.

A state is found again after a restore by its name, so names are unique in one operator and are never
given to another kind of state. The functions are the program's own and are not part of a snapshot; they
must be pure, or a replay will not give what the first run gave.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from state_backends.base.errors import StateArgumentError
from state_backends.base.ttl_settings import StateTtlConfig

RESERVED_NAME_PREFIX = "_timer_state/"
"""Names that start so belong to timers (Flink's InternalTimeServiceManager uses the same)."""


class StateKind(enum.Enum):
    """What a state holds per (key, namespace); the value is what stands in snapshot files."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    TIMERS = "timers"


@dataclass(frozen=True, slots=True)
class StateDescriptor:
    """What all descriptors have. Use one of the subclasses.

    :ivar name: unique within one operator
    :ivar ttl: how long its content lives; ``None`` = for ever
    :raises StateArgumentError: on an empty or reserved name
    """

    kind: ClassVar[StateKind]

    name: str
    ttl: StateTtlConfig | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.name:
            raise StateArgumentError("a state needs a name: it is found again by it after a restore.")
        if self.name.startswith(RESERVED_NAME_PREFIX):
            raise StateArgumentError(
                f"state name {self.name!r} starts with {RESERVED_NAME_PREFIX!r}, which is kept for timers."
            )


@dataclass(frozen=True, slots=True)
class ValueStateDescriptor(StateDescriptor):
    """One value.

    :ivar default: what a missing value reads as; each read gets a fresh copy, and it is never stored
    """

    kind: ClassVar[StateKind] = StateKind.VALUE

    default: Any = None


@dataclass(frozen=True, slots=True)
class ListStateDescriptor(StateDescriptor):
    """A list of elements, none of which is ``None``."""

    kind: ClassVar[StateKind] = StateKind.LIST


@dataclass(frozen=True, slots=True)
class MapStateDescriptor(StateDescriptor):
    """A map; its keys are all of one type (Python's ``1 == 1.0 == True`` would share one entry)."""

    kind: ClassVar[StateKind] = StateKind.MAP


@dataclass(frozen=True, slots=True)
class ReducingStateDescriptor(StateDescriptor):
    """One value into which each added value is folded.

    :ivar reduce_fn: from (value so far, added value) to the new value of the same type. It returns a new
        object and leaves its arguments alone: the old value may already be on its way downstream.
    """

    kind: ClassVar[StateKind] = StateKind.REDUCING

    reduce_fn: Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class AggregatingStateDescriptor(StateDescriptor):
    """An accumulator that added values flow into, and a result computed from it.

    :ivar create: makes an empty accumulator
    :ivar add: from (accumulator, value) to the accumulator; may change it in place, must return it
    :ivar get_result: from accumulator to result; leaves the accumulator alone
    :ivar merge: from two accumulators to one; needed only when namespaces (session windows) merge
    """

    kind: ClassVar[StateKind] = StateKind.AGGREGATING

    create: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    get_result: Callable[[Any], Any]
    merge: Callable[[Any, Any], Any] | None = None
