"""What the subtasks of a batch have sent, compared: two attempts at a subtask must send the same.

Spark runs a subtask again when its output is lost with an executor. Receivers may have read the first output by then,
and others read the second. When a function is not deterministic, these differ: records are lost, or there twice.

Rules.
* No checkpoint without one truth per channel: the checksum in the report of its sender is that of its receiver.
* Spark may notice first, and runs all stages after the subtask again, or gives up. ``SentOutputs`` knows what each
  attempt has sent, also those whose report never arrives.
* The first subtask in plan order is named: others may differ because their input does.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.elements.errors import JobFailedError
from engine.graph.plan import ExecutionPlan
from spark_bridge.pipeline.subtask_batch import SubtaskReport

Sent = dict[tuple[int, int], frozenset[int]]
"""By checkpoint and subtask: the checksums of the outputs of all its attempts."""


class SentOutputs:
    """How Spark adds up :data:`Sent` (an ``AccumulatorParam``): also of tasks that it has run again."""

    def zero(self, value: Sent) -> Sent:
        return {}

    def addInPlace(self, value: Sent, more: Sent) -> Sent:
        for attempt, checksums in more.items():
            value[attempt] = value.get(attempt, frozenset()) | checksums
        return value


def differing_attempts(sent: Sent, checkpoint_id: int) -> int | None:
    """The first subtask, by its index, that has sent one thing and then another in this batch."""
    found = [subtask for (batch, subtask), checksums in sent.items() if batch == checkpoint_id and len(checksums) > 1]
    return min(found, default=None)


def differing_reports(plan: ExecutionPlan, reports: Iterable[SubtaskReport]) -> int | None:
    """The first subtask, by its index, of which a receiver got something else than its report says."""
    sent: dict[int, int] = {}
    received: dict[int, int] = {}
    for report in reports:
        sent |= report.sent_checksums
        received |= report.received_checksums
    index = {(one.vertex, one.subtask): one.index for one in plan.subtasks}
    channels = [channel for channel in plan.channels if sent.get(channel.index) != received.get(channel.index)]
    return min((index[one.sender_vertex, one.sender_subtask] for one in channels), default=None)


def not_deterministic(plan: ExecutionPlan, subtask: int, checkpoint_id: int) -> JobFailedError:
    """The error of a subtask that has sent different things."""
    vertex = plan.vertices[plan.subtasks[subtask].vertex]
    operators = " -> ".join(one.name for one in vertex.operators)
    has_come, go_on = "", ", then"
    if vertex.is_source:
        has_come, go_on = "more input had come by then, or ", "; if only input has come, just"
    return JobFailedError(
        f"{plan.subtasks[subtask].name!r} ran twice in the batch of checkpoint {checkpoint_id}, and sent other records"
        " the second time\n"
        f"  {has_come}a function of {operators} is not deterministic: it reads a clock, draws, or walks through a set\n"
        "  nothing of the batch is committed. fix: let its results depend on records and state only (weir run"
        f" --paranoid, without --on, names the call){go_on} go on with weir resume"
    )
