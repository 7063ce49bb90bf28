"""Patterns in the evaluator: the matches of any pattern are those that the automaton finds, in its order."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.explore.opinion import ORDERS
from engine.explore.opinion.elements import Mark, Record, Spec
from engine.explore.opinion.patterns import Patterns
from operators.patterns import Pattern
from operators.patterns.pattern_operator import PatternFunction
from tests.operators.patterns.test_nfa import EVENTS, patterns, run, timed


def found_in(pattern: Pattern, events: list[tuple[Any, int]]) -> list[Any]:
    """The matches in the records of one key, as they leave."""
    given_by_job = {"pattern": pattern, "function": PatternFunction(pattern, True, None, None, None)}
    step = Patterns(Spec("pattern", "pattern", given_by_job, 0, 1, ORDERS[0], keyed=True))
    found: list[Any] = []
    step.outlet.records[None] = [lambda record: found.append(record.value)]
    for value, time_ms in events:
        step.take(Record(value, time_ms, "key"))
    step.take_mark(Mark(MAX_TIMESTAMP_MS))
    return found


@settings(max_examples=150)
@given(patterns(), EVENTS)
def test_both_find_the_same_matches(pattern: Pattern, drawn: list[tuple[str, int]]) -> None:
    """One looks for every sequence anew, the other goes from state to state."""
    events = timed(drawn)
    assert found_in(pattern, events) == run(pattern, events)[0]
