"""Two streams that one operator reads, each through an input of its own (Flink: ``ConnectedStreams``).

A union makes one stream of many. Connected streams stay apart and may carry different things, but share the state of
the operator. Its watermark is the minimum of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from engine.elements.errors import JobGraphError, shorten
from engine.elements.operator import OperatorFactory
from engine.graph.keyed_stream import KeyedStream
from engine.graph.options import OperatorOptions, check_callable, check_function_object, check_options, operator_factory
from engine.graph.partitioner import BroadcastPartitioner
from engine.graph.stream import Outlet, Stream
from state_backends.base import KeyType, MapStateDescriptor, StateArgumentError

if TYPE_CHECKING:
    from operators.basic import (
        BroadcastProcessFunction,
        CoProcessFunction,
        KeyedBroadcastProcessFunction,
        KeyedCoProcessFunction,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ConnectedStreams:
    """Two streams of one job, which the next operator reads as its two inputs."""

    _first: Stream
    _second: Stream

    def __repr__(self) -> str:
        return f"ConnectedStreams({self._first!r}, {self._second!r})"

    @property
    def is_keyed(self) -> bool:
        """Whether both streams are partitioned by key, so that records of one key meet."""
        return isinstance(self._first, KeyedStream) and isinstance(self._second, KeyedStream)

    def key_by(
        self, key1: Callable[[Any], Any], key2: Callable[[Any], Any], *, key_type: KeyType | None = None
    ) -> ConnectedStreams:
        """Partition the first stream by ``key1(record)`` and the second by ``key2(record)``.

        Records of both that have the same key meet in one subtask. The keys of both have one type, which ``key_type``
        may declare; see ``Stream.key_by``.
        """
        return ConnectedStreams(
            self._first.key_by(key1, key_type=key_type), self._second.key_by(key2, key_type=key_type)
        )

    def map(self, fn1: Callable[[Any], Any], fn2: Callable[[Any], Any], **options: Unpack[OperatorOptions]) -> Stream:
        """One record out for each record in: ``fn1(value)`` of the first stream, ``fn2(value)`` of the second."""
        from operators.basic import CoMapOperator

        check_callable("map", "fn1", fn1)
        check_callable("map", "fn2", fn2)
        return self._transform("co-map", partial(CoMapOperator, fn1, fn2), options)

    def flat_map(
        self, fn1: Callable[[Any], Any], fn2: Callable[[Any], Any], **options: Unpack[OperatorOptions]
    ) -> Stream:
        """Any number of records out for each record in, by ``fn1`` or ``fn2`` as for ``map``."""
        from operators.basic import CoFlatMapOperator

        check_callable("flat_map", "fn1", fn1)
        check_callable("flat_map", "fn2", fn2)
        return self._transform("co-flat-map", partial(CoFlatMapOperator, fn1, fn2), options)

    def process(
        self,
        function: CoProcessFunction | type[CoProcessFunction] | KeyedCoProcessFunction | type[KeyedCoProcessFunction],
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """The records that a co-process function emits; it may also emit side outputs.

        A ``KeyedCoProcessFunction`` has state and timers per key and needs both streams keyed; a ``CoProcessFunction``
        has neither.
        """
        from operators.basic import (
            CoProcessFunction,
            CoProcessOperator,
            KeyedCoProcessFunction,
            KeyedCoProcessOperator,
            operator_of,
        )

        kind = check_function_object("process", "function", function, CoProcessFunction, KeyedCoProcessFunction)
        if kind is CoProcessFunction:
            return self._transform("co-process", operator_of(CoProcessOperator, function), options)
        if not self.is_keyed:
            raise JobGraphError(
                f"process: a KeyedCoProcessFunction keeps state per key, but {self._unkeyed()!r} has no key\n"
                "  fix: call .key_by(key1, key2) on the connected streams right before .process(...)"
            )
        factory = operator_of(KeyedCoProcessOperator, function)
        return self._transform("co-process", factory, options, requires_key=True)

    def join(
        self,
        kind: str = "inner",
        *,
        condition: Callable[[Any, Any], Any] | None = None,
        ttl_ms: int | None = None,
        changes: bool = False,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """All pairs of records with the same key, whenever they come, as changes ``(kind, (left, right))``.

        ``kind`` is ``inner``, ``left``, ``right`` or ``full``: an outer join gives ``(left, None)`` while a record has
        no match, and takes it back later. ``condition(left, right)`` says which records of a key match. Both
        sides are kept for ever, or ``ttl_ms`` of processing time. With ``changes`` the inputs are changes themselves.
        """
        from operators.joins import RegularJoinOperator

        if condition is not None:
            check_callable("join", "condition", condition)
        if not self.is_keyed:
            raise JobGraphError(
                f"join: records meet by key, but {self._unkeyed()!r} has no key\n"
                "  fix: call .key_by(key1, key2) on the connected streams right before .join(...)"
            )
        factory = partial(RegularJoinOperator, kind, condition=condition, ttl_ms=ttl_ms, changes=changes)
        factory()  # A wrong argument fails here, where the job is built.
        return self._transform("join", factory, options, requires_key=True)

    def via(self, factory: OperatorFactory, **options: Unpack[OperatorOptions]) -> Stream:
        """The output of a ``TwoInputOperator`` unknown to the graph; ``factory`` returns a fresh one."""
        return self._transform("via", operator_factory("via", factory), options)

    def _unkeyed(self) -> Stream:
        return self._second if isinstance(self._first, KeyedStream) else self._first

    def _transform(
        self, kind: str, factory: OperatorFactory, options: OperatorOptions, *, requires_key: bool = False
    ) -> Stream:
        return add_two_input(self._first, self._second, kind, factory, options, requires_key=requires_key)


@dataclass(frozen=True, slots=True, eq=False)
class BroadcastStream:
    """A stream whose records go to every subtask of the next operator, and the broadcast states that it keeps there.

    Made by ``Stream.broadcast(state, ...)``, to be given to ``Stream.connect`` (Flink: ``BroadcastStream``).
    """

    _stream: Stream
    state_names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"BroadcastStream({self._stream!r}, {', '.join(self.state_names)})"


@dataclass(frozen=True, slots=True, eq=False)
class BroadcastConnectedStream:
    """A data stream connected with a broadcast stream (Flink: ``BroadcastConnectedStream``)."""

    _data: Stream
    _broadcast: BroadcastStream

    def __repr__(self) -> str:
        return f"BroadcastConnectedStream({self._data!r}, {self._broadcast!r})"

    def process(
        self,
        function: BroadcastProcessFunction
        | type[BroadcastProcessFunction]
        | KeyedBroadcastProcessFunction
        | type[KeyedBroadcastProcessFunction],
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """The records that a broadcast process function emits; it may also emit side outputs.

        A ``KeyedBroadcastProcessFunction`` belongs to keyed data, a ``BroadcastProcessFunction`` to data without keys.
        """
        from operators.basic import (
            BroadcastProcessFunction,
            BroadcastProcessOperator,
            KeyedBroadcastProcessFunction,
            KeyedBroadcastProcessOperator,
            operator_of,
        )

        kind = check_function_object(
            "process", "function", function, BroadcastProcessFunction, KeyedBroadcastProcessFunction
        )
        keyed = isinstance(self._data, KeyedStream)
        if keyed != (kind is KeyedBroadcastProcessFunction):
            has = "a key" if keyed else "no key"
            fix = "derive the function from KeyedBroadcastProcessFunction" if keyed else "call .key_by(...) on the data"
            raise JobGraphError(
                f"process: a {kind.__name__} was given for {self._data!r}, which has {has}\n  fix: {fix}"
            )
        operator: Any = KeyedBroadcastProcessOperator if keyed else BroadcastProcessOperator
        factory = operator_of(operator, function, self._broadcast.state_names)
        return add_two_input(
            self._data, self._broadcast._stream, "co-process-broadcast", factory, options, requires_key=keyed
        )


def connect(first: Stream, second: Stream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
    """See ``Stream.connect``."""
    if isinstance(second, BroadcastStream):
        first._check_same_job("connect", second._stream)
        return BroadcastConnectedStream(first, second)
    if not isinstance(second, Stream):
        raise JobGraphError(
            "connect: its argument must be a stream, or what stream.broadcast(state) returned, not "
            f"{shorten(second)} of type {type(second).__name__}"
        )
    first._check_same_job("connect", second)
    return ConnectedStreams(first, second)


def broadcast(stream: Stream, states: tuple[MapStateDescriptor | str, ...]) -> BroadcastStream:
    """See ``Stream.broadcast``."""
    names = []
    for state in states:
        if not isinstance(state, (MapStateDescriptor, str)):
            raise JobGraphError(
                "broadcast: a broadcast state is a map, given by its name or a MapStateDescriptor, not "
                f"{shorten(state)} of type {type(state).__name__}"
            )
        try:
            names.append((MapStateDescriptor(state) if isinstance(state, str) else state).name)
        except StateArgumentError as error:
            raise JobGraphError(f"broadcast: {error}") from error
    for name in names:
        if names.count(name) > 1:
            raise JobGraphError(f"broadcast: two states have the name {name!r}; give each its own")
    return BroadcastStream(stream._with_partitioner("broadcast", BroadcastPartitioner()), tuple(names))


def add_two_input(
    first: Stream, second: Stream, kind: str, factory: OperatorFactory, options: OperatorOptions, *, requires_key: bool
) -> Stream:
    """Add an operator that reads ``first`` through its first input and ``second`` through its second."""
    check_options(kind, options)
    job = first._job
    node_id = job.add_operator(kind, factory, options, requires_key=requires_key)
    job.graph.set_inputs(node_id, 2)
    for target_input, stream in enumerate((first, second)):
        stream._feed(node_id, target_input)
    return Stream(job, (Outlet(node_id),))
