"""The cells of a running job, read again only where something has happened.

An event of the kernel changes the state of its own target, and of tasks and channels that the trace names. So these
are read after a step, and no others: a step of a job of a thousand tasks costs as much as one of a job of three.

Rules.
1. Keyed state, positions and transactions are those of the task whose event it was, or that the trace names.
2. A channel is read when its own event has come, or when the trace names it. The pressure of its two ends may change
   with it.
3. A task that has changed its state is read with all its channels. At a new attempt everything is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.explore.run import CaseView
from engine.observe.trace_events import (
    AttemptStarted,
    ChannelBlocked,
    ChannelResumed,
    Departed,
    Receive,
    RunStarted,
    Send,
    TaskState,
    TraceEvent,
)
from engine.runtime.channels import Channel
from engine.runtime.tasks import Task
from engine.view.readings import KeyedTexts, Reading, cells_of, channels_of, pressure_of, queue_of, state_of

Changes = dict[Reading, tuple[str | None, str | None]]
"""By cell: its text before and after, ``None`` = there is no such cell."""

_OF_CHANNELS = (Send, Receive, Departed, ChannelBlocked, ChannelResumed)
_PRESSURE, _INSIDE, _QUEUE = "pressure", "inside", "queue"


class ChangingCells:
    """The texts of all cells of the newest process, and what has changed since they were last read."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, Any], dict[Reading, str]] = {}
        """By what was read: pressure and inside of a task, by its name; the queue of a channel, by its number."""
        self._keyed: dict[str, KeyedTexts] = {}
        self._pressed: dict[str, None] = {}
        self._worked: dict[str, None] = {}
        self._touched: dict[int, None] = {}

    def process_started(self, view: CaseView) -> None:
        """A process has begun: everything is to be read."""
        self._execution = view.execution
        names = {(one.vertex, one.subtask): one.name for one in view.plan.subtasks}
        self._ids = {name: task_id for task_id, name in names.items()}
        self._ends = {
            one.index: (names[one.sender_vertex, one.sender_subtask], names[one.receiver_vertex, one.receiver_subtask])
            for one in view.plan.channels
        }
        self._channels_of: dict[str, list[int]] = {name: [] for name in self._ids}
        for index, ends in self._ends.items():
            for name in ends:
                self._channels_of[name].append(index)
        self._tasks: dict[str, Task] = {}
        self._channels: dict[int, Channel] = {}
        self._mark_all()

    def heard(self, event: TraceEvent) -> None:
        """The trace says that something has happened."""
        if isinstance(event, _OF_CHANNELS):
            self._touch(event.channel)
        elif isinstance(event, TaskState):
            self._worked[event.task] = None
            for index in self._channels_of.get(event.task, ()):
                self._touch(index)
        elif isinstance(event, AttemptStarted | RunStarted):
            self._mark_all()
        else:
            task = getattr(event, "task", None)
            if task is not None:
                self._worked[task] = None

    def changes(self) -> Changes:
        """What has changed since the last call."""
        self._follow_kernel()
        found: Changes = {}
        tasks = [(name, self._newest(name)) for name in {**self._pressed, **self._worked}]
        for name, task in tasks:
            self._compare((_PRESSURE, name), {} if task is None else pressure_of(task), found)
            if name in self._worked:
                inside = {} if task is None else cells_of(task) | state_of(task, self._keyed)
                self._compare((_INSIDE, name), inside, found)
        for index in self._touched:
            channel = self._channels.get(index)
            self._compare((_QUEUE, index), {} if channel is None else queue_of(channel), found)
        self._pressed, self._worked, self._touched = {}, {}, {}
        return found

    def all_gone(self) -> Changes:
        """The process is dead, and all its cells with it."""
        gone: Changes = {}
        for where in self._texts:
            self._compare(where, {}, gone)
        self._texts.clear()
        return gone

    def _follow_kernel(self) -> None:
        event = self._execution.kernel.latest
        target = None if event is None else event[3]
        if isinstance(target, Task):
            self._worked[target.name] = None
        elif isinstance(target, Channel):
            self._touch(target.index)

    def _touch(self, index: int) -> None:
        self._touched[index] = None
        for name in self._ends[index]:
            self._pressed[name] = None

    def _mark_all(self) -> None:
        known = [name for _, name in self._texts]
        self._worked = dict.fromkeys([*self._ids, *(name for name in known if isinstance(name, str))])
        self._touched = dict.fromkeys([*self._ends, *(index for index in known if isinstance(index, int))])

    def _newest(self, name: str) -> Task | None:
        """The task of that name. Another one than before sends on other channels."""
        task_id = self._ids.get(name)
        task = None if task_id is None else self._execution.manager.tasks.get(task_id)
        if task is not self._tasks.get(name):
            for index in self._channels_of[name]:
                if self._ends[index][0] == name:
                    self._channels.pop(index, None)
            if task is None:
                del self._tasks[name]
            else:
                self._tasks[name] = task
                self._channels.update(channels_of([task]))
        return task

    def _compare(self, where: tuple[str, Any], now: dict[Reading, str], found: Changes) -> None:
        before: Mapping[Reading, str] = self._texts.get(where, {})
        if before != now:
            self._texts[where] = now
            for cell in {**before, **now}:
                if before.get(cell) != now.get(cell):
                    found[cell] = before.get(cell), now.get(cell)
