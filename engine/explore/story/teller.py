"""Tells a story: what a witness has seen, put into steps, in the words of the job.

Steps are made of the entries of a :class:`engine.explore.story.witness.Witness`. Bookkeeping of the engine that does
not concern the job (credits, ends of partitions, states of tasks that merely run) has no step.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from engine.elements.errors import shorten
from engine.explore.cases import Case
from engine.explore.run import Bounds, FinishedCase, Invariant, Subject, run_case
from engine.explore.story.story import (
    ABORT,
    BARRIER,
    CHANCE,
    COMMIT,
    COMPLETE,
    CRASH,
    END,
    FAULT,
    KINDS,
    MANAGER,
    PROCESS,
    RECORD,
    RESTORE,
    SNAPSHOT,
    TRIGGER,
    USER,
    Arrow,
    Story,
    StoryStep,
)
from engine.explore.story.witness import (
    BESIDE_THE_TRACE,
    RECORDS,
    Entry,
    FaultStruck,
    JobStarted,
    OutputChanged,
    ProcessDied,
    RecordsHandled,
    RecordsRead,
    Witness,
)
from engine.observe.trace_events import (
    AttemptStarted,
    BackgroundWorkDone,
    ChannelBlocked,
    ChannelResumed,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointCut,
    CheckpointTriggered,
    CreditChanged,
    Departed,
    Receive,
    RecordsCaptured,
    RunEnded,
    RunStarted,
    Send,
    SnapshotAcknowledged,
    SnapshotTaken,
    TaskState,
    TimerFired,
)
from engine.runtime.kernel import START_NS

_BARRIER = "CheckpointBarrier"
_LAST_WATERMARK_MS = 2**63 - 1
_LONGEST_VALUE = 60
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_RECORDS_SHOWN = 4


def tell(
    subject: Subject, case: Case, invariants: Sequence[Invariant] = (), bounds: Bounds | None = None
) -> tuple[Story, FinishedCase, Witness]:
    """Run a case once more with a witness, and tell what happened."""
    witness = Witness(subject)
    finished = run_case(witness.subject, case, [witness, *invariants], bounds=bounds)
    return story_of(witness), finished, witness


def story_of(witness: Witness) -> Story:
    """The story that a witness has seen."""
    teller = _Teller(witness)
    for entry in witness.entries:
        teller.hear(entry)
    return teller.story()


def sayings(witness: Witness) -> Iterator[tuple[int, Entry, Saying]]:
    """Each action that a witness has seen: the number of its entry, the entry, and the phrase."""
    teller = _Teller(witness)
    for number, entry in enumerate(witness.entries):
        for saying in teller.say(entry):
            yield number, entry, saying


@dataclass(slots=True)
class Saying:
    """One phrase: actor, verb, kind; ``what``: the object, where the same may be done to several."""

    actor: str
    verb: str
    kind: str
    what: str = ""
    sent: Arrow | None = None
    taken: Arrow | None = None
    dies: bool = False


class _Teller:
    """Reads the entries and puts them into steps."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._ends: dict[int, tuple[str, str]] = {}
        self._read_so_far: set[tuple[str, str, int]] = set()
        self._barriers: dict[int, int] = {}
        """By channel: the checkpoint whose barrier the receiver has taken but has no snapshot of yet."""
        self._snapshots: dict[str, int] = {}
        self._given_up: set[int] = set()
        self._steps: list[StoryStep] = []
        self._incarnation = 1
        self._is_new_job = False
        self._start: int | None = None
        """The savepoint that the job was started from."""
        self._attempts = 0
        self._time_ns = START_NS
        self._number = 0
        self._sayings: Mapping[type[Any], Callable[[Any], Iterator[Saying]]] = {
            RunStarted: self._run_started,
            AttemptStarted: self._attempt_started,
            TaskState: self._task_state,
            Send: self._send,
            Receive: self._receive,
            RecordsCaptured: self._captured,
            ChannelBlocked: self._blocked,
            ChannelResumed: self._resumed,
            TimerFired: self._timer,
            CheckpointTriggered: self._triggered,
            SnapshotTaken: self._snapshot,
            SnapshotAcknowledged: self._acknowledged,
            CheckpointCompleted: self._completed,
            CheckpointAborted: self._aborted,
            CheckpointCut: self._cut,
            RunEnded: self._run_ended,
            RecordsRead: self._read,
            RecordsHandled: self._handled,
            OutputChanged: self._output,
            ProcessDied: self._died,
            JobStarted: self._job_started,
            FaultStruck: self._struck,
        }

    def hear(self, entry: Entry) -> None:
        """Put one entry into a step."""
        is_traced = not isinstance(entry, BESIDE_THE_TRACE)
        self._time_ns = entry.time_ns
        for saying in self.say(entry):
            self._add(saying, self._number + is_traced)
        if is_traced:
            self._number += 1
            if self._steps and isinstance(entry, _ALONG):
                self._steps[-1].end = self._number

    def say(self, entry: Entry) -> Iterator[Saying]:
        """The phrases about one entry."""
        say = self._sayings.get(entry.__class__)
        return iter(()) if say is None else say(entry)

    def story(self) -> Story:
        steps = _joined(self._steps)
        for number, step in enumerate(steps, start=1):
            step.number = number
        tasks = {(one.vertex, one.subtask): one.name for plan in self._witness.plans.values() for one in plan.subtasks}
        return Story(tuple(steps), (*(name for _, name in sorted(tasks.items())), MANAGER))

    def _add(self, saying: Saying, end: int) -> None:
        last = self._steps[-1] if self._steps else None
        if last is not None and last.actors == [saying.actor] and last.time_ns == self._time_ns:
            step = last
            step.kind = min(step.kind, saying.kind, key=KINDS.index)
        else:
            step = StoryStep(0, self._time_ns, [saying.actor], saying.kind, [], self._number, end)
            self._steps.append(step)
        step.end = end
        step.say(saying.verb, saying.what)
        step.dies |= saying.dies
        step.sent += [saying.sent] if saying.sent is not None else []
        step.taken += [saying.taken] if saying.taken is not None else []

    # -- processes and attempts ---------------------------------------------------------------------------------------

    def _run_started(self, event: RunStarted) -> Iterator[Saying]:
        self._attempts = 0
        plan = self._witness.plans[event.incarnation]
        names = {(one.vertex, one.subtask): one.name for one in plan.subtasks}
        self._ends = {
            one.index: (names[one.sender_vertex, one.sender_subtask], names[one.receiver_vertex, one.receiver_subtask])
            for one in plan.channels
        }
        if event.incarnation != self._incarnation:
            self._incarnation, is_new_job, self._is_new_job = event.incarnation, self._is_new_job, False
            if is_new_job:
                return
            yield Saying(PROCESS, f"another one takes over (incarnation {event.incarnation})", RESTORE)

    def _attempt_started(self, event: AttemptStarted) -> Iterator[Saying]:
        self._attempts += 1
        self._barriers, self._snapshots, self._given_up = {}, {}, set()
        restored = event.restored_checkpoint
        if restored is not None:
            what = "savepoint" if restored == self._start else "checkpoint"
            yield Saying(MANAGER, f"attempt {event.attempt} starts from {what} {restored}", RESTORE)
        elif self._attempts > 1 or self._incarnation > 1:
            yield Saying(MANAGER, f"attempt {event.attempt} starts from the beginning: no checkpoint", RESTORE)
        else:
            yield Saying(MANAGER, "the job starts", END)

    def _died(self, event: ProcessDied) -> Iterator[Saying]:
        if event.cancelled:
            yield Saying(USER, "cancels the job", CRASH, dies=True)
            return
        yield Saying(PROCESS, "dies", CRASH, dies=True)

    def _job_started(self, entry: JobStarted) -> Iterator[Saying]:
        self._is_new_job, self._start, order = True, entry.start.checkpoint_id, entry.start.order
        changed = [f"{name}={value}" for name, value in sorted(order.settings.items())]
        how = _listed([order.claim, *changed], 1 + len(changed))
        text = f"starts another job from savepoint {self._start} ({how}; incarnation {entry.incarnation})"
        yield Saying(USER, text, RESTORE)

    def _struck(self, entry: FaultStruck) -> Iterator[Saying]:
        yield Saying(CHANCE, f"{entry.fault} strikes", FAULT)

    def _task_state(self, event: TaskState) -> Iterator[Saying]:
        if event.state == "failed":
            yield Saying(event.task, f"dies ({event.cause})" if event.cause else "dies", CRASH, dies=True)
        elif event.state == "end_of_data":
            yield Saying(event.task, "all input has come", END)

    def _run_ended(self, event: RunEnded) -> Iterator[Saying]:
        yield Saying(MANAGER, f"the job is {event.state}", END)

    # -- records ------------------------------------------------------------------------------------------------------

    def _read(self, entry: RecordsRead) -> Iterator[Saying]:
        records = [(entry.uid, entry.split, number) for number in entry.numbers]
        shown = _listed(
            (
                f"#{record[2]} = {_value(one)}{' (again)' if record in self._read_so_far else ''}"
                for record, one in zip(records, entry.values, strict=True)
            ),
            len(records),
        )
        self._read_so_far.update(records)
        yield Saying(entry.task, f"reads {shown} of {entry.split}", RECORD)

    def _handled(self, entry: RecordsHandled) -> Iterator[Saying]:
        shown = _values(entry.values)
        if entry.taken is None:
            yield Saying(entry.task, f"{entry.operator} gets {shown}", RECORD)
            return
        sender, _ = self._ends[entry.taken.channel]
        arrow = self._arrow(entry.taken, shown)
        barrier = self._barriers.get(entry.taken.channel)
        # The sender has sent this after its snapshot, and the snapshot of the task will hold it.
        early = "" if barrier is None else f", sent after barrier {barrier}"
        yield Saying(entry.task, f"takes {shown} from {sender}{early}", RECORD, taken=arrow)

    def _send(self, event: Send) -> Iterator[Saying]:
        sender, receiver = self._ends[event.channel]
        if event.kind == RECORDS:
            carried = self._witness.carried(self._incarnation, event)
            shown = f"{event.records} records" if carried is None else _values(carried)
            yield Saying(sender, f"sends {shown} to", RECORD, receiver, sent=self._arrow(event, shown))
        elif event.kind == _BARRIER:
            arrow = self._arrow(event, f"barrier {event.detail}")
            yield Saying(sender, f"sends barrier {event.detail} to", BARRIER, receiver, sent=arrow)
        elif self._is_watermark(event):
            yield Saying(sender, f"sends watermark {event.detail}", RECORD)

    def _receive(self, event: Receive) -> Iterator[Saying]:
        sender, receiver = self._ends[event.channel]
        if event.kind == _BARRIER:
            arrow = self._arrow(event, f"barrier {event.detail}")
            assert event.detail is not None, "a barrier has the number of its checkpoint"
            if event.detail > self._snapshots.get(receiver, 0) and event.detail not in self._given_up:
                self._barriers[event.channel] = event.detail
            yield Saying(receiver, f"takes barrier {event.detail} from", BARRIER, sender, taken=arrow)
        elif self._is_watermark(event):
            yield Saying(receiver, f"takes watermark {event.detail} from {sender}", RECORD)

    @staticmethod
    def _is_watermark(event: Send | Receive) -> bool:
        return event.kind == "Watermark" and event.detail != _LAST_WATERMARK_MS

    def _arrow(self, event: Send | Receive, label: str) -> Arrow:
        element = (self._incarnation, event.attempt, event.channel, event.element)
        return Arrow(element, label, event.kind == _BARRIER)

    def _timer(self, event: TimerFired) -> Iterator[Saying]:
        yield Saying(event.task, f"a timer of {event.operator} fires", RECORD)

    def _output(self, entry: OutputChanged) -> Iterator[Saying]:
        for name, rows in entry.added.items():
            yield Saying(entry.task, f"readers of {name} now see {_listed(rows, len(rows))}", COMMIT)
        for name, rows in entry.gone.items():
            yield Saying(entry.task, f"readers of {name} see {_listed(rows, len(rows))} no longer", COMMIT)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def _triggered(self, event: CheckpointTriggered) -> Iterator[Saying]:
        becomes = self._witness.savepoints.get((self._incarnation, event.checkpoint_id))
        text = f"triggers {self._named(event.checkpoint_id)}{'' if becomes is None else f' ({becomes})'}"
        yield Saying(MANAGER, text, TRIGGER)

    def _named(self, number: int) -> str:
        return f"{'savepoint' if (self._incarnation, number) in self._witness.savepoints else 'checkpoint'} {number}"

    def _snapshot(self, event: SnapshotTaken) -> Iterator[Saying]:
        self._snapshots[event.task] = event.checkpoint_id
        self._barriers = {one: at for one, at in self._barriers.items() if self._ends[one][1] != event.task}
        yield Saying(event.task, "takes its snapshot of", SNAPSHOT, self._named(event.checkpoint_id))

    def _acknowledged(self, event: SnapshotAcknowledged) -> Iterator[Saying]:
        yield Saying(event.task, "acknowledges", SNAPSHOT, self._named(event.checkpoint_id))

    def _completed(self, event: CheckpointCompleted) -> Iterator[Saying]:
        yield Saying(MANAGER, f"{self._named(event.checkpoint_id)} is complete", COMPLETE)

    def _aborted(self, event: CheckpointAborted) -> Iterator[Saying]:
        self._given_up.add(event.checkpoint_id)
        self._barriers = {one: at for one, at in self._barriers.items() if at != event.checkpoint_id}
        yield Saying(MANAGER, f"{self._named(event.checkpoint_id)} is given up ({event.reason})", ABORT)

    def _cut(self, event: CheckpointCut) -> Iterator[Saying]:
        for channel, sent, received in event.differences:
            sender, receiver = self._ends[channel]
            text = f"{sender} has sent {sent} records to {receiver}, which has taken {received}"
            yield Saying(MANAGER, f"in checkpoint {event.checkpoint_id}, {text}", COMPLETE)

    def _captured(self, event: RecordsCaptured) -> Iterator[Saying]:
        sender, receiver = self._ends[event.channel]
        owner = receiver if event.side == "input" else sender
        text = f"{event.records} in flight from {sender} to {receiver} become part of checkpoint {event.checkpoint_id}"
        yield Saying(owner, text, SNAPSHOT)

    def _blocked(self, event: ChannelBlocked) -> Iterator[Saying]:
        sender, receiver = self._ends[event.channel]
        yield Saying(receiver, "blocks", BARRIER, sender)

    def _resumed(self, event: ChannelResumed) -> Iterator[Saying]:
        sender, receiver = self._ends[event.channel]
        yield Saying(receiver, "unblocks", BARRIER, sender)


_ALONG = (Departed, CreditChanged, BackgroundWorkDone, TaskState)
"""Events without a step of their own: they belong to the step before."""


def _joined(steps: list[StoryStep]) -> list[StoryStep]:
    """Merge adjacent equal steps of one instant, each with one actor, into one step."""
    joined: list[StoryStep] = []
    for step in steps:
        last = joined[-1] if joined else None
        if (
            last is not None
            and step.kind in (SNAPSHOT, END, CRASH)
            and (last.time_ns, last.phrases) == (step.time_ns, step.phrases)
            and not (step.sent or step.taken or last.sent or last.taken)
        ):
            last.actors += step.actors
            last.end = step.end
        else:
            joined.append(step)
    return joined


def _listed(texts: Iterable[str], number: int) -> str:
    """The first of the texts; the others are not made, because a batch may have thousands of records."""
    first = ", ".join(islice(texts, _RECORDS_SHOWN))
    return f"{first}, … ({number} in all)" if number > _RECORDS_SHOWN else first


def _values(values: Sequence[Any]) -> str:
    return _listed(map(_value, values), len(values))


def value_text(value: Any) -> str:
    """``repr(value)``, the same in every process: without addresses in memory, and of any value."""
    return _ADDRESS.sub("", shorten(value, sys.maxsize))


def _value(value: Any) -> str:
    text = value_text(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
