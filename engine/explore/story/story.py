"""The story of a run: what happened, step by step, in the words of the job.

A *step* is the action of one task (or the job manager, or a process) at one instant: it took a record, changed the
output, sent an element on. Steps are made of the entries of a :class:`engine.explore.story.witness.Witness`. Each step
keeps the numbers of its trace events, so that the step at which two runs part can be marked, and a picture drawn.

A story is kept short. Bookkeeping of the engine that does not concern the job (credits, ends of partitions, states of
tasks that merely run) has no step. When there are many steps, those that only pass records on are summed up, more of
them the farther they are from important steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from engine.explore.cases import Case
from engine.explore.run import Bounds, FinishedCase, Invariant, Subject, run_case
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

MANAGER, PROCESS, CHANCE, USER = "job manager", "process", "fault", "user"
"""Actors besides tasks."""

CRASH, FAULT, RESTORE, COMMIT, COMPLETE, ABORT, TRIGGER, SNAPSHOT, BARRIER, RECORD, END = (
    "crash", "fault", "restore", "commit", "complete", "abort", "trigger", "snapshot", "barrier", "record", "end",
)  # fmt: skip
"""The subject of a step; of several, the first in this order."""

_KINDS = (CRASH, FAULT, RESTORE, COMMIT, COMPLETE, ABORT, TRIGGER, SNAPSHOT, BARRIER, RECORD, END)
_MATTER = (CRASH, FAULT, RESTORE, COMMIT, COMPLETE, ABORT)
_BARRIER = "CheckpointBarrier"
_LAST_WATERMARK_MS = 2**63 - 1
_LONGEST_VALUE = 60
_RECORDS_SHOWN = 4

_PLURAL = {"acknowledges": "acknowledge", "takes its snapshot of": "take their snapshots of"}

MARK = "→"


@dataclass(frozen=True, slots=True)
class Arrow:
    """Something sent from one step to another. ``element`` identifies it; ``label`` names it."""

    element: tuple[int, int, int, int]
    label: str
    is_barrier: bool


@dataclass(slots=True)
class StoryStep:
    """``phrases``: verbs and their objects, in order; ``first`` and ``end``: the numbers of the step's trace events;
    ``sent`` and ``taken``: arrows that begin and end here; ``dies``: an actor dies here."""

    number: int
    time_ns: int
    actors: list[str]
    kind: str
    phrases: list[tuple[str, list[str]]]
    first: int
    end: int
    sent: list[Arrow] = field(default_factory=list)
    taken: list[Arrow] = field(default_factory=list)
    dies: bool = False

    @property
    def text(self) -> str:
        """The actor and its action."""
        blocked, unblocked = self._objects("blocks"), self._objects("unblocks")
        said = []
        for verb, objects in self.phrases:
            # A channel that is blocked and unblocked at once has delayed no record.
            passing = unblocked if verb == "blocks" else blocked if verb == "unblocks" else ()
            shown = [one for one in objects if one not in passing]
            if shown or not objects:
                word = _PLURAL.get(verb, verb) if len(self.actors) > 1 else verb
                said.append(f"{word} {', '.join(shown)}" if shown else word)
        return f"{', '.join(self.actors)}: {', '.join(said)}" if self.actors else ", ".join(said)

    @property
    def blocks(self) -> bool:
        """Whether a channel is blocked here, and stays so."""
        unblocked = self._objects("unblocks")
        return any(one not in unblocked for one in self._objects("blocks"))

    def _objects(self, verb: str) -> list[str]:
        return [one for other, objects in self.phrases if other == verb for one in objects]

    def say(self, verb: str, what: str) -> None:
        """Add a phrase, or only its object when the verb before was the same."""
        if self.phrases and self.phrases[-1][0] == verb and what:
            if what not in self.phrases[-1][1]:
                self.phrases[-1][1].append(what)
        elif (verb, [what] if what else []) not in self.phrases:
            self.phrases.append((verb, [what] if what else []))


@dataclass(frozen=True, slots=True)
class Story:
    """All steps of a run, in order. ``actors`` in the order of the plan; ``distinguishing``: the number of the step at
    which the nearest passing run differs."""

    steps: tuple[StoryStep, ...]
    actors: tuple[str, ...]
    distinguishing: int | None = None

    def marked(self, event: int | None) -> Story:
        """The story, with a mark at the step of trace event number ``event``, or of the first one after it."""
        at = None if event is None else next((one.number for one in self.steps if one.end > event), None)
        return Story(self.steps, self.actors, at)

    def lines(self, limit: int = 60) -> list[str]:
        """One line per step, about ``limit`` at most: beyond it, steps that only pass records on are summed up."""
        lines = []
        width = len(str(len(self.steps)))
        shown = [(step, time_text(step.time_ns)) for step in self.shortened(limit)]
        widest = max((len(time) for _, time in shown), default=0)
        for step, time in shown:
            mark = MARK if step.number == self.distinguishing else " "
            number = str(step.number) if step.number else "…"
            lines.append(f"{mark} {number:>{width}}  {time:<{max(9, widest)}} {step.text}")
        return lines

    def shortened(self, limit: int) -> list[StoryStep]:
        """At most ``limit`` of the steps, the most important ones, and between them steps without a number that sum up
        the omitted ones."""
        kept = self._kept(limit)
        shown: list[StoryStep] = []
        skipped: list[StoryStep] = []
        for step in self.steps:
            if step.number in kept:
                shown += _summary(skipped)
                skipped = []
                shown.append(step)
            else:
                skipped.append(step)
        return shown + _summary(skipped)

    def _kept(self, limit: int) -> frozenset[int]:
        if len(self.steps) <= limit:
            return frozenset(step.number for step in self.steps)
        matters = [at for at, step in enumerate(self.steps) if step.kind in _MATTER or self._is_marked(step)]

        def rank(at: int) -> tuple[int, int, int]:
            step = self.steps[at]
            distance = min((abs(at - other) for other in matters), default=0)
            return (0 if self._is_marked(step) else 1 + (distance > 0), distance + 2 * _KINDS.index(step.kind), at)

        chosen = sorted(range(len(self.steps)), key=rank)[:limit]
        return frozenset(self.steps[at].number for at in chosen)

    def _is_marked(self, step: StoryStep) -> bool:
        return step.number == self.distinguishing

    def __str__(self) -> str:
        return "\n".join(self.lines())


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
            step.kind = min(step.kind, saying.kind, key=_KINDS.index)
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


def _summary(skipped: Sequence[StoryStep]) -> list[StoryStep]:
    """One step without number and actor that replaces several."""
    if not skipped:
        return []
    taken = sum(1 for step in skipped for arrow in step.taken if not arrow.is_barrier)
    text = f"{len(skipped)} further step{'' if len(skipped) == 1 else 's'}"
    phrases: list[tuple[str, list[str]]] = [(text, [])]
    if taken:
        phrases.append((f"records taken {'once' if taken == 1 else f'{taken} times'}", []))
    return [StoryStep(0, skipped[0].time_ns, [], RECORD, phrases, skipped[0].first, skipped[-1].end)]


def _listed(texts: Iterable[str], number: int) -> str:
    """The first of the texts; the others are not made, because a batch may have thousands of records."""
    first = ", ".join(islice(texts, _RECORDS_SHOWN))
    return f"{first}, … ({number} in all)" if number > _RECORDS_SHOWN else first


def _values(values: Sequence[Any]) -> str:
    return _listed(map(_value, values), len(values))


def _value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def time_text(time_ns: int) -> str:
    """Virtual time since the start, exact: ``+12.5us``."""
    passed = time_ns - START_NS
    for factor, unit in ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")):
        if passed >= factor:
            return f"+{f'{passed / factor:.6f}'.rstrip('0').rstrip('.')}{unit}"
    return f"+{passed}ns"
