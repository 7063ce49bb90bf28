"""The evaluator's reading of a plan: the arguments of an operator, and the routes of its records."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from engine.explore.opinion.elements import Order, Record, Spec
from engine.graph.plan import EdgePlan, ExecutionPlan, OperatorPlan, VertexPlan
from state_backends.base import key_group_for, operator_index_for_key_group

Place = tuple[int, int]
"""Vertex and position of an operator."""


def spec_of(vertex: VertexPlan, operator: OperatorPlan, subtask: int, order: Order) -> Spec:
    """The operator as declared by the job, taken from its factory: a ``partial`` or a bound method."""
    factory: Any = operator.factory
    kind = getattr(factory, "func", factory)
    name = f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', type(kind).__qualname__)}"
    given = {**given_of(kind, factory), "max_parallelism": vertex.max_parallelism}
    owner = getattr(factory, "__self__", None)
    return Spec(operator.uid, name, given, subtask, vertex.parallelism, order, operator.keyed, owner)


def closure_of(plan: ExecutionPlan, unknown: Mapping[Place, str]) -> dict[Place, str]:
    """The unknown operators and all operators after them, each with the reason."""
    found = dict(unknown)
    waiting = list(unknown)
    while waiting:
        at = waiting.pop()
        operator = plan.vertices[at[0]].operators[at[1]]
        behind = [(at[0], position) for _, position in operator.chained_outputs]
        behind += [(plan.edges[index].target_vertex, 0) for _, index in operator.edge_outputs]
        for one in behind:
            if one not in found:
                found[one] = found[at]
                waiting.append(one)
    return found


def depths_of(plan: ExecutionPlan) -> dict[int, int]:
    """The distance of each vertex from the sources, without feedback edges."""
    depths = dict.fromkeys(range(len(plan.vertices)), 0)
    for _ in plan.vertices:
        for edge in plan.edges:
            if not edge.is_feedback:
                depths[edge.target_vertex] = max(depths[edge.target_vertex], depths[edge.source_vertex] + 1)
    return depths


def given_of(kind: Any, factory: Any) -> dict[str, Any]:
    """The arguments that a class got, by parameter name."""
    if not isinstance(factory, partial):
        return {}
    return dict(inspect.signature(kind).bind_partial(*factory.args, **factory.keywords).arguments)


def route_of(edge: EdgePlan, target: VertexPlan, channels: int) -> Callable[[Record], tuple[Record, list[int]]]:
    """The channels to which a sender gives a record; after ``key_by`` the record gets its key."""
    partitioner: Any = edge.partitioner
    if partitioner.name == "hash":
        select = partitioner.value
        if select is not None:
            # Of a window join: each record carries the number of its side.
            side = _SIDES.get(f"{getattr(select, '__module__', '')}.{getattr(select, '__qualname__', '')}")
            select = select if side is None else partial(_with_side, side)

        def by_key(record: Record) -> tuple[Record, list[int]]:
            key = partitioner.key(record.value)
            value = record.value if select is None else select(record.value)
            group = key_group_for(key, target.max_parallelism, partitioner.key_type)
            owner = operator_index_for_key_group(target.max_parallelism, channels, group)
            return record._replace(key=key, value=value), [owner]

        return by_key
    if partitioner.name == "broadcast":
        return lambda record: (record, list(range(channels)))
    if partitioner.name == "custom":
        return lambda record: (record, [partitioner.choose(record.value, channels)])
    if partitioner.name == "global":
        return lambda record: (record, [0])
    turns = _turns(channels)
    return lambda record: (record, [next(turns)])


_SIDES = {"operators.joins.window_join.tag_first": 1, "operators.joins.window_join.tag_second": 2}


def _with_side(side: int, value: Any) -> tuple[int, Any]:
    return side, value


def _turns(channels: int) -> Iterator[int]:
    while True:
        yield from range(channels)
