"""V3, V4, V5 and V11: cuts, barriers, order of checkpoints, and time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.checkpoint.barriers import BlockChannel, ResumeChannels
from engine.checkpoint.barriers.alignment import BarrierAlignment
from engine.explore.invariants import invariants_for
from engine.explore.run import run_case
from engine.faults.fault import parse_fault
from engine.observe.trace_events import (
    ChannelResumed,
    CheckpointCut,
    CheckpointTriggered,
    Receive,
    ReportIgnored,
    Send,
    SnapshotTaken,
    TimerFired,
)
from tests.explore.invariants.support import carried_out, found, healthy, subject, texts, told, usual

# Channels of the job: numbers[0] and [1] to count[0] and [1] are 0 to 3, count[0] and [1] to out[0] are 4 and 5.
FIRST, SECOND = 4, 5


def barrier(channel: int, number: int, attempt: int = 1) -> Receive:
    return Receive(1, attempt, channel, 1, "CheckpointBarrier", 0, number, 0)


def records(channel: int, attempt: int = 1) -> Receive:
    return Receive(2, attempt, channel, 2, "records", 1, None, 0)


def cancel(channel: int, number: int) -> Receive:
    return Receive(3, 1, channel, 3, "CancelCheckpointMarker", 0, number, 0)


def test_the_channels_are_those_that_these_tests_speak_of() -> None:
    """The forged events name channels of the plan."""
    names = [channel.name for task in healthy().view.execution.manager.tasks.values() for channel in task.inputs]
    assert [names[-2], names[-1]] == ["count[0]->out[0]", "count[1]->out[0]"]


# --- V3 ---------------------------------------------------------------------------------------------------------------


def cut(*differences: tuple[int, int, int]) -> CheckpointCut:
    """A completed checkpoint whose counters differ like this."""
    return CheckpointCut(1, 1, 1, 6, 10, differences)


def test_a_cut_is_consistent_or_says_what_would_become_of_records() -> None:
    """Received and not sent: counted twice; sent and not received: lost."""
    assert texts(told("V3", cut())) == []
    assert texts(told("V3", cut((4, 3, 5)))) == [
        "checkpoint 1 is no consistent cut of count[0]->out[0]: 3 records were sent before it and 5 received or stored;"
        " 2 would be counted twice"
    ]
    assert "1 would be lost" in texts(told("V3", cut((5, 3, 2))))[0]


def test_at_least_once_may_count_twice_and_may_not_lose() -> None:
    """The mode allows orphans; it does not allow losses."""
    view = healthy(mode="at-least-once").view
    assert texts(told("V3", cut((4, 3, 5)), view=view)) == []
    assert "would be lost" in texts(told("V3", cut((4, 5, 3)), view=view))[0]


# --- V4 ---------------------------------------------------------------------------------------------------------------


def test_records_behind_a_barrier_wait_for_the_other_barriers() -> None:
    """Taken before the last barrier is here, they are a violation; after it they are not."""
    assert texts(told("V4", barrier(FIRST, 1), records(SECOND), barrier(SECOND, 1), records(FIRST))) == []
    assert texts(told("V4", barrier(FIRST, 1), records(FIRST))) == [
        "out[0] takes 1 record(s) from count[0]->out[0] sent after barrier 1, before its snapshot: the barrier has not"
        " come on count[1]->out[0]"
    ]


@pytest.mark.parametrize(
    "between",
    [cancel(SECOND, 1), cancel(SECOND, 2), barrier(SECOND, 2), Receive(2, 1, SECOND, 4, "EndOfPartition", 0, None, 0)],
)
def test_an_alignment_that_is_over_holds_nothing_back(between: Receive) -> None:
    """The alignment was cancelled, a newer one has begun, or the other channel has ended."""
    assert texts(told("V4", barrier(FIRST, 1), between, records(FIRST))) == []


def test_a_newer_alignment_holds_its_own_channels_back() -> None:
    """The barrier of the newer one closes the channel it came on."""
    assert len(texts(told("V4", barrier(FIRST, 1), barrier(SECOND, 2), records(SECOND)))) == 1


def test_attempts_align_for_themselves() -> None:
    """A barrier of an older attempt does not block channels of a newer one; events of a zombie do not count."""
    assert texts(told("V4", barrier(FIRST, 1), records(FIRST, attempt=2))) == []
    assert texts(told("V4", barrier(FIRST, 1, attempt=2), records(FIRST, attempt=1))) == []


def test_unaligned_barriers_hold_nothing_back() -> None:
    """In modes other than aligned, a task takes records from behind a barrier."""
    invariant: Any = told("V4", barrier(FIRST, 1), records(FIRST), view=healthy(mode="unaligned").view)
    assert (texts(invariant), invariant.skipped) == ([], "nothing is aligned in mode unaligned")


def test_an_engine_that_does_not_align_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel that goes on at once after its barrier: V4 sees the record, V3 the cut."""

    def block(alignment: Any, channel: int, out: list[Any]) -> None:
        out += [BlockChannel(channel), ResumeChannels((channel,))]

    monkeypatch.setattr(BarrierAlignment, "block", block)
    finished, _ = carried_out(case=usual(**{"cost.slow_links.numbers[1]": 2_000}), only=("V3", "V4"))
    assert found(finished, "V3")
    assert found(finished, "V4")


# --- V5 ---------------------------------------------------------------------------------------------------------------


def snapshot(number: int, attempt: int = 1) -> SnapshotTaken:
    return SnapshotTaken(1, attempt, number, "count[0]", 0, 0)


def sent(number: int, attempt: int = 1) -> Send:
    return Send(1, attempt, FIRST, 1, "CheckpointBarrier", 0, number, 0)


def test_snapshots_of_a_task_come_in_order() -> None:
    """An older one after a newer one, or the same twice, is wrong. Skipped ones and other attempts are not."""
    assert texts(told("V5", snapshot(1), snapshot(3), snapshot(2, attempt=2))) == []
    assert texts(told("V5", snapshot(3), snapshot(2))) == [
        "count[0] takes its snapshot for checkpoint 2 after that for 3"
    ]
    assert len(texts(told("V5", snapshot(3), snapshot(3)))) == 1


def test_barriers_on_a_channel_come_in_order() -> None:
    """So do barriers."""
    assert texts(told("V5", sent(1), sent(2), sent(2, attempt=2))) == []
    assert texts(told("V5", sent(2), sent(1))) == ["barrier 1 is sent on count[0]->out[0] after barrier 2"]


def test_numbers_of_checkpoints_grow_over_processes() -> None:
    """A resumed process continues the numbers of checkpoints, but counts attempts from 1 again."""
    invariant = told("V5", CheckpointTriggered(1, 1, 1), snapshot(1))
    invariant.process_started(healthy().view)
    invariant.handlers()[SnapshotTaken](snapshot(1))
    assert texts(invariant) == []
    invariant.handlers()[CheckpointTriggered](CheckpointTriggered(2, 1, 1))
    assert texts(invariant) == ["checkpoint 1 is triggered after checkpoint 1"]


def test_a_late_cancel_of_an_older_checkpoint_releases_nothing() -> None:
    """V4 tells V5 of the channel that went on because of it; a cancel of the current one is in order."""
    for number, wrong in ((1, True), (2, False)):
        invariants = invariants_for(only=["V4", "V5"])
        for invariant in invariants:
            invariant.process_started(healthy().view)
        handlers = invariants[0].handlers()
        for event in (barrier(FIRST, 2), cancel(SECOND, number)):
            handlers[Receive](event)
        handlers[ChannelResumed](ChannelResumed(4, 1, FIRST))
        assert bool(invariants[1].violations) is wrong
        if wrong:
            assert "gives up checkpoint 2 at the late cancel marker of checkpoint 1" in texts(invariants[1])[0]


# --- V11 --------------------------------------------------------------------------------------------------------------


def mark(timestamp_ms: int, attempt: int = 1) -> Send:
    return Send(1, attempt, FIRST, 1, "Watermark", 0, timestamp_ms, 0)


def fired(now_ns: int, due_ns: int, attempt: int = 1) -> TimerFired:
    return TimerFired(now_ns, attempt, "count[0]", "count", due_ns)


def test_watermarks_do_not_go_back() -> None:
    """Within an attempt; the next one begins from the restored state."""
    assert texts(told("V11", mark(5), mark(5), mark(7), mark(-3, attempt=2))) == []
    assert texts(told("V11", mark(5), mark(4))) == ["the watermark goes back from 5 to 4 ms on count[0]->out[0]"]


def test_timers_are_called_when_due_and_once() -> None:
    """Not early, not twice; one that is registered again at the instant it is due is another one."""
    assert texts(told("V11", fired(5, 5), fired(5, 5), fired(9, 7), fired(9, 7, attempt=2))) == []
    assert texts(told("V11", fired(5, 6))) == ["a timer of count in count[0] is called 1 ns early"]
    (text,) = texts(told("V11", fired(9, 7), fired(10, 7)))
    assert "that was due at 7 ns is called after the one due at 7 ns" in text


# --- what the trace tells for them ------------------------------------------------------------------------------------


def test_the_trace_tells_of_reports_that_are_ignored() -> None:
    """An acknowledgement that arrives twice is taken once; the second one shows, with the reason."""
    events: list[Any] = []
    case = replace(usual(), faults=(parse_fault("duplicate:receive_acknowledge count[1]#1"),))
    run_case(subject("counting"), case, instruments=[events.append])
    (ignored,) = [event for event in events if isinstance(event, ReportIgnored)]
    assert ignored[1:] == (1, 1, "count[1]", "acknowledge", "DUPLICATE")


def test_the_trace_tells_when_timers_were_due() -> None:
    """A timer is called when its time has come, by the clock of its task."""
    events: list[Any] = []
    run_case(subject("windows"), usual(), instruments=[events.append])
    fired = [event for event in events if isinstance(event, TimerFired)]
    assert fired
    assert all(event.due_ns <= event.time_ns for event in fired)
