"""The numbers of messages that a run has sent, so that protocols can be compared on one job.

Counted are: *Data*: records on channels between tasks, including repeated and lost ones. *Control*, by kind:

* ``barrier``, ``cancel marker``: on channels, per checkpoint and channel;
* ``trigger``, ``acknowledge``, ``decline``, ``notify``: between job manager and tasks, per checkpoint and task;
* ``init``, ``ack``, ``fail``, ``reset``, ``reply``: of record acking, per record.

Messages that all protocols need (watermarks, ends of streams, the permission to end) are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.observe.metrics import MessageCounter
    from engine.runtime.execution import ExecutionResult

_NAMES = {
    "trigger_checkpoint": "trigger",
    "receive_acknowledge": "acknowledge",
    "receive_decline": "decline",
    "notify_checkpoint_complete": "notify",
    "notify_checkpoint_aborted": "notify",
    "notify_stop_complete": "notify",
}


@dataclass(frozen=True, slots=True)
class MessageCounts:
    """``data``: records between tasks; ``by_kind``: control messages, for the kinds that occurred."""

    data: int
    by_kind: Mapping[str, int]

    @property
    def control(self) -> int:
        return sum(self.by_kind.values())


def message_counts(result: ExecutionResult, counter: MessageCounter) -> MessageCounts:
    """The messages of a run. ``counter``: an instrument of that run."""
    by_kind = dict(counter.control)
    for operation, name in _NAMES.items():
        by_kind[name] = by_kind.get(name, 0) + result.messages.get(operation, 0)
    acking = result.acking
    if acking is not None:
        by_kind.update(acking.control)
    # A record to a task that is down is sent, but no channel carries it.
    data = counter.records if acking is None else acking.data
    return MessageCounts(data, {kind: count for kind, count in by_kind.items() if count})
