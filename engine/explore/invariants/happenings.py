"""V15: events that must sometimes happen; without them a campaign that found nothing has tested nothing.

Each happening decides from the case's settings and its job's channels alone whether it applies. If one applied to some
cases of a campaign and never happened, the campaign is vacuous: its verdict is *unknown*, not *valid*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from engine.checkpoint.coordinator import IgnoredBecause
from engine.elements.events import StopMode
from engine.explore.cases import CANCEL, CLAIM_MODES, DRAIN, EXACTLY_ONCE, STOP, Savepoint
from engine.explore.invariants.base import Shared, Watcher, faults_possible
from engine.explore.invariants.transactions import histories_of
from engine.explore.run import CaseView, FinishedCase, hears
from engine.observe.trace_events import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointCut,
    RecordReplayed,
    RecordsCaptured,
    ReportIgnored,
    TaskState,
)
from engine.runtime.job import STOPPED
from operators.log.port import REFUSED_AS_FENCED

DEATHS = frozenset(("crash", "rescale", "raise"))
"""Faults that end an attempt."""

_JOB_MANAGER, _PROCESS = "job manager", "process"


def _takes(view: CaseView) -> bool:
    return view.config.protocol.takes_checkpoints


def _dies(view: CaseView) -> bool:
    return _takes(view) and not faults_possible(view).isdisjoint(DEATHS)


def _dies_twice(view: CaseView) -> bool:
    case = view.case
    exact = sum(one.kind in DEATHS for one in case.faults)
    return _dies(view) and exact + (case.mix.most if not DEATHS.isdisjoint(case.mix.per_million) else 0) > 1


def _stores(view: CaseView) -> bool:
    """Whether barriers may overtake records: in this mode, and on some edge of this job."""
    return view.config.protocol.stores_channel_state and any(edge.supports_unaligned for edge in view.plan.edges)


def _counts_twice(view: CaseView) -> bool:
    """Whether a task may take records after a barrier and before its snapshot: it must wait for another input."""
    waits = any(len(subtask.input_channels) > 1 for subtask in view.plan.subtasks)
    return _takes(view) and not view.config.protocol.consistent_cut and waits


def _commits(view: CaseView) -> bool:
    """Whether some sink commits, after a checkpoint completes, the output that it covers, and its commits are told."""
    told = {uid for uid, _ in histories_of(view.world)}
    return _takes(view) and any(
        getattr(sink, "delivery", EXACTLY_ONCE) == EXACTLY_ONCE and (uid in told or hasattr(sink, "transactions"))
        for uid, sink in view.world.sinks.items()
    )


def _may_strike(view: CaseView, target: str) -> bool:
    """Whether ``target`` may die: the case says so, or a draw may."""
    exact = any(one.kind == "crash" and one.hits(target) for one in view.case.faults)
    return _takes(view) and (exact or "crash" in view.case.mix.per_million)


def _first(view: CaseView) -> Savepoint | None:
    """The first savepoint, if neither a fault nor a user who finds a newer checkpoint can prevent it. The job may have
    ended before the others are due."""
    orders = view.case.savepoints
    return orders[0] if orders and not faults_possible(view) and orders[0].kind != CANCEL else None


def _takes_savepoints(view: CaseView) -> bool:
    return _first(view) is not None


def _orders(kind: str, view: CaseView) -> bool:
    first = _first(view)
    return first is not None and first.kind == kind


def _goes_on(view: CaseView) -> bool:
    first = _first(view)
    return first is not None and first.ends_job


def _starts_with(claim: str, view: CaseView) -> bool:
    first = _first(view)
    return first is not None and first.ends_job and first.claim == claim


def _started_with(claim: str) -> str:
    return f"started with {claim.replace('-', ' ')}"


def _changes(setting: str, view: CaseView) -> bool:
    """Whether the resumed job has another value of this setting than the job before."""
    first, had = _first(view), view.case.config.get(setting)
    return first is not None and had is not None and first.settings.get(setting, had) != had


def _tracks(view: CaseView) -> bool:
    """Whether records are tracked, and something may happen to one."""
    return view.config.protocol.tracks_records and bool(faults_possible(view))


@dataclass(frozen=True, slots=True)
class Happening:
    """``meaning``: in a sentence; ``applies``: whether to expect it of a case at all."""

    meaning: str
    applies: Callable[[CaseView], bool]


SOMETIMES: Mapping[str, Happening] = {
    "completed": Happening("a checkpoint was completed", _takes),
    "committed early": Happening("output was committed before the job came to its end", _commits),
    "restored": Happening("an attempt went on from a completed checkpoint", _dies),
    "aborted": Happening("a checkpoint was aborted", lambda view: _takes(view) and bool(faults_possible(view))),
    "stored in flight": Happening("a completed checkpoint held records in flight", _stores),
    "restored in flight": Happening(
        "an attempt went on from records in flight", lambda view: _stores(view) and _dies(view)
    ),
    "committed again": Happening(
        "a restore committed what its checkpoint covered", lambda view: _commits(view) and _dies(view)
    ),
    "fenced": Happening(
        "a task that counted as dead came back and was not listened to",
        lambda view: _takes(view) and "pause" in faults_possible(view),
    ),
    "rescaled": Happening(
        "a process went on with another parallelism", lambda view: "rescale" in faults_possible(view)
    ),
    "died again": Happening("an attempt ended before it had completed a checkpoint of its own", _dies_twice),
    "job manager died": Happening("the job manager died", lambda view: _may_strike(view, _JOB_MANAGER)),
    "second process": Happening(
        "a process died, and another one went on",
        lambda view: _may_strike(view, _PROCESS) or "rescale" in faults_possible(view),
    ),
    "counted twice": Happening("a checkpoint held effects of records that would come again", _counts_twice),
    "overlapped": Happening(
        "two checkpoints were pending together", lambda view: _takes(view) and view.config.max_concurrent > 1
    ),
    "savepoint": Happening("a savepoint was completed", _takes_savepoints),
    "stopped": Happening("a job stopped with a savepoint", partial(_orders, STOP)),
    "drained": Happening("a job was drained", partial(_orders, DRAIN)),
    "restored from savepoint": Happening("a job went on from a savepoint", _goes_on),
    "rescaled savepoint": Happening(
        "a job went on from a savepoint with another parallelism", partial(_changes, "parallelism")
    ),
    "another backend": Happening(
        "a job went on from a savepoint with another state backend", partial(_changes, "state_backend")
    ),
    **{
        _started_with(mode): Happening(
            f"a job went on from a savepoint with claim mode {mode}", partial(_starts_with, mode)
        )
        for mode in CLAIM_MODES
    },
    "sent again": Happening("a record that was not acknowledged in time was sent again", _tracks),
}
"""By name."""


class Sometimes(Watcher):
    """V15. Never violated; a campaign adds up ``happened``."""

    name = "V15"
    title = "What a campaign is about does happen in it: restores, aborts, records in flight, second commits, zombies."
    reason = "A search that never came to the point has shown nothing, however many runs it made."
    source = "Antithesis: sometimes assertions; FoundationDB: CODE_PROBE; stateright; Jepsen's third verdict"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._seen: set[str] = set()
        self._first: CaseView | None = None
        """Of the first process."""
        self._captured: set[int] = set()
        self._in_flight: set[int] = set()
        self._coordinator: object | None = None
        self._attempts: dict[str, int] = {}
        self._parallelism: tuple[int, ...] | None = None
        self._processes = 0
        self._backend = ""
        self._restored: int | None = None
        self._commits: int | None = None
        """How many there were when the attempt began, until its first completed checkpoint."""
        self._completed_since = True

    @property
    def happened(self) -> dict[str, bool]:
        """For everything that applies to the case, by name: whether it has happened."""
        # Where faults may prevent a happening of a savepoint, it is not expected, but counted if it happens.
        first, counted = self._first, self._seen if self.view.case.savepoints else ()
        assert first is not None, "a process has started"
        return {name: name in self._seen for name, one in SOMETIMES.items() if one.applies(first) or name in counted}

    def process_started(self, view: CaseView) -> None:
        super().process_started(view)
        if self._first is None:
            self._first = view
        self._processes += 1
        self._attempts.clear()
        self._has_gone_on(view)
        parallelism = tuple(vertex.parallelism for vertex in view.plan.vertices)
        if self._processes > 1:
            self._seen.add("second process")
            if parallelism != self._parallelism:
                self._seen.add("rescaled")
        self._parallelism = parallelism
        self._coordinator = view.execution.manager.coordinator

    def _has_gone_on(self, view: CaseView) -> None:
        start, backend = view.start, view.config.backend().name
        if start is not None:
            self._seen.update(("restored from savepoint", _started_with(start.order.claim)))
            if backend != self._backend:
                self._seen.add("another backend")
            if tuple(vertex.parallelism for vertex in view.plan.vertices) != self._parallelism:
                self._seen.add("rescaled savepoint")
        self._backend = backend

    def process_died(self, view: CaseView) -> None:
        """It may have died before its first checkpoint."""
        self._attempt_over()
        if view.execution.manager.job.state == STOPPED:
            stops = [one.order.stop for one in view.execution.manager.savepoints.reports if one.order.stop is not None]
            self._seen.add("drained" if stops[-1] is StopMode.TERMINATE else "stopped")

    @hears(AttemptStarted)
    def _on_attempt(self, event: AttemptStarted) -> None:
        self._attempt_over()
        coordinator = self.view.execution.manager.coordinator
        if coordinator is not self._coordinator:
            self._seen.add("job manager died")
            self._coordinator = coordinator
        self._restored = event.restored_checkpoint
        self._completed_since = False
        self._commits = self._count_commits()
        if self._restored is not None:
            self._seen.add("restored")
            if self._restored in self._in_flight:
                self._seen.add("restored in flight")

    def _attempt_over(self) -> None:
        if not self._completed_since and self._restored is not None:
            self._seen.add("died again")
        self._compare_commits()
        self._completed_since = True

    def _compare_commits(self) -> None:
        """Until a checkpoint of this attempt is complete, its commits belong to the restored one."""
        if self._commits is not None and self._restored is not None and self._count_commits() > self._commits:
            self._seen.add("committed again")
        self._commits = None

    def _count_commits(self) -> int:
        count = 0
        for sink in self.view.world.sinks.values():
            transactions = getattr(sink, "transactions", None)
            if transactions is not None:
                count += len(transactions())
        for _, log in histories_of(self.view.world):
            count += sum(one.request.kind == "commit" and one.result == "ok" for one in log.history)
        return count

    @hears(CheckpointCompleted)
    def _on_completed(self, event: CheckpointCompleted) -> None:
        self._compare_commits()
        self._completed_since = True
        self._seen.add("completed")
        if self.shared.is_savepoint(event.checkpoint_id):
            self._seen.add("savepoint")
        if event.checkpoint_id in self._captured:
            self._in_flight.add(event.checkpoint_id)
            self._seen.add("stored in flight")
        if len(self.view.execution.manager.coordinator.pending.ids) > 1:
            self._seen.add("overlapped")
        if "committed early" not in self._seen and self._count_commits():
            self._seen.add("committed early")

    @hears(CheckpointAborted)
    def _on_aborted(self, event: CheckpointAborted) -> None:
        self._seen.add("aborted")

    @hears(CheckpointCut)
    def _on_cut(self, event: CheckpointCut) -> None:
        if any(received > sent for _, sent, received in event.differences):
            self._seen.add("counted twice")

    @hears(RecordReplayed)
    def _on_replayed(self, event: RecordReplayed) -> None:
        self._seen.add("sent again")

    @hears(RecordsCaptured)
    def _on_captured(self, event: RecordsCaptured) -> None:
        self._captured.add(event.checkpoint_id)

    @hears(TaskState)
    def _on_task(self, event: TaskState) -> None:
        # A task that dies normally dies before its successor begins.
        if event.attempt < self._attempts.get(event.task, 0):
            self._seen.add("fenced")
        else:
            self._attempts[event.task] = event.attempt

    @hears(ReportIgnored)
    def _on_ignored(self, event: ReportIgnored) -> None:
        if event.reason == IgnoredBecause.OLDER_ATTEMPT.name:
            self._seen.add("fenced")

    def finished(self, case: FinishedCase) -> None:
        for _, log in histories_of(self.view.world):
            if any(one.result == REFUSED_AS_FENCED for one in log.history):
                self._seen.add("fenced")
