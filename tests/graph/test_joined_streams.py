"""Joins, ranks, patterns and requests in the fluent API: what is built, and what is refused where it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError, JobGraphError
from engine.graph.chaining import build_chains
from engine.graph.job import Job
from engine.graph.stream import Stream
from operators.patterns import Pattern
from operators.sources import CollectionSource
from operators.windows import CountTrigger, EventTimeSessionWindows, TumblingEventTimeWindows


def first(record: Any) -> Any:
    return record[0]


def streams() -> tuple[Stream, Stream]:
    job = Job("joined")
    return job.source(CollectionSource([]), name="a"), job.source(CollectionSource([]), name="b")


def test_a_window_join_is_one_keyed_operator_with_edges_from_both() -> None:
    """Both sides go into one input, partitioned by their own keys; nothing stands between."""
    a, b = streams()
    joined = a.join(b).where(first).equal_to(first).window(TumblingEventTimeWindows.of(10))
    joined.allowed_lateness(5).side_output_late("late").trigger(CountTrigger.of(2)).apply(lambda x, y: x, name="both")
    graph = a._job.graph
    nodes = {graph.name_of(node.id): node.id for node in graph.nodes()}
    assert sorted(nodes) == ["a", "b", "both"]
    edges = graph.in_edges(nodes["both"])
    assert [graph.name_of(edge.source) for edge in edges] == ["a", "b"]
    assert {edge.target_input for edge in edges} == {0}


def test_an_asynchronous_operator_is_the_head_of_its_chain() -> None:
    """Operators before it run in another task, which feels it as backpressure; operators after it are chained to it."""
    a, b = streams()
    asked = a.map(first, name="before").async_map(first, latency_ns=1, name="ask")
    asked.map(first, name="behind").collect([], name="o")
    b.async_map(first, latency_ns=1, name="alone", chain=False).collect([], name="p")
    names = [chain.name for chain in build_chains(a._job.graph)]
    assert "a -> before" in names
    assert "ask -> behind -> o" in names
    assert "alone" in names


REFUSED: list[tuple[Callable[[Stream, Stream], Any], str]] = [
    (lambda a, b: a.join(3), "must be of type Stream"),  # type: ignore[arg-type]
    (lambda a, b: a.key_by(first).join(b), "has a key already"),
    (lambda a, b: a.co_group(b.key_by(first)), "has a key already"),
    (lambda a, b: a.join(streams()[0]), "belongs to job"),
    (lambda a, b: a.join(b).where(3), "must be a function"),  # type: ignore[arg-type]
    (lambda a, b: a.join(b).where(first).equal_to(3), "must be a function"),  # type: ignore[arg-type]
    (lambda a, b: a.join(b).where(first).equal_to(first).window(3), "WindowAssigner"),  # type: ignore[arg-type]
    (
        lambda a, b: a.join(b).where(first).equal_to(first).window(EventTimeSessionWindows.with_gap(1)).apply(3),  # type: ignore[arg-type]
        "must be a function",
    ),
    (lambda a, b: a.interval_join(b), r"call .key_by"),  # type: ignore[attr-defined]
    (lambda a, b: a.key_by(first).interval_join(b), "has no key"),  # type: ignore[arg-type]
    (lambda a, b: a.key_by(first).interval_join(b.key_by(first)).apply(max), r"between"),
    (lambda a, b: a.key_by(first).interval_join(b.key_by(first)).between(2, 1).apply(max), "nothing lies between"),
    (lambda a, b: a.key_by(first).interval_join(b.key_by(first)).side_output_late_left(1), "must be of type str"),  # type: ignore[arg-type]
    (lambda a, b: a.connect(b).join(), "has no key"),
    (lambda a, b: a.connect(b).key_by(first, first).join("outer"), "kind must be"),
    (lambda a, b: a.connect(b).key_by(first, first).join(condition=3), "must be a function"),  # type: ignore[arg-type]
    (lambda a, b: a.deduplicate(), r"call .key_by"),  # type: ignore[attr-defined]
    (lambda a, b: a.key_by(first).deduplicate("middle"), "keep must be"),
    (lambda a, b: a.top_n(1, first), r"call .key_by"),  # type: ignore[attr-defined]
    (lambda a, b: a.key_by(first).top_n(0, first), "n is 0; it must be"),
    (lambda a, b: a.key_by(first).top_n(1, "price"), "must be a function"),  # type: ignore[arg-type]
    (lambda a, b: a.pattern(Pattern.begin("x")), r"call .key_by"),  # type: ignore[attr-defined]
    (lambda a, b: a.key_by(first).pattern("x"), "must be of type Pattern"),  # type: ignore[arg-type]
    (lambda a, b: a.key_by(first).pattern(Pattern.begin("x").optional()), "optional"),
    (lambda a, b: a.async_map(first), "latency_ns="),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_makes_no_sense_is_refused_where_it_is_written(number: int) -> None:
    """The error says what is wrong; no run is needed to see it."""
    build, message = REFUSED[number]
    with pytest.raises((JobGraphError, ConfigurationError), match=message):
        build(*streams())
