"""The rules of windows written down record by record, without state, timers or batches, to compare operators with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from tests.operators.keyed_cluster import KeyedCluster

Record = tuple[str, int]
"""(key, value)."""


def first(record: Record) -> str:
    return record[0]


class NaiveWindows:
    """Event-time windows that neither merge nor change: ``starts_of(stamp)`` are those of a record.

    Results are ``((key, start, end, values), stamp)`` with the values sorted: the order of arrival is not compared.
    """

    def __init__(self, size_ms: int, starts_of: Callable[[int], list[int]], lateness_ms: int) -> None:
        self.size_ms, self.starts_of, self.lateness_ms = size_ms, starts_of, lateness_ms
        self.contents: dict[tuple[str, int], list[int]] = {}
        self.watermark_ms = MIN_TIMESTAMP_MS
        self.dropped = 0
        self.out: list[tuple[Any, int]] = []

    def record(self, record: Record, stamp: int) -> None:
        taken = False
        for start in self.starts_of(stamp):
            last = start + self.size_ms - 1
            if last + self.lateness_ms <= self.watermark_ms:
                continue
            taken = True
            self.contents.setdefault((record[0], start), []).append(record[1])
            if last <= self.watermark_ms:
                self._fire(record[0], start)
        if not taken and stamp + self.lateness_ms <= self.watermark_ms:
            self.dropped += 1

    def _fire(self, key: str, start: int) -> None:
        end = start + self.size_ms
        self.out.append(((key, start, end, sorted(self.contents[key, start])), end - 1))

    def watermark(self, timestamp_ms: int) -> None:
        before, self.watermark_ms = self.watermark_ms, max(self.watermark_ms, timestamp_ms)
        for key, start in sorted(self.contents):
            last = start + self.size_ms - 1
            if before < last <= self.watermark_ms:
                self._fire(key, start)
            if last + self.lateness_ms <= self.watermark_ms:
                del self.contents[key, start]


class NaiveSessions:
    """Event-time sessions: lists of (start, end, values) per key, joined record by record."""

    def __init__(self, gap_of: Callable[[int], int], lateness_ms: int) -> None:
        self.gap_of, self.lateness_ms = gap_of, lateness_ms
        self.sessions: dict[str, list[tuple[int, int, list[int]]]] = {}
        self.watermark_ms = MIN_TIMESTAMP_MS
        self.dropped = 0
        self.out: list[tuple[Any, int]] = []

    def record(self, record: Record, stamp: int) -> None:
        key, value = record
        start, end = stamp, stamp + self.gap_of(value)
        known = self.sessions.get(key, [])
        touched = [one for one in known if one[0] <= end and start <= one[1]]
        whole = (
            min([start, *(one[0] for one in touched)]),
            max([end, *(one[1] for one in touched)]),
            sorted([value, *(old for one in touched for old in one[2])]),
        )
        if whole[1] - 1 + self.lateness_ms <= self.watermark_ms:
            self.dropped += 1
            return
        self.sessions[key] = [one for one in known if one not in touched] + [whole]
        if whole[1] - 1 <= self.watermark_ms:
            self._fire(key, whole)

    def _fire(self, key: str, session: tuple[int, int, list[int]]) -> None:
        self.out.append(((key, *session), session[1] - 1))

    def watermark(self, timestamp_ms: int) -> None:
        before, self.watermark_ms = self.watermark_ms, max(self.watermark_ms, timestamp_ms)
        for key, sessions in self.sessions.items():
            for session in sessions:
                if before < session[1] - 1 <= self.watermark_ms:
                    self._fire(key, session)
            kept = [one for one in sessions if one[1] - 1 + self.lateness_ms > self.watermark_ms]
            self.sessions[key] = kept


def sorted_values(key: str, window: Any, values: list[Record]) -> list[Any]:
    """A process function with the results of the models."""
    return [(key, window.start, window.end, sorted(value for _, value in values))]


def steps(keys: str = "abcd", most_steps: int = 25, least_value: int = 1) -> st.SearchStrategy[list[tuple[str, Any]]]:
    """Batches of out-of-order records, watermarks and restarts at another parallelism, in random order."""
    numbers = st.integers(least_value, 9)
    records = st.lists(st.tuples(st.tuples(st.sampled_from(keys), numbers), st.integers(-60, 60)), max_size=8)
    return st.lists(
        st.one_of(
            st.tuples(st.just("records"), records),
            st.tuples(st.just("watermark"), st.integers(-60, 90)),
            st.tuples(st.just("restart"), st.integers(1, 3)),
        ),
        max_size=most_steps,
    )


def assert_agreement(
    windows: KeyedCluster,
    model: NaiveWindows | NaiveSessions,
    steps: list[tuple[str, Any]],
    seen: Callable[[list[int]], Any] = list,
) -> None:
    """After each step the operator has emitted what the model has, and dropped as many; ``seen`` is the operator's."""
    for step, argument in [*steps, ("watermark", MAX_TIMESTAMP_MS)]:
        if step == "records":
            windows.process(argument)
            for record, stamp in argument:
                model.record(record, stamp)
        elif step == "watermark":
            windows.watermark(argument)
            model.watermark(argument)
        else:
            windows.restart(argument)
        expected, model.out = [((*window, seen(values)), stamp) for (*window, values), stamp in model.out], []

        assert windows.take_stamped() == sorted(expected, key=repr)
    assert windows.late_records_dropped() == model.dropped
    for harness in windows.subtasks:
        keyed = harness.context.keyed
        timers = keyed.timer_service("window-timers")
        assert (keyed.num_entries(), len(timers.event_time), len(timers.processing_time)) == (0, 0, 0)
