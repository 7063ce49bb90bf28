"""Patterns, by the definition of a match (docs/patterns.md), not by an automaton: every sequence of records that the
rules allow, searched anew with each record that may end one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from engine.explore.opinion.elements import EvaluatedStep, NotModelled, Record, Spec
from engine.explore.opinion.plain_state import Timers

MOST_RECORDS = 400
"""Of one key: the search for every sequence takes long."""


class _Event(NamedTuple):
    value: Any
    time_ms: int


class _Begun(NamedTuple):
    """A beginning of a match: (number of the record, number of its stage) of each of its records."""

    taken: tuple[tuple[int, int], ...]
    size: int
    """How many records the last stage has."""


class Patterns(EvaluatedStep):
    """By event time, records wait until the watermark has reached them and are then taken in order, those of one
    millisecond by ``order_by`` or in order of arrival. Otherwise they are taken on arrival."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        function, self._pattern = spec.given["function"], spec.given["pattern"]
        self._event_time, self._order_by = function.event_time, function._order_by
        self._late_tag = function._late_tag
        if function._timeout_tag is not None:
            raise NotModelled("beginnings of patterns that run out of time are known to its own code only")
        if not self._event_time and self._pattern.within_ms is not None:
            raise NotModelled("its patterns end by the virtual clock, which depends on costs and schedules")
        self._stages = [stage for stage in self._pattern.stages if not stage.is_forbidden]
        self._guards: list[list[Any]] = []
        for stage in self._pattern.stages:
            if stage.is_forbidden:
                self._guards[-1].append(stage)
            else:
                self._guards.append([])
        self._waiting: dict[tuple[Any, int], list[Any]] = {}
        self._events: dict[Any, list[_Event]] = {}
        self._pruned: dict[Any, int] = {}
        self._timers = Timers()

    def on_record(self, record: Record, which: int) -> None:
        if not self._event_time:
            self._next(record.key, record.value, 0, record.stamp)
            return
        assert record.stamp is not None, "patterns by event time need event times"
        if record.stamp <= self.watermark_ms:
            if self._late_tag is not None:
                self.emit(record.value, record.stamp, self._late_tag)
            return
        self._waiting.setdefault((record.key, record.stamp), []).append(record.value)
        self._timers.add(record.stamp, record.key)

    def on_watermark(self, ms: int) -> None:
        while (timer := self._timers.next_due(ms)) is not None:
            time_ms, key, _ = timer
            values = self._waiting.pop((key, time_ms))
            for value in sorted(values, key=self._order_by) if self._order_by is not None else values:
                self._next(key, value, time_ms, time_ms)

    def _next(self, key: Any, value: Any, time_ms: int, stamp: int | None) -> None:
        """Take the next record of a key, and emit the matches that end with it: those that begin first come first."""
        events = self._events.setdefault(key, [])
        events.append(_Event(value, time_ms))
        if len(events) > MOST_RECORDS:
            raise NotModelled(f"a key has more than {MOST_RECORDS} records, and patterns are looked for in all of them")
        last, pruned = len(events) - 1, self._pruned.get(key, -1)
        found = [begun for start in range(last + 1) for begun in self._from(events, start, last)]
        for begun in sorted(found, key=lambda one: ([at for at, _ in one.taken], [stage for _, stage in one.taken])):
            first = begun.taken[0][0]
            if self._pattern.skip != "no_skip":
                if first <= pruned:
                    continue
                pruned = first if self._pattern.skip == "skip_to_next" else last
            self.emit(self._matched(events, begun), stamp)
        self._pruned[key] = pruned

    def _from(self, events: Sequence[_Event], start: int, last: int) -> Iterator[_Begun]:
        """All matches from one record to another."""
        within_ms = self._pattern.within_ms
        if within_ms is not None and events[last].time_ms - events[start].time_ms >= within_ms:
            return
        for stage in self._reachable(-1, is_done=True):
            if self._stages[stage].takes(events[start].value, {}):
                yield from self._ended(events, _Begun(((start, stage),), 1), last)

    def _ended(self, events: Sequence[_Event], begun: _Begun, last: int) -> Iterator[_Begun]:
        at, stage = begun.taken[-1]
        is_done = begun.size >= self._stages[stage].least
        if at == last:
            if is_done and all(one.is_optional for one in self._stages[stage + 1 :]):
                yield begun
            return
        matched = self._matched(events, begun)
        again = self._stages[stage].most is None or begun.size < self._stages[stage].most
        targets = [*([stage] if again else []), *self._reachable(stage, is_done=is_done)]
        for number in range(at + 1, last + 1):
            value = events[number].value
            if is_done and any(
                guard.takes(value, matched) and (guard.contiguity == "not_followed_by" or number == at + 1)
                for guard in self._guards[stage]
            ):
                # This record is forbidden, up to and including the next record of the match.
                return
            for target in list(targets):
                one, is_same = self._stages[target], target == stage
                contiguity = one.inner if is_same else one.contiguity
                if is_same and one.ends(value):
                    targets.remove(target)
                    continue
                takes = one.takes(value, matched)
                if takes:
                    longer = _Begun((*begun.taken, (number, target)), begun.size + 1 if is_same else 1)
                    yield from self._ended(events, longer, last)
                if contiguity == "strict" or (contiguity == "relaxed" and takes):
                    # No record may lie between, or none that the stage would have taken.
                    targets.remove(target)

    def _reachable(self, stage: int, *, is_done: bool) -> list[int]:
        """The stages that may follow one: the next, and those after optional ones."""
        found: list[int] = []
        for target in range(stage + 1, len(self._stages) if is_done else stage + 1):
            found.append(target)
            if not self._stages[target].is_optional:
                break
        return found

    def _matched(self, events: Sequence[_Event], begun: _Begun) -> dict[str, list[Any]]:
        records: dict[str, list[Any]] = {}
        for number, stage in begun.taken:
            records.setdefault(self._stages[stage].name, []).append(events[number].value)
        return records


STEPS: dict[str, Callable[[Spec], EvaluatedStep]] = {"operators.patterns.pattern_operator.PatternOperator": Patterns}
