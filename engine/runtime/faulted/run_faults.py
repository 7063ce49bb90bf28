"""The effects of faults on a run: the hooks of its tasks and channels, the points of other actors, lost messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.graph.plan import SubtaskPlan, VertexPlan
from engine.runtime.channels import Channel, Numbered, kind_of
from engine.runtime.faulted.deaths import Deaths
from engine.runtime.faulted.interference import DROPPED, OVERTAKES, Interference
from engine.runtime.faulted.task_faults import DisturbedTask, Step, TaskFaults
from engine.runtime.kernel import Around, Kernel, Rest


class LinkFaults:
    """Implements :class:`engine.runtime.kernel.hook.LinkHook` for one channel: elements arrive later, never, or before
    their predecessors. A channel stays FIFO whatever the delays are; only a network that breaks the promises of
    channels drops and overtakes."""

    __slots__ = ("_channel", "_free_at_ns", "_interference", "_kernel", "_under_way")

    def __init__(self, channel: Channel, kernel: Kernel, interference: Interference) -> None:
        self._channel = channel
        self._kernel = kernel
        self._interference = interference
        self._under_way = 0
        """Elements whose arrival was put off, and those after them."""
        self._free_at_ns = 0
        """When the last of them arrives."""

    def propagate(self, numbered: Numbered) -> None:
        channel, now = self._channel, self._kernel.now_ns
        extra_ns = self._interference.element_delay_ns(channel.name, kind_of(numbered[1]))
        if extra_ns == DROPPED:
            if isinstance(numbered[1], Batch):
                weight = channel.weight(numbered[1])
                channel.incoming -= weight
                channel.lose(len(numbered[1]), weight)
            return
        arrives_ns = channel.arrival_ns()
        if extra_ns == OVERTAKES:
            self._kernel.schedule(arrives_ns, "happens", channel, ("arrive_ahead", numbered))
            return
        if self._under_way:
            # Elements before it arrive first, whatever held them up.
            arrives_ns = max(arrives_ns + extra_ns, self._free_at_ns)
        else:
            arrives_ns += extra_ns
            if arrives_ns == now:
                channel.arrive(numbered)
                return
        self._under_way += 1
        self._free_at_ns = arrives_ns
        self._kernel.schedule(arrives_ns, "happens", channel, ("arrive_late", numbered))

    def happens(self, event: tuple[str, Any]) -> None:
        """See the hook: an element has arrived."""
        (operation, numbered), channel = event, self._channel
        if operation == "arrive_late":
            self._under_way -= 1
            channel.arrive(numbered)
        else:
            channel.arrive(numbered)
            queue = channel.within_queue()
            if len(queue) - channel.priority_events >= 2 and queue[-1] is numbered:
                queue[-2], queue[-1] = queue[-1], queue[-2]

    def cut(self) -> None:
        self._under_way = self._free_at_ns = 0

    def fingerprint(self) -> object:
        return self._under_way and self._free_at_ns - self._kernel.now_ns


class _Actor:
    """An actor that is not a task."""

    __slots__ = ("_interference", "_name", "_steps")

    def __init__(self, name: str, interference: Interference) -> None:
        self._name, self._interference = name, interference
        self._steps: dict[str | None, Step] = {}

    def around(self, point: str | None, operator: Operator | None = None, rest: Rest | None = None) -> Step:
        """See :class:`engine.runtime.kernel.hook.Around`: its steps have no rest."""
        step = self._steps.get(point)
        if step is None:
            step = self._steps[point] = Step(self._interference, () if point is None else (point,), self._name)
        return step


class RunFaults:
    """Implements :class:`engine.runtime.tasks.environment.AttemptHook`: asks ``interference`` what goes wrong."""

    def __init__(self, interference: Interference, kernel: Kernel, deaths: Deaths, *, tracks_records: bool) -> None:
        self.interference = interference
        self._kernel = kernel
        self._deaths = deaths
        self._tracks_records = tracks_records

    def for_task(self, plan: SubtaskPlan, vertex: VertexPlan, task: DisturbedTask) -> TaskFaults:
        return TaskFaults(plan, vertex, task, self._kernel, self.interference, self._deaths, self._tracks_records)

    @property
    def for_channel(self) -> Callable[[Channel], LinkFaults] | None:
        return self._link if self.interference.disturbs_elements else None

    def _link(self, channel: Channel) -> LinkFaults:
        return LinkFaults(channel, self._kernel, self.interference)

    def at(self, actor: str) -> Around:
        return _Actor(actor, self.interference).around

    @property
    def disturbs_messages(self) -> bool:
        return self.interference.disturbs_messages

    def delays_ns(self, message: str, task: str) -> tuple[int, ...]:
        return self.interference.fates(message, task)

    def happens(self, event: tuple[str, Any]) -> None:
        """See the hook: a heartbeat is due."""
        operation, payload = event
        assert operation == "heartbeat_missed", event
        self._deaths.heartbeat_missed(*payload)
