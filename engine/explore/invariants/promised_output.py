"""V1 and V2: the rows that readers see, at the end and before it.

The check is never *no duplicates* alone: lost output has none. Rows are compared as multisets, partition by partition,
with the output of the same job and input without faults. A job whose rows depend on the order in which records meet has
no such reference. Then the effect ledger is the last judge: each record must still have its effects, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.elements.errors import ConfigurationError, StorageError
from engine.explore.cases import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, NONE, PER_KEY, Case, promise_of, run_config
from engine.explore.invariants.base import DAMAGE, Shared, Watcher, losses_of_files, multisets, shown
from engine.explore.ledger import EffectsInvariant
from engine.explore.opinion import OutputComparison, compare_outputs
from engine.explore.run import CaseView, FinishedCase, Invariant, Subject, hears, without_rows
from engine.observe.trace_events import AttemptStarted, CheckpointCompleted, CheckpointTriggered

LOOKS = 64
"""Every moment is checked up to this number; then only those whose number is a multiple of a growing power of two."""


_DRAINED = "a job was drained and another one went on: windows were closed early, and what was read after that is late"


def effects_judge(subject: Subject, case: Case, promise: str | None) -> EffectsInvariant | None:
    """The judge of a case by its effects, if its output cannot be compared. ``promise``: ``None`` = that of its mode.

    ``None`` where nothing is promised, where faults may destroy the checkpoints that the promise rests on, and in modes
    that track records, which keep no ledger.
    """
    kinds = frozenset((*(one.kind for one in case.faults), *case.mix.per_million))
    if promise == NONE or kinds & DAMAGE:
        return None
    try:
        # Asked before the configuration is made: it is known, and nearly always the answer.
        if subject.reference(case.dropped).order_dependent is None:
            return None
    except ConfigurationError:
        # A job that fails by itself: the run will show it.
        return None
    protocol = run_config(case).protocol
    promise = promise or promise_of(protocol)
    if promise == NONE or protocol.tracks_records:
        return None
    return EffectsInvariant.of(subject, case, promise)


def keeps(promise: str, compared: OutputComparison) -> bool:
    """Whether output that was compared with a reference keeps a promise."""
    counts = compared.counts
    if promise == EXACTLY_ONCE:
        return compared.equal
    if promise == AT_LEAST_ONCE:
        # Rows that depend on state may differ if it holds some records twice. But each missing row has then become
        # another row: there are not fewer.
        return counts.lost <= (counts.unexpected + counts.duplicated if counts.unexpected else 0)
    return promise != AT_MOST_ONCE or not (counts.duplicated or counts.unexpected)


class PromisedOutput(Watcher):
    name = "V1"
    title = "The committed output is what was promised: exactly-once = the rows of a run without faults, each as often."
    reason = "It is what users are promised, and the only thing that the outside world sees of all this machinery."
    source = "Flink: exactly-once ITCases; Veresov et al., Failure Transparency in Stateful Dataflow, ECOOP 2024"

    def __init__(self, shared: Shared | None = None, row_key: Callable[[str], str | None] | None = None) -> None:
        """``row_key``: takes the key from a row; the rows of a key must then also come in the reference's order."""
        super().__init__(shared)
        self._row_key = row_key

    def stand_in(self, subject: Subject, case: Case) -> Invariant | None:
        """The effect ledger, where rows cannot be compared."""
        return effects_judge(subject, case, self.shared.promise)

    def handlers(self) -> Mapping[type[Any], Callable[[Any], None]]:
        return {CheckpointCompleted: self.shared.completed, AttemptStarted: self.shared.attempt_started}

    def finished(self, case: FinishedCase) -> None:
        if DAMAGE.isdisjoint(fault.kind for fault in case.faults):
            for loss in losses_of_files(self.view.world, self.shared.losses):
                self.violated(f"the job reports a loss, and no fault has damaged a file: {loss}")
        if not case.is_over or case.outcome == "stopped":
            self.skipped = f"the job is {case.outcome}: its output is not whole"
            return
        promises = {partition: self.shared.promise_for(partition) for partition in case.committed}
        if self.shared.promise is None and promise_of(self.view.config.protocol) == NONE:
            self.skipped = f"mode {self.view.config.mode} promises nothing"
            return
        if self.shared.drained:
            self.skipped = _DRAINED
            return
        reference = self.shared.reference()
        if reference.order_dependent is not None:
            self.skipped = f"the job depends on the order of records: {reference.order_dependent}"
            return
        for partition in sorted({*reference.rows, *case.committed}):
            promise = promises.get(partition) or self.shared.promise_for(partition)
            expected, actual = reference.rows.get(partition, []), case.committed.get(partition, [])
            self._judge(partition, promise, expected, actual)

    def _judge(self, partition: str, promise: str, expected: Sequence[str], actual: Sequence[str]) -> None:
        compared = compare_outputs({partition: expected}, {partition: actual})
        counts = compared.counts
        if not keeps(promise, compared):
            rows = [f"{one.row} expected {one.expected}x, found {one.actual}x" for one in compared.differences[:3]]
            text = f"output {partition!r} is not {promise}: {counts}; {'; '.join(rows)}"
            details = {"partition": partition, "promise": promise, "lost": counts.lost}
            self.violated(text, None, **details, duplicated=counts.duplicated, unexpected=counts.unexpected)
        elif promise == EXACTLY_ONCE and self._row_key is not None:
            self._judge_order(partition, self._row_key, expected, actual)

    def _judge_order(
        self, partition: str, row_key: Callable[[str], str | None], expected: Sequence[str], actual: Sequence[str]
    ) -> None:
        by_key, found_by_key = _by_key(expected, row_key), _by_key(actual, row_key)
        for key in sorted(by_key):
            for number, (row, found) in enumerate(zip(by_key[key], found_by_key[key], strict=True), start=1):
                if row != found:
                    self.violated(
                        f"output {partition!r}: the rows of key {key} come in another order: number {number} is"
                        f" {found}, and {row} in the reference",
                        None,
                        partition=partition,
                        key=key,
                    )
                    break


def _by_key(rows: Sequence[str], row_key: Callable[[str], str | None]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        key = row_key(row)
        if key is not None:
            found.setdefault(key, []).append(row)
    return found


class FailureTransparency(Watcher):
    name = "V2"
    title = "At every moment readers see only rows that a run without faults commits, and never fewer than before."
    reason = "A row that is taken back was wrong when its readers acted on it; the end alone would not show that."
    source = "Veresov et al., ECOOP 2024: failure transparency; Flink: read-committed consumers"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._seen: dict[str, Counter[str]] = {}
        self._judged: Mapping[str, list[str]] | None = None
        """The rows that were judged last, if readers need not see others."""
        self._expected: dict[str, Counter[str]] | None = None
        self._moments = 0
        self._every = 1
        self._is_judged: bool | None = None
        self._may_go_back = False
        self._changes = 0
        self._every_change = 1

    def process_dies(self, view: CaseView) -> None:
        """A file gets its name before that name is durable. A power cut may take it, and the next process gives it
        again. So only rows in durable files must stay."""
        self._look(view.execution.kernel.now_ns)
        if self._is_judged is False or not view.world.file_outputs:
            return
        try:
            durable = multisets(view.world.durable_in_files())
        except StorageError as error:
            self.violated(f"readers would find a file that is torn after a power cut: {error}")
            return
        in_memory = view.world.sinks
        self._judged = None
        self._seen = {
            partition: rows if partition in in_memory else rows & durable.get(partition, Counter())
            for partition, rows in self._seen.items()
        }

    def process_died(self, view: CaseView) -> None:
        """Readers now see the world without the process."""
        self._look(view.execution.kernel.now_ns)

    def files_changed(self) -> None:
        """Often this is in the middle of a commit."""
        self._changes += 1
        if self._changes % self._every_change:
            return
        if self._changes >= LOOKS * self._every_change:
            self._every_change *= 2
        self._look(self.view.execution.kernel.now_ns)

    @hears(CheckpointCompleted)
    def _completed(self, event: CheckpointCompleted) -> None:
        self.shared.completed(event)
        self._moment(event)
        self._may_go_back = False

    @hears(AttemptStarted)
    def _attempt(self, event: AttemptStarted) -> None:
        self._moment(event)
        self.shared.attempt_started(event)
        # Sinks that can take rows back do so; V6 judges whether it was right to go back.
        self._may_go_back |= self.shared.went_back

    @hears(CheckpointTriggered)
    def _moment(self, event: Any) -> None:
        self._moments += 1
        if self._moments % self._every:
            return
        if self._moments >= LOOKS * self._every:
            self._every *= 2
        self._look(event.time_ns)

    def _look(self, now_ns: int | None) -> None:
        if self._is_judged is False:
            return
        try:
            committed = self.view.world.committed()
        except StorageError as error:
            self.violated(f"readers find a file that is torn: {error}", now_ns)
            return
        self._judge(committed, now_ns)

    def finished(self, case: FinishedCase) -> None:
        if self._is_judged is not False:
            self._judge(case.committed, None)

    def _judge(self, committed: Mapping[str, list[str]], now_ns: int | None) -> None:
        if self._is_judged is None:
            promise = self.shared.promise or promise_of(self.view.config.protocol)
            self._is_judged = promise != NONE
            if promise == NONE:
                self.skipped = f"mode {self.view.config.mode} promises nothing"
                return
        if committed == self._judged:
            return
        self._judged = committed
        now = multisets(committed)
        for partition, before in self._seen.items():
            rows = now.get(partition, Counter())
            # Nearly always: nothing that was there is gone. The rows of dictionaries are compared without a loop.
            gone = None if before.items() <= rows.items() else self._gone(partition, before, rows)
            if gone and not self._may_go_back and self._rows_stay(partition):
                self.violated(
                    f"output {partition!r}: rows that readers have seen are gone: {shown(gone)}",
                    now_ns,
                    partition=partition,
                )
        for partition, rows in now.items():
            if not self._rows_stay(partition):
                continue
            seen = self._seen.get(partition)
            is_new = seen is None or dict.__ne__(rows, seen)
            if is_new and self.shared.promise_for(partition) in (EXACTLY_ONCE, AT_MOST_ONCE):
                self._judge_rows(partition, rows, now_ns)
        self._seen = now

    def _gone(self, partition: str, before: Counter[str], now: Counter[str]) -> Counter[str]:
        if partition in self.view.world.announcers and self.shared.promise_for(partition) == AT_LEAST_ONCE:
            # A table that was announced may get rows later, and some of them twice; it is still the same table.
            return Counter(map(without_rows, before)) - Counter(map(without_rows, now))
        return before - now

    def _rows_stay(self, partition: str) -> bool:
        return self.shared.promise_for(partition) != NONE and self.shared.delivery_of(partition) != PER_KEY

    def _judge_rows(self, partition: str, rows: Counter[str], now_ns: int | None) -> None:
        if self._expected is None:
            reference = self.shared.reference()
            if reference.order_dependent is not None:
                self.skipped = f"rows are not compared: {reference.order_dependent}"
                self._expected = {}
            else:
                self._expected = multisets(reference.rows)
        if self.shared.drains:
            self.skipped = _DRAINED
        if self.skipped is not None:
            return
        expected = self._expected.get(partition, Counter())
        surplus = None if rows.items() <= expected.items() else rows - expected
        if surplus:
            self.violated(
                f"output {partition!r}: readers see rows that no run without faults commits, or too often:"
                f" {shown(surplus)}",
                now_ns,
                partition=partition,
            )
