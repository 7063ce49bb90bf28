"""The result of an effect ledger: which records were lost, applied twice, or visible though they must not be.

A run is compared with its reference, record by record: cell by cell, and output by output. For each difference, the
code searches for the restart that explains it:

* *applied twice*: the checkpoint holds the effect already, and the source (or emitting operator) goes back before it;
* *lost*: the source continues after the record, but the checkpoint holds its effect neither in the cell nor in flight;
  or it was in flight, and was not read from there.

Differences that no restart explains happened while the job ran: records were lost on their way. Consequences of a
difference (a window with one record too many emits another result) are not reported again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.explore.ledger.effect_reference import EffectReference, Layers, by_origin
from engine.explore.ledger.ledger import EffectLedger
from engine.explore.ledger.ledger_entries import OUTPUT, Exposed, Origin, Place, RecordCause, Restart
from engine.explore.ledger.ranges import Effects, Range, RangeSet
from engine.explore.ledger.words import listed, origin_name, place_name, records_text, restart_text, times
from engine.graph.plan import ExecutionPlan
from engine.runtime.job import FINISHED
from operators.files.sinks import FileSink, read_committed
from state_backends.files import FileSystem

LOST = "lost"
TWICE = "applied twice"
UNEXPECTED = "unexpected"
VISIBLE = "visible though aborted"
KINDS = (LOST, TWICE, UNEXPECTED, VISIBLE)


@dataclass(frozen=True, slots=True)
class Finding:
    """Records of one origin with the same problem, in one cell or output, for one reason.

    ``kind``       ``lost``, ``applied twice`` (more often than it should be), ``unexpected`` (it should have no effect
                   here at all), ``visible though aborted``;
    ``place``      the cell or output, ``place_name``: in words;
    ``origin``     the source or state of the records, ``ranges``: their numbers, ``records_name``: in words;
    ``expected``   how many effects the first of them should have had here, ``found``: how many it has had;
    ``restart``    the restart that explains it, ``None`` = none does; ``why``: in words;
    ``at_once``    whether it is about a sink that shows records as they arrive, and so promises nothing.
    """

    kind: str
    place: Place
    place_name: str
    origin: Origin
    records_name: str
    ranges: tuple[Range, ...]
    expected: int
    found: int
    restart: Restart | None
    at_once: bool
    why: str

    @property
    def text(self) -> str:
        return f"{self.records_name} {self.verdict} in {self.place_name}: {self.why}"

    @property
    def verdict(self) -> str:
        """``were applied twice instead of once``."""
        was = "was" if self.records == 1 else "were"
        if self.kind == VISIBLE:
            return "can be seen, though they must not,"
        if self.kind == UNEXPECTED:
            return f"{was} {'seen' if self.place.kind == OUTPUT else 'applied'}"
        if self.kind == LOST and not self.found:
            return f"{was} lost"
        how = "seen" if self.place.kind == OUTPUT else "applied"
        return f"{was} {how} {times(self.found)} instead of {times(self.expected)}"

    @property
    def records(self) -> int:
        return sum(end - first for first, end in self.ranges)

    def as_dict(self) -> dict[str, Any]:
        restart = self.restart
        return {
            "kind": self.kind,
            "place": {"uid": self.place.uid, "kind": self.place.kind, "key": _plain(self.place.key)},
            "origin": {
                "uid": self.origin.uid,
                "split": self.origin.split,
                "key": _plain(self.origin.key),
                "namespace": _plain(self.origin.namespace),
                "is_source": self.origin.is_source,
            },
            "ranges": [list(one) for one in self.ranges],
            "records": self.records,
            "expected": self.expected,
            "found": self.found,
            "at_once": self.at_once,
            "attempt": None if restart is None else restart.attempt,
            "incarnation": None if restart is None else restart.incarnation,
            "checkpoint_id": None if restart is None else restart.checkpoint_id,
            "crash": None if restart is None else restart.cause,
            "time_ns": None if restart is None else restart.time_ns,
            "text": self.text,
        }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


@dataclass(frozen=True, slots=True)
class Seen:
    """Readers' view of a sink: ``rows`` as text, and the function that turns a record into such a text."""

    rows: Sequence[str]
    text_of: Callable[[Any], str] = repr


def seen_in_files(plan: ExecutionPlan, files: FileSystem, directories: Mapping[str, str]) -> dict[str, Seen]:
    """Readers' view of file sinks. ``directories``: by uid, where they write to."""
    seen: dict[str, Seen] = {}
    for _, operator in plan.operators():
        sink = getattr(operator.factory, "__self__", None)
        directory = directories.get(operator.uid)
        if isinstance(sink, FileSink) and directory is not None and files.exists(directory):
            rows = [row for lines in read_committed(files, directory, sink.format).values() for row in lines]
            seen[operator.uid] = Seen(rows, sink.format.encode)
    return seen


@dataclass(frozen=True, slots=True)
class Findings:
    """All findings of a run. ``unsettled``: cells and outputs that were not judged because the order of events decides
    about them; ``consequences``: differences not reported because they follow from others; ``problem``: why nothing, or
    not everything, could be judged."""

    found: tuple[Finding, ...]
    unsettled: int = 0
    consequences: int = 0
    problem: str | None = None

    def paragraphs(self, ledger: EffectLedger) -> list[str]:
        """The findings in words, with records of the same fate together: which they are, where it shows, and why."""
        groups: dict[object, list[Finding]] = {}
        for one in self.found:
            groups.setdefault((one.kind, one.origin, one.why, one.expected, one.found), []).append(one)
        return [_paragraph(ledger, group) for group in groups.values()]

    def breaking(self, promise: str) -> tuple[Finding, ...]:
        """The findings that ``exactly-once``, ``at-least-once`` or ``at-most-once`` forbids."""
        return tuple(one for one in self.found if _breaks(one, promise))


def _paragraph(ledger: EffectLedger, group: Sequence[Finding]) -> str:
    first = group[0]
    all_ranges = RangeSet(one for finding in group for one in finding.ranges)
    records = records_text(ledger, first.origin, all_ranges.ranges())
    by_verdict: dict[str, list[Finding]] = {}
    for finding in group:
        by_verdict.setdefault(finding.verdict, []).append(finding)
    fates = [f"{verdict} in {_places(found, len(all_ranges))}" for verdict, found in by_verdict.items()]
    return f"{records} {', and '.join(fates)}: {first.why}"


def _places(found: Sequence[Finding], records: int) -> str:
    names = [one.place_name if one.records == records else f"{one.place_name} ({one.records})" for one in found]
    return listed(names)


def _breaks(finding: Finding, promise: str) -> bool:
    if promise == "none":
        return False
    if finding.kind == LOST:
        return promise != "at-most-once"
    if finding.kind == VISIBLE:
        return promise == "exactly-once"
    return promise != "at-least-once" and not finding.at_once


def findings(ledger: EffectLedger, expected: EffectReference, *, seen: Mapping[str, Seen] | None = None) -> Findings:
    """Compare a run with its reference. ``seen``: by uid of a sink, the rows that its readers see at the end."""
    unknown = [restart for restart in ledger.restarts if not restart.is_known]
    if unknown:
        began = f"attempt {unknown[0].attempt} began from checkpoint {unknown[0].checkpoint_id}"
        return Findings((), problem=f"{began}, which was taken before the ledger was there")
    return _Comparison(ledger, expected).all(seen or {})


class _Comparison:
    def __init__(self, ledger: EffectLedger, expected: EffectReference) -> None:
        self._ledger = ledger
        self._expected = expected
        self._actual = by_origin(ledger)
        self._complete = ledger.state == FINISHED
        self._numbers = {origin: number for number, origin in enumerate(ledger.origins)}
        self._flights = [_in_flight(restart) for restart in ledger.restarts]

    def all(self, seen: Mapping[str, Seen]) -> Findings:
        found: list[Finding] = []
        unsettled = 0
        for place in dict.fromkeys((*self._expected.effects, *self._actual)):
            if place.uid in self._expected.unsettled or place.uid in self._ledger.unjudged:
                unsettled += 1
                continue
            found += self._of_place(place)
        wrong = {one.place for one in found}
        told = [one for one in found if one.restart or one.origin.is_source or one.origin.cell not in wrong]
        consequences = len(found) - len(told)
        for uid, one in seen.items():
            told += self._visible(uid, one)
        problem = None
        if not self._complete:
            problem = f"the job {self._ledger.state or 'did not end'}: what was lost is not known"
        return Findings(tuple(told), unsettled, consequences, problem)

    def _of_place(self, place: Place) -> Iterable[Finding]:
        expected: Layers = self._expected.effects.get(place, {})
        actual: Layers = self._actual.get(place, {})
        for origin in dict.fromkeys((*expected, *actual)):
            should, has = expected.get(origin, []), actual.get(origin, [])
            if should == has:
                continue
            lost, extra = RangeSet(), RangeSet()
            for at in range(max(len(should), len(has))):
                one = should[at] if at < len(should) else RangeSet()
                other = has[at] if at < len(has) else RangeSet()
                lost |= one - other
                extra |= other - one
            if self._complete:
                yield from self._explained(LOST, place, origin, lost)
            known = should[0] if should else RangeSet()
            yield from self._explained(TWICE, place, origin, extra & known)
            yield from self._explained(UNEXPECTED, place, origin, extra - known)

    def _explained(self, kind: str, place: Place, origin: Origin, records: RangeSet) -> Iterable[Finding]:
        rest = records
        for restart in reversed(self._ledger.restarts):
            if not rest or kind == UNEXPECTED:
                break
            mine = rest & (
                self._lost_by(restart, place, origin, rest)
                if kind == LOST
                else self._repeated_by(restart, place, origin, rest)
            )
            stored = mine & self._flights[restart.number].get(self._number(origin), RangeSet())
            for some in (mine - stored, stored):
                if some:
                    yield self._finding(kind, place, origin, some, restart)
            rest -= mine
        if rest:
            yield self._finding(kind, place, origin, rest, None)

    def _repeated_by(self, restart: Restart, place: Place, origin: Origin, rest: RangeSet) -> RangeSet:
        """Records that had their effect before a restart from a position before them."""
        return (rest & self._held(restart, place, origin)) - rest.below(self._position(restart, origin))

    def _lost_by(self, restart: Restart, place: Place, origin: Origin, rest: RangeSet) -> RangeSet:
        """Records that the source has passed although no checkpoint holds their effect."""
        if restart.checkpoint_id is None:
            return RangeSet()
        return rest.below(self._position(restart, origin)) - self._held(restart, place, origin)

    def _number(self, origin: Origin) -> int:
        return self._numbers.get(origin, -1)

    def _held(self, restart: Restart, place: Place, origin: Origin) -> RangeSet:
        """Records with an effect in the checkpoint; for output: those shown to readers by then, or certain to be."""
        number, held = self._number(origin), RangeSet()
        if place.kind == OUTPUT:
            for one in self._ledger.exposed:
                if one.uid == place.uid and _was_shown(one, restart):
                    held |= one.effects.layer(number, 1)
            return held
        for part in restart.part.tasks.values():
            if place in part.cells:
                held |= part.cells[place].effects.layer(number, 1)
        return held

    def _position(self, restart: Restart, origin: Origin) -> int:
        """The first record that is emitted (again) after a restart."""
        number = self._number(origin)
        parts = restart.parts()
        if origin.is_source:
            return max((part.read.get(number, 0) for part in parts), default=0)
        emitted = (part.cells[origin.cell].emitted for part in parts if origin.cell in part.cells)
        return max((one.get(origin.namespace, 0) for one in emitted), default=0)

    # --- readers' view ------------------------------------------------------------------------------------------

    def _visible(self, uid: str, seen: Seen) -> Iterable[Finding]:
        """Rows that readers see in excess of the ledger's account, or miss."""
        ledger = self._ledger
        shown = [one for one in ledger.exposed if one.uid == uid]
        rows = Counter(seen.rows)
        due = Counter(seen.text_of(value) for one in shown for _, value in one.rows)
        extra, missing = rows - due, due - rows
        taken_back = [(one, why) for one, why in ledger.withdrawn() if one.uid == uid]
        never = [(one, "that checkpoint has never completed") for one in ledger.unseen() if one.uid == uid]
        for one, why in (*taken_back, *never):
            behind = "no checkpoint" if one.checkpoint_id is None else f"checkpoint {one.checkpoint_id}"
            wrote = f"{behind} covers what attempt {one.attempt} has written, and {why}"
            yield from self._seen(VISIBLE, uid, _matching(one, seen, extra), wrote)
        for one in shown:
            again = "there are more of these rows than have been committed"
            yield from self._seen(TWICE, uid, _matching(one, seen, extra), again)
            behind = "at once" if one.checkpoint_id is None else f"with checkpoint {one.checkpoint_id}"
            gone = f"attempt {one.attempt} has committed them {behind}, and readers do not see them"
            yield from self._seen(LOST, uid, _matching(one, seen, missing), gone)

    def _seen(self, kind: str, uid: str, causes: Iterable[RecordCause], why: str) -> Iterable[Finding]:
        effects, place = Effects(), Place(uid, OUTPUT)
        for cause in causes:
            effects.add(*cause)
        expected, found = {VISIBLE: (0, 1), TWICE: (1, 2), LOST: (1, 0)}[kind]
        for number, layers in effects.splits.items():
            origin, ranges = self._ledger.origins[number], tuple(layers[0].ranges())
            yield self._made(kind, place, origin, ranges, expected, found, None, why)

    # --- words --------------------------------------------------------------------------------------------------

    def _finding(self, kind: str, place: Place, origin: Origin, records: RangeSet, restart: Restart | None) -> Finding:
        first = next(iter(records))
        expected = sum(first in layer for layer in self._expected.effects.get(place, {}).get(origin, ()))
        found = sum(first in layer for layer in self._actual.get(place, {}).get(origin, ()))
        why = self._why(kind, place, origin, restart, first)
        return self._made(kind, place, origin, tuple(records.ranges()), expected, found, restart, why)

    def _made(
        self,
        kind: str,
        place: Place,
        origin: Origin,
        ranges: tuple[Range, ...],
        expected: int,
        found: int,
        restart: Restart | None,
        why: str,
    ) -> Finding:
        ledger = self._ledger
        where, records = place_name(ledger, place), records_text(ledger, origin, ranges)
        at_once = place.uid in ledger.shown_at_once
        return Finding(kind, place, where, origin, records, ranges, expected, found, restart, at_once, why)

    def _why(self, kind: str, place: Place, origin: Origin, restart: Restart | None, first: int) -> str:
        if kind == UNEXPECTED:
            return "without faults they have no effect there at all"
        if restart is None:
            return "no restart explains it: it went wrong while the job ran"
        started = restart_text(self._ledger, restart)
        if restart.checkpoint_id is None:
            return f"{started}; what had been seen before stayed"
        held = "the checkpoint holds their effects already"
        if kind == LOST:
            held = "the checkpoint holds their effects neither in state nor in flight"
            if first in self._flights[restart.number].get(self._number(origin), RangeSet()):
                held = "the checkpoint holds them in flight, and they have not come from there"
        elif place.uid in self._ledger.shown_at_once:
            held = "readers had been shown them already"
        goes_on = f"{origin_name(self._ledger, origin)} goes on at {self._position(restart, origin)}"
        return f"{started}; {held}, and {goes_on}"


def _in_flight(restart: Restart) -> dict[int, RangeSet]:
    found = Effects()
    for causes in restart.part.in_flight.values():
        for cause in causes:
            found.add(*cause)
    return {number: layers[0] for number, layers in found.splits.items()}


def _matching(one: Exposed, seen: Seen, wanted: Counter[str]) -> list[RecordCause]:
    """The causes of those rows that are wanted; each is removed from ``wanted``."""
    causes: list[RecordCause] = []
    if wanted:
        for cause, value in one.rows:
            text = seen.text_of(value)
            if wanted[text] > 0:
                wanted[text] -= 1
                causes.append(cause)
    return causes


def _was_shown(one: Exposed, restart: Restart) -> bool:
    covered = one.checkpoint_id is not None and one.checkpoint_id <= (restart.checkpoint_id or 0)
    return one.era <= restart.number or covered
