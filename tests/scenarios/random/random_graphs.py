"""Random job graphs whose output is known without running them.

A graph is data: nodes in topological order, each with the streams it reads and how their records are spread over its
subtasks. It can be drawn, printed, built into a job as often as needed, given other parallelisms, and *read*:
:func:`meaning` says what every sink must get. That works because each kind of node turns a multiset of records into a
multiset of records, whatever the order in which they come and whichever subtask gets them. A count per key commits
``(key, 1) .. (key, n)``, so it tells of each record whether it was counted never, once or twice.

Records are pairs of ints ``(label, number)``. Stateless nodes change only the label, so a record can be recognised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from engine.graph.job import Job
from engine.graph.stream import Stream
from operators.basic import (
    AggregateFunction,
    CollectedResults,
    KeyedCoProcessFunction,
    KeyedProcessContext,
    KeyedProcessFunction,
)
from operators.sources import GeneratorSource
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows
from tests.scenarios.state_holders import HELD, SHARED, HoldInState

Record = tuple[int, int]
Rows = Counter[Record]

ODD = "odd"
KEYED = ("count", "join", "window", "timer")
IN_EVENT_TIME = ("window", "timer")
WINDOW_MS = 8
TIMER_MS = 5
MOST_ROWS = 300
"""A node whose output would be larger is not drawn."""

SPREADS: dict[str, Callable[[Stream], Stream]] = {
    "any": lambda stream: stream,
    "forward": Stream.forward,
    "rebalance": Stream.rebalance,
    "rescale": Stream.rescale,
    "broadcast": Stream.broadcast,
    "global": Stream.global_,
    "custom": lambda stream: stream.partition_custom(lambda record, subtasks: (record[1] * 7 + 3) % subtasks),
}
"""How the records of an edge are spread, apart from the hash edges that keyed nodes make themselves."""


@dataclass(frozen=True)
class Edge:
    """A stream that a node reads: the output of an earlier node, or its side output."""

    node: int
    tag: str | None = None
    spread: str = "any"


@dataclass(frozen=True)
class Node:
    """One operator. ``size``: records of a source, keys of a keyed node."""

    kind: str
    inputs: tuple[Edge, ...] = ()
    parallelism: int = 1
    chain: bool = True
    size: int = 0
    splits: int = 1
    rate_per_s: int | None = None
    timed: bool = False
    """Whether the event times of its records are their numbers."""


@dataclass(frozen=True)
class Graph:
    """A job as data."""

    nodes: tuple[Node, ...]
    max_parallelism: int | None = None

    def with_parallelism(self, parallelism: Mapping[int, int]) -> Graph:
        """The same graph with other numbers of subtasks."""
        numbers = [parallelism.get(at, node.parallelism) for at, node in enumerate(self.nodes)]
        changed = [replace(node, parallelism=number) for node, number in zip(self.nodes, numbers, strict=True)]
        return replace(self, nodes=tuple(changed))

    def name(self, at: int) -> str:
        return f"{self.nodes[at].kind} {at}"

    @property
    def sinks(self) -> tuple[int, ...]:
        return tuple(at for at, node in enumerate(self.nodes) if node.kind == "sink")


# --- what nodes do ----------------------------------------------------------------------------------------------------


def _relabel(record: Record) -> Record:
    return record[0] + 1, record[1]


def _twice_if_even(record: Record) -> list[Record]:
    return [record] if record[1] % 2 else [record, (record[0] + 100, record[1])]


def _is_kept(record: Record) -> bool:
    return record[1] % 3 != 0


def _split(record: Record, context: Any) -> list[Record]:
    if record[1] % 2:
        context.side_output(ODD, record)
        return []
    return [record]


def _each(rows: Rows, change: Callable[[Record], list[Record]]) -> Rows:
    changed: Rows = Counter()
    for record, times in rows.items():
        for one in change(record):
            changed[one] += times
    return changed


def _counted(rows: Rows, keys: int) -> Rows:
    sizes: Counter[int] = Counter()
    for (_, number), times in rows.items():
        sizes[number % keys] += times
    return Counter((key, count) for key, size in sizes.items() for count in range(1, size + 1))


def _windowed(rows: Rows, keys: int) -> Rows:
    sizes: Counter[tuple[int, int]] = Counter()
    for (_, number), times in rows.items():
        sizes[number % keys, number // WINDOW_MS * WINDOW_MS] += times
    return Counter((start * 1_000 + key, count) for (key, start), count in sizes.items())


class Remind(KeyedProcessFunction):
    """A record per key and time of a timer; timers that are equal are one."""

    def process_element(self, value: Record, ctx: KeyedProcessContext) -> None:
        ctx.register_event_time_timer(value[1] + TIMER_MS)

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> list[Record]:
        return [(ctx.current_key, timestamp_ms)]


def _reminded(rows: Rows, keys: int) -> Rows:
    return Counter({(number % keys, number + TIMER_MS) for _, number in rows})


class Join(KeyedCoProcessFunction):
    """A record for each pair of equal numbers, one from either side, whichever comes first."""

    def open(self, ctx: KeyedProcessContext) -> None:
        self.seen = ctx.map_state("seen")

    def _meet(self, number: int, side: int, ctx: KeyedProcessContext) -> list[Record]:
        here, there = self.seen.get((side, number)) or 0, self.seen.get((1 - side, number)) or 0
        self.seen.put((side, number), here + 1)
        return [(ctx.current_key, number)] * there

    def process_element1(self, value: Record, ctx: KeyedProcessContext) -> list[Record]:
        return self._meet(value[1], 0, ctx)

    def process_element2(self, value: Record, ctx: KeyedProcessContext) -> list[Record]:
        return self._meet(value[1], 1, ctx)


def _joined(first: Rows, second: Rows, keys: int) -> Rows:
    left, right = _numbers(first), _numbers(second)
    return Counter({(number % keys, number): times * right[number] for number, times in left.items() if right[number]})


def _numbers(rows: Rows) -> Counter[int]:
    numbers: Counter[int] = Counter()
    for (_, number), times in rows.items():
        numbers[number] += times
    return numbers


def _output(node: Node, at: int, rows: Rows) -> dict[str | None, Rows]:
    """The output of a node for all its input together, by side output."""
    match node.kind:
        case "source":
            return {None: Counter((at, number) for number in range(node.size))}
        case "map":
            return {None: _each(rows, lambda record: [_relabel(record)])}
        case "filter":
            return {None: _each(rows, lambda record: [record] if _is_kept(record) else [])}
        case "flat map":
            return {None: _each(rows, _twice_if_even)}
        case "split":
            odd = _each(rows, lambda record: [record] if record[1] % 2 else [])
            return {None: rows - odd, ODD: odd}
        case "count":
            return {None: _counted(rows, node.size)}
        case "window":
            return {None: _windowed(rows, node.size)}
        case "timer":
            return {None: _reminded(rows, node.size)}
        case _:
            return {None: rows}


def meaning(graph: Graph, extra: Mapping[int, Rows] | None = None) -> dict[int, Rows]:
    """The records of every sink. ``extra``: records that nodes get besides those of the nodes before them, by node."""
    outputs: list[dict[str | None, Rows]] = []
    got: dict[int, Rows] = {}
    for at, node in enumerate(graph.nodes):
        rows: Rows = Counter((extra or {}).get(at, {}))
        read: list[Rows] = []
        for edge in node.inputs:
            sent = outputs[edge.node].get(edge.tag, Counter())
            copies = node.parallelism if edge.spread == "broadcast" and node.kind not in SHARED else 1
            read.append(Counter({record: times * copies for record, times in sent.items()}))
            rows.update(read[-1])
        if node.kind == "join":
            outputs.append({None: _joined(read[0], sum(read[1:], Counter()), node.size)})
        else:
            outputs.append(_output(node, at, rows))
        if node.kind == "sink":
            got[at] = rows
    return got


# --- building ---------------------------------------------------------------------------------------------------------


def _add_source(job: Job, graph: Graph, at: int) -> Stream:
    node = graph.nodes[at]
    source = GeneratorSource(
        lambda first, last: [(at, number) for number in range(first, last)], node.size, node.splits, node.rate_per_s
    )
    watermarks = WatermarkStrategy.for_monotonous_timestamps(lambda record: record[1])
    options: dict[str, Any] = {"name": graph.name(at), "parallelism": node.parallelism, "chain": node.chain}
    return job.source(source, watermarks=replace(watermarks, interval_ns=3_000), **options)


def _add(stream: Stream, graph: Graph, at: int, results: CollectedResults | None) -> Stream | None:
    node = graph.nodes[at]
    keys = node.size
    options: dict[str, Any] = {"name": graph.name(at), "parallelism": node.parallelism, "chain": node.chain}
    match node.kind:
        case "map":
            return stream.map(_relabel, **options)
        case "filter":
            return stream.filter(_is_kept, **options)
        case "flat map":
            return stream.flat_map(_twice_if_even, **options)
        case "split":
            return stream.process(_split, **options)
        case "count":
            one_more = AggregateFunction(lambda: 0, lambda count, _: count + 1, lambda count: count)
            return stream.key_by(lambda record: record[1] % keys).aggregate(one_more, **options)
        case "window":
            one_more = AggregateFunction(lambda: 0, lambda count, _: count + 1, lambda count: count)
            windows = stream.key_by(lambda record: record[1] % keys).window(TumblingEventTimeWindows(WINDOW_MS))
            return windows.aggregate(
                one_more, lambda key, window, count: (window.start * 1_000 + key, count), **options
            )
        case "timer":
            return stream.key_by(lambda record: record[1] % keys).process(Remind, **options)
        case "sink":
            assert results is not None
            stream.collect(results, **options)
            return None
        case _:
            assert node.kind in HELD, node.kind
            return stream.via(HoldInState(node.kind), **options)


def _merged(streams: list[Stream]) -> Stream:
    return streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]


def _join(first: Stream, second: Stream, graph: Graph, at: int) -> Stream:
    node = graph.nodes[at]
    keys = node.size
    connected = first.connect(second).key_by(lambda record: record[1] % keys, lambda record: record[1] % keys)
    return connected.process(Join, name=graph.name(at), parallelism=node.parallelism, chain=node.chain)


def build(graph: Graph, results: Mapping[int, CollectedResults], name: str = "random") -> Job:
    """The job; every sink commits to its own ``results``."""
    job = Job(name, max_parallelism=graph.max_parallelism)
    streams: list[Stream | None] = []
    for at, node in enumerate(graph.nodes):
        if node.kind == "source":
            streams.append(_add_source(job, graph, at))
            continue
        inputs = []
        for edge in node.inputs:
            stream = streams[edge.node]
            assert stream is not None
            inputs.append(SPREADS[edge.spread](stream if edge.tag is None else stream.side_output(edge.tag)))
        if node.kind == "join":
            streams.append(_join(inputs[0], _merged(inputs[1:]), graph, at))
        else:
            streams.append(_add(_merged(inputs), graph, at, results.get(at)))
    return job


# --- drawing ----------------------------------------------------------------------------------------------------------

_STATELESS = ("map", "map", "filter", "flat map", "split")
_SPREAD_NAMES = ("any", "any", "forward", "rebalance", "rebalance", "rescale", "broadcast", "global", "custom")


class _Drawing:
    """A graph in the making: its streams so far, and the number of records in each."""

    def __init__(self, draw: st.DrawFn, spreads: tuple[str, ...], most_subtasks: int) -> None:
        self.draw = draw
        self.nodes: list[Node] = []
        self.unread: list[Edge] = []
        self._spreads = spreads
        self._most_subtasks = most_subtasks

    def add(self, node: Node) -> None:
        at = len(self.nodes)
        self.nodes.append(node)
        if node.kind != "sink":
            self.unread.append(Edge(at))
        if node.kind == "split":
            self.unread.append(Edge(at, ODD))

    def rows_of(self, node: Node) -> int:
        """How many records a node would get, or send."""
        at = len(self.nodes)
        got = meaning(Graph((*self.nodes, replace(node, kind="sink"))))[at]
        sent = meaning(Graph((*self.nodes, node, Node("sink", (Edge(at),)))))[at + 1]
        return max(got.total(), sent.total())

    def add_source(self) -> None:
        draw = self.draw
        self.add(
            Node(
                "source",
                parallelism=draw(st.integers(1, min(2, self._most_subtasks))),
                size=draw(st.sampled_from((1, 0, 20, 40, 60))),
                splits=draw(st.integers(1, 3)),
                rate_per_s=draw(st.sampled_from((None, None, None, 500_000))),
                timed=True,
                chain=draw(st.booleans()),
            )
        )

    def read(self, parallelism: int, kind: str) -> tuple[Edge, ...]:
        """Some streams, not all of them unread, for a node of this parallelism."""
        draw = self.draw
        edges: dict[tuple[int, str | None], Edge] = {}
        for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
            everything = self.unread or [Edge(at) for at, node in enumerate(self.nodes) if node.kind != "sink"]
            edge = draw(st.sampled_from(everything))
            # A stream may be read again, which makes fan-outs and diamonds.
            if draw(st.integers(0, 2)) and edge in self.unread:
                self.unread.remove(edge)
            spread = "any" if kind in KEYED else draw(st.sampled_from(self._spreads))
            if kind in SHARED:
                spread = "broadcast"
            elif spread == "forward" and self.nodes[edge.node].parallelism != parallelism:
                spread = "rebalance"
            edges[edge.node, edge.tag] = replace(edge, spread=spread)
        return tuple(edges.values())

    def add_node(self, kinds: tuple[str, ...]) -> None:
        draw = self.draw
        kind = draw(st.sampled_from(kinds))
        parallelism = draw(st.integers(1, self._most_subtasks))
        before = list(self.unread)
        inputs = self.read(parallelism, kind)
        timed = all(self.nodes[edge.node].timed for edge in inputs)
        if (kind in IN_EVENT_TIME and not timed) or (kind == "join" and len(inputs) < 2):
            kind = "count"
        node = Node(
            kind,
            inputs,
            parallelism,
            draw(st.booleans()),
            size=draw(st.integers(1, 5)),
            timed=timed and kind not in (*KEYED, *HELD),
        )
        if self.rows_of(node) > MOST_ROWS:
            self.unread = before
        else:
            self.add(node)

    def add_sinks(self) -> None:
        """Every output without a reader is committed."""
        for edge in list(self.unread):
            parallelism = self.draw(st.integers(1, self._most_subtasks))
            self.add(Node("sink", (replace(edge, spread="rebalance"),), parallelism, self.draw(st.booleans())))
        self.unread.clear()


@st.composite
def graphs(
    draw: st.DrawFn,
    *,
    keyed: tuple[str, ...] = ("count", "count", "join", *IN_EVENT_TIME),
    spreads: tuple[str, ...] = _SPREAD_NAMES,
    stateless: tuple[str, ...] = _STATELESS,
    most_nodes: int = 6,
    most_subtasks: int = 3,
) -> Graph:
    """Sources, a few nodes downstream of them and of each other, and a sink for each output without a reader."""
    drawing = _Drawing(draw, spreads, most_subtasks)
    for _ in range(draw(st.integers(1, 3))):
        drawing.add_source()
    for _ in range(draw(st.integers(1, most_nodes))):
        drawing.add_node((*stateless, *keyed))
    drawing.add_sinks()
    return Graph(tuple(drawing.nodes), draw(st.sampled_from((None, None, 4, 16))))


def _forward_groups(graph: Graph) -> list[list[int]]:
    """Nodes that forward edges tie together: they must keep one parallelism."""
    group = list(range(len(graph.nodes)))
    for at, node in enumerate(graph.nodes):
        for edge in node.inputs:
            if edge.spread == "forward":
                joined, kept = group[at], group[edge.node]
                group = [kept if one == joined else one for one in group]
    return [[at for at, one in enumerate(group) if one == number] for number in sorted(set(group))]


@st.composite
def rescaled(draw: st.DrawFn, graph: Graph, most_subtasks: int = 4) -> Graph:
    """The same graph with other parallelisms, of some nodes or of all."""
    parallelism: dict[int, int] = {}
    for members in _forward_groups(graph):
        if draw(st.integers(0, 3)):
            number = draw(st.integers(1, most_subtasks))
            parallelism.update(dict.fromkeys(members, number))
    return graph.with_parallelism(parallelism)


RESCALABLE = ("forward", "rebalance", "rebalance", "rescale", "global", "custom")
"""Ways to spread records that mean the same whatever the parallelism."""

STATEFUL = ("count", "count", "join", *IN_EVENT_TIME, *HELD)
"""Kinds whose output depends on their whole state."""


def describe(graph: Graph) -> str:
    """A graph in a few lines, for a person who has to understand a failure."""
    lines = []
    for at, node in enumerate(graph.nodes):
        inputs = ", ".join(f"{one.node}{'/' + one.tag if one.tag else ''} {one.spread}" for one in node.inputs)
        lines.append(f"{graph.name(at)} x{node.parallelism}{'' if node.chain else ' unchained'} <- {inputs}")
    return "\n".join(lines)
