"""A small job that writes numbers through a file sink, whatever strikes it: ``FileSink``, with committers too, and
``BucketingSink``.

A coordinator in the test decides which checkpoints complete, late, at once or never. The rules that must hold at every
moment, whenever parts are closed:

* the newest completed checkpoint covers all visible records, and each is visible at most once;
* at the end all records are visible, once;
* the content of a visible file never changes, until the job goes back to an older checkpoint.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Sequence
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import StorageError
from operators.files.bucketing.names import BucketingNames
from operators.files.bucketing.valid_length import read_valid_length
from operators.files.formats import is_hidden
from operators.files.sinks.committing_file_sink import CommittingFileSink
from operators.files.sinks.compaction_operators import CompactCoordinatorOperator, CompactorOperator
from operators.transactions.committer import CommitterOperator
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.files.faulty import Decide, SimulatedCrashError
from tests.operators.harness import Checkpoint, Harness

CHUNK = 3
KINDS = (FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER, FileFault.ERROR_BEFORE, FileFault.ERROR_AFTER)
ROWS = "/out/rows"
_MS = 1_000_000


def by_parity(number: int) -> str:
    return f"odd={number % 2}"


class Pipeline:
    """The operators of a sink, one subtask each, in one attempt."""

    def __init__(self, sink: Any, fs: FileSystem, restored: list[Checkpoint] | None = None, **attempt: Any) -> None:
        operators: list[Any] = [sink.create_operator()]
        if isinstance(sink, CommittingFileSink):
            if sink.compaction is not None:
                operators += [CompactCoordinatorOperator(sink), CompactorOperator(sink)]
            operators.append(CommitterOperator(sink))
        states: Sequence[Checkpoint | None] = restored or [None] * len(operators)
        self.harnesses: list[Harness] = []
        for operator, state in zip(operators, states, strict=True):
            self.harnesses.append(Harness(operator, fs=fs, restored=state, **attempt))

    def _hand_on(self, position: int) -> None:
        for event in self.harnesses[position].take():
            assert isinstance(event, Batch)
            self.harnesses[position + 1].operator.process_batch(event)

    def process(self, values: Sequence[int], duration_ms: int = 1) -> None:
        self.harnesses[0].process(values)
        for harness in self.harnesses:
            harness.advance_ms(duration_ms)

    def snapshot(self, checkpoint_id: int) -> list[Checkpoint]:
        taken = []
        for position, harness in enumerate(self.harnesses):
            taken.append(harness.snapshot(checkpoint_id))
            if harness is not self.harnesses[-1]:
                self._hand_on(position)
        return taken

    def complete(self, checkpoint_id: int) -> None:
        for harness in self.harnesses:
            harness.complete(checkpoint_id)

    def checkpoint(self, checkpoint_id: int) -> list[Checkpoint]:
        taken = self.snapshot(checkpoint_id)
        self.complete(checkpoint_id)
        return taken

    def abort(self, checkpoint_id: int) -> None:
        for harness in self.harnesses:
            harness.operator.notify_checkpoint_aborted(checkpoint_id)

    def finish(self) -> None:
        for position, harness in enumerate(self.harnesses):
            harness.finish()
            if harness is not self.harnesses[-1]:
                self._hand_on(position)

    def close(self) -> None:
        for harness in self.harnesses:
            harness.close()


class Numbers:
    """Writes ``0 .. records - 1`` through a sink, over as many attempts as needed."""

    def __init__(self, sink: Any, disk: MemoryFileSystem | None = None, *, records: int = 18) -> None:
        self.sink = sink
        self.disk = MemoryFileSystem() if disk is None else disk
        self.records = records
        self.completed: list[tuple[list[Checkpoint] | None, int]] = [(None, 0)]
        """Checkpoints that could be restored, and how many records they cover."""
        self.next_id = self.incarnation = 1
        self.attempt = self.calls = self.now_ms = self.reached = 0
        self.pipeline: Pipeline | None = None
        self.contents: dict[str, bytes] = {}
        self.went_back = False
        """The job has gone back, and no attempt has come through its restore since."""
        self.struck = ""
        """The operation at which a fault has struck."""

    @property
    def covered(self) -> int:
        return self.completed[-1][1]

    def go_back(self, checkpoints: int) -> None:
        """The newest checkpoints cannot be read; the first one always can."""
        left = max(len(self.completed) - checkpoints, min(len(self.completed), 2))
        if left < len(self.completed):
            del self.completed[left:]
            self.contents.clear()
            self.went_back = True

    def run(self, rules: Sequence[FaultRule] = (), decide: Decide | None = None) -> bool:
        """One attempt; returns whether the job has ended."""
        self.attempt += 1
        fs = FaultInjectingFileSystem(self.disk, rules, decide=decide)
        try:
            self._attempt(fs)
        except SimulatedCrashError:
            self.disk.crash()
            self.incarnation, self.attempt = self.incarnation + 1, 0
            return False
        except StorageError:
            if self.pipeline is not None:
                self.pipeline.close()
            return False
        finally:
            self.pipeline = None
            self.calls = len(fs.calls)
            struck = [fs.calls[rule.at_call - 1] for rule in rules if rule.at_call and rule.at_call <= self.calls]
            self.struck = "".join(call.operation for call in struck) or self.struck
            self.check_visible()
        return True

    def start(self, fs: FileSystem) -> Pipeline:
        """The operators, restored from the newest checkpoint."""
        attempt = {"incarnation": self.incarnation, "attempt": self.attempt, "now_ns": self.now_ms * _MS}
        return Pipeline(self.sink, fs, self.completed[-1][0], **attempt)

    def check_restored(self) -> None:
        """After a restore."""

    def _attempt(self, fs: FileSystem) -> None:
        pipeline = self.pipeline = self.start(fs)
        self.went_back = False
        self.check_restored()
        position, late = self.covered, None
        while position < self.records:
            pipeline.process(range(position, position + CHUNK), 4)
            position += CHUNK
            self.now_ms += 4
            if late is not None:
                pipeline.complete(late)
                late = None
            checkpoint_id = self._snapshot(pipeline, position)
            if checkpoint_id % 3 == 1:
                pipeline.complete(checkpoint_id)
            elif checkpoint_id % 3 == 2:
                late = checkpoint_id
        pipeline.finish()
        pipeline.complete(self._snapshot(pipeline, position, last=True))
        pipeline.close()

    def _snapshot(self, pipeline: Pipeline, position: int, last: bool = False) -> int:
        """Take a checkpoint, which completes unless its number is a multiple of 3."""
        checkpoint_id = self.next_id
        self.next_id += 1
        taken = pipeline.snapshot(checkpoint_id)
        if isinstance(self.sink, CommittingFileSink):
            self.check_visible()
        if checkpoint_id % 3 or last:
            self.completed.append((taken, position))
            self.reached = max(self.reached, position)
        else:
            pipeline.abort(checkpoint_id)
        return checkpoint_id

    def visible(self) -> Counter[int]:
        rows = self.sink.read_output(self.disk, ROWS)
        return Counter(int(row) for lines in rows.values() for row in lines)

    def hidden(self) -> list[str]:
        return [path for path in self.disk.walk_files(ROWS) if is_hidden(posixpath.basename(path))]

    def check_visible(self) -> None:
        assert self.visible() <= Counter(range(self.reached if self.went_back else self.covered))
        if self.went_back:
            return
        for path in self.disk.walk_files(ROWS):
            directory, name = posixpath.split(path)
            if not is_hidden(name):
                marker = posixpath.join(directory, BucketingNames().valid_length(name))
                valid = read_valid_length(self.disk, marker) if self.disk.exists(marker) else None
                content = self.disk.read_bytes(path)[:valid]
                assert self.contents.setdefault(path, content) == content, path

    def run_to_the_end(self) -> None:
        for _ in range(3):
            if self.run():
                break
        assert self.visible() == Counter(range(self.records))
        # The output of a job that has ended outlives a power cut: nothing comes afterwards that would mend it.
        self.disk.crash()
        assert self.visible() == Counter(range(self.records))


def undisturbed_calls(job: Numbers) -> int:
    """How often an undisturbed run calls the file system."""
    assert job.run()
    assert job.visible() == Counter(range(job.records))
    assert job.calls > 40
    return job.calls
