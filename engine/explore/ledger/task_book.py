"""The ledger of one task in one attempt: reports of its operators, from the first record to the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.explore.ledger.ledger_entries import (
    KEY,
    WHOLE,
    Cell,
    Exposed,
    Origin,
    Place,
    RecordCause,
    TaskPart,
    subtask_split,
)
from engine.explore.ledger.ranges import Effects
from engine.observe.provenance import COMMITS, KEYED, STATE, TaskFacts
from state_backends.base import key_group_for, operator_index_for_key_group

if TYPE_CHECKING:
    from engine.explore.ledger.ledger import EffectLedger


class TaskBook:
    """Implements :class:`engine.observe.provenance.TaskProvenance`: the ledger of one task in one attempt."""

    def __init__(self, ledger: EffectLedger, facts: TaskFacts) -> None:
        self.facts = facts
        self.cells: dict[Place, Cell] = {}
        self.read_up_to: dict[int, int] = {}
        """By split: how many of its records were read."""
        self.has_finished = False
        self._ledger = ledger
        self._epoch = ledger.next_epoch()
        head = facts.operators[0]
        self._keyed = head.uid if head.role == KEYED else None
        self._operators = {operator.uid: operator for operator in facts.operators}
        self._cause: RecordCause | None = None
        self._causes: list[RecordCause | None] = []
        self._speaker: tuple[str, Any, Any] | None = None
        self._open: dict[str, Exposed] = {}
        self._pending: list[Exposed] = []

    @classmethod
    def of_finished(cls, ledger: EffectLedger, part: TaskPart) -> TaskBook:
        """Of a task that had finished, according to a checkpoint."""
        book = cls(ledger, part.facts)
        book.cells, book.read_up_to, book.has_finished = dict(part.cells), dict(part.read), True
        return book

    # --- the port -----------------------------------------------------------------------------------------------

    def restored(self, checkpoint_id: int | None) -> None:
        ledger, facts = self._ledger, self.facts
        for part in ledger.part_of(facts, checkpoint_id):
            same = part.facts.task == facts.task and part.facts.parallelism == facts.parallelism
            for origin, number in part.read.items():
                self.read_up_to[origin] = max(number, self.read_up_to.get(origin, 0))
            for place, cell in part.cells.items():
                if same or self._owns(place, part.facts):
                    there = self.cells.get(place)
                    self.cells[place] = cell if there is None else there.and_also(cell)
        ledger.starts(self, checkpoint_id)

    def _owns(self, place: Place, written_by: TaskFacts) -> bool:
        operator, facts = self._operators.get(place.uid), self.facts
        if operator is None:
            return False
        if place.kind != KEY:
            rescaled = written_by.parallelism != facts.parallelism
            return rescaled and written_by.subtask % facts.parallelism == facts.subtask
        group = key_group_for(place.key, facts.max_parallelism, operator.key_type)
        return operator_index_for_key_group(facts.max_parallelism, facts.parallelism, group) == facts.subtask

    def lineage(self, uid: str) -> OperatorLineage:
        return OperatorLineage(self, uid)

    def read(self, uid: str, split: str, due_ns: int | None) -> None:
        origin = self._ledger.origin(Origin(uid, split, is_source=True))
        number = self.read_up_to.get(origin, 0)
        self.read_up_to[origin] = number + 1
        self._cause = (origin, number)

    def handles(self, cause: RecordCause, keys: Sequence[Any] | None, records: int) -> None:
        self._cause = cause
        if self._keyed is not None:
            assert keys is not None, f"{self.facts.task} has keyed state and records without keys"
            for key in keys:
                self._effect(Place(self._keyed, KEY, key), cause, 1)

    def handled(self) -> None:
        self._cause = None

    def reaches(self, uid: str, values: Sequence[Any]) -> None:
        cause = self.cause
        operator = self._operators[uid]
        causes = self._ledger.summarized(uid, cause) if operator.takes_summaries else [cause] * len(values)
        if operator.role == STATE:
            for one in causes:
                self._effect(Place(uid, WHOLE), one, 1)
            return
        open_now = self._open.get(uid)
        if open_now is None:
            open_now = self._open[uid] = self._nothing_yet(uid)
            if operator.exposes != COMMITS:
                self._ledger.show(open_now)
        for one in causes:
            open_now.effects.add(*one)
        if self._ledger.keeps_rows:
            open_now.rows += [(cause, value) for value in values]

    def emits(self, uid: str) -> bool:
        speaker = self._speaker
        if speaker is not None and speaker[0] == uid:
            _, key, namespace = speaker
            place = Place(uid, WHOLE) if key is None else Place(uid, KEY, key)
        elif self._cause is not None:
            return False
        else:
            place, key, namespace = Place(uid, WHOLE), None, None
        cell = self._cell(place)
        number = cell.emitted.get(namespace, 0)
        cell.emitted[namespace] = number + 1
        split = None if place.kind == KEY else subtask_split(self.facts.subtask)
        self._causes.append(self._cause)
        self._cause = cause = (self._ledger.origin(Origin(uid, split, key, namespace)), number)
        self._ledger.versions[cause] = cell.version
        batch = cell.waiting.pop(namespace, None)
        if batch is not None:
            self._ledger.batches[cause] = batch
        return True

    def emitted(self) -> None:
        self._cause = self._causes.pop()

    @property
    def cause(self) -> RecordCause:
        """Of the present emission."""
        assert self._cause is not None, f"{self.facts.task} emits, but no cause was noted"
        return self._cause

    def snapshot(self, checkpoint_id: int) -> None:
        for uid in [uid for uid in self._open if self._operators[uid].exposes == COMMITS]:
            one = self._open.pop(uid)
            one.checkpoint_id = checkpoint_id
            self._pending.append(one)
        self._ledger.put_part(checkpoint_id, self.part())

    def stored(
        self, checkpoint_id: int, side: str, edge: str, sender: int, receiver: int, causes: list[RecordCause]
    ) -> None:
        self._ledger.put_in_flight(checkpoint_id, (side, edge, sender, receiver), causes)

    # --- for operators ----------------------------------------------------------------------------------------

    def waits(self, uid: str, namespace: Any, records: int) -> None:
        """Records of the present cause will be emitted together."""
        waiting = self._cell(Place(uid, WHOLE)).waiting.setdefault(namespace, Effects())
        for _ in range(records):
            waiting.add(*self.cause)

    # --- for the ledger -----------------------------------------------------------------------------------------

    def speak(self, speaker: tuple[str, Any, Any] | None) -> None:
        """Set the state from which an operator emits from now on."""
        self._speaker = speaker

    def part(self) -> TaskPart:
        """The task's part of a checkpoint taken now. Cells are copied when they change next."""
        self._epoch = self._ledger.next_epoch()
        return TaskPart(self.facts, dict(self.cells), dict(self.read_up_to), tuple(self._pending), self.has_finished)

    def take_pending(self, checkpoint_id: int) -> list[Exposed]:
        """Output that a completed checkpoint makes visible."""
        taken = [one for one in self._pending if one.checkpoint_id is not None and one.checkpoint_id <= checkpoint_id]
        self._pending = [one for one in self._pending if one not in taken]
        return taken

    def take_rest(self) -> list[Exposed]:
        """All output that was not shown yet."""
        taken = self.unseen()
        self._open, self._pending = {}, []
        return taken

    def unseen(self) -> list[Exposed]:
        """Output that has reached sinks and was not shown."""
        return [*self._pending, *self._open.values()]

    def _nothing_yet(self, uid: str) -> Exposed:
        facts = self.facts
        return Exposed(uid, facts.task, facts.incarnation, facts.attempt, None, 0)

    def _cell(self, place: Place) -> Cell:
        cell = self.cells.get(place)
        if cell is None:
            cell = self.cells[place] = Cell(self._epoch)
        elif cell.epoch != self._epoch:
            cell = self.cells[place] = cell.copy(self._epoch)
        return cell

    def _effect(self, place: Place, cause: RecordCause, times: int) -> None:
        cell = self._cell(place)
        cell.version += times
        for _ in range(times):
            cell.effects.add(*cause)


class OperatorLineage:
    """Implements :class:`engine.observe.provenance.Lineage` for one operator."""

    __slots__ = ("_book", "_uid")

    def __init__(self, book: TaskBook, uid: str) -> None:
        self._book = book
        self._uid = uid

    def emitting(self, key: Any, namespace: Any = None) -> None:
        """Emissions from now on come from the state of ``key``; from all state of the task when it is ``None``."""
        self._book.speak((self._uid, key, namespace))

    def emitted(self) -> None:
        self._book.speak(None)

    def waits(self, records: int, namespace: Any = None) -> None:
        """Records wait in the operator's state for a later emission of a namespace."""
        self._book.waits(self._uid, namespace, records)
