"""Random graphs, evaluated: in every order what the graph means, which is worked out in a third way."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import Phase, given, note, settings

from engine.explore.opinion import second_opinion
from engine.explore.run import Subject, World
from operators.basic import CollectedResults
from tests.scenarios.random.random_graphs import Graph, build, describe, graphs, meaning

FEW, MANY = 30, 1_000


def said_of(graph: Graph) -> list[dict[str, Counter[str]]]:
    """The rows of the second opinion in each order that differs, as multisets."""
    subject = Subject(lambda _: build(graph, {at: CollectedResults() for at in graph.sinks}), label="random")
    world = World()
    plan = subject.in_world(subject.plan(), world)
    opinion = second_opinion([plan], world.files, list(world.sinks))
    assert not opinion.unknown, opinion.unknown
    return [{name: Counter(rows) for name, rows in ending.items() if rows} for ending in opinion.endings]


def agree(examples: int) -> int:
    """Search for a graph of which the evaluator says something else than it means; returns how many were tried."""
    tried = 0

    @settings(max_examples=examples, phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink])
    @given(graphs())
    def search(graph: Graph) -> None:
        nonlocal tried
        note(describe(graph))
        meant = {
            str(graph.name(at)): Counter({repr(row): times for row, times in found.items()})
            for at, found in meaning(graph).items()
            if found
        }
        plan = build(graph, {at: CollectedResults() for at in graph.sinks}).plan()
        named = {operator.uid: operator.name for _, operator in plan.operators()}
        (said,) = said_of(graph)
        assert {named[uid]: found for uid, found in said.items()} == meant
        tried += 1

    search()
    return tried


def test_the_evaluator_says_what_random_graphs_mean() -> None:
    """Sources, stateless nodes, counts, joins, windows and timers, spread in every way: one output, the right one."""
    assert agree(FEW) >= FEW


@pytest.mark.slow
def test_the_evaluator_says_what_many_random_graphs_mean() -> None:
    """The same for more of them."""
    assert agree(MANY) >= MANY
