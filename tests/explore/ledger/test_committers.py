"""Committers and global committers in the ledger: a committable stands for the records in it."""

from __future__ import annotations

from typing import Any

import pytest

from engine import CheckpointInterval, Job, PartitionCommit, PartitionedFileSink, RunConfig, SequenceSource
from engine.explore.ledger import LOST, EffectLedger, Findings, Place, findings, reference
from engine.explore.ledger.scratch_files import ScratchFileSystem
from engine.faults import FaultPlan
from engine.runtime.execution import Execution
from operators.sources import CollectionSource, Pause
from operators.transactions import CommitRequest, CommittingSink, SinkWriter
from operators.transactions.committer_machine import CommitterMachine
from state_backends import MemoryFileSystem

EACH_ONCE = {f"numbers/sequence-{split}-of-2": [(0, 50)] for split in range(2)}


class _Rows(SinkWriter):
    def __init__(self) -> None:
        self._rows: list[Any] = []

    def write(self, batch: Any) -> None:
        self._rows += batch.values

    def prepare_commit(self, end_of_input: bool) -> list[Any]:
        rows, self._rows = self._rows, []
        return [rows] if rows else []


class _Publish:
    def __init__(self, shown: list[Any]) -> None:
        self._shown = shown

    def commit(self, requests: Any) -> None:
        request: CommitRequest
        for request in requests:
            self._shown.append(request.committable)


class _Sink(CommittingSink):
    name = "rows"

    def __init__(self, shown: list[Any]) -> None:
        self._shown = shown

    def create_writer(self, context: Any, restored: list[Any]) -> SinkWriter:
        return _Rows()

    def create_committer(self, context: Any) -> Any:
        return _Publish(self._shown)


class _GlobalSink(_Sink):
    def create_global_committer(self, context: Any) -> Any:
        return _Publish(self._shown)


def job(sink: Any, row: Any = lambda number: number, source: Any = None) -> Job:
    made = Job("committing", max_parallelism=4)
    source = SequenceSource(0, 100, splits=2) if source is None else source
    numbers = made.source(source, name="numbers", uid="numbers", parallelism=2)
    numbers.map(row, name="same", uid="same", parallelism=2).sink(sink, name="out", uid="out", parallelism=2)
    return made


def audited(sink: Any, kill: str, mode: str = "aligned", **options: Any) -> tuple[EffectLedger, Findings]:
    config = RunConfig(mode=mode, batch_size=4, checkpoint_interval=CheckpointInterval.parse("12us"))
    plan, ledger, files = job(sink, **options).plan(), EffectLedger(), MemoryFileSystem()
    execution = Execution(plan, config, file_system=files, output_dir="/out", provenance=ledger)
    FaultPlan.parse([kill]).install(execution)
    execution.run().raise_on_failure()
    written = sorted(files.walk_files("/"))
    expected = reference(plan, config, file_system=files, output_dir="/out")
    assert sorted(files.walk_files("/")) == written
    return ledger, findings(ledger, expected)


def output_of(ledger: EffectLedger, uid: str) -> dict[str, list[tuple[int, int]]]:
    effects = ledger.effects()[Place(uid, "output")]
    found = {ledger.origins[split]: layers for split, layers in effects.splits.items()}
    assert all(len(layers) == 1 for layers in found.values()), "more than once"
    return {f"{origin.uid}/{origin.split}": layers[0].ranges() for origin, layers in sorted(found.items())}


@pytest.mark.parametrize(
    ("mode", "kill"), [("aligned", "same@37us"), ("unaligned", "job manager@61us"), ("aligned", "same@43us")]
)
def test_every_record_is_once_in_the_output_of_committers(mode: str, kill: str) -> None:
    """However many checkpoints there were, and though a restore commits again what had been committed."""
    shown: list[Any] = []
    ledger, found = audited(_GlobalSink(shown), kill, mode)
    assert (found.found, found.unsettled) == ((), 0)
    assert output_of(ledger, "out-global-committer") == EACH_ONCE
    # The runs for comparison have published nothing.
    assert {row for rows in shown for row in rows} == set(range(100))
    ledger, found = audited(_Sink(shown), kill, mode)
    assert (found.found, found.unsettled) == ((), 0)
    assert output_of(ledger, "out-committer") == EACH_ONCE


@pytest.mark.parametrize("kind", [_Sink, _GlobalSink])
def test_checkpoints_without_records_stand_for_none(kind: type[_Sink]) -> None:
    """A pause is longer than several of them: what they stand for is known, and nothing of it is unsettled."""
    source = CollectionSource([*range(20), Pause(1), *range(20, 40)])
    _, found = audited(kind([]), "same@900us", source=source)
    assert (found.found, found.unsettled) == ((), 0)


def test_committables_that_a_restore_forgets_are_lost_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding names the records, the global committer and the crash."""
    restore = CommitterMachine.restore
    monkeypatch.setattr(CommitterMachine, "restore", lambda self, *rest: restore(self, *rest) and [])
    _, found = audited(_GlobalSink([]), "same@37us")
    lost = [one for one in found.found if one.kind == LOST]
    assert {one.place.uid for one in lost} == {"out-global-committer"}
    assert all(one.origin.is_source and one.records > 1 for one in lost)


def test_a_sink_of_partitions_is_followed_to_its_writers() -> None:
    """Names of partitions stand for no records; the runs for comparison write no file."""
    sink = PartitionedFileSink("table", partition_by=("k",), commit=PartitionCommit())
    _, found = audited(sink, "same@37us", row=lambda number: {"k": number % 3, "n": number})
    assert found.found == ()


def test_a_scratch_file_system_leaves_the_files_as_they_are() -> None:
    """It reads them, and shows what was written over them."""
    inner = MemoryFileSystem()
    inner.make_dirs("/data")
    with inner.open_write("/data/a") as file:
        file.write(b"a")
    scratch = ScratchFileSystem(inner)
    scratch.make_dirs("/data/new")
    with scratch.open_write("/data/b") as file:
        file.write(b"bb")
    scratch.rename("/data/b", "/data/new/b")
    scratch.delete("/data/a")
    assert scratch.list_dir("/data") == ["a", "new"]
    assert (scratch.read_bytes("/data/a"), scratch.read_bytes("/data/new/b")) == (b"a", b"bb")
    assert sorted(inner.walk_files("/")) == ["/data/a"]
