"""The queue of asynchronous requests: the order in which answers and events leave."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from operators.async_io.element_queue import ElementQueue, QueuedRecord


def shown(elements: list[Any]) -> list[Any]:
    return [element.value if isinstance(element, QueuedRecord) else element for element in elements]


def leave(queue: ElementQueue) -> list[Any]:
    left = shown(list(queue.leaving()))
    queue.validate()
    return left


def test_in_order_an_answer_waits_for_those_before_it() -> None:
    """Events wait, too."""
    queue = ElementQueue(ordered=True)
    first, second = queue.put("a", 1), queue.put("b", 2)
    queue.put_event("w")
    queue.settle(second, ())
    assert leave(queue) == []
    assert len(queue) == 2
    queue.settle(first, ())
    assert leave(queue) == ["a", "b", "w"]
    assert queue.is_empty


def test_out_of_order_an_answer_waits_for_events_only() -> None:
    """After an event, the answers that have come leave in the order in which they came."""
    queue = ElementQueue(ordered=False)
    first, second = queue.put("a", 1), queue.put("b", 2)
    queue.put_event("w")
    third, fourth = queue.put("c", 3), queue.put("d", 4)
    for entry in (fourth, second, third):
        queue.settle(entry, ())
    assert leave(queue) == ["b"]
    assert [entry.value for entry in queue.entries()] == ["a", "c", "d"]
    queue.settle(first, ())
    assert leave(queue) == ["a", "w", "d", "c"]
    assert queue.is_empty


def test_a_queue_with_nothing_but_an_event_is_not_empty() -> None:
    """It is empty once the event has left."""
    queue = ElementQueue(ordered=False)
    queue.put_event("w")
    assert not queue.is_empty
    assert leave(queue) == ["w"]
    assert queue.is_empty


def test_nothing_is_answered_twice() -> None:
    """That would be a bug of the operator."""
    queue = ElementQueue(ordered=True)
    entry = queue.put("a", None)
    queue.settle(entry, ())
    with pytest.raises(AssertionError):
        queue.settle(entry, ())


STEPS = st.lists(st.one_of(st.just("put"), st.just("event"), st.integers(0, 5)), max_size=30)


@given(STEPS, st.booleans())
def test_everything_leaves_once_and_nothing_crosses_an_event(steps: list[Any], ordered: bool) -> None:
    """Against a list: in order it is the longest answered beginning; else what is answered before the first event that
    has something unanswered before it, in the order of the answers."""
    queue = ElementQueue(ordered=ordered)
    model: list[Any] = []
    answers: list[QueuedRecord] = []
    pending: list[QueuedRecord] = []
    number = 0
    for step in [*steps, *[0] * len(steps)]:
        if step == "put":
            number += 1
            entry = queue.put(number, None)
            model.append(entry)
            pending.append(entry)
        elif step == "event":
            number += 1
            queue.put_event(("event", number))
            model.append(("event", number))
        elif pending:
            entry = pending.pop(step % len(pending))
            queue.settle(entry, ())
            answers.append(entry)
        wanted: list[Any] = []
        while model:
            size = next((at for at, one in enumerate(model) if not isinstance(one, QueuedRecord)), len(model))
            segment = model[:size]
            if ordered:
                ready = []
                for entry in segment:
                    if not entry.is_settled:
                        break
                    ready.append(entry)
            else:
                ready = [entry for entry in answers if entry in segment]
            wanted += ready
            model = [one for one in model if one not in ready]
            if len(ready) < size or not model:
                break
            wanted.append(model.pop(0))
        assert leave(queue) == shown(wanted)
        records = [one.value for one in model if isinstance(one, QueuedRecord)]
        assert [entry.value for entry in queue.entries()] == records
    assert queue.is_empty


@pytest.mark.parametrize("ordered", [True, False])
def test_what_has_left_is_forgotten_though_the_queue_is_never_empty(ordered: bool) -> None:
    """Without watermarks each record follows another: the queue equals one that holds only the last record."""
    queue = ElementQueue(ordered=ordered)
    last = queue.put(0, None)
    for number in range(1, 5):
        first, last = last, queue.put(number, None)
        queue.settle(first, (number,))
        assert list(queue.leaving()) == [first]
        queue.validate()
    alone = ElementQueue(ordered=ordered)
    alone.put(4, None)
    assert queue.fingerprint() == alone.fingerprint()


def test_answers_that_wait_tell_queues_apart() -> None:
    """In order, an answer waits for those before it, and is part of what will leave."""
    fingerprints = []
    for answer in (None, (1,), (2,)):
        queue = ElementQueue(ordered=True)
        queue.put("first", None)
        second = queue.put("second", None)
        if answer is not None:
            queue.settle(second, answer)
        fingerprints.append(queue.fingerprint())
    assert len(dict.fromkeys(fingerprints)) == 3
