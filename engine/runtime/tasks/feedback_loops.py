"""Loops at run time: feedback channels, and how a loop with bounded input comes to its end.

Rules.

1. A feedback channel has credit without end. All tasks of a loop could reach any bound at once, each waiting
   for the next: then the loop could never move again. Its head holds a loop back: it takes nothing new while
   a channel's worth of records waits on its back edges (see ``CheckpointedInputGate``).
2. Watermarks and their status do not travel on feedback channels: that of the head would wait for itself. A feedback
   channel counts as idle.
3. After a restore, a feedback channel holds no marker that its receiver would have to wait for (Flink: no
   ``EndOfOutputChannelStateEvent`` in a graph with loops).
4. The input of a loop has ended when the end of data has come on every channel that leads into it from outside. The
   loop is over when, after that, no record or event is under way on any channel inside it: a watermark may still fire
   timers. Also no operator may hold its input, because it would wait for work that it has begun.
   A task of the loop that finds nothing to read triggers this check. It sees everything at one instant, so it needs
   neither a clock nor a second look. Timers of processing time do not keep a loop going: from that instant on they do
   not fire in any task of the loop, as after any end of data.
5. Then the heads end their input, and the end of data goes round. Records that an operator of the loop still feeds
   back, from ``finish`` or before a barrier, are an error: no task could take them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from engine.checkpoint.coordinator import TaskId
from engine.checkpoint.subtask import ChannelStateWriter
from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, JobGraphError
from engine.elements.events import BarrierAnnouncement, CheckpointBarrier, Event, Watermark, WatermarkStatus
from engine.graph.loops import LoopPlan, find_loops
from engine.graph.partitioner import Router
from engine.graph.plan import ChannelPlan, ExecutionPlan
from engine.runtime.channels import Channel, ChannelSettings, Element, RecordWriter, Sender
from engine.runtime.config import RunConfig
from engine.runtime.tasks.operator_chain import OperatorChain
from engine.runtime.tasks.task_end import TaskEnd

UNBOUNDED = 2**62
"""Credit of a feedback channel, in records."""


class LoopChannel(Channel):
    """A channel inside a loop: it also counts the events under way."""

    __slots__ = ("events_in_flight",)

    def __init__(self, plan: ChannelPlan, sender: Sender, receiver_name: str, settings: ChannelSettings) -> None:
        super().__init__(plan, sender, receiver_name, settings)
        self.events_in_flight = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is under way, on either side or on the link."""
        return not self.occupied and not self.events_in_flight

    def put_event(self, event: Event) -> None:
        """Send an event other than a barrier; needs no credit."""
        self.events_in_flight += 1
        super().put_event(event)

    def put_barrier(self, barrier: CheckpointBarrier, state: ChannelStateWriter | None) -> None:
        """Send a barrier."""
        self.events_in_flight += 1
        super().put_barrier(barrier, state)

    def _restore_outgoing_marker(self) -> None:
        self.events_in_flight += 1
        super()._restore_outgoing_marker()

    def take(self) -> Element:
        """Remove the next element; its records count as received and their credit returns."""
        element = super().take()
        if not isinstance(element, (Batch, BarrierAnnouncement)):
            self.events_in_flight -= 1
        return element

    def validate(self) -> None:
        super().validate()
        queued = [element for _, element in (*self.queue, *(self.outgoing or ()))]
        events = sum(1 for element in queued if not isinstance(element, (Batch, BarrierAnnouncement)))
        assert events <= self.events_in_flight, (self.name, events, self.events_in_flight)


class FeedbackChannel(LoopChannel):
    """A channel of a feedback edge."""

    __slots__ = ()

    def __init__(self, plan: ChannelPlan, sender: Sender, receiver_name: str, settings: ChannelSettings) -> None:
        unbounded = replace(settings, capacity=UNBOUNDED, output_capacity=0)
        super().__init__(plan, sender, receiver_name, unbounded)

    def _restore_outgoing_marker(self) -> None:
        """See rule 3."""


class FeedbackWriter(RecordWriter):
    """Sends the output of one operator over a feedback edge."""

    __slots__ = ("_loop", "_operator")

    def __init__(
        self,
        edge: int,
        router: Router,
        channels: Sequence[Channel],
        *,
        supports_unaligned: bool,
        operator: str,
        loop: Loop,
    ) -> None:
        """``operator``: the name of the operator that sends."""
        super().__init__(edge, router, channels, supports_unaligned=supports_unaligned)
        self._operator = operator
        self._loop = loop

    def emit(self, batch: Batch) -> None:
        """Spread the records over the channels."""
        if self._loop.is_over and batch.values:
            raise JobGraphError(
                f"operator {self._operator!r} feeds {len(batch)} records back into an iteration that is over: all input"
                " had ended and nothing was under way\n"
                "  an operator inside a loop must not keep records back until it finishes or a checkpoint comes; emit "
                "them as they are made, or put the operator that gathers them behind the loop"
            )
        super().emit(batch)

    def broadcast(self, event: Event) -> None:
        """Send ``event`` on every channel, unless it is about watermarks."""
        if not isinstance(event, (Watermark, WatermarkStatus)):
            super().broadcast(event)


class LoopTermination:
    """Decides when a loop is over (a pure machine). ``inputs``: channels that lead into it from outside."""

    __slots__ = ("_open_inputs", "is_over")

    def __init__(self, inputs: int) -> None:
        assert inputs >= 1, "nothing ever enters the loop"
        self._open_inputs = inputs
        self.is_over = False

    def on_input_ended(self) -> None:
        """The end of data has come on one of the inputs."""
        assert self._open_inputs > 0, "more inputs of the loop have ended than there are"
        self._open_inputs -= 1

    @property
    def awaits_silence(self) -> bool:
        """Whether the loop is over as soon as nothing is under way in it."""
        return not self._open_inputs and not self.is_over

    def on_silence(self) -> None:
        """Nothing is under way in the loop."""
        assert self.awaits_silence, "the loop is over already, or its input has not ended"
        self.is_over = True

    def on_restored_finished(self) -> None:
        """The loop was over already when the checkpoint was taken that its tasks start from."""
        self.is_over = True

    def fingerprint(self) -> tuple[object, ...]:
        return (self._open_inputs, self.is_over)


class LoopedTask(Protocol):
    """A task of a loop."""

    chain: OperatorChain
    end: TaskEnd


class Loop:
    """One loop of one attempt: its tasks, and the channels between them."""

    def __init__(self, plan: LoopPlan, tasks: Mapping[TaskId, LoopedTask], channels: Mapping[int, Channel]) -> None:
        """``tasks`` and ``channels``: all of the attempt."""
        self._tasks = [tasks[subtask] for subtask in plan.subtasks]
        self._channels: list[LoopChannel] = []
        for index in plan.channels:
            channel = channels[index]
            assert isinstance(channel, LoopChannel), channel.name
            self._channels.append(channel)
        self._inputs = frozenset(plan.inputs)
        self._termination = LoopTermination(len(plan.inputs))
        self._last_seen = 0
        """The channel on which something was under way at the last look: it is the first to look at again."""

    @property
    def is_over(self) -> bool:
        """Whether the end of data goes round."""
        return self._termination.is_over

    def end_of_data(self, channel: int) -> None:
        """One of its tasks has taken the end of data from the channel of this index."""
        if channel in self._inputs:
            self._termination.on_input_ended()

    def task_idle(self) -> None:
        """One of its tasks has nothing to read."""
        if self._termination.awaits_silence and self._is_silent():
            self._termination.on_silence()
            for task in self._tasks:
                task.end.loop_is_over()

    def task_restored_finished(self) -> None:
        """One of its tasks had finished before the checkpoint that the attempt starts from."""
        self._termination.on_restored_finished()

    def _is_silent(self) -> bool:
        channels = self._channels
        if not channels[self._last_seen].is_empty:
            return False
        for position, channel in enumerate(channels):
            if not channel.is_empty:
                self._last_seen = position
                return False
        return not any(context.holds_input for task in self._tasks for context in task.chain.contexts)

    def fingerprint(self) -> object:
        """How far it has come."""
        return self._termination.fingerprint()


def channel_classes(plan: ExecutionPlan) -> dict[int, type[LoopChannel]]:
    """The class of each channel inside loops, by index."""
    return {
        index: FeedbackChannel if plan.edges[plan.channels[index].edge].is_feedback else LoopChannel
        for loop in find_loops(plan)
        for index in loop.channels
    }


def build_loops(
    plan: ExecutionPlan, tasks: Mapping[TaskId, LoopedTask], channels: Mapping[int, Channel]
) -> dict[TaskId, Loop]:
    """The loops among the tasks of one attempt, by each of their tasks."""
    loops: dict[TaskId, Loop] = {}
    for found in find_loops(plan):
        # A region holds a loop as a whole.
        if found.subtasks[0] in tasks:
            loop = Loop(found, tasks, channels)
            loops.update(dict.fromkeys(found.subtasks, loop))
    return loops


def check_loops(plan: ExecutionPlan, config: RunConfig) -> None:
    """Raise :class:`ConfigurationError` for settings that do not go with loops."""
    if config.max_concurrent > 1 and any(edge.is_feedback for edge in plan.edges):
        raise ConfigurationError(
            f"max_concurrent is {config.max_concurrent}, but job {plan.job_name!r} has an iteration: a checkpoint logs"
            " what comes back to its head until the barrier comes back, and cannot overlap with the next one; set"
            " max_concurrent to 1"
        )
