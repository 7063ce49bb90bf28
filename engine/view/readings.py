"""The state of a running job as cells: small texts by kind, owner and name. A viewer shows how they change.

Kinds: ``state`` (keyed state, by key), ``position`` (of a source, by split), ``transaction`` (of a sink), ``queue``
(the elements in a channel), ``blocked`` (channels whose barrier has come), ``pressure`` (tasks whose outputs are full).
Reading changes nothing: a watched run is the same run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from engine.elements.batch import Batch
from engine.elements.events import CheckpointBarrier, Watermark
from engine.runtime.tasks import Task
from engine.view.shown import shown
from operators.basic import SinkOperator
from operators.sources import SavedSplit, SourceOperator
from operators.transactions import TwoPhaseCommitSinkOperator

STATE, POSITION, TRANSACTION, QUEUE, BLOCKED, PRESSURE, READER = (
    "state", "position", "transaction", "queue", "blocked", "pressure", "reader",
)  # fmt: skip

MOST_ENTRIES = 100
"""Of the keyed state of one operator in one subtask: with more, only their number is shown."""
_MOST_ELEMENTS = 6
_DEAD = ("failed", "canceled")
_GONE = (*_DEAD, "finished")


class Reading(NamedTuple):
    kind: str
    owner: str
    """A task, with the operator if it has several; of a queue: the number of the channel."""
    name: str


def state_of(task: Task) -> Iterator[tuple[Reading, str]]:
    """The keyed state of a task."""
    if task.life.state not in _GONE:
        for plan, context in zip(task.chain.plans, task.chain.contexts, strict=True):
            if context.keyed is not None:
                yield from _keyed(_owner(task, plan.name), context.keyed)


def _owner(task: Task, operator: str) -> str:
    return task.name if len(task.chain.plans) == 1 else f"{task.name} {operator}"


def cells_of(task: Task) -> Iterator[tuple[Reading, str]]:
    """Positions of sources, and transactions of sinks."""
    if task.life.state in _DEAD:
        return
    for plan, operator in zip(task.chain.plans, task.chain.operators, strict=True):
        owner = _owner(task, plan.name)
        if isinstance(operator, SourceOperator):
            yield from _positions(owner, operator)
        elif isinstance(operator, TwoPhaseCommitSinkOperator):
            for name, transaction in operator.transactions():
                yield Reading(TRANSACTION, owner, shown(transaction)), name
        elif isinstance(operator, SinkOperator) and task.life.state not in _GONE:
            pending = operator.fingerprint()
            if pending is not None:
                yield Reading(TRANSACTION, owner, "to be committed"), shown(pending, 120)


def pressure_of(task: Task) -> Iterator[tuple[Reading, str]]:
    """How many outputs of a task are full."""
    if task.full_outputs and task.life.state not in _DEAD:
        full = "1 output is full" if task.full_outputs == 1 else f"{task.full_outputs} outputs are full"
        yield Reading(PRESSURE, task.name, ""), full


def _keyed(owner: str, keyed: Any) -> Iterator[tuple[Reading, str]]:
    count = keyed.num_entries()
    if count > MOST_ENTRIES:
        yield Reading(STATE, owner, "all keys"), f"{count:,} entries"
        return
    for state, key, namespace, value in keyed.entries():
        where = "" if namespace is None else f", {shown(namespace, 40)}"
        yield Reading(STATE, owner, f"{state} [{shown(key, 40)}{where}]"), shown(value)


def _positions(owner: str, operator: SourceOperator) -> Iterator[tuple[Reading, str]]:
    splits: Any = operator.fingerprint()
    for saved, _ in splits[0]:
        split = SavedSplit(*saved)
        if split.position is not None or split.finished:
            done = " (read to its end)" if split.finished else ""
            yield Reading(POSITION, owner, shown(split.id)), f"{shown(split.position)}{done}"


def channels_of(tasks: Iterable[Task]) -> dict[int, Any]:
    """The channels that the tasks send on, by index."""
    return {channel.index: channel for task in tasks for writer in task.writers for channel in writer.channels}


def queue_of(channel: Any) -> Iterator[tuple[Reading, str]]:
    """The elements in a channel, the next one first, and whether it is blocked."""
    owner = str(channel.index)
    waiting = [element for _, element in (*channel.queue, *(channel.outgoing or ()))]
    elements = [text for text in map(_element, waiting[: 4 * _MOST_ELEMENTS]) if text]
    if elements or channel.queued_records:
        more = f", … {channel.queued_records:,} records" if len(waiting) > _MOST_ELEMENTS else ""
        text = ", ".join(elements[:_MOST_ELEMENTS]) or f"{channel.queued_records} under way"
        yield Reading(QUEUE, owner, ""), text + more
    if channel.blocked:
        yield Reading(BLOCKED, owner, ""), "blocked"


def _element(element: Any) -> str:
    if isinstance(element, Batch):
        return shown(element.values[0]) if len(element) == 1 else f"{len(element):,} records"
    if isinstance(element, CheckpointBarrier):
        return f"barrier {element.checkpoint_id}"
    if isinstance(element, Watermark):
        return "" if element.timestamp_ms >= 2**63 - 1 else f"watermark {element.timestamp_ms}"
    return ""
