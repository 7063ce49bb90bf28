"""The state of a running job as cells: small texts by kind, owner and name. A viewer shows how they change.

Kinds: ``state`` (keyed state, by key), ``position`` (of a source, by split), ``transaction`` (of a sink), ``queue``
(the elements in a channel), ``blocked`` (channels whose barrier has come), ``pressure`` (tasks whose outputs are full).
Reading changes nothing: a watched run is the same run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

from engine.elements.batch import Batch
from engine.elements.events import CheckpointBarrier, Watermark
from engine.runtime.tasks import Task
from engine.view.shown import shown
from operators.basic import SinkOperator
from operators.sources import SourceOperator
from operators.transactions import TwoPhaseCommitSinkOperator
from state_backends.api import KeyedStateBackend
from state_backends.snapshots import EncodedBlock, StateId

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


def state_of(task: Task, known: dict[str, KeyedTexts]) -> dict[Reading, str]:
    """The keyed state of a task. ``known``: what was read before, by owner; it may be of another attempt."""
    found: dict[Reading, str] = {}
    if task.life.state not in _GONE:
        for plan, context in zip(task.chain.plans, task.chain.contexts, strict=True):
            if context.keyed is not None:
                owner = _owner(task, plan.name)
                found |= known.setdefault(owner, KeyedTexts(owner)).read(context.keyed)
    return found


def _owner(task: Task, operator: str) -> str:
    return task.name if len(task.chain.plans) == 1 else f"{task.name} {operator}"


def cells_of(task: Task) -> dict[Reading, str]:
    """Positions of sources, and transactions of sinks."""
    return {} if task.life.state in _DEAD else dict(_cells(task))


def _cells(task: Task) -> Iterator[tuple[Reading, str]]:
    for plan, operator in zip(task.chain.plans, task.chain.operators, strict=True):
        owner = _owner(task, plan.name)
        if isinstance(operator, SourceOperator):
            yield from _positions(owner, operator)
        elif isinstance(operator, TwoPhaseCommitSinkOperator):
            for name, transaction in operator.transactions():
                yield Reading(TRANSACTION, owner, shown(transaction)), name
        elif isinstance(operator, SinkOperator) and task.life.state not in _GONE:
            told = operator.uncommitted()
            pending = operator.fingerprint() if told is None else None
            for name, amount in told or ():
                yield Reading(TRANSACTION, owner, name), amount
            if pending is not None:
                yield Reading(TRANSACTION, owner, "to be committed"), shown(pending, 120)


def pressure_of(task: Task) -> dict[Reading, str]:
    """How many outputs of a task are full."""
    if not task.full_outputs or task.life.state in _DEAD:
        return {}
    full = "1 output is full" if task.full_outputs == 1 else f"{task.full_outputs} outputs are full"
    return {Reading(PRESSURE, task.name, ""): full}


class KeyedTexts:
    """The keyed state of one operator in one task as cells. A state is read again after each event, and an event
    changes a few entries: those whose bytes are as they were keep their texts."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._blocks: dict[tuple[StateId, int], tuple[EncodedBlock, dict[Reading, str]]] = {}

    def read(self, keyed: KeyedStateBackend) -> dict[Reading, str]:
        count = keyed.num_entries()
        if count > MOST_ENTRIES:
            self._blocks = {}
            return {Reading(STATE, self._owner, "all keys"): f"{count:,} entries"}
        known, self._blocks = self._blocks, {}
        cells: dict[Reading, str] = {}
        for group, block in keyed.content():
            where = block.state, group
            last = known.get(where)
            if last is None or last[0] != block:
                last = block, dict(self._texts(keyed, block))
            self._blocks[where] = last
            cells |= last[1]
        return cells

    def _texts(self, keyed: KeyedStateBackend, block: EncodedBlock) -> Iterator[tuple[Reading, str]]:
        for key, namespace, value in keyed.entries_of(block):
            where = "" if namespace is None else f", {shown(namespace, 40)}"
            yield Reading(STATE, self._owner, f"{block.state.name} [{shown(key, 40)}{where}]"), shown(value)


def _positions(owner: str, operator: SourceOperator) -> Iterator[tuple[Reading, str]]:
    for split, (position, finished) in operator.positions().items():
        end = "read to its end"
        if position is not None:
            yield Reading(POSITION, owner, shown(split)), f"{shown(position)} ({end})" if finished else shown(position)
        elif finished:
            yield Reading(POSITION, owner, shown(split)), end


def channels_of(tasks: Iterable[Task]) -> dict[int, Any]:
    """The channels that the tasks send on, by index."""
    return {channel.index: channel for task in tasks for writer in task.writers for channel in writer.channels}


def queue_of(channel: Any) -> dict[Reading, str]:
    """The elements in a channel, the next one first, and whether it is blocked."""
    found = {}
    arrived, outgoing = channel.queue, channel.outgoing or ()
    waiting = islice(chain(arrived, outgoing), 4 * _MOST_ELEMENTS)
    elements = list(islice(filter(None, (_element(one) for _, one in waiting)), _MOST_ELEMENTS))
    if elements or channel.queued_records:
        is_long = len(arrived) + len(outgoing) > _MOST_ELEMENTS
        more = f", … {channel.queued_records:,} records" if is_long else ""
        text = ", ".join(elements) or f"{channel.queued_records} under way"
        found[Reading(QUEUE, str(channel.index), "")] = text + more
    if channel.blocked:
        found[Reading(BLOCKED, str(channel.index), "")] = "blocked"
    return found


def _element(element: Any) -> str:
    if isinstance(element, Batch):
        return shown(element.values[0]) if len(element) == 1 else f"{len(element):,} records"
    if isinstance(element, CheckpointBarrier):
        return f"barrier {element.checkpoint_id}"
    if isinstance(element, Watermark):
        return "" if element.timestamp_ms >= 2**63 - 1 else f"watermark {element.timestamp_ms}"
    return ""
