"""V7 and V8: what is committed and when, and by which task. (V9, the content of a log: :mod:`.log_checks`.)

Three kinds of sinks report their transactions. A sink in memory offers ``transactions()``: the subtask and checkpoint
of each committed one, in the order of commits. A sink that writes to a transactional log has it as ``log``, whose
history of requests and entries are read. A sink that writes to a database has it as ``database``, with a history alone.
Of every other sink only the rows are visible, to V1 and V2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from engine.explore.cases import NONE, promise_of
from engine.explore.invariants.base import DAMAGE, Shared, Watcher, faults_possible
from engine.explore.invariants.databases import ToldDatabase, databases_of
from engine.explore.run import CaseView, FinishedCase, World, hears
from engine.observe.trace_events import (
    AttemptStarted,
    CheckpointCompleted,
    CheckpointTriggered,
    SnapshotAcknowledged,
    SnapshotTaken,
    TaskState,
)
from operators.log.disk import DiskLog
from operators.log.memory_transaction_log import MemoryTransactionLog
from operators.log.port import INTERRUPTED, OK, REPEATED, Exchange, Producer, Request

_TAKEN_AWAY = frozenset(("expire", "fence"))
"""External faults that end a transaction for good, whatever its state: it can never be committed after that."""


_ENDS = frozenset(("prepare", "expire", "commit"))
"""Requests by which a transaction comes to its end."""

_NOBODY = ""
"""No transactional id."""

_OF_ATTEMPTS = frozenset(("begin", "append", "prepare", "late"))
"""Requests of a subtask, and the late end of a transaction."""


class Owner(NamedTuple):
    """The owner of a transactional id."""

    uid: str
    subtask: int
    incarnation: int
    attempt: int


@lru_cache(maxsize=1024)
def owner_of(transactional_id: str) -> Owner | None:
    """``uid/subtask/incarnation.attempt/slot``, or ``None`` when it is no such id."""
    uid, _, rest = transactional_id.rpartition("/")[0].rpartition("/")
    uid, _, subtask = uid.rpartition("/")
    incarnation, _, attempt = rest.partition(".")
    if not (subtask.isdigit() and incarnation.isdigit() and attempt.isdigit()):
        return None
    return Owner(uid, int(subtask), int(incarnation), int(attempt))


def logs_of(world: World) -> Iterator[tuple[str, MemoryTransactionLog]]:
    """The transactional logs that sinks of a world write to, by uid."""
    for uid, sink in sorted(world.sinks.items()):
        log = getattr(sink, "log", None)
        if isinstance(log, MemoryTransactionLog):
            yield uid, log


def histories_of(world: World) -> Iterator[tuple[str, MemoryTransactionLog | DiskLog | ToldDatabase]]:
    """The same with databases, and with logs on disk, of which only the history is known here: a power cut may take
    records that were not promised."""
    for uid, sink in sorted(world.sinks.items()):
        log = getattr(sink, "log", None)
        if isinstance(log, MemoryTransactionLog | DiskLog):
            yield uid, log
    for uid, database in databases_of(world):
        yield uid, ToldDatabase(uid, database)


class CommitOnCompletion(Watcher):
    name = "V7"
    title = "What a sink has pre-committed is committed once its checkpoint is complete, in the end, and not before."
    reason = "Committed earlier, it may have to be taken back, which is impossible; never committed, it is lost."
    source = "Flink TwoPhaseCommitSinkFunction; apache/iceberg#15846, #10526"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._newest = 0
        self._completed: set[int] = set()
        self._lost: set[int] = set()
        """Completed checkpoints that an attempt did not begin from, because a disk was broken."""
        self._seen: dict[str, set[tuple[int, int]]] = {}
        self._operators: dict[str, list[tuple[str, int]]] = {}
        """By task: uid and subtask of its operators. Another parallelism may make other chains."""
        self._snapshots: dict[int, set[Owner]] = {}
        """By checkpoint: the tasks that took a snapshot for it."""
        self._has_log = False
        self._timeline: list[tuple[dict[str, int], int]] = []
        """Completed or restored checkpoints, each with the number of requests to each log before that."""

    def process_started(self, view: CaseView) -> None:
        super().process_started(view)
        self._operators = {
            one.name: [(operator.uid, one.subtask) for operator in view.plan.vertices[one.vertex].operators]
            for one in view.plan.subtasks
        }
        self._has_log = any(True for _ in histories_of(view.world))

    def job_started(self, view: CaseView) -> None:
        """Numbers are used again: transactions of the last job with those numbers are never committed."""
        start = 0 if view.start is None else view.start.checkpoint_id
        self._snapshots = {number: taken for number, taken in self._snapshots.items() if number <= start}
        self._completed = {number for number in self._completed if number <= start}
        self._newest = min(self._newest, start)

    def process_died(self, view: CaseView) -> None:
        """Its commits stay."""
        self._look_at(view.execution.kernel.now_ns)

    @hears(SnapshotTaken)
    def _on_snapshot(self, event: SnapshotTaken) -> None:
        if not self._has_log:
            return
        incarnation, taken = self.view.incarnation, self._snapshots.setdefault(event.checkpoint_id, set())
        taken.update([Owner(*operator, incarnation, event.attempt) for operator in self._operators[event.task]])

    @hears(CheckpointCompleted)
    def _on_completed(self, event: CheckpointCompleted) -> None:
        self._look_at(event.time_ns)
        self.shared.completed(event)
        if self.shared.commits(event.checkpoint_id):
            self._is_complete(event.checkpoint_id)

    @hears(AttemptStarted)
    def _on_attempt(self, event: AttemptStarted) -> None:
        self._look_at(event.time_ns)
        self.shared.attempt_started(event)
        if self.shared.has_stopped_in_vain:
            # Records that the savepoint covered are processed again, in other transactions.
            self._lost.update(range((event.restored_checkpoint or 0) + 1, self._newest + 1))
        if not DAMAGE.isdisjoint(faults_possible(self.view)):
            # Work that a broken disk has lost is done again, in other transactions.
            restored = event.restored_checkpoint or 0
            self._lost.update(number for number in self._completed if number > restored)
        if event.restored_checkpoint is not None:
            # It may have become durable without a completion event, because its process died.
            self._is_complete(event.restored_checkpoint)

    def _is_complete(self, number: int) -> None:
        self._newest = max(self._newest, number)
        if number not in self._completed:
            self._completed.add(number)
            self._timeline.append(({uid: len(log.history) for uid, log in histories_of(self.view.world)}, number))

    @hears(CheckpointTriggered)
    def _look(self, event: CheckpointTriggered) -> None:
        self._look_at(event.time_ns)

    def _look_at(self, now_ns: int | None) -> None:
        if promise_of(self.view.config.protocol) == NONE:
            return
        for uid, sink in self.view.world.sinks.items():
            transactions = getattr(sink, "transactions", None)
            if transactions is None:
                continue
            known = self._seen.setdefault(uid, set())
            for subtask, number in transactions():
                if (subtask, number) not in known:
                    known.add((subtask, number))
                    if number > self._newest:
                        self.violated(
                            f"sink {uid!r}, subtask {subtask}, has committed what belongs to checkpoint {number}, but"
                            f" the newest that is complete is {self._newest}",
                            now_ns,
                            checkpoint_id=number,
                            uid=uid,
                        )

    def finished(self, case: FinishedCase) -> None:
        self._look_at(None)
        if promise_of(self.view.config.protocol) == NONE:
            self.skipped = f"mode {self.view.config.mode} commits without checkpoints"
            return
        for uid, log in histories_of(self.view.world):
            self._judge(uid, log, case)

    def _judge(self, uid: str, log: MemoryTransactionLog | DiskLog | ToldDatabase, case: FinishedCase) -> None:
        prepared: dict[Producer, int] = {}
        covered: set[Producer] = set()
        gone: set[Producer] = set()
        committed: set[Producer] = set()
        waiting = [(position.get(uid, 0), number) for position, number in self._timeline]
        for exchange in log.history:
            request = exchange.request
            if request.kind not in _ENDS and exchange.fate not in _TAKEN_AWAY:
                continue
            while waiting and waiting[0][0] <= exchange.number:
                covered |= self._covered_by(waiting.pop(0)[1], prepared)
            producer = Producer(request.transactional_id or "", request.epoch)
            if request.kind == "prepare" and exchange.result in (OK, REPEATED):
                prepared[producer] = request.note or 0
            elif request.kind == "expire" or exchange.fate in _TAKEN_AWAY:
                gone.add(producer)
            elif request.kind == "commit" and exchange.result in (OK, REPEATED, INTERRUPTED):
                # A request that broke off may have been carried out; a later request then answers "repeated".
                if exchange.result != INTERRUPTED:
                    committed.add(producer)
                if producer not in covered and exchange.result != REPEATED:
                    self._too_early(uid, exchange, prepared.get(producer))
        for _, number in waiting:
            covered |= self._covered_by(number, prepared)
        if case.outcome == "finished":
            due = {producer for producer in covered if prepared[producer] not in self._lost}
            self._never(uid, due - committed - gone, prepared)

    def _covered_by(self, number: int, prepared: Mapping[Producer, int]) -> set[Producer]:
        taken = self._snapshots.get(number, set())
        return {one for one, note in prepared.items() if note <= number and owner_of(one.transactional_id) in taken}

    def _too_early(self, uid: str, exchange: Exchange, note: int | None) -> None:
        what = "without having been pre-committed" if note is None else f"pre-committed for checkpoint {note}"
        self.violated(
            f"sink {uid!r} commits transaction {exchange.request.transactional_id}, {what}, but no checkpoint that"
            " holds it is complete",
            exchange.request.at_ns or None,
            uid=uid,
            checkpoint_id=note,
        )

    def _never(self, uid: str, missing: set[Producer], prepared: Mapping[Producer, int]) -> None:
        for producer in sorted(missing):
            self.violated(
                f"sink {uid!r} has pre-committed transaction {producer} for checkpoint {prepared[producer]}, which is"
                " complete, and never commits it",
                None,
                uid=uid,
                checkpoint_id=prepared[producer],
            )


class Fencing(Watcher):
    name = "V8"
    title = "Nothing is taken from an attempt that is over: no acknowledgement, no record, no commit."
    reason = "A zombie does not know that it is dead; what it still says is about state that is not the job's any more."
    source = "Jepsen: Bufstream 0.1.0; Kafka KIP-98 and KIP-890; Flink: execution attempt ids in every message"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._current: dict[str, int] = {}
        self._finished: set[tuple[str, int]] = set()
        self._acknowledged: dict[int, dict[str, set[int]]] = {}
        self._begun: list[int] = []
        """Checkpoints that were triggered since the last attempt began."""

    def process_started(self, view: CaseView) -> None:
        """Attempts count from 1 again."""
        super().process_started(view)
        self._current.clear()
        self._finished.clear()
        self._acknowledged.clear()
        self._begun.clear()

    @hears(TaskState)
    def _on_task(self, event: TaskState) -> None:
        self._current[event.task] = max(event.attempt, self._current.get(event.task, 0))
        if event.state == "finished":
            self._finished.add((event.task, event.attempt))

    @hears(AttemptStarted)
    def _on_attempt(self, event: AttemptStarted) -> None:
        self._begun.clear()

    @hears(CheckpointTriggered)
    def _on_triggered(self, event: CheckpointTriggered) -> None:
        self._begun.append(event.checkpoint_id)

    @hears(SnapshotAcknowledged)
    def _on_acknowledged(self, event: SnapshotAcknowledged) -> None:
        self._acknowledged.setdefault(event.checkpoint_id, {}).setdefault(event.task, set()).add(event.attempt)

    @hears(CheckpointCompleted)
    def _on_completed(self, event: CheckpointCompleted) -> None:
        number = event.checkpoint_id
        if number not in self._begun:
            text = f"checkpoint {number} is complete, but was begun before attempt {event.attempt}"
            self.violated(text, event.time_ns, checkpoint_id=number)
        for task, attempts in sorted(self._acknowledged.pop(number, {}).items()):
            current = self._current.get(task, 0)
            if current not in attempts and (task, current) not in self._finished:
                self.violated(
                    f"checkpoint {number} is complete with what {task} acknowledged in attempt {max(attempts)}, which"
                    f" is over: it runs in attempt {current}",
                    event.time_ns,
                    checkpoint_id=number,
                    task=task,
                )

    def finished(self, case: FinishedCase) -> None:
        for uid, log in histories_of(self.view.world):
            newest: dict[tuple[str, int], tuple[int, int]] = {}
            place = f"{'database' if isinstance(log, ToldDatabase) else 'log'} of sink {uid!r}"
            proper: str | None = _NOBODY
            for exchange in log.history:
                request = exchange.request
                if request.transactional_id == proper and request.kind != "late":
                    # A name that may make requests may do so until another one does.
                    continue
                if exchange.result == OK and request.kind in _OF_ATTEMPTS:
                    proper = request.transactional_id if self._is_proper(place, uid, request, newest) else _NOBODY

    def _is_proper(
        self, place: str, uid: str, request: Request, newest: dict[tuple[str, int], tuple[int, int]]
    ) -> bool:
        if request.kind == "late":
            self.violated(
                f"{place}: the end of transaction {request.transactional_id} (epoch {request.epoch}), come"
                " late, has ended the one that is open now",
                request.at_ns or None,
                uid=uid,
            )
            return False
        owner = owner_of(request.transactional_id or "")
        if owner is None:
            return False
        who, when = (owner.uid, owner.subtask), (owner.incarnation, owner.attempt)
        is_newest = when >= newest.get(who, when)
        if not is_newest:
            incarnation, attempt = newest[who]
            self.violated(
                f"{place}: {request.name} is taken from an attempt that is over; the subtask writes in"
                f" attempt {attempt} of process {incarnation}",
                request.at_ns or None,
                uid=uid,
            )
        newest[who] = max(when, newest.get(who, when))
        return is_newest
