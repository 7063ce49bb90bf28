"""The operators between the writers of a compacting file sink and its committers (Flink: ``CompactCoordinator`` and
``CompactorOperator`` as operators). Their decisions are in :mod:`operators.files.compaction.compact_coordinator` and
:mod:`operators.files.compaction.compactor`.

Rules:

* The coordinator packs the files of a checkpoint when it sends on that checkpoint's barrier. By then all of them have
  arrived. Files of a later checkpoint, which arrive early without alignment, wait. Otherwise they would be compacted
  while a restore from this checkpoint still writes to them.
* A compactor does one request at a time, each by its own timer, so records, barriers and timers come in between. Each
  takes virtual time by the size of its sources. After the end of the input it does all of them at once.
* A source gets its final name, which is a hidden one, before it is read. The committer deletes it when the compacted
  file is visible. If a source is missing, a later checkpoint than the restored one has deleted it. Its records would be
  lost, so this is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.elements.batch import Batch
from engine.elements.errors import OutputAheadError
from engine.elements.operator import no_records
from operators.basic import SinkOperator
from operators.files.compaction import (
    COMMITTABLE_SHAPE,
    INSTANCE_STATE,
    REQUEST_STATE,
    CompactCoordinator,
    CompactionRequest,
    Compactor,
    FileCommittable,
    RestoredInstances,
    as_request,
    committable_of,
    compacting_names,
    merge_of,
    merged,
)
from operators.files.writing import DirectoryReconciliation, PendingFile, UniqueNames, storage_problems
from operators.transactions import COMMITTABLE, END_OF_INPUT, messages, summary

if TYPE_CHECKING:
    from operators.files.sinks.committing_file_sink import CommittingFileSink


class CompactCoordinatorOperator(SinkOperator):
    """The one coordinator."""

    summaries_of = staticmethod(no_records)

    def __init__(self, spec: CommittingFileSink) -> None:
        assert spec.compaction is not None
        self._machine = CompactCoordinator(spec.compaction)
        self._waiting: list[tuple[int, FileCommittable]] = []
        """The committables with their checkpoints, in the order in which they arrived."""
        self._fired: list[CompactionRequest] = []

    def initialize_state(self) -> None:
        """Pass the committables not yet fired through the present strategy."""
        self._state = self.context.operator_backend().list_state("committables", COMMITTABLE_SHAPE)
        self._fired = self._machine.restore([tuple(one) for one in self._state.get()])

    def process_batch(self, batch: Batch) -> None:
        """Committables wait for their barrier; summaries end here."""
        self._waiting += [(message[1], message[3]) for message in batch.values if message[0] == COMMITTABLE]

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        """Pack the files of the checkpoint, and send the requests before its barrier."""
        self._pack(checkpoint_id)
        self._fired += self._machine.on_checkpoint(checkpoint_id)
        self._send()

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._state.update(self._machine.state())

    def finish(self) -> None:
        self._pack(END_OF_INPUT)
        self._fired += self._machine.end_of_input()
        self._send()

    def _pack(self, checkpoint_id: int) -> None:
        waiting, self._waiting = self._waiting, []
        for known, committable in waiting:
            if known > checkpoint_id:
                self._waiting.append((known, committable))
                continue
            request = self._machine.add(committable)
            if request is not None:
                self._fired.append(request)

    def _send(self) -> None:
        fired, self._fired = self._fired, []
        if fired:
            self.output.emit(Batch([tuple(request) for request in fired]))

    def fingerprint(self) -> object:
        return self._machine.fingerprint(), repr(self._waiting), repr(self._fired)


class CompactorOperator(SinkOperator):
    """One subtask of the compactors."""

    summaries_of = staticmethod(no_records)
    spends_per_batch = True

    def __init__(self, spec: CommittingFileSink) -> None:
        self._spec = spec
        self._merge = merge_of(spec.format)
        self._machine = Compactor()
        self._finished = False
        self._awaits_turn = False
        self._last_checkpoint_id = 0

    # --- restore ------------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        """Take over requests; delete files that earlier attempts had begun and no checkpoint contains."""
        context, spec, backend = self.context, self._spec, self.context.operator_backend()
        self._names = UniqueNames(context.incarnation, context.attempt, context.subtask)
        self._files = spec.open_directory(context, self._names)
        self._state = backend.list_state("requests", REQUEST_STATE)
        self._instances = backend.union_list_state("compactors", INSTANCE_STATE)
        self._last_checkpoint_id = context.restored_checkpoint_id() or 0
        self._machine.restore(self._state.get())
        if context.checkpointing_enabled:
            begun = RestoredInstances(self._instances.get()), compacting_names(spec.prefix, spec.suffix)
            with storage_problems(context.name, spec.path):
                DirectoryReconciliation(self._files, context, *begun).clean_up()

    def open(self) -> None:
        """Begin the requests submitted before the failure again."""
        self._await_turn()

    # --- requests -----------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch) -> None:
        for message in batch.values:
            self._machine.add(as_request(message))

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        """Hand out finished results."""
        self._last_checkpoint_id = checkpoint_id
        if not self._finished:
            self._emit(checkpoint_id)

    def snapshot_state(self, checkpoint_id: int) -> None:
        """All requests that were not handed out."""
        context = self.context
        # Compaction begins after completion: before it, files can be taken back (mutant "compacted before completion").
        self._state.update(self._machine.on_snapshot(checkpoint_id))
        self._instances.update([(context.subtask, context.incarnation, context.attempt, self._names.given, [])])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Begin the requests that it covers."""
        self._machine.on_notification(checkpoint_id)
        self._await_turn()

    def finish(self) -> None:
        """Finish all remaining requests, and hand out their results."""
        self._finished = True
        self._machine.end_of_input()
        while self._machine.has_work:
            self._step()
        self._emit(self._last_checkpoint_id + 1)
        self.output.emit(Batch([summary(END_OF_INPUT, self.context.subtask, self.context.parallelism, 0)]))

    def _emit(self, checkpoint_id: int) -> None:
        context, results = self.context, self._machine.take_results()
        self.output.emit(Batch(messages(checkpoint_id, context.subtask, context.parallelism, results)))

    # --- the work -----------------------------------------------------------------------------------------

    def _await_turn(self) -> None:
        if self._machine.has_work and not self._awaits_turn and not self._finished:
            self._awaits_turn = True
            self.context.register_processing_timer_ns(self.context.processing_time_ns())

    def on_processing_time_ns(self, time_ns: int) -> None:
        """Do the next request."""
        self._awaits_turn = False
        if self._machine.has_work:
            self._step()
        self._await_turn()

    def _step(self) -> None:
        with storage_problems(self.context.name, self._spec.path):
            size_bytes = self._machine.step(self._compact)
        self.context.spend(size_bytes * self._spec.compaction_ns_per_byte)
        self.context.metrics.count("numFilesCompacted")

    def _compact(self, bucket_id: str, target: str, sources: list[FileCommittable]) -> FileCommittable:
        files = self._files
        paths = [self._uncover(PendingFile(*source[2:])) for source in sources]
        pending = merged(files, target, self._merge, self._contents(paths))
        files.sync_directories()
        return committable_of(bucket_id, pending)

    def _uncover(self, source: PendingFile) -> str:
        """Give a source its final name."""
        files = self._files
        if not files.commit_after_recovery(source):
            raise OutputAheadError(
                f"{files.path(source.target)} was to be compacted but is gone\n"
                "  its records are in a file that a later checkpoint has made visible: the run has gone back to a"
                " checkpoint from before that, or something else deletes files in the sink's directory\n"
                "  fix: resume from the newest checkpoint; a sink that compacts cannot go back to an older one"
            )
        return source.target

    def _contents(self, paths: list[str]) -> Iterator[bytes]:
        for path in paths:
            yield self._files.fs.read_bytes(self._files.path(path))

    def fingerprint(self) -> object:
        return self._machine.fingerprint(), self._names.given, self._finished, self._last_checkpoint_id
