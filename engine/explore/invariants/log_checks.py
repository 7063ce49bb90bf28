"""V9: compare the content of a log with the requests made to it.

A log in memory is read directly. A log on disk is read from its files, as by any reader, while its writer is at work;
its history of requests outlives processes. Differences on disk:

* Records in the writer's memory are not in the files yet: a transaction that is neither prepared nor committed may lack
  any number of records.
* A request may break off, with the disk. It may then have been carried out, in part or as a whole.
* A power cut may take the end of a partition: records that were not promised, and markers of aborts. The log's
  ``fsync`` says which records are promised.
* Retention may have deleted the beginning.

Records without a transaction have no sequence, so the only check is that they do not change, and stay.

A log in memory is followed as a consumer follows it: while the entries that were judged are still there, only those
after them are judged, and the reader goes on from the last stable offset. A log on disk is read from its beginning each
time, because a request that broke off may turn out later to have been carried out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, NamedTuple

from engine.elements.errors import StorageError
from engine.explore.invariants.base import DAMAGE, Shared, Watcher, faults_possible
from engine.explore.invariants.transactions import logs_of
from engine.explore.run import CaseView, FinishedCase, World, hears
from engine.observe.trace_events import AttemptStarted, CheckpointCompleted
from operators.log.connectors import LogSink
from operators.log.disk import (
    FSYNC_APPEND,
    FSYNC_NEVER,
    DiskLog,
    PartitionReader,
    entries_of,
    partition_directory,
    partitions_of,
)
from operators.log.memory_transaction_log import MemoryTransactionLog
from operators.log.port import (
    ABORT_MARKER,
    COMMIT_MARKER,
    DATA,
    INTERRUPTED,
    OK,
    REPEATED,
    Exchange,
    LogEntry,
    Producer,
    Request,
    stable_offset,
)
from state_backends.files import FileSystem

_POWER_CUT = "lose-unsynced"


class DiskOutput(NamedTuple):
    """A topic of a log on disk that a sink writes to."""

    log: DiskLog
    files: FileSystem
    directory: str
    topic: str


def disk_outputs_of(world: World) -> Iterator[tuple[str, DiskOutput]]:
    """By uid of the sink."""
    for uid, sink in sorted(world.sinks.items()):
        if isinstance(sink, LogSink) and isinstance(sink.log, DiskLog):
            place = sink.place
            assert place is not None, "sinks of a world know where it is"
            yield uid, DiskOutput(sink.log, *place, sink.topic)


class Judged:
    """What was in a partition when it was judged last. ``written``: records by producer; ``stable``: the offset that
    the reader had come to, when it had seen so many records (``due``)."""

    __slots__ = ("due", "entries", "stable", "written")

    def __init__(self) -> None:
        self.entries: Sequence[LogEntry] = ()
        self.written: Counter[Producer] = Counter()
        self.stable = self.due = 0


class Kept(NamedTuple):
    """The content of a partition. ``after``: what is judged already; ``seen``: producers whose records a read-committed
    reader gets after that; ``complete``: retention has deleted nothing; ``waits``: appended records need not be there
    before they are prepared."""

    entries: Sequence[LogEntry]
    after: Judged
    seen: Sequence[Producer]
    stable: int
    complete: bool
    waits: bool


class LogChecks(Watcher):
    name = "V9"
    title = "A reader of the log sees every record of every committed transaction, once, in order, and no other."
    reason = "The output is what readers get, not what the sink believes to have written."
    source = "jepsen/tests/kafka.clj: aborted read, lost write, duplicate, divergence, gap, pre-committed read"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._judged: dict[tuple[str, str, int], Judged] = {}
        self._asked: dict[str, _Asked] = {}
        self._had_log = False
        self._may_have_lost: set[tuple[str, str, int]] = set()
        """Partitions not read since a possible power cut."""

    def process_died(self, view: CaseView) -> None:
        """The machine may have died with the process."""
        if _POWER_CUT in faults_possible(view):
            self._may_have_lost |= self._judged.keys()

    @hears(CheckpointCompleted, AttemptStarted)
    def _on_completed(self, event: CheckpointCompleted | AttemptStarted) -> None:
        self._read_all(event.time_ns)

    def finished(self, case: FinishedCase) -> None:
        self._read_all(None)
        for uid, log in logs_of(self.view.world):
            try:
                log.validate()
            except AssertionError as error:
                self.violated(f"log of sink {uid!r}: {error}", None, uid=uid)
        if not self._had_log:
            self.skipped = "no sink writes to a transactional log"

    def _read_all(self, now_ns: int | None) -> None:
        world = self.view.world
        for uid, log in logs_of(world):
            self._had_log = True
            self._requests_to(uid).go_on(log.history)
            for topic in log.topics():
                for number in range(log.partitions(topic)):
                    kept = _kept_in_memory(log, topic, number, self._judged.get((uid, topic, number)))
                    self._judge(uid, topic, number, kept, now_ns)
        for uid, output in disk_outputs_of(world):
            self._had_log = True
            self._read_disk(uid, output, now_ns)

    def _requests_to(self, uid: str) -> _Asked:
        asked = self._asked.get(uid)
        if asked is None:
            asked = self._asked[uid] = _Asked()
        return asked

    def _read_disk(self, uid: str, output: DiskOutput, now_ns: int | None) -> None:
        possible = faults_possible(self.view)
        if not possible.isdisjoint(DAMAGE) or (output.log.settings.fsync == FSYNC_NEVER and _POWER_CUT in possible):
            # Anything may be missing, and the log may be damaged: its readers report that.
            return
        self._requests_to(uid).go_on(output.log.history)
        for number in range(partitions_of(output.files, output.directory, output.topic) or 0):
            try:
                kept = _kept_on_disk(output, number)
            except StorageError as error:
                self.violated(f"log of sink {uid!r} cannot be read: {error}", now_ns, uid=uid)
                continue
            self._judge(uid, output.topic, number, kept, now_ns, promises_all=output.log.settings.fsync == FSYNC_APPEND)

    def _judge(
        self, uid: str, topic: str, number: int, kept: Kept, now_ns: int | None, *, promises_all: bool = True
    ) -> None:
        place, asked = (uid, topic, number), self._asked[uid]
        known = self._judged.get(place)
        before = () if known is None else known.entries
        if place in self._may_have_lost:
            self._may_have_lost.discard(place)
            before = before[: _durable(before, asked, promises_all=promises_all)]
        problems = [] if _goes_on(before, kept.entries) else ["what was there has changed"]
        problems += asked.problems_of((topic, number), kept)
        for problem in problems:
            text = f"log of sink {uid!r}, {topic}-{number}: {problem}"
            self.violated(text, now_ns, uid=uid, topic=topic, partition=number)
        self._judged[place] = kept.after


def _kept_in_memory(log: MemoryTransactionLog, topic: str, number: int, judged: Judged | None) -> Kept:
    entries, stable = log.entries(topic, number), log.last_stable_offset(topic, number)
    if judged is None or stable < judged.stable or entries[: len(judged.entries)] != judged.entries:
        judged = Judged()
    read = log.read(topic, number, judged.stable) if judged.stable < len(entries) else ()
    seen = [one.producer for one in read if one.producer is not None]
    return Kept(entries, judged, seen, stable, complete=True, waits=False)


def _kept_on_disk(output: DiskOutput, number: int) -> Kept:
    directory = partition_directory(output.directory, output.topic, number)
    entries = entries_of(output.files, output.directory, output.topic, number)
    earliest = entries[0].offset if entries else 0
    end = entries[-1].offset + 1 if entries else 0
    reader = PartitionReader(output.files, directory, f"{output.topic}-{number}", earliest)
    owners = {entry.offset: entry.producer for entry in entries}
    seen: list[Producer] = []
    while reader.read(1)[0]:
        owner = owners.get(reader.offset - 1)
        if owner is not None:
            seen.append(owner)
    return Kept(entries, Judged(), seen, stable_offset(entries, end), complete=earliest == 0, waits=True)


def _goes_on(before: Sequence[LogEntry], now: Sequence[LogEntry]) -> bool:
    """Whether the earlier entries are still there, except for those deleted at the beginning."""
    if not before or not now:
        return not before
    deleted = max(0, now[0].offset - before[0].offset)
    return before[deleted:] == now[: max(0, len(before) - deleted)]


def _durable(entries: Sequence[LogEntry], asked: _Asked, *, promises_all: bool) -> int:
    """How many of them a power cut cannot take: up to the last promised one."""
    for count in range(len(entries), 0, -1):
        last = entries[count - 1]
        if last.kind == COMMIT_MARKER or last.producer in asked.prepared or last.producer in asked.committed:
            return count
        if promises_all and last.kind != ABORT_MARKER and last.producer not in asked.broken_off:
            return count
    return 0


_NONE: Counter[Producer] = Counter()


class _Asked:
    """Records appended to a log, by partition, and transactions prepared and committed, according to its answers.

    ``most``: also counts requests that broke off; ``broken_off``: their producers, ``None`` = without a transaction.
    """

    __slots__ = ("_known", "appended", "broken_off", "committed", "maybe_committed", "most", "prepared")

    def __init__(self) -> None:
        self.appended: dict[tuple[str, int], Counter[Producer]] = {}
        self.most: dict[tuple[str, int], Counter[Producer]] = {}
        self.prepared: set[Producer] = set()
        self.committed: set[Producer] = set()
        self.maybe_committed: set[Producer] = set()
        self.broken_off: set[Producer | None] = set()
        self._known = 0

    def go_on(self, history: Sequence[Exchange]) -> None:
        """Read the rest of the history, which only grows."""
        appended: Counter[tuple[Any, ...]] = Counter()
        for exchange in history[self._known :]:
            request = exchange.request
            if exchange.result == OK and request.kind == "append":
                # Nearly all: its transactional id, epoch, topic and partition.
                where = request[1:5]
                appended[where] = appended.get(where, 0) + request.records
            else:
                self._hear(request, exchange.result)
        for (transactional_id, epoch, topic, partition), records in appended.items():
            if transactional_id is not None:
                self._count((topic, partition), Producer(transactional_id, epoch), records, OK)
        self._known = len(history)

    def _hear(self, request: Request, result: str) -> None:
        kind, is_broken = request.kind, result == INTERRUPTED
        if request.transactional_id is None:
            if is_broken:
                self.broken_off.add(None)
            return
        producer = Producer(request.transactional_id, request.epoch)
        if is_broken:
            self.broken_off.add(producer)
        if kind == "append" and request.topic is not None:
            self._count((request.topic, request.partition), producer, request.records, result)
        elif kind == "prepare" and result in (OK, REPEATED):
            self.prepared.add(producer)
        elif kind == "commit" and result in (OK, REPEATED):
            self.committed.add(producer)
        elif kind == "commit" and is_broken:
            self.maybe_committed.add(producer)

    def _count(self, place: tuple[str, int], producer: Producer, records: int, result: str) -> None:
        if not records:
            return
        if place not in self.most:
            self.most[place], self.appended[place] = Counter(), Counter()
        self.most[place][producer] += records if result in (OK, INTERRUPTED) else 0
        self.appended[place][producer] += records if result == OK else 0

    def problems_of(self, place: tuple[str, int], kept: Kept) -> Iterator[str]:
        """What is wrong with a partition. After that, ``kept.after`` is all that is there."""
        committed, entries, judged = self.committed, kept.entries, kept.after
        # Column by column, without a step of Python for each entry: partitions are read again and again.
        new = entries[len(judged.entries) :]
        offsets, kinds, producers, _ = zip(*new, strict=True) if new else ((), (), (), ())
        first = len(judged.entries) if kept.complete or not offsets else offsets[0]
        if offsets != tuple(range(first, first + len(offsets))):
            yield "offsets have a gap, or come twice"
        written = judged.written
        written.update(compress(producers, map(DATA.__eq__, kinds)))
        del written[None]
        most, appended = self.most.get(place, _NONE), self.appended.get(place, _NONE)
        if not (dict.__eq__(written, most) and dict.__eq__(written, appended)):
            # Hardly ever, and seen without a look at each producer.
            for producer in sorted(most):
                found = written.get(producer, 0)
                is_promised = not kept.waits or producer in self.prepared or producer in committed
                if found > most[producer] or (is_promised and kept.complete and found < appended[producer]):
                    yield f"{producer} has appended {appended[producer]} record(s), and others are there"
            yield from (f"{one} never appended what is there" for one in sorted(written.keys() - most.keys()))
        unseen = set(kept.seen) - committed - self.maybe_committed
        if unseen:
            yield from (f"records of {one} are read, but were never committed" for one in sorted(unseen))
        due = [
            one.producer
            for one in (entries[judged.stable : kept.stable] if kept.complete else entries)
            if one.offset < kept.stable and one.kind == DATA and one.producer in committed
        ]
        seen = list(filter(committed.__contains__, kept.seen))
        if seen != due:
            all_due, all_seen = judged.due + len(due), judged.due + len(seen)
            yield f"{all_due} committed records are to be read, and {all_seen} are"
        judged.entries, judged.stable, judged.due = entries, kept.stable, judged.due + len(due)
