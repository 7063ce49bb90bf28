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

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.events import EndOfData, EndOfPartition, Event, Watermark
from engine.runtime.channels import Channel, RecordWriter
from engine.runtime.tasks.environment import TaskPlace
from engine.runtime.tasks.operator_chain import OperatorChain
from engine.runtime.tasks.task_checkpoint import TaskCheckpointing
from engine.runtime.tasks.task_life import FINISHED, TaskLife
from engine.runtime.tasks.task_timers import TaskTimers

if TYPE_CHECKING:
    from engine.runtime.tasks.feedback_loops import Loop


class TaskEnd:
    """The things that the task at a place still waits for before it ends; ``task`` takes its mail. ``back_edges``: the
    inputs on which records come back; the task awaits neither end of data nor of partition there."""

    def __init__(
        self,
        task: object,
        place: TaskPlace,
        life: TaskLife,
        chain: OperatorChain,
        timers: TaskTimers,
        checkpointing: TaskCheckpointing,
        writers: Sequence[RecordWriter],
        back_edges: Sequence[int],
    ) -> None:
        self.loop: Loop | None = None
        """The loop that the task is part of, if it is part of one."""
        self.input_ended = False
        self.is_stopping = False
        """A savepoint that stops the job was taken: no element is processed any more."""
        self.back_edges = back_edges
        self._task = task
        self._life = life
        self._place = place
        self._master = place.environment.master
        self._takes_checkpoints = place.environment.protocol.takes_checkpoints
        self._chain = chain
        self._timers = timers
        self._checkpointing = checkpointing
        self._writers = writers
        self._awaited_inputs = len(place.plan.input_channels) - len(back_edges)
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
        if channel.input_index in self.back_edges:
            return
        self._ended_channels += 1
        if self.loop is not None:
            self.loop.end_of_data(channel.index)
        self._end_input_if_due()

    def end_of_partition(self, channel: Channel) -> None:
        """No element at all comes on ``channel`` any more."""
        if channel.input_index not in self.back_edges:
            self._closed_channels += 1
            if self._closed_channels == self._awaited_inputs:
                self.finish()

    def _end_input_if_due(self) -> None:
        if not self.open_inputs and (not self.back_edges or (self.loop is not None and self.loop.is_over)):
            self.end_input()

    def loop_is_over(self) -> None:
        """Nothing is under way any more in the loop that the task is part of, and nothing may be added. Timers are
        silent, as after the end of data, which the heads of the loop now send round."""
        self._timers.silence()
        if self.back_edges:
            self._place.kernel.schedule(self._place.kernel.now_ns, "receive_mail", self._task, ("end_loop", ()))

    def end_loop(self) -> None:
        """The loop is over, and its head knows that (mail)."""
        if not self.input_ended and not self.is_stopping:
            self._end_input_if_due()

    def end_input(self) -> None:
        """The last record has come: finish the operators, and say so downstream."""
        assert not self.input_ended
        self.input_ended = True
        # Output of timers would come after the end of data (Flink quiesces the processing time service before it
        # finishes an operator).
        self._timers.quiesce()
        self._chain.finish()
        self._checkpointing.end_of_data()
        self._broadcast(EndOfData())
        self._life.trace_state("end_of_data")
        self._master.task_reached_end(self._life)

    def start_finished(self) -> None:
        """The restored checkpoint says that this task had finished. Its operators are not run, and the tasks that read
        from it learn that nothing comes (Flink: ``FinishedOperatorChain``)."""
        self.input_ended = True
        if self.loop is not None:
            self.loop.task_restored_finished()
        for event in (Watermark(MAX_TIMESTAMP_MS), EndOfData(), EndOfPartition()):
            self._broadcast(event)
        self._life.enter(FINISHED)
        self._master.task_reached_end(self._life)
        self._master.task_finished(self._life)

    def _broadcast(self, event: Event) -> None:
        for writer in self._writers:
            writer.broadcast(event)

    # -- closing --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The task has received everything: close, unless it must wait for a checkpoint or its outputs."""
        with self._place.around(None, rest=("finish", ())) as goes_on:
            if goes_on and self._life.is_running:
                self._finish()

    def _finish(self) -> None:
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
            self._close()

    def _close(self) -> None:
        self._broadcast(EndOfPartition())
        self._checkpointing.abandon()
        if self._life.survives(self._chain.close):
            self._chain.dispose()
            self._life.enter(FINISHED)
            self._master.task_finished(self._life)

    def _is_output_consumed(self) -> bool:
        """Records that a finished task has sent are in no later checkpoint, unless their receivers have taken them. A
        barrier may have overtaken records still on their way (Flink: ``allDataProcessed``); records that an operator
        sends when it hears of a completed checkpoint come after the last barrier."""
        if not self._takes_checkpoints:
            return True
        left = [channel for channel in self._checkpointing.output_channels() if channel.occupied]
        for channel in left:
            channel.is_awaited = True
        return not left

    def output_consumed(self) -> None:
        """An output channel for which the task has waited is empty."""
        if self._finish_when_consumed:
            self._finish_when_consumed = False
            self.finish()

    def may_finish(self, confirmed_id: int | None = None) -> None:
        """All tasks of the vertex have come to their end, and a checkpoint after that is complete: finish as soon as
        nothing more can come (mail). ``confirmed_id``: the newest complete checkpoint. The news of it may have been
        lost, and no later checkpoint follows that would make up for it."""
        if confirmed_id is not None:
            self._checkpointing.confirm(confirmed_id)
        self._may_finish = True
        # A source that may finish receives nothing more.
        if self.waits_to_finish or self._place.vertex.is_source:
            self.finish()

    # -- stopping with a savepoint ----------------------------------------------------------------------------------

    def await_stop(self) -> None:
        """The snapshot of a savepoint that stops the job was taken: wait for its completion, process nothing more.
        Timers are in it already; firing them here would make their effects happen twice."""
        self.is_stopping = True
        self._timers.quiesce()

    def stop(self) -> None:
        """The savepoint that stops the job is complete: end, without any of the end-of-input effects."""
        with self._place.around(None, rest=("stop", ())) as goes_on:
            if goes_on:
                self._close()

    def fingerprint(self) -> object:
        """The inputs that have ended, and the events awaited."""
        return (
            self.input_ended,
            self.is_stopping,
            None if self.loop is None else self.loop.fingerprint(),
            self._may_finish,
            self.waits_to_finish,
            self._finish_when_consumed,
            self.is_closing,
            self._ended_channels,
            self._closed_channels,
        )
