"""The loops of a plan: subtasks whose records can return to them over a feedback edge. Plain data.

Iterations that are nested, or share a vertex, are one loop: none of them can end before the others, because each may
send records to the others. If pointwise edges keep groups of subtasks apart all the way round, each group is a loop of
its own. So a failover region contains each loop completely or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.graph.plan import ExecutionPlan

Subtask = tuple[int, int]
"""Vertex and number."""


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """One loop.

    ``subtasks``  the subtasks in the circle, in plan order;
    ``channels``  indices of the channels between them, on feedback edges and on others;
    ``inputs``    indices of the channels that lead into the loop from outside.
    """

    subtasks: tuple[Subtask, ...]
    channels: tuple[int, ...]
    inputs: tuple[int, ...]


def find_loops(plan: ExecutionPlan) -> tuple[LoopPlan, ...]:
    """The loops of a plan, ordered by their first subtask. No two loops share a subtask."""
    loops: list[LoopPlan] = []
    for vertices in _loops_of_vertices(plan):
        loops += _connected_parts(plan, vertices)
    return tuple(sorted(loops, key=lambda loop: loop.subtasks))


def _loops_of_vertices(plan: ExecutionPlan) -> Iterable[tuple[int, ...]]:
    """Vertices that reach each other, in plan order; every cycle goes through the head of a feedback edge."""
    found: dict[tuple[int, ...], None] = {}
    for head in sorted({edge.target_vertex for edge in plan.edges if edge.is_feedback}):
        behind = _reached(head, ((edge.source_vertex, edge.target_vertex) for edge in plan.edges))
        before = _reached(head, ((edge.target_vertex, edge.source_vertex) for edge in plan.edges))
        found[tuple(sorted(behind.intersection(before)))] = None
    return found


def _reached(start: int, edges: Iterable[tuple[int, int]]) -> set[int]:
    """``start`` and every vertex that can be reached from there."""
    behind: dict[int, list[int]] = {}
    for source, target in edges:
        behind.setdefault(source, []).append(target)
    reached, pending = {start}, [start]
    while pending:
        for target in behind.get(pending.pop(), ()):
            if target not in reached:
                reached.add(target)
                pending.append(target)
    return reached


def _connected_parts(plan: ExecutionPlan, vertices: tuple[int, ...]) -> Iterable[LoopPlan]:
    """The subtasks of these vertices, apart where no channel between the vertices joins them."""
    leader = {
        (subtask.vertex, subtask.subtask): (subtask.vertex, subtask.subtask)
        for subtask in plan.subtasks
        if subtask.vertex in vertices
    }

    def leader_of(subtask: Subtask) -> Subtask:
        while leader[subtask] != subtask:
            leader[subtask] = subtask = leader[leader[subtask]]
        return subtask

    inside: list[tuple[int, Subtask]] = []
    inputs: list[tuple[int, Subtask]] = []
    for channel in plan.channels:
        sender = (channel.sender_vertex, channel.sender_subtask)
        receiver = (channel.receiver_vertex, channel.receiver_subtask)
        if sender in leader and receiver in leader:
            inside.append((channel.index, receiver))
            one, other = leader_of(sender), leader_of(receiver)
            leader[max(one, other)] = min(one, other)
        elif receiver in leader:
            inputs.append((channel.index, receiver))
    parts: dict[Subtask, tuple[list[Subtask], list[int], list[int]]] = {}
    for subtask in leader:
        parts.setdefault(leader_of(subtask), ([], [], []))[0].append(subtask)
    for index, receiver in inside:
        parts[leader_of(receiver)][1].append(index)
    for index, receiver in inputs:
        parts[leader_of(receiver)][2].append(index)
    return [
        LoopPlan(tuple(subtasks), tuple(between), tuple(entering)) for subtasks, between, entering in parts.values()
    ]
