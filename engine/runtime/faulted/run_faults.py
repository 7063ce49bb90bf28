"""What a fault does to a run: the hooks of its tasks and channels, the points of others, the fates of messages."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.observe.points import AFTER, BEFORE
from engine.runtime.faulted.link_faults import LinkFaults
from engine.runtime.faulted.task_faults import TaskFaults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.elements.operator import Operator
    from engine.runtime.channels import Channel
    from engine.runtime.faulted.deaths import Deaths
    from engine.runtime.faulted.interference import Interference
    from engine.runtime.hook import Around, Rest
    from engine.runtime.kernel import Kernel
    from engine.runtime.tasks import Task


class RunFaults:
    """Implements :class:`engine.runtime.hook.RunHook`: asks ``interference`` what goes wrong."""

    def __init__(self, interference: Interference, kernel: Kernel, deaths: Deaths) -> None:
        self.interference = interference
        self._kernel = kernel
        self._deaths = deaths

    def for_task(self, task: Task) -> TaskFaults:
        """See the hook."""
        return TaskFaults(task, self.interference, self._deaths)

    def for_channel(self, channel: Channel) -> LinkFaults:
        """See the hook."""
        return LinkFaults(channel, self._kernel, self.interference)

    def at(self, actor: str) -> Around:
        """See the hook."""
        return partial(self._around, actor)

    @contextmanager
    def _around(
        self, actor: str, point: str | None, operator: Operator | None = None, rest: Rest | None = None
    ) -> Iterator[bool]:
        if point is not None:
            self.interference.at(point, BEFORE, actor)
        yield True
        if point is not None:
            self.interference.at(point, AFTER, actor)

    def delays_ns(self, message: str, task: str) -> tuple[int, ...]:
        """See the hook."""
        return self.interference.fates(message, task)

    def happens(self, event: tuple[str, Any]) -> None:
        """See the hook: a heartbeat is due."""
        operation, payload = event
        assert operation == "heartbeat_missed", event
        self._deaths.heartbeat_missed(*payload)
