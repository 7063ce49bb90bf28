"""How the records of one sender are spread over the channels to the receivers (Flink: ``StreamPartitioner``).

A *partitioner* is the frozen description on an edge of the graph; a *router* is made from it for one sending
subtask in one attempt. Routers take whole batches and return ``(channel, batch)`` pairs in
channel order, so that every router splits one batch the same way whatever came before in the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Protocol

from engine.elements.batch import Batch
from engine.elements.columns import ColumnBatch, positions_by_target
from engine.elements.errors import KeyTypeMismatchError, UserFunctionError, shorten
from engine.elements.simple_functions import in_c, raised_by
from state_backends.base import (
    KeyType,
    KeyTypeError,
    check_keys,
    infer_key_type,
    key_group_function,
    operator_index_for_key_group,
    value_class,
)

Routed = list[tuple[int, Batch]]


class Router(Protocol):
    """Spreads the batches of one sending subtask."""

    __slots__ = ()

    def route(self, batch: Batch) -> Routed:
        """The non-empty parts of ``batch`` with the index of the channel each goes to."""

    def fingerprint(self) -> object:
        """The state that decides where the next record goes; most have none."""
        return None


class KeyTypeAgreement:
    """The one key type of a keyed stream that declares none: that of the restored state, else of the first key.

    All senders of an attempt share it. Without that, each could agree only with its own keys, and 1 of one sender and
    True of another would meet in one cell of state.
    """

    __slots__ = ("key_type",)

    def __init__(self) -> None:
        self.key_type: KeyType | None = None

    def adopt(self, key_type: KeyType) -> None:
        """State with keys of this type was restored."""
        if self.key_type is None:
            self.key_type = key_type

    def settle(self, first_key: Any) -> KeyType:
        """The agreed type; while there is none, that of ``first_key``.

        :raises KeyTypeError: when ``first_key`` has no type that keys may have
        """
        if self.key_type is None:
            self.key_type = infer_key_type(first_key)
        return self.key_type


@value_class
class RouterContext:
    """The facts about its sender that a partitioner may use."""

    operator: str
    subtask: int
    attempt: int
    channels: int
    receiver_max_parallelism: int
    key_type_agreement: KeyTypeAgreement = field(default_factory=KeyTypeAgreement)
    sent: int = 0
    """How many records the sender has sent before."""


class Partitioner(Protocol):
    """The description of one edge's partitioning."""

    @property
    def name(self) -> str:
        """Its name in drawings and fingerprints."""

    @property
    def pointwise(self) -> bool:
        """Whether a sender reaches only some receivers (Flink: ``DistributionPattern.POINTWISE``)."""

    def router(self, context: RouterContext) -> Router:
        """A router for one sending subtask."""


class _SingleChannelRouter(Router):
    """Everything goes to one channel: forward edges, global edges, and any edge with one receiver."""

    __slots__ = ()

    def route(self, batch: Batch) -> Routed:
        return [(0, batch)]


class _RoundRobinRouter(Router):
    """Record ``i`` of the stream goes to channel ``i mod n``, however the stream is cut into batches."""

    __slots__ = ("_channels", "_next")

    def __init__(self, context: RouterContext) -> None:
        self._channels = channels = context.channels
        self._next = context.sent % channels

    def route(self, batch: Batch) -> Routed:
        count, channels, first = batch.size, self._channels, self._next
        self._next = (first + count) % channels
        if count == 1:
            # Where records come one by one, looking at all channels would take longer than anything else.
            return [(first, batch)]
        return [
            (channel, batch.take(range(offset, count, channels)))
            for channel in range(channels)
            if (offset := (channel - first) % channels) < count
        ]

    def fingerprint(self) -> object:
        return self._next


class _BroadcastRouter(Router):
    __slots__ = ("_channels",)

    def __init__(self, channels: int) -> None:
        self._channels = channels

    def route(self, batch: Batch) -> Routed:
        return [(channel, batch) for channel in range(self._channels)]


class _KeyToChannel(dict[Any, int]):
    """key -> channel, filled on a miss; cleared when full, since it is only a cache."""

    __slots__ = ("channels", "group_of", "max_parallelism")
    CAPACITY = 1 << 18

    def __init__(self, key_type: KeyType, max_parallelism: int, channels: int) -> None:
        self.group_of = key_group_function(key_type, max_parallelism)
        self.max_parallelism = max_parallelism
        self.channels = channels

    def __missing__(self, key: Any) -> int:
        if len(self) >= self.CAPACITY:
            self.clear()
        group = self.group_of(key)
        channel = self[key] = operator_index_for_key_group(self.max_parallelism, self.channels, group)
        return channel


class _HashRouter(Router):
    """Keys every record and sends it to the owner of its key group (Flink: ``KeyGroupStreamPartitioner``)."""

    __slots__ = ("_cache", "_channels", "_context", "_key", "_key_type", "_scalar", "_spec", "_value")

    def __init__(self, spec: HashPartitioner, context: RouterContext) -> None:
        self._spec = spec
        self._context = context
        self._channels = context.channels
        self._cache: _KeyToChannel | None = None
        self._key_type = spec.key_type
        self._scalar: type | None = None
        """What any key is; ``None`` while that is not known, or for tuples, which have types inside."""
        self._key = in_c(spec.key)
        self._value = None if spec.value is None else in_c(spec.value)

    def route(self, batch: Batch) -> Routed:
        records = batch.values
        if not records:
            return []
        spec = self._spec
        keys = self._apply(self._key, spec.key, "key selector", records)
        if len(keys) != 1 or keys[0].__class__ is not self._scalar:
            self._check(keys, records)
        if self._value is None or spec.value is None:
            values = records
        else:
            values = self._apply(self._value, spec.value, "value selector", records)
        keyed = Batch(values, batch.timestamps, keys)
        channels = self._channels
        if channels == 1:
            return [(0, keyed)]
        cache = self._cache
        if len(keys) == 1 and cache is not None and keys[0] in cache:
            return [(cache[keys[0]], keyed)]
        return _spread(keyed, self._targets(keys, records), channels)

    def _targets(self, keys: list[Any], records: list[Any]) -> list[int]:
        """The channel of every key."""
        if self._cache is None:
            assert self._key_type is not None
            max_parallelism = self._context.receiver_max_parallelism
            self._cache = self._spec.key_to_channel(self._key_type, max_parallelism, self._channels)
        targets: list[int] = []
        try:
            targets.extend(map(self._cache.__getitem__, keys))
        except KeyTypeError as error:  # an int too wide for its declared type
            raise self._key_error(records[len(targets)], error) from error
        return targets

    def _apply(
        self, function: Callable[[Any], Any], of_user: Callable[[Any], Any], what: str, records: list[Any]
    ) -> list[Any]:
        """``function`` of each record, which is the user's function or does the same."""
        results: list[Any] = []
        try:
            if function.__class__ is FunctionType:
                # The interpreter calls a function in Python by a shorter way than map does.
                for record in records:
                    results.append(function(record))
            else:
                results.extend(map(function, records))
                if len(results) != len(records):
                    # A StopIteration out of the function would end map quietly and lose the rest of the batch.
                    raise StopIteration
        except Exception as error:
            context, record = self._context, records[len(results)]
            if isinstance(error, StopIteration):
                error = StopIteration("the function let a StopIteration escape")
            if function is not of_user:
                error = raised_by(of_user, (record,), error)
            raise UserFunctionError(context.operator, what, record, context.attempt, error) from error
        return results

    def _check(self, keys: list[Any], records: list[Any]) -> None:
        # Per batch, not per record: Python's 1 == 1.0 == True would silently share one cell of state.
        try:
            if self._key_type is None:
                self._key_type = self._context.key_type_agreement.settle(keys[0])
            check_keys(keys, self._key_type)
            self._scalar = None if self._key_type.name == "TUPLE" else self._key_type.python_type
        except KeyTypeError as error:
            index = next((i for i, key in enumerate(keys) if not self._has_the_type(key)), 0)
            raise self._key_error(records[index], error) from error

    def _has_the_type(self, key: Any) -> bool:
        try:
            check_keys([key], self._key_type or infer_key_type(key))
        except KeyTypeError:
            return False
        return True

    def _key_error(self, record: Any, error: KeyTypeError) -> KeyTypeMismatchError:
        return KeyTypeMismatchError(
            f"key selector after {self._context.operator!r} returned a key of the wrong type: {error}\n"
            f"  record  {shorten(record)}\n"
            f"  attempt {self._context.attempt}\n"
            "  fix the selector, or declare the type with key_by(..., key_type=...)"
        )


def _spread(batch: Batch, targets: list[int], channels: int) -> Routed:
    """Record ``i`` of ``batch`` to channel ``targets[i]``.

    One pass per column whatever the number of channels; a selection per channel would be a pass for each of them.
    """
    if isinstance(batch, ColumnBatch):
        return spread_columns(batch, targets, channels)
    if len(targets) == 1:
        return [(targets[0], batch)]
    values = _dealt(batch.values, targets, channels)
    stamps = None if batch.timestamps is None else _dealt(batch.timestamps, targets, channels)
    keys = None if batch.keys is None else _dealt(batch.keys, targets, channels)
    return [
        (channel, Batch(part, None if stamps is None else stamps[channel], None if keys is None else keys[channel]))
        for channel, part in enumerate(values)
        if part
    ]


def spread_columns(batch: ColumnBatch, targets: Sequence[int], channels: int) -> Routed:
    """The same for columns; ``targets`` may be an array."""
    return [(channel, batch.select(positions)) for channel, positions in positions_by_target(targets, channels)]


def _dealt(column: list[Any], targets: list[int], channels: int) -> list[list[Any]]:
    parts: list[list[Any]] = [[] for _ in range(channels)]
    for target, item in zip(targets, column, strict=True):
        parts[target].append(item)
    return parts


class _CustomRouter(Router):
    __slots__ = ("_context", "_spec")

    def __init__(self, spec: CustomPartitioner, context: RouterContext) -> None:
        self._spec = spec
        self._context = context

    def route(self, batch: Batch) -> Routed:
        context, channels, choose = self._context, self._context.channels, self._spec.choose
        targets: list[int] = []
        try:
            for value in batch.values:
                target = choose(value, channels)
                if not 0 <= target < channels:
                    raise ValueError(f"channel {target!r} is not in 0..{channels - 1}")
                targets.append(target)
        except Exception as error:
            raise UserFunctionError(
                context.operator, "custom partitioner", batch.values[len(targets)], context.attempt, error
            ) from error
        return _spread(batch, targets, channels)


@dataclass(frozen=True, slots=True)
class ForwardPartitioner:
    """Subtask ``i`` to subtask ``i``; both sides have the same parallelism. Only this edge can be chained."""

    name: str = field(default="forward", init=False)
    pointwise: bool = field(default=True, init=False)

    def router(self, context: RouterContext) -> Router:
        return _SingleChannelRouter()


@dataclass(frozen=True, slots=True)
class HashPartitioner:
    """By key group. ``key`` selects the key, ``value`` the part that travels on (``None``: the whole record)."""

    key: Callable[[Any], Any]
    value: Callable[[Any], Any] | None = None
    key_type: KeyType | None = None
    name: str = field(default="hash", init=False)
    pointwise: bool = field(default=False, init=False)
    _caches: dict[tuple[KeyType, int, int], _KeyToChannel] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def router(self, context: RouterContext) -> Router:
        return _HashRouter(self, context)

    def key_to_channel(self, key_type: KeyType, max_parallelism: int, channels: int) -> _KeyToChannel:
        """The cache that all senders of the edge share, since a key goes to the same channel from each of them.

        It remembers values of a pure function, so a run never shows whether another one has used it before.
        """
        wanted = (key_type, max_parallelism, channels)
        if wanted not in self._caches:
            self._caches[wanted] = _KeyToChannel(*wanted)
        return self._caches[wanted]


@dataclass(frozen=True, slots=True)
class RebalancePartitioner:
    """Round robin over all receivers."""

    name: str = field(default="rebalance", init=False)
    pointwise: bool = field(default=False, init=False)

    def router(self, context: RouterContext) -> Router:
        return _SingleChannelRouter() if context.channels == 1 else _RoundRobinRouter(context)


@dataclass(frozen=True, slots=True)
class RescalePartitioner:
    """Round robin over the receivers nearest to the sender."""

    name: str = field(default="rescale", init=False)
    pointwise: bool = field(default=True, init=False)

    def router(self, context: RouterContext) -> Router:
        return _SingleChannelRouter() if context.channels == 1 else _RoundRobinRouter(context)


@dataclass(frozen=True, slots=True)
class BroadcastPartitioner:
    """Every record to every receiver."""

    name: str = field(default="broadcast", init=False)
    pointwise: bool = field(default=False, init=False)

    def router(self, context: RouterContext) -> Router:
        return _BroadcastRouter(context.channels)


@dataclass(frozen=True, slots=True)
class GlobalPartitioner:
    """Every record to receiver 0."""

    name: str = field(default="global", init=False)
    pointwise: bool = field(default=False, init=False)

    def router(self, context: RouterContext) -> Router:
        return _SingleChannelRouter()


@dataclass(frozen=True, slots=True)
class CustomPartitioner:
    """``choose(value, channels)`` returns the index of the receiver."""

    choose: Callable[[Any, int], int]
    name: str = field(default="custom", init=False)
    pointwise: bool = field(default=False, init=False)

    def router(self, context: RouterContext) -> Router:
        return _CustomRouter(self, context)
