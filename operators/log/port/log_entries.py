"""The meaning of the entries of a partition, and the invariants between them and the names of the coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from operators.log.port.transaction_log import (
    ABORT_MARKER,
    ABORTED,
    COMMIT_MARKER,
    COMMITTED,
    DATA,
    LogEntry,
    LogRecord,
    Producer,
)
from operators.log.port.transaction_names import Name

# Observers read whole partitions, again and again. So entries are unpacked below: a name of a named tuple is looked up
# in a slow way. And calling its class takes twice as long as this.
_new_tuple = tuple.__new__


def aborted_ranges(entries: Sequence[LogEntry]) -> list[tuple[Producer, int, int]]:
    """For each aborted transaction: the offsets of its first record and of its marker."""
    first: dict[Producer, int] = {}
    ranges = []
    for entry in entries:
        if entry.producer is not None:
            first.setdefault(entry.producer, entry.offset)
            if entry.kind == ABORT_MARKER:
                ranges.append((entry.producer, first[entry.producer], entry.offset))
    return ranges


def decided(entries: Sequence[LogEntry], end: int) -> list[LogRecord]:
    """The records below offset ``end`` that a marker commits or that have no transaction."""
    committed: set[Producer | None] = {producer for _, kind, producer, _ in entries if kind == COMMIT_MARKER}
    committed.add(None)
    return [
        _new_tuple(LogRecord, (offset, value, producer))
        for offset, kind, producer, value in entries
        if kind == DATA and producer in committed and offset < end
    ]


def stable_offset(entries: Sequence[LogEntry], end: int) -> int:
    """The offset of the first record whose transaction has no marker yet, or ``end``."""
    marked = {entry.producer for entry in entries if entry.kind != DATA}
    undecided = (one.offset for one in entries if one.producer is not None and one.producer not in marked)
    return next(undecided, end)


def validate_names(names: Mapping[str, Name]) -> None:
    """Check the invariants of names; an ``AssertionError`` says which one is violated."""
    for key, name in names.items():
        assert name.ended.get(name.epoch) is None, f"{key}: the current epoch {name.epoch} has ended"
        assert name.ended.last_epoch < name.epoch, f"{key}: an epoch of the future has ended"
        assert name.state is not None or not name.written, f"{key}: records without a transaction"
        assert name.written.keys() == name.first_offsets.keys(), f"{key}: {name.written} {name.first_offsets}"


def validate_partition(
    where: str, entries: Sequence[LogEntry], names: Mapping[str, Name], *, complete: bool = True
) -> None:
    """Check the invariants of the entries of a partition; ``complete``: from its beginning, nothing deleted."""
    marked: dict[Producer, str] = {}
    written: dict[Producer, None] = {}
    first = entries[0].offset if entries and not complete else 0
    for expected, (offset, kind, producer, _) in enumerate(entries, first):
        assert offset == expected, f"{where}: entry {expected} says that it is {offset}"
        if producer is None:
            assert kind == DATA, f"{where}: a marker without a producer at {offset}"
            continue
        assert producer not in marked, f"{where}: {kind} of {producer} after its marker"
        if kind == DATA:
            written[producer] = None
        else:
            written_here = producer in written or not complete
            assert written_here, f"{where}: {producer} is ended where it wrote nothing"
            marked[producer] = COMMITTED if kind == COMMIT_MARKER else ABORTED
    for producer in written:
        name = names.get(producer.transactional_id)
        if name is None:
            assert producer in marked, f"{where}: {producer} is forgotten, and has no marker"
            continue
        ended = name.ended.get(producer.epoch)
        if ended is None:
            # The log may have forgotten its name and registered it again.
            is_over = name.epoch != producer.epoch
            assert (producer in marked) == is_over, f"{where}: {producer} is {'over' if is_over else 'open'}, {marked}"
        else:
            visible = COMMITTED if ended == COMMITTED else ABORTED
            assert marked.get(producer) == visible, f"{where}: {producer} is {ended}, {marked}"
