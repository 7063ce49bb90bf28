"""A sink in several operators: writers, then committers, then one global committer (Flink: ``Sink`` with
``SupportsCommitter``, ``SupportsPreCommitTopology`` and ``StandardSinkTopologies.addGlobalCommitter``).

    stream.sink(sink)   =   writer -> [what the sink puts between] -> committer -> [global committer]

Rules:

* A writer keeps no committables. Before every barrier it hands them out, and the committer's snapshot of that
  checkpoint holds them. So one place decides what is published, even if writers fail.
* There are as many committers as writers, connected one to one, so they run in the same tasks. The edge to the
  global committer is also one to one from every subtask: on such edges barriers never overtake records.
* At the end of the input a writer hands out the rest for the checkpoint after the last one that it has seen. Every
  later checkpoint begins after the end, so it contains the rest; no earlier one may commit it. Then the writer
  announces its end. Without checkpoints the committers commit the rest at the end of their input.
* The global committer gets the committables that committers have committed or, without committers, those of the
  writers.
"""

from __future__ import annotations

from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from engine.elements.operator import Operator, OperatorContext
from operators.basic import SinkOperator
from operators.transactions.commit_rules import CommitRules
from operators.transactions.committables import END_OF_INPUT, messages, summary
from operators.transactions.committer import CommitterOperator, GlobalCommitterOperator
from operators.transactions.committer_machine import Committer
from state_backends.base import Shape, anything


class WriteError(Exception):
    """Raised by a writer for a record that it cannot write; the cause is chained. ``what``: the user function or the
    action that failed."""

    def __init__(self, what: str, record: Any, cause: Exception) -> None:
        super().__init__(str(cause))
        self.what = what
        self.record = record
        self.cause = cause


class SinkWriter:
    """Base of all writers: the half of a sink that takes records (Flink: ``CommittingSinkWriter``)."""

    def open(self) -> None:
        """Last step before the first record; timers can be registered from here on."""

    def write(self, batch: Batch) -> None:
        """Take records. Raises :class:`WriteError` for one that cannot be written."""
        raise TypeError(f"{type(self).__name__} does not say how records are written")

    def process_watermark(self, timestamp_ms: int) -> None:
        """Event time has advanced."""

    def on_processing_time(self, time_ms: int) -> None:
        """A timer registered through the context is due."""

    def prepare_commit(self, end_of_input: bool) -> list[Any]:
        """Hand out committables, plain values that must become visible when the next checkpoint is complete. From now
        on it must be possible to commit them, even if this process dies. ``end_of_input``: no records follow."""
        raise TypeError(f"{type(self).__name__} does not say what is to be committed")

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        """The state that a writer needs to resume, as plain values; without committables already handed out."""
        return []

    def close(self) -> None:
        """Release resources; do not publish."""

    def fingerprint(self) -> object:
        """All values beyond the state that make two writers behave differently."""
        return None


class CommittingSink:
    """Base of sinks in several operators. Subclasses create a writer, and a committer, a global committer, or both. A
    method that is not overridden leaves its operator out."""

    name = "sink"
    """Stem of the operators' names."""

    rules = CommitRules()
    """The rules of its committers."""

    writer_state = "writer"
    """The name of the writers' state."""

    writer_state_shape: Shape = staticmethod(anything)
    """The shape of each value in the writers' state; a checkpoint is checked before a writer gets its values."""

    committable_shape: Shape = staticmethod(anything)
    """The shape of committables, checked likewise."""

    def create_writer(self, context: OperatorContext, restored: list[Any]) -> SinkWriter:
        """A writer for one subtask. ``restored``: its share of the values in the writers' snapshots."""
        raise ConfigurationError(f"{type(self).__name__} has no method create_writer(context, restored)")

    def create_committer(self, context: OperatorContext) -> Committer:
        """The committer of one subtask's committables, called when a checkpoint is complete."""
        raise ConfigurationError(f"{type(self).__name__} has no method create_committer(context)")

    def create_global_committer(self, context: OperatorContext) -> Committer:
        """The committer of all subtasks' committables, one checkpoint at a time, after the committers."""
        raise ConfigurationError(f"{type(self).__name__} has no method create_global_committer(context)")

    def add_pre_commit(self, stream: Any, options: Any) -> Any:
        """Put operators between writers and committers; they take and emit messages
        (:mod:`operators.transactions.committables`)."""
        return stream

    # --- the graph ----------------------------------------------------------------------------------------

    def create_operator(self) -> Operator:
        """The writer's operator: a fresh one for one subtask of one attempt."""
        return WriterOperator(self)

    def add_to(self, stream: Any, options: Any) -> None:
        """End ``stream`` in the operators of this sink.

        Raises :class:`engine.elements.errors.ConfigurationError` when there is no committer.
        """
        kind = type(self)
        commits = kind.create_committer is not CommittingSink.create_committer
        commits_globally = kind.create_global_committer is not CommittingSink.create_global_committer
        if not commits and not commits_globally:
            raise ConfigurationError(
                f"{kind.__name__} has neither create_committer(context) nor create_global_committer(context), which"
                " would commit what its writers hand out"
            )
        stream = self.add_pre_commit(stream.via(self, **options), options)
        if commits:
            part = SinkPart(f"{self.name}-committer", lambda: CommitterOperator(self, emits=commits_globally))
            behind = {**part_options(options, "committer"), **_parallelism(options)}
            if not commits_globally:
                stream.sink(part, **behind)
                return
            stream = stream.via(part, **behind)
        part = SinkPart(f"{self.name}-global-committer", lambda: GlobalCommitterOperator(self, commit_on_input=commits))
        # Not the edge that sends everything to subtask 0, on which barriers may overtake records.
        stream.rescale().sink(part, **part_options(options, "global-committer"), parallelism=1)


class SinkPart:
    """Describes an operator of a sink."""

    def __init__(self, name: str, create: Any) -> None:
        self.name = name
        self._create = create

    def create_operator(self) -> Operator:
        """A fresh operator for one subtask of one attempt."""
        operator: Operator = self._create()
        return operator


def part_options(options: Any, part: str) -> dict[str, Any]:
    """The options for an operator after the writer: names made from the user's stem, if given."""
    return {key: f"{options[key]}-{part}" for key in ("name", "uid") if options.get(key) is not None}


def _parallelism(options: Any) -> dict[str, Any]:
    return {key: options[key] for key in ("parallelism", "max_parallelism") if options.get(key) is not None}


class WriterOperator(SinkOperator):
    """Drives the writer of one subtask (Flink: ``SinkWriterOperator``)."""

    def __init__(self, sink: CommittingSink) -> None:
        self._sink = sink
        self._writer: SinkWriter | None = None
        self._finished = False
        self._last_checkpoint_id = 0

    def initialize_state(self) -> None:
        """Resume the writer from the restored values."""
        context = self.context
        sink = self._sink
        self._state = context.operator_backend().list_state(sink.writer_state, sink.writer_state_shape)
        self._last_checkpoint_id = context.restored_checkpoint_id() or 0
        self._writer = self._sink.create_writer(context, self._state.get())

    def open(self) -> None:
        """The writer may register timers."""
        self._opened().open()

    def process_batch(self, batch: Batch) -> None:
        assert not self._finished, "records after finish"
        if self.lineage is not None:
            self.lineage.waits(len(batch))
        try:
            self._opened().write(batch)
        except WriteError as error:
            raise self.user_error(error.what, error.record, error.cause) from error.cause

    def process_watermark(self, timestamp_ms: int) -> None:
        """Pass it to the writer, but not downstream."""
        self._opened().process_watermark(timestamp_ms)

    def on_processing_time(self, time_ms: int) -> None:
        if not self._finished:
            self._opened().on_processing_time(time_ms)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        """Hand out the committables of this checkpoint, before its barrier."""
        self._last_checkpoint_id = checkpoint_id
        if not self._finished:
            self._emit(checkpoint_id, self._opened().prepare_commit(False))

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Store the writer's state."""
        self._state.update(self._opened().snapshot_state(checkpoint_id))

    def finish(self) -> None:
        """Hand out the rest, and mark it as the last."""
        self._finished = True
        self._emit(self._last_checkpoint_id + 1, self._opened().prepare_commit(True))
        self.output.emit(Batch([summary(END_OF_INPUT, self.context.subtask, self.context.parallelism, 0)]))

    def _emit(self, checkpoint_id: int, payloads: list[Any]) -> None:
        if self.lineage is not None:
            self.lineage.waits(0)
        self.output.emit(Batch(messages(checkpoint_id, self.context.subtask, self.context.parallelism, payloads)))

    def without_effects(self) -> Operator:
        """The same operator of a sink that writes nothing."""
        return WriterOperator(_NothingToCommit())

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def abandon(self) -> None:
        self.close()

    def _opened(self) -> SinkWriter:
        assert self._writer is not None, "used before its state was initialized"
        return self._writer

    def fingerprint(self) -> object:
        writer = None if self._writer is None else self._writer.fingerprint()
        return writer, self._finished, self._last_checkpoint_id


class _NothingToWrite(SinkWriter):
    def write(self, batch: Batch) -> None:
        """Discard it."""

    def prepare_commit(self, end_of_input: bool) -> list[Any]:
        return []


class _NothingToCommit(CommittingSink):
    def create_writer(self, context: OperatorContext, restored: list[Any]) -> SinkWriter:
        return _NothingToWrite()
