"""How a task comes to its end: the end of its data, the wait for the checkpoint that holds it, and closing.

Rules.

* The input ends when the data of all inputs has ended; back edges are not awaited, but the head of a loop waits until
  the loop is over. Then the operators finish, and whoever reads from the task is told.
* The task closes when all its inputs have closed, and
  - a checkpoint behind the end of its data is complete, if checkpoints are taken at all: only that lets sinks commit
    their last part. The job manager says when (:mod:`engine.runtime.job.end_of_input`);
  - what it has sent is taken, if checkpoints are taken: a barrier may have overtaken records that are on their way, or
    they were sent behind the last one, by an operator that heard of its completion;
  - no snapshot is being written any more.
* A savepoint that stops the job lets the task end without any of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.elements.batch import Batch
from engine.elements.events import EndOfData
from engine.elements.operator import Operator

if TYPE_CHECKING:
    from engine.runtime.channels import Channel
    from engine.runtime.tasks.task import Task


class TaskEnd:
    """What ``task`` still waits for before it ends. ``back_edges``: its inputs on which records come back; neither end
    of data nor of partition is awaited there."""

    def __init__(self, task: Task, back_edges: list[Channel]) -> None:
        self._task = task
        self._back_edges = back_edges
        self._awaited_inputs = len(task.inputs) - len(back_edges)
        self._ended_channels = 0
        self._closed_channels = 0
        self._may_finish = False
        self.waits_to_finish = False
        """Whether nothing is left to do but to hear that a checkpoint holds it."""
        self._finish_when_consumed = False
        self.is_closing = False
        """Nothing is left to do but to write what snapshots have begun."""

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
        """Nothing at all comes on ``channel`` any more."""
        if channel not in self._back_edges:
            self._closed_channels += 1
            if self._closed_channels == self._awaited_inputs:
                self._task.finish()

    def _end_input_if_due(self) -> None:
        loop = self._task.loop
        if not self.open_inputs and (not self._back_edges or (loop is not None and loop.is_over)):
            self._task.end_input()

    def loop_is_over(self) -> None:
        """Nothing is under way any more in the loop that the task is part of, and nothing may be added: timers are
        quiet as behind the end of data, which the heads of the loop now send round."""
        task = self._task
        task.timers.silence()
        if self._back_edges:
            task.kernel.schedule(task.kernel.now_ns, "receive_mail", task, ("end_loop", ()))

    def end_loop(self) -> None:
        """The loop is over, and that is known at its head."""
        if not self._task.input_ended and not self._task.is_stopping:
            self._end_input_if_due()

    def end_input(self) -> None:
        """The last record has come: finish the operators, and say so downstream."""
        task = self._task
        assert not task.input_ended, task.name
        task.input_ended = True
        # What timers emitted would come behind the end of data (Flink quiesces the processing time service before it
        # finishes an operator).
        task.timers.silence()
        for operator in task.operators:
            if type(operator).finish is not Operator.finish:
                with task.around("operator.finish"):
                    operator.finish()
        task.checkpointing.end_of_data()
        task.broadcast(EndOfData())

    # -- a savepoint that stops the job ---------------------------------------------------------------------------

    def await_barriers_coming_back(self) -> None:
        """The job stops with a savepoint whose barrier has yet to come round: what comes back ahead of it is in the
        savepoint, and is not processed."""
        task = self._task
        while task.gate.handler.pending_checkpoint_ids:
            channel = task.gate.next_back_edge()
            if channel is None:
                return
            element = channel.take()
            if not isinstance(element, Batch):
                task.handle_event(channel, element)

    # -- closing --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Nothing more will come and nothing more is expected: close, unless something has to be waited for."""
        task = self._task
        if not task.is_running:
            return
        if task.environment.protocol.takes_checkpoints and not (
            self._may_finish and task.checkpointing.final_checkpoint_completed
        ):
            # Only a confirmed checkpoint behind the end of the data lets sinks commit their last part; and half a
            # vertex must not be gone while the other half still waits for one.
            self.waits_to_finish = True
            return
        if not self._is_output_consumed():
            self._finish_when_consumed = True
            return
        self.is_closing = True
        if not task.checkpointing.is_writing:
            # Otherwise a checkpoint that all others complete would wait for this task until it times out (Flink:
            # ``SubtaskCheckpointCoordinator.waitForPendingCheckpoints``).
            task.finish_now()

    def _is_output_consumed(self) -> bool:
        """What a finished task has sent is in no checkpoint any more, unless its receivers have taken it: a barrier may
        have overtaken records that are still on their way (Flink: ``allDataProcessed``), and what an operator sends
        when it hears of a completed checkpoint comes behind the last barrier."""
        task = self._task
        if not task.environment.protocol.takes_checkpoints:
            return True
        left = [channel for channel in task.checkpointing.output_channels() if channel.queued_records]
        for channel in left:
            channel.is_awaited = True
        return not left

    def output_consumed(self) -> None:
        """An output channel for which the task has waited is empty."""
        if self._finish_when_consumed:
            self._finish_when_consumed = False
            self._task.finish()

    def may_finish(self) -> None:
        """All tasks of the vertex have come to their end, and a checkpoint behind that is complete."""
        self._may_finish = True
        # Nothing more can come to a source that may finish.
        if self.waits_to_finish or self._task.vertex.is_source:
            self._task.finish()

    def fingerprint(self) -> object:
        """What has ended, and what is waited for."""
        return (
            self._may_finish,
            self.waits_to_finish,
            self._finish_when_consumed,
            self.is_closing,
            self._ended_channels,
            self._closed_channels,
        )
