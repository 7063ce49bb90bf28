"""How a task comes to its end: the end of its data, the wait for the checkpoint that holds it, and closing.

Rules.

* The input ends when the data of all inputs has ended. Back edges are not awaited, but the head of a loop waits until
  the loop is over. Then the operators finish, and the tasks that read from this one are told.
* The task closes when all its inputs have closed, and
  - a checkpoint after the end of its data is complete, if checkpoints are taken at all: only that lets sinks commit
    their last part. The job manager says when (:mod:`engine.runtime.job.end_of_input`);
  - receivers have taken all its records, if checkpoints are taken: a barrier may have overtaken records on their way,
    or an operator sent them after the last barrier, when it heard of the checkpoint's completion;
  - no snapshot is being written any more.
* A savepoint that stops the job lets the task end without any of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine.elements.events import EndOfData, Event
from engine.runtime.channels import Channel
from engine.runtime.tasks.environment import TaskPlace
from engine.runtime.tasks.operator_chain import OperatorChain
from engine.runtime.tasks.task_timers import TaskTimers

if TYPE_CHECKING:
    from engine.runtime.tasks.feedback_loops import Loop
    from engine.runtime.tasks.task_checkpoint import TaskCheckpointing


class EndingTask(Protocol):
    """The task that ends."""

    input_ended: bool
    is_stopping: bool
    loop: Loop | None

    @property
    def is_running(self) -> bool:
        """Whether it has not ended in any way."""

    def end_input(self) -> None:
        """The last record has come."""

    def finish(self) -> None:
        """Close, unless the task must wait; asks here."""

    def finish_now(self) -> None:
        """Close."""

    def broadcast(self, event: Event) -> None:
        """Send ``event`` on all outputs."""


class TaskEnd:
    """The things ``task`` still waits for before it ends. ``inputs``: how many it has; ``back_edges``: the inputs on
    which records come back; the task awaits neither end of data nor of partition there."""

    def __init__(
        self,
        task: EndingTask,
        place: TaskPlace,
        chain: OperatorChain,
        timers: TaskTimers,
        checkpointing: TaskCheckpointing,
        inputs: int,
        back_edges: list[Channel],
    ) -> None:
        self._task = task
        self._kernel = place.kernel
        self._is_source = place.vertex.is_source
        self._takes_checkpoints = place.environment.protocol.takes_checkpoints
        self._chain = chain
        self._timers = timers
        self._checkpointing = checkpointing
        self._back_edges = back_edges
        self._awaited_inputs = inputs - len(back_edges)
        self._ended_channels = 0
        self._closed_channels = 0
        self._may_finish = False
        self.waits_to_finish = False
        """Whether the task only waits for the news that a checkpoint holds it."""
        self._finish_when_consumed = False
        self.is_closing = False
        """The task only waits until running snapshots are written."""

    @property
    def open_inputs(self) -> int:
        """Inputs whose data has not ended, without back edges."""
        return self._awaited_inputs - self._ended_channels

    # -- end of data ----------------------------------------------------------------------------------------------

    def end_of_data(self, channel: Channel) -> None:
        """No record comes on ``channel`` any more; on a back edge the end of data has gone round."""
        if channel in self._back_edges:
            return
        self._ended_channels += 1
        if self._task.loop is not None:
            self._task.loop.end_of_data(channel.index)
        self._end_input_if_due()

    def end_of_partition(self, channel: Channel) -> None:
        """No element at all comes on ``channel`` any more."""
        if channel not in self._back_edges:
            self._closed_channels += 1
            if self._closed_channels == self._awaited_inputs:
                self._task.finish()

    def _end_input_if_due(self) -> None:
        loop = self._task.loop
        if not self.open_inputs and (not self._back_edges or (loop is not None and loop.is_over)):
            self._task.end_input()

    def loop_is_over(self) -> None:
        """Nothing is under way any more in the loop that the task is part of, and nothing may be added. Timers are
        silent, as after the end of data, which the heads of the loop now send round."""
        self._timers.silence()
        if self._back_edges:
            self._kernel.schedule(self._kernel.now_ns, "receive_mail", self._task, ("end_loop", ()))

    def end_loop(self) -> None:
        """The loop is over, and its head knows that (mail)."""
        if not self._task.input_ended and not self._task.is_stopping:
            self._end_input_if_due()

    def end_input(self) -> None:
        """The last record has come: finish the operators, and say so downstream."""
        task = self._task
        assert not task.input_ended
        task.input_ended = True
        # Output of timers would come after the end of data (Flink quiesces the processing time service before it
        # finishes an operator).
        self._timers.silence()
        self._chain.finish()
        self._checkpointing.end_of_data()
        task.broadcast(EndOfData())

    # -- closing --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The task has received everything: close, unless it must wait for a checkpoint or its outputs."""
        task = self._task
        if not task.is_running:
            return
        if self._takes_checkpoints and not (self._may_finish and self._checkpointing.final_checkpoint_completed):
            # Only a confirmed checkpoint after the end of the data lets sinks commit their last part. And one half of a
            # vertex must not have finished while the other half still waits for a checkpoint.
            self.waits_to_finish = True
            return
        if not self._is_output_consumed():
            self._finish_when_consumed = True
            return
        self.is_closing = True
        if not self._checkpointing.is_writing:
            # Otherwise a checkpoint that all others complete would wait for this task until it times out (Flink:
            # ``SubtaskCheckpointCoordinator.waitForPendingCheckpoints``).
            task.finish_now()

    def _is_output_consumed(self) -> bool:
        """Records that a finished task has sent are in no later checkpoint, unless their receivers have taken them. A
        barrier may have overtaken records still on their way (Flink: ``allDataProcessed``); records that an operator
        sends when it hears of a completed checkpoint come after the last barrier."""
        if not self._takes_checkpoints:
            return True
        left = [channel for channel in self._checkpointing.output_channels() if channel.queued_records]
        for channel in left:
            channel.is_awaited = True
        return not left

    def output_consumed(self) -> None:
        """An output channel for which the task has waited is empty."""
        if self._finish_when_consumed:
            self._finish_when_consumed = False
            self._task.finish()

    def may_finish(self, confirmed_id: int | None = None) -> None:
        """All tasks of the vertex have come to their end, and a checkpoint after that is complete: finish as soon as
        nothing more can come (mail). ``confirmed_id``: the newest complete checkpoint. The news of it may have been
        lost, and no later checkpoint follows that would make up for it."""
        if confirmed_id is not None:
            self._checkpointing.confirm(confirmed_id)
        self._may_finish = True
        # A source that may finish receives nothing more.
        if self.waits_to_finish or self._is_source:
            self._task.finish()

    def fingerprint(self) -> object:
        """The inputs that have ended, and the events awaited."""
        return (
            self._may_finish,
            self.waits_to_finish,
            self._finish_when_consumed,
            self.is_closing,
            self._ended_channels,
            self._closed_channels,
        )
