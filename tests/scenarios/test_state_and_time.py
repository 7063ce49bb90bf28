"""State, windows, timers and side outputs over restarts: as if nothing had happened."""

from __future__ import annotations

from typing import Any

import pytest

from operators.basic import AggregateFunction, KeyedProcessFunction, ProcessFunction
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows
from tests.scenarios.story import CHECKPOINT, Kill, Story, Wait, each

BY_SECOND_FIELD = WatermarkStrategy.for_monotonous_timestamps(lambda record: record[1])


class Session(KeyedProcessFunction):
    """Counts the records of a key and reports the count when event time is 10 ms past the last of them."""

    def open(self, ctx: Any) -> None:
        self.count = ctx.value_state("count", 0)
        self.closes_at = ctx.value_state("closes at")

    def process_element(self, value: tuple[str, int], ctx: Any) -> None:
        if (planned := self.closes_at.get()) is not None:
            ctx.delete_event_time_timer(planned)
        self.count.update(self.count.get() + 1)
        self.closes_at.update(value[1] + 10)
        ctx.register_event_time_timer(value[1] + 10)

    def on_timer(self, timestamp_ms: int, ctx: Any) -> list[Any]:
        counted = self.count.get()
        self.count.update(None)
        self.closes_at.update(None)
        return [(ctx.current_key, timestamp_ms, counted)]


SESSIONS = [
    ("a", 1),
    ("b", 3),
    CHECKPOINT,
    ("a", 7),
    Kill("sessions"),
    ("c", 25),
    Wait(1),
    ("a", 30),
    CHECKPOINT,
    ("b", 31),
]


@pytest.mark.parametrize("with_kill", [False, True])
def test_sessions_by_timer_survive_a_restart(with_kill: bool) -> None:
    """Value state and event-time timers come back together: sessions close once, with the right count."""
    story = Story()
    steps = [step for step in SESSIONS if with_kill or not isinstance(step, Kill)]
    records = story.source("records", *steps, watermarks=BY_SECOND_FIELD)
    story.commit(records.key_by(lambda record: record[0]).process(Session(), name="sessions"))

    told = story.tell()

    assert told.attempts() == ([None, 1] if with_kill else [None])
    assert sorted(told.committed) == [("a", 17, 2), ("a", 40, 1), ("b", 13, 1), ("b", 41, 1), ("c", 35, 1)]


@pytest.mark.parametrize("kill_at_ms", [1.25, 2.5, 3.75, 5.0, 6.25])
def test_windows_survive_a_restart_at_any_time(kill_at_ms: float) -> None:
    """A window that is open when the job dies is closed once, with all of its records."""
    story = Story()
    records = [("k", stamp) for stamp in range(0, 60, 4)]
    steps = [step for record in records for step in (record, CHECKPOINT if record[1] % 16 == 0 else Wait(1))]
    stream = story.source("records", *steps, watermarks=BY_SECOND_FIELD.with_interval_ns(300_000))
    windows = stream.key_by(lambda record: record[0]).window(TumblingEventTimeWindows.of(20))
    story.commit(windows.aggregate(list_of_stamps()))
    story.also_kill("records", at_ms=kill_at_ms)

    told = story.tell()

    assert len(told.attempts()) == 2
    assert told.committed == [
        ("k", 0, 20, (0, 4, 8, 12, 16)),
        ("k", 20, 40, (20, 24, 28, 32, 36)),
        ("k", 40, 60, (40, 44, 48, 52, 56)),
    ]


def list_of_stamps() -> AggregateFunction:
    """An aggregate that keeps the second field of every record, in order."""
    return AggregateFunction(
        create=tuple, add=lambda stamps, record: (*stamps, record[1]), get_result=lambda stamps: stamps
    )


class Sort(ProcessFunction):
    """Words go on, everything else to a side output."""

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        if isinstance(value, str):
            return [value]
        ctx.side_output("numbers", value)
        return []


def test_side_outputs_commit_with_the_main_output() -> None:
    """The same barrier divides the records of both outputs, and a kill does not lose or repeat one."""
    story = Story()
    mixed = story.source("mixed", "x", 1, CHECKPOINT, 2, "y", Kill("sort"), "z", 3)
    sort = mixed.process(Sort(), name="sort")
    story.commit(sort.map(lambda word: ("word", word), name="words"))
    story.commit(sort.side_output("numbers").map(lambda number: ("number", number), name="numbers"))

    told = story.tell()

    assert sorted(told.committed_by(1)) == [("number", 1), ("word", "x")]
    assert each(sorted(told.committed), by=lambda record: record[0]) == {
        "number": [("number", 1), ("number", 2), ("number", 3)],
        "word": [("word", "x"), ("word", "y"), ("word", "z")],
    }


class Alarm(KeyedProcessFunction):
    """Reports, 5 ms of the virtual clock after the first record of a key, how many there were."""

    def open(self, ctx: Any) -> None:
        self.count = ctx.value_state("count", 0)

    def process_element(self, value: str, ctx: Any) -> None:
        if self.count.get() == 0:
            ctx.register_processing_time_timer(ctx.processing_time_ms() + 5)
        self.count.update(self.count.get() + 1)

    def on_timer(self, timestamp_ms: int, ctx: Any) -> list[Any]:
        return [(ctx.current_key, self.count.get())]


def test_processing_time_timers_survive_a_restart() -> None:
    """A timer of the virtual clock that was pending at the checkpoint fires after the restart, once."""
    story = Story(restart_ms=1)
    words = story.source("words", "x", "x", CHECKPOINT, Wait(1), Kill("alarm"), Wait(20), "y")
    story.commit(words.key_by(lambda word: word).process(Alarm(), name="alarm"))

    told = story.tell()

    assert told.attempts() == [None, 1]
    assert told.committed == [("x", 2)]


def test_a_timer_that_was_due_during_the_outage_fires_at_once() -> None:
    """When the restart takes longer than the timer had to go, it fires as soon as the job runs again."""
    story = Story(restart_ms=50)
    words = story.source("words", "x", CHECKPOINT, Kill("alarm"), Wait(3), "x", Wait(20))
    story.commit(words.key_by(lambda word: word).process(Alarm(), name="alarm"))

    told = story.tell()

    assert told.committed == [("x", 1)]
