"""The calls that listeners of sources receive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.source import SourceContext
from operators.sources import SequenceSource, SourceOperator
from operators.sources.source_context import CompletedPositions
from tests.operators.harness import Harness


class Recorder:
    def __init__(self) -> None:
        self.heard: list[tuple[int, dict[str, Any]]] = []
        self.closed = 0

    def notify_checkpoint_complete(self, checkpoint_id: int, positions: Mapping[str, Any]) -> None:
        self.heard.append((checkpoint_id, dict(positions)))

    def close(self) -> None:
        self.closed += 1


class HeardSource(SequenceSource):
    """Has a listener."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.recorder = Recorder()

    def checkpoint_listener(self, context: SourceContext) -> Recorder:
        return self.recorder


def test_splits_that_have_ended_are_told_of_too() -> None:
    """Their last position is in every later checkpoint; a split that has not begun has none."""
    spec = HeardSource(0, 4, splits=2)
    task = Harness(SourceOperator(spec, records_per_turn=2))
    operator = task.operator
    assert isinstance(operator, SourceOperator)
    operator.emit_next(1)
    task.snapshot(1)
    while operator.emit_next(10) is not None:
        pass
    task.snapshot(2)
    task.complete(1)
    task.complete(2)
    (first, early), (second, late) = spec.recorder.heard
    assert (first, second) == (1, 2)
    assert len(early) == 1
    assert len(late) == 2
    task.close()
    task.close()
    assert spec.recorder.closed == 1


class UnheardSource(SequenceSource):
    """Could have a listener, and has none."""

    def checkpoint_listener(self, context: SourceContext) -> None:
        """See the contract."""


@pytest.mark.parametrize("source", [SequenceSource(0, 4), UnheardSource(0, 4)])
def test_a_source_without_a_listener_notes_no_positions(source: SequenceSource) -> None:
    """Checkpoints are taken, completed and aborted, and no positions accumulate."""
    task = Harness(SourceOperator(source))
    operator = task.operator
    assert isinstance(operator, SourceOperator)
    for number in range(1, 4):
        operator.emit_next(1)
        task.snapshot(number)
    task.complete(2)
    operator.notify_checkpoint_aborted(3)
    assert operator._completed is None
    task.close()


@given(st.lists(st.tuples(st.sampled_from(["snapshot", "complete", "abort"]), st.integers(1, 6)), max_size=20))
def test_what_is_heard_is_in_order_and_of_that_checkpoint(script: list[tuple[str, int]]) -> None:
    """Whatever news come in whatever order: numbers rise, each with the positions of its own snapshot."""
    spec = HeardSource(0, 1)
    positions = CompletedPositions(spec.checkpoint_listener(None))
    taken: dict[int, int] = {}
    aborted: set[int] = set()
    newest = 0
    for at, (kind, number) in enumerate(script):
        if kind == "snapshot":
            if taken and number <= max(taken):
                continue
            taken[number] = at
            positions.note(number, [("s", at), ("unread", None)])
        elif kind == "complete":
            positions.completed(number)
            newest = max(newest, number)
        else:
            positions.aborted(number)
            aborted.add(number)
    heard = [number for number, _ in spec.recorder.heard]
    assert heard == sorted(set(heard))
    assert all(content == {"s": taken[number]} for number, content in spec.recorder.heard)
    waiting = positions.fingerprint()
    assert isinstance(waiting, list)
    assert all(number > newest or number in taken for number, _ in waiting)
