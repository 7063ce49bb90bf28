"""``Stream``: the fluent API over the job graph, as far as it needs no key (Flink: ``DataStream``).

A stream is a value: a list of *outlets*, each an operator (or one of its side outputs) with the partitioner
that the next edge from it shall have. Methods that transform records add an operator and edges to the graph
at once; methods that only route (``union``, ``key_by``, ``rebalance``, …) return another stream over the
same operators. Operators are imported where they are used, so that building a job loads only what the job
needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, overload

from engine.elements.errors import JobGraphError
from engine.elements.operator import OperatorFactory
from engine.graph.job_graph import ChainingStrategy, NodeRole
from engine.graph.options import (
    OperatorOptions,
    SinkTopology,
    StreamTransform,
    TransformDemands,
    check_callable,
    check_callable_or_methods,
    check_names,
    check_options,
    check_type,
    operator_factory,
    operator_stem,
)
from engine.graph.partitioner import (
    BroadcastPartitioner,
    CustomPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    HashPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
)
from engine.graph.windowed_stream import AllWindowedStream
from state_backends.base import KeyType, MapStateDescriptor

if TYPE_CHECKING:
    from engine.graph.connected_streams import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
    from engine.graph.iterative_stream import IterativeStream
    from engine.graph.job import Job
    from engine.graph.joined_streams import JoinedStreams
    from engine.graph.keyed_stream import KeyedStream
    from operators.async_io import AsyncFunction, AsyncRetryStrategy
    from operators.basic import AckingFunction, CollectedResults, ProcessFunction
    from operators.time import WatermarkStrategy
    from operators.windows import WindowAssigner


_ONLY_WITH_KEY = (
    "reduce",
    "aggregate",
    "window",
    "count_window",
    "sum_column",
    "min_column",
    "max_column",
    "count_column",
    "aggregate_columns",
    "interval_join",
    "deduplicate",
    "top_n",
    "pattern",
)


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where records of a stream come from, and how the next edge shall spread them (``None``: by default)."""

    node_id: int
    side_tag: str | None = None
    partitioner: Partitioner | None = None


class NotKeyedError(JobGraphError, AttributeError):
    """A method of keyed streams was called on a stream that has no key."""


class Stream:
    """Records flowing out of one or several operators of a job.

    Methods that add an operator take the keywords of ``OperatorOptions`` (``name=``, ``uid=``,
    ``parallelism=``, ``max_parallelism=``, ``chain=``). Functions are called once per record, in order, and
    must not keep state.
    """

    __slots__ = ("_job", "_outlets")

    def __init__(self, job: Job, outlets: tuple[Outlet, ...]) -> None:
        self._job = job
        self._outlets = outlets

    def __repr__(self) -> str:
        names = [self._job.graph.name_of(outlet.node_id) for outlet in self._outlets]
        return f"{type(self).__name__}({', '.join(names)})"

    # --- one record in, some records out ------------------------------------------------------------------

    def map(self, fn: Callable[[Any], Any], **options: Unpack[OperatorOptions]) -> Stream:
        """One record out for each record in: ``fn(value)``."""
        from operators.basic import MapOperator, operator_of

        check_callable("map", "fn", fn, may_have_state=True)
        return self._transform("map", operator_of(MapOperator, fn), options)

    def flat_map(self, fn: Callable[[Any], Any], **options: Unpack[OperatorOptions]) -> Stream:
        """Any number of records out for each record in: those that ``fn(value)`` returns or yields."""
        from operators.basic import FlatMapOperator, operator_of

        check_callable("flat_map", "fn", fn, may_have_state=True)
        return self._transform("flat-map", operator_of(FlatMapOperator, fn), options)

    def filter(self, fn: Callable[[Any], Any], **options: Unpack[OperatorOptions]) -> Stream:
        """The records for which ``fn(value)`` is true."""
        from operators.basic import FilterOperator, operator_of

        check_callable("filter", "fn", fn, may_have_state=True)
        return self._transform("filter", operator_of(FilterOperator, fn), options)

    def process(
        self,
        function: ProcessFunction
        | type[ProcessFunction]
        | AckingFunction
        | type[AckingFunction]
        | Callable[[Any, Any], Any],
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """The records that a process function emits; it may also emit side outputs.

        ``function`` is a ``ProcessFunction`` (every subtask gets its own copy), its class, or a plain
        ``function(value, context)`` that returns the records or ``None``. An ``AckingFunction`` anchors, acknowledges
        and fails records itself.
        """
        from operators.basic import AckingOperator, ProcessOperator, is_acking, operator_of

        check_callable_or_methods("process", "function", function, "process_element")
        if is_acking(function):
            return self._transform("process", operator_of(AckingOperator, function), options)
        return self._transform("process", operator_of(ProcessOperator, function), options)

    def via(self, transform: StreamTransform | OperatorFactory, **options: Unpack[OperatorOptions]) -> Stream:
        """The output of an operator unknown to the graph.

        ``transform`` is a ``StreamTransform`` or a function that returns a fresh operator. The demands of a transform
        (a parallelism, a partitioner, a key) are met here.
        """
        return self._attach("via", transform, options, NodeRole.TRANSFORM)

    def async_map(
        self,
        function: AsyncFunction | Callable[[Any], Any],
        *,
        ordered: bool = True,
        capacity: int = 100,
        timeout_ms: int | None = None,
        retries: AsyncRetryStrategy | None = None,
        on_timeout: Callable[[Any], Any] | None = None,
        latency_ns: int | Callable[[Any], int] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """The answers of an outside service to each record (Flink: ``AsyncDataStream``).

        ``function`` has ``invoke(record, context) -> AsyncResult``, or is a plain ``fn(record)`` whose answer takes
        ``latency_ns`` (a number, or a function of the record). At most ``capacity`` requests are in flight. They leave
        in the order of their records, or as they come with ``ordered=False``, never across a watermark. A record that
        has no answer after ``timeout_ms``, ``retries`` included, fails the job, or is replaced by the records that
        ``on_timeout(record)`` returns.
        """
        from operators.async_io import async_operator

        factory = async_operator(function, latency_ns, ordered, capacity, timeout_ms, retries, on_timeout)
        stream = self._transform("async-map", factory, options)
        return stream.start_new_chain() if options.get("chain", True) else stream

    # --- whole columns ------------------------------------------------------------------------------------

    def to_columns(
        self, *fields: str, types: Mapping[str, str] | None = None, **options: Unpack[OperatorOptions]
    ) -> Stream:
        """The same records as columns of the named fields: items of tuples, values of dicts, or plain values as one.

        ``types`` declares columns, and names further ones: BIGINT, DOUBLE (which takes ints too), BOOLEAN, STRING or
        BYTES. Others have the type of their values. Without fields, rows are dicts and keep theirs.
        """
        from operators.columns import ToColumnsOperator, check_declared, column_operator

        declared = {**dict.fromkeys(fields), **(types or {})}
        check_names("to_columns", declared)
        check_declared(declared)
        return self._transform("to-columns", column_operator(ToColumnsOperator, declared), options)

    def to_rows(self, *fields: str, **options: Unpack[OperatorOptions]) -> Stream:
        """Records of columns as rows: dicts; with one field its plain values, with several tuples of them."""
        from operators.columns import ToRowsOperator, column_operator

        check_names("to_rows", fields)
        return self._transform("to-rows", column_operator(ToRowsOperator, fields), options)

    def map_columns(
        self, fn: Callable[[dict[str, Any]], Mapping[str, Any]], **options: Unpack[OperatorOptions]
    ) -> Stream:
        """One record out for each record in: the columns ``fn(columns)`` (dicts of numpy arrays).

        ``fn`` is called once for each batch, and a batch may be cut anywhere: it works record by record.
        """
        from operators.columns import MapColumnsOperator, column_operator

        check_callable("map_columns", "fn", fn)
        return self._transform("map-columns", column_operator(MapColumnsOperator, fn), options)

    def filter_columns(self, fn: Callable[[dict[str, Any]], Any], **options: Unpack[OperatorOptions]) -> Stream:
        """The records for which the array of bools ``fn(columns)`` is true."""
        from operators.columns import FilterColumnsOperator, column_operator

        check_callable("filter_columns", "fn", fn)
        return self._transform("filter-columns", column_operator(FilterColumnsOperator, fn), options)

    # --- time ---------------------------------------------------------------------------------------------

    def assign_timestamps(self, timestamp_fn: Callable[[Any], int], **options: Unpack[OperatorOptions]) -> Stream:
        """The same records with event time ``timestamp_fn(value)``, in ms since the epoch, and no watermarks."""
        from operators.time import WatermarkStrategy

        check_callable("assign_timestamps", "timestamp_fn", timestamp_fn)
        strategy = WatermarkStrategy.no_watermarks(timestamp_fn)
        return self.assign_timestamps_and_watermarks(strategy, **options)

    def assign_timestamps_and_watermarks(
        self, strategy: WatermarkStrategy, **options: Unpack[OperatorOptions]
    ) -> Stream:
        """The same records with the event times and watermarks of ``strategy``."""
        from operators.time import TimestampsAndWatermarksOperator, WatermarkStrategy

        check_type("assign_timestamps_and_watermarks", "strategy", strategy, WatermarkStrategy)
        return self._transform("timestamps", partial(TimestampsAndWatermarksOperator, strategy), options)

    def window_all(self, assigner: WindowAssigner) -> AllWindowedStream:
        """Group all records by window; then ``reduce``, ``aggregate`` or ``process`` them, in one subtask.

        (Flink: ``DataStream.windowAll``.) After ``key_by`` use ``window``, which is parallel.
        """
        from engine.graph.windowed_stream import window_all

        return window_all(self, assigner)

    # --- routing: no operator is added --------------------------------------------------------------------

    def key_by(
        self, key: Callable[[Any], Any], *, value: Callable[[Any], Any] | None = None, key_type: KeyType | None = None
    ) -> KeyedStream:
        """Partition by ``key(record)``: records of one key meet in one subtask, in order.

        ``value(record)`` is the part that travels on (the whole record without it). A key is an int, str, bytes,
        bool or a tuple of these. ``key_type`` declares which; otherwise restored state, or else the first key of the
        attempt, decides.
        """
        from engine.graph.keyed_stream import KeyedStream

        check_callable("key_by", "key", key)
        if value is not None:
            check_callable("key_by", "value", value)
        if key_type is not None:
            check_type("key_by", "key_type", key_type, KeyType)
        self._check_partitioner_may_change("key_by")
        return KeyedStream(self._job, self._partitioned(HashPartitioner(key, value, key_type)))

    def key_by_column(self, *fields: str, key_type: KeyType | None = None) -> KeyedStream:
        """Partition by a column, or by several together (a tuple): records of one key meet in one subtask, in order.

        Whole batches are spread at once. The fields stay in the record; the next operator may take columns or rows.
        """
        from engine.graph.column_partitioner import by_columns
        from engine.graph.keyed_stream import KeyedStream

        check_names("key_by_column", fields, at_least=1)
        if key_type is not None:
            check_type("key_by_column", "key_type", key_type, KeyType)
        self._check_partitioner_may_change("key_by_column")
        return KeyedStream(self._job, self._partitioned(by_columns(fields, key_type)))

    def union(self, *others: Stream) -> Stream:
        """The records of this stream and of all ``others``, each in its own order."""
        if not others:
            raise JobGraphError("union: there is no other stream to join; call stream.union(other, ...)")
        outlets = list(self._outlets)
        for other in others:
            check_type("union", "every argument", other, Stream)
            self._check_same_job("union", other)
            outlets.extend(other._outlets)
        return Stream(self._job, tuple(outlets))

    @overload
    def connect(self, other: Stream) -> ConnectedStreams: ...
    @overload
    def connect(self, other: BroadcastStream) -> BroadcastConnectedStream: ...
    def connect(self, other: Stream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """This stream and ``other``, to be read by one operator through an input each.

        The two may carry different things. Connected with a broadcast stream (``other.broadcast(state)``), this one is
        the data.
        """
        from engine.graph.connected_streams import connect

        return connect(self, other)

    def join(self, other: Stream) -> JoinedStreams:
        """Every pair of a record of this stream and one of ``other`` with the same key in the same window::

            orders.join(payments).where(order_id).equal_to(order_of).window(windows).apply(fn)

        (Flink: ``DataStream.join``.) Joins without windows are ``connect(...).key_by(...).join(...)`` and
        ``KeyedStream.interval_join``.
        """
        from engine.graph.joined_streams import JoinedStreams

        return JoinedStreams(self, other, is_join=True)

    def co_group(self, other: Stream) -> JoinedStreams:
        """The records of this stream and those of ``other``, as two lists, by key and window; one may be empty.

        (Flink: ``DataStream.coGroup``.) Written as ``join`` is.
        """
        from engine.graph.joined_streams import JoinedStreams

        return JoinedStreams(self, other, is_join=False)

    def iterate(self, **options: Unpack[OperatorOptions]) -> IterativeStream:
        """These records, and those fed back by ``close_with``: the beginning of a loop.

        ``iteration.close_with(feedback)`` leads a stream of the loop back here (Flink: ``DataStream.iterate``).
        """
        from engine.graph.iterative_stream import iterate

        return iterate(self, options)

    def side_output(self, tag: str) -> Stream:
        """The records that the last operator emits under ``tag``; none when it never does."""
        check_type("side_output", "tag", tag, str)
        outlet = self._only_operator("side_output")
        return Stream(self._job, (Outlet(outlet.node_id, tag),))

    def forward(self) -> Stream:
        """The next edge keeps records in subtask ``i``; both sides must have the same parallelism."""
        return self._with_partitioner("forward", ForwardPartitioner())

    def rebalance(self) -> Stream:
        """The next edge deals records out in turn over all subtasks."""
        return self._with_partitioner("rebalance", RebalancePartitioner())

    def rescale(self) -> Stream:
        """The next edge deals records out in turn over the nearest subtasks only."""
        return self._with_partitioner("rescale", RescalePartitioner())

    @overload
    def broadcast(self) -> Stream: ...
    @overload
    def broadcast(self, state: MapStateDescriptor | str, /, *more: MapStateDescriptor | str) -> BroadcastStream: ...
    def broadcast(self, *states: MapStateDescriptor | str) -> Stream | BroadcastStream:
        """The next edge sends every record to every subtask.

        With states, given by name or as ``MapStateDescriptor``: a broadcast stream that keeps them in the operator
        which ``data.connect(...)`` puts after it (Flink: ``DataStream.broadcast(MapStateDescriptor...)``).
        """
        if not states:
            return self._with_partitioner("broadcast", BroadcastPartitioner())
        from engine.graph.connected_streams import broadcast

        return broadcast(self, states)

    def global_(self) -> Stream:
        """The next edge sends every record to subtask 0."""
        return self._with_partitioner("global_", GlobalPartitioner())

    def partition_custom(self, choose: Callable[[Any, int], int]) -> Stream:
        """The next edge sends a record to subtask ``choose(value, subtasks)``."""
        check_callable("partition_custom", "choose", choose)
        return self._with_partitioner("partition_custom", CustomPartitioner(choose))

    # --- chaining -----------------------------------------------------------------------------------------

    def start_new_chain(self) -> Stream:
        """Let the last operator start a new task; later operators may still be chained to it."""
        return self._chaining("start_new_chain", ChainingStrategy.HEAD)

    def disable_chaining(self) -> Stream:
        """Give the last operator a task of its own (the same as ``chain=False``)."""
        return self._chaining("disable_chaining", ChainingStrategy.NEVER)

    # --- ends ---------------------------------------------------------------------------------------------

    def sink(self, sink: StreamTransform | OperatorFactory | SinkTopology, **options: Unpack[OperatorOptions]) -> Job:
        """End the stream in ``sink``; returns the job, so that a short pipeline is one expression.

        Raises :class:`JobGraphError` when another sink of the job writes files of the same names, its ``part_files``.
        """
        if isinstance(sink, SinkTopology):
            check_options("sink", options)
            sink.add_to(self, options)
        else:
            self._attach("sink", sink, options, NodeRole.SINK)
        return self._job

    def print(self, **options: Unpack[OperatorOptions]) -> Job:
        """End the stream on standard output; printing cannot be taken back, so records reappear after a failure."""
        from operators.basic import PrintSink

        self._attach("print", PrintSink(), options, NodeRole.SINK)
        return self._job

    def collect(self, into: list[Any] | CollectedResults, **options: Unpack[OperatorOptions]) -> Job:
        """End the stream in a list, or a ``CollectedResults``, that is filled as checkpoints complete."""
        from operators.basic import CollectedResults, CollectSink

        if not isinstance(into, CollectedResults):
            check_type("collect", "into", into, list)
        self._attach("collect", CollectSink(into), options, NodeRole.SINK)
        return self._job

    # --- inside -------------------------------------------------------------------------------------------

    def _attach(self, method: str, transform: Any, options: OperatorOptions, role: NodeRole) -> Stream:
        """Add the operator of a ``StreamTransform`` and meet its demands."""
        factory = operator_factory(method, transform)
        self._job.let_share(transform)
        self._job.claim_files(transform)
        kind = operator_stem(method, transform)
        demands = TransformDemands(transform)
        options = demands.merged_into(options, method, f"{kind!r}")
        stream: Stream = self
        if demands.key is not None:
            stream = self.key_by(demands.key, key_type=demands.key_type)
        elif demands.partitioner is not None:
            stream = self._with_partitioner(method, demands.partitioner)
        return stream._transform(kind, factory, options, role=role, requires_key=demands.requires_key)

    def _transform(
        self,
        kind: str,
        factory: OperatorFactory,
        options: OperatorOptions,
        *,
        role: NodeRole = NodeRole.TRANSFORM,
        requires_key: bool = False,
    ) -> Stream:
        """Add an operator and an edge to it from every outlet; returns the stream of its records."""
        check_options(kind, options)
        node_id = self._job.add_operator(kind, factory, options, role=role, requires_key=requires_key)
        self._feed(node_id)
        return Stream(self._job, (Outlet(node_id),))

    def _feed(self, node_id: int, target_input: int = 0) -> None:
        """Add an edge from every outlet to an input of an operator."""
        for outlet in self._outlets:
            self._job.graph.add_edge(
                outlet.node_id,
                node_id,
                partitioner=outlet.partitioner,
                side_tag=outlet.side_tag,
                target_input=target_input,
            )

    def _check_same_job(self, method: str, other: Stream) -> None:
        if other._job is not self._job:
            raise JobGraphError(
                f"{method}: {other!r} belongs to job {other._job.name!r}, {self!r} to {self._job.name!r}\n"
                "  fix: build both from the same Job object; records do not cross jobs"
            )

    def _with_partitioner(self, method: str, partitioner: Partitioner) -> Stream:
        self._check_partitioner_may_change(method)
        return Stream(self._job, self._partitioned(partitioner))

    def _partitioned(self, partitioner: Partitioner) -> tuple[Outlet, ...]:
        return tuple(replace(outlet, partitioner=partitioner) for outlet in self._outlets)

    def _check_partitioner_may_change(self, method: str) -> None:
        """A later partitioner replaces an earlier one; a key must not be lost that way."""
        if any(isinstance(outlet.partitioner, HashPartitioner) for outlet in self._outlets):
            raise JobGraphError(
                f"{method}: {self!r} is partitioned by key already, and {method} would undo that\n"
                "  fix: put an operator between the two, or leave one of them out"
            )

    def _only_operator(self, method: str) -> Outlet:
        """The outlet of a stream that is the plain output of one operator; anything else is refused."""
        outlet = self._outlets[0]
        if len(self._outlets) > 1 or outlet.side_tag is not None or outlet.partitioner is not None:
            raise JobGraphError(
                f"{method}: {self!r} is not the direct output of one operator but a union, a side output or "
                f"a partitioned stream\n  fix: call {method} directly after the operator that is meant"
            )
        return outlet

    def _chaining(self, method: str, strategy: ChainingStrategy) -> Stream:
        self._job.graph.set_chaining(self._only_operator(method).node_id, strategy)
        return self

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in _ONLY_WITH_KEY:
                raise NotKeyedError(
                    f"{name} keeps state per key, but {self!r} has no key\n"
                    f"  fix: call .key_by(...) right before .{name}(...)"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
