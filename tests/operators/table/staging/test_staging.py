"""Staging directories, plans and their execution, the writers of a task, and the finalizer of a job that goes back."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.errors import ConfigurationError, StorageError, UserFunctionError
from operators.files.formats import CsvRowFormat, JsonLinesRowFormat
from operators.files.writing import BulkTextFormat, RecordError
from operators.table.partitions.commit_policies import MetastorePolicy, SuccessFilePolicy
from operators.table.partitions.metastore import MemoryMetastore
from operators.table.partitions.partitioning import PartitionColumns
from operators.table.staging.moves import (
    CommitPlan,
    StagedFile,
    StagingCommitter,
    check_staging,
    nothing_staged,
    plan_commit,
)
from operators.table.staging.staged_sink import StagedFileSink, StagingFinalizer, StagingWriters
from operators.table.staging.staging_writers import StagingWriter
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from tests.operators.harness import Checkpoint, Harness

TABLE, STAGING = "/out/t", "/staging"


def put(fs: MemoryFileSystem, path: str, content: str = "") -> None:
    fs.make_dirs(path.rpartition("/")[0])
    with fs.open_write(path) as file:
        file.write(content.encode())
        file.fsync()
    fs.fsync_dir(path.rpartition("/")[0])


def tree(fs: MemoryFileSystem, root: str = TABLE) -> dict[str, str]:
    return {path.removeprefix(f"{root}/"): fs.read_bytes(path).decode() for path in fs.walk_files(root)}


# --- plans --------------------------------------------------------------------------------------------------------


def commit(fs: MemoryFileSystem, columns: list[str], *names: str, overwrite: bool = False, **static: str) -> None:
    """Commit staged files, named by task, partition and name."""
    partitions: dict[str, list[StagedFile]] = {}
    for path in names:
        partition, _, name = path.partition("/")[2].rpartition("/")
        file = StagedFile(f"{STAGING}/{path}", partition, name, fs.size(f"{STAGING}/{path}"))
        partitions.setdefault(partition, []).append(file)
    plan = plan_commit(fs, TABLE, partitions or nothing_staged(columns, static), overwrite=overwrite)
    StagingCommitter(fs, TABLE, columns).execute(plan, 0)


def test_a_name_that_is_taken_is_given_another() -> None:
    """An append does not replace files of the table, nor files of the same commit."""
    fs = MemoryFileSystem()
    put(fs, f"{TABLE}/f", "old")
    put(fs, f"{STAGING}/task-0/f", "0")
    put(fs, f"{STAGING}/task-1/f", "1")
    commit(fs, [], "task-0/f", "task-1/f")
    assert tree(fs) == {"f": "old", "f_copy_1": "0", "f_copy_2": "1"}


def test_an_overwrite_deletes_what_readers_see() -> None:
    """It deletes files and directories of the written partition, but no hidden ones, and no other partition."""
    fs = MemoryFileSystem()
    for name in ("p=1/old", "p=1/below/older", "p=1/.hidden", "p=1/_SUCCESS", "p=2/kept"):
        put(fs, f"{TABLE}/{name}", name)
    put(fs, f"{STAGING}/task-0/p=1/new", "new")
    commit(fs, ["p"], "task-0/p=1/new", overwrite=True)
    assert sorted(tree(fs)) == ["p=1/.hidden", "p=1/_SUCCESS", "p=1/new", "p=2/kept"]


@pytest.mark.parametrize("overwrite", [True, False])
def test_nothing_staged(overwrite: bool) -> None:
    """A static partition is made, or emptied; half a static one does not name a partition."""
    fs = MemoryFileSystem()
    commit(fs, ["p", "q"], overwrite=overwrite, p="1")
    assert not fs.exists(TABLE)
    commit(fs, ["p", "q"], overwrite=overwrite, p="1", q="2")
    assert fs.is_dir(f"{TABLE}/p=1/q=2")
    put(fs, f"{TABLE}/p=1/q=2/old", "old")
    commit(fs, ["p", "q"], overwrite=overwrite, p="1", q="2")
    assert tree(fs) == ({} if overwrite else {"p=1/q=2/old": "old"})


def test_a_plan_is_a_plain_value() -> None:
    """It is the same after a round trip through JSON."""
    plan = CommitPlan(True, ("p=1",), (StagedFile("/s/f", "p=1", "f", 3),))
    assert CommitPlan.of(json.loads(json.dumps(plan))) == plan


FILES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["p=1", "p=2", "p=3"]), st.sampled_from("abc")),
    max_size=8,
    unique=True,
)
CRASHES = st.sampled_from([FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER])


@given(FILES, FILES, st.booleans(), st.integers(1, 40), CRASHES)
@settings(max_examples=150)
def test_a_plan_is_carried_out_once(
    staged: list[tuple[int, str, str]],
    before: list[tuple[int, str, str]],
    overwrite: bool,
    dies_at: int,
    kind: FileFault,
) -> None:
    """Whenever whoever carries it out dies, and with any number of power failures, doing it again does the rest."""
    fs = MemoryFileSystem()
    fs.make_dirs(TABLE)
    for task, partition, name in before:
        put(fs, f"{TABLE}/{partition}/{name}", f"before {task}")
    for task, partition, name in staged:
        put(fs, f"{STAGING}/task-{task}/{partition}/{name}", f"{task} {partition} {name}")
    partitions: dict[str, list[StagedFile]] = {}
    for task, partition, name in sorted(staged):
        path = f"{STAGING}/task-{task}/{partition}/{name}"
        partitions.setdefault(partition, []).append(StagedFile(path, partition, name, fs.size(path)))
    plan = plan_commit(fs, TABLE, partitions, overwrite=overwrite)
    old = Counter((path.partition("/")[0], text) for path, text in tree(fs).items())
    new = Counter((partition, f"{task} {partition} {name}") for task, partition, name in staged)
    kept = Counter({one: count for one, count in old.items() if not (overwrite and one[0] in partitions)})
    for at in (dies_at, dies_at // 2 + 1):
        faulty = FaultInjectingFileSystem(fs, [FaultRule(kind, at_call=at)])
        try:
            StagingCommitter(faulty, TABLE, ["p"]).execute(plan, 0)
        except BaseException as error:
            if type(error).__name__ != "SimulatedCrashError":
                raise
            fs.crash()
    StagingCommitter(fs, TABLE, ["p"]).execute(plan, 0)
    fs.crash()
    assert Counter((path.partition("/")[0], text) for path, text in tree(fs).items()) == kept + new


def test_a_staged_file_that_is_gone_or_another_is_an_error() -> None:
    """Otherwise the commit would silently leave out rows."""
    fs = MemoryFileSystem()
    put(fs, f"{STAGING}/f", "abc")
    with pytest.raises(StorageError, match="has 3"):
        StagingCommitter(fs, TABLE, []).execute(CommitPlan(False, ("",), (StagedFile(f"{STAGING}/f", "", "f", 4),)), 0)
    gone = CommitPlan(False, ("",), (StagedFile(f"{STAGING}/g", "", "g", 4),))
    with pytest.raises(StorageError, match="is gone"):
        StagingCommitter(fs, TABLE, []).execute(gone, 0)
    assert StagingCommitter(fs, TABLE, []).execute(gone, 0, may_be_begun=True) == [f"{TABLE}/g"]
    put(fs, f"{TABLE}/f", "somebody else's")
    with pytest.raises(StorageError, match="is taken now"):
        StagingCommitter(fs, TABLE, []).execute(CommitPlan(False, ("",), (StagedFile(f"{STAGING}/f", "", "f", 3),)), 0)


def test_a_metastore_knows_partitions_only() -> None:
    """The policy is not applied to a table without partitions; other policies are."""
    fs, metastore = MemoryFileSystem(), MemoryMetastore()
    metastore.create_table("t", ["p"])
    policies = [MetastorePolicy(metastore, "t"), SuccessFilePolicy()]
    StagingCommitter(fs, TABLE, [], policies).execute(CommitPlan(False, ("",), ()), 5)
    assert (metastore.partitions("t"), tree(fs)) == ([], {"_SUCCESS": ""})
    StagingCommitter(fs, TABLE, ["p"], policies).execute(CommitPlan(False, ("p=1",), ()), 5)
    assert [(entry.spec, entry.location, entry.committed_ms) for entry in metastore.partitions("t")] == [
        ((("p", "1"),), f"{TABLE}/p=1", 5)
    ]


# --- writers ------------------------------------------------------------------------------------------------------


def staging_writer(fs: MemoryFileSystem, columns: PartitionColumns, **options: Any) -> StagingWriter:
    return StagingWriter(fs, f"{STAGING}/task-3", 3, columns, options.pop("format", CsvRowFormat()), **options)


def test_dynamic_partitions_have_a_file_each() -> None:
    """The order is that in which partitions are met; nulls and the empty text have a partition too."""
    fs = MemoryFileSystem()
    writer = staging_writer(fs, PartitionColumns(["a", "p"], ["p"]), suffix=".csv")
    writer.write([("x", 1), ("y", None), ("z", 1), ("u", ""), ("v", "a/b")])
    assert [(file.partition, file.name, file.size_bytes) for file in writer.finish_files()] == [
        ("p=1", "part-task-3-file-0.csv", 4),
        ("p=__DEFAULT_PARTITION__", "part-task-3-file-1.csv", 4),
        ("p=a%2Fb", "part-task-3-file-2.csv", 2),
    ]
    assert tree(fs, f"{STAGING}/task-3")["p=1/part-task-3-file-0.csv"] == "x\nz\n"


def test_grouped_partitions_have_one_open_file_at_a_time() -> None:
    """A partition that comes again gets another file."""
    fs = MemoryFileSystem()
    writer = staging_writer(fs, PartitionColumns(["a", "p"], ["p"]), grouped=True)
    writer.write([("x", 1), ("y", 1), ("z", 2)])
    writer.write([("u", 2), ("v", 1)])
    assert [(file.partition, fs.read_bytes(file.path)) for file in writer.finish_files()] == [
        ("p=1", b"x\ny\n"),
        ("p=2", b"z\nu\n"),
        ("p=1", b"v\n"),
    ]


def test_records_are_dicts_or_have_columns() -> None:
    """The path's columns are left out of the row; half a static partition takes the others from the record."""
    columns = PartitionColumns(None, ["p", "q"], {"p": "x"})
    assert columns.split([{"q": 1, "n": 2}, {"n": 3, "q": True, "p": "x"}]) == (
        ["p=x/q=1", "p=x/q=True"],
        [{"n": 2}, {"n": 3}],
    )
    assert PartitionColumns(["p", "q", "n"], ["p", "q"], {"p": "x"}).split([(1, 2)]) == (["p=x/q=1"], [(2,)])
    assert PartitionColumns().split(["anything"]) == ([""], ["anything"])


VALUES = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "1", "True", "/"]) | st.just(1.0)
RECORDS = st.lists(st.fixed_dictionaries({"p": VALUES, "q": VALUES, "n": st.integers(0, 9)}), max_size=6)


@given(RECORDS, st.integers(1, 2))
def test_dicts_are_split_as_other_records_are(records: list[dict[str, Any]], dynamic: int) -> None:
    """There is a faster way for dicts; it finds the same, and changes no record."""
    by = ["p", "q"][:dynamic]
    before = [dict(record) for record in records]
    partitions, rows = PartitionColumns(None, by).split(records)
    columns = ["p", "q", "n"]
    slow, _ = PartitionColumns(columns, by).split([tuple([record[name] for name in columns]) for record in records])
    assert (records, partitions) == (before, slow)
    assert rows == [{name: value for name, value in record.items() if name not in by} for record in records]


@pytest.mark.parametrize(
    ("columns", "records", "why"),
    [
        (PartitionColumns(None, ["p"]), [{"p": 1}, {"q": 1}], "no partition column 'p'"),
        (PartitionColumns(None, ["p"]), [{"p": 1}, (1,)], "give columns="),
        (PartitionColumns(None, ["p"]), [{"p": 1}, 5], "not int"),
        (PartitionColumns(None, ["p"]), [{"p": 1}, {"p": [1]}], "named by text"),
        (PartitionColumns(None, ["p"]), [{"p": "b'x'"}, {"p": b"x"}], "of type bytes"),
        (PartitionColumns(["p"], ["p"]), [(1,), (1, 2)], "2 values"),
        (PartitionColumns(None, ["p"], {"p": 1}), [{"p": 1}, {"p": 2}], "all records go to p=1"),
    ],
)
def test_records_that_have_no_partition(columns: PartitionColumns, records: list[Any], why: str) -> None:
    """The error names the second record, and none is written."""
    fs = MemoryFileSystem()
    with pytest.raises(RecordError, match=why) as caught:
        staging_writer(fs, columns).write(records)
    assert (caught.value.position, caught.value.record) == (1, records[1])
    assert tree(fs, STAGING) == {}


@pytest.mark.parametrize(
    ("partition", "static", "columns", "why"),
    [
        (["_p"], {}, None, "hide its directories"),
        ([""], {}, None, "a partition column is a name"),
        ([1], {}, None, "a partition column is a name"),
        (["p", "p"], {}, None, "twice"),
        (["p"], {"p": b"x"}, None, "static_partition cannot be: column 'p' is b'x' of type bytes"),
        (["p"], {"q": 1}, None, "no partition column"),
        (["p"], {}, ["a"], "none of the columns"),
    ],
)
def test_columns_that_make_no_sense(
    partition: list[str], static: dict[str, Any], columns: list[str] | None, why: str
) -> None:
    """They are refused when the sink is described."""
    with pytest.raises(ConfigurationError, match=why):
        StagedFileSink("t", partition_by=partition, static_partition=static, columns=columns)


def test_options_that_make_no_sense() -> None:
    """The error says what they must be."""
    for options in ({"prefix": "_x"}, {"suffix": "/"}, {"partition_by": "day"}, {"staging": ""}, {"policies": ["no"]}):
        with pytest.raises(ConfigurationError):
            StagedFileSink("t", **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        StagedFileSink("")


@pytest.mark.parametrize(
    ("path", "staging", "why"),
    [
        ("t", "t", "a visible one in the table"),
        ("t", "./t/staged", "a visible one in the table"),
        ("/data/t", "/data/t/a/b", "a visible one in the table"),
        ("t", "t/.staged", None),
        ("t", "t/a/_b", None),
        ("t", "tt", None),
        ("t", ".", None),
    ],
)
def test_staging_is_not_where_readers_look(path: str, staging: str, why: str | None) -> None:
    """An overwrite would delete it, and rows in it would be read before they are committed."""
    if why is None:
        StagedFileSink(path, staging=staging)
        return
    with pytest.raises(ConfigurationError, match=why):
        StagedFileSink(path, staging=staging)


@pytest.mark.parametrize(("path", "staging"), [("op-uid", "."), ("op-uid/t", "."), ("./op-uid/", "x/..")])
def test_a_staging_directory_that_holds_the_table_is_refused(path: str, staging: str) -> None:
    """It is deleted in the end; the refusal comes before anything is deleted."""
    fs = MemoryFileSystem()
    put(fs, "/out/op-uid/t/f", "old")
    operator = StagingWriters(StagedFileSink(path, staging=staging)).create_operator()
    with pytest.raises(ConfigurationError, match="holds nothing else"):
        Harness(operator, fs=fs)
    assert tree(fs, "/out") == {"op-uid/t/f": "old"}


@pytest.mark.parametrize("staging", [TABLE, "/out", "/", f"{TABLE}/staged"])
def test_a_table_is_not_deleted_with_its_staging_directory(staging: str) -> None:
    """The table's directory, one above it, and a visible one in it cannot be the staging directory."""
    with pytest.raises(ConfigurationError, match="the staging directory"):
        check_staging(TABLE, staging)


def test_equal_values_with_other_texts_have_directories_of_their_own() -> None:
    """The directory of a record does not depend on the records before it."""
    columns = PartitionColumns(None, ["p"])
    values = [Decimal("1.0"), Decimal("1.00"), -0.0, 0.0, 1, True, "1"]
    expected = ["p=1.0", "p=1.00", "p=-0.0", "p=0.0", "p=1", "p=True", "p=1"]
    assert columns.split([{"p": value} for value in values])[0] == expected
    assert columns.split([{"p": value} for value in reversed(values)])[0] == expected[::-1]
    assert PartitionColumns(["p"], ["p"]).split([(value,) for value in values])[0] == expected


def test_files_in_bulk() -> None:
    """Formats with an ending get it; batches do not show in the files."""
    fs = MemoryFileSystem()
    writer = staging_writer(fs, PartitionColumns(None, ["p"]), format=BulkTextFormat(JsonLinesRowFormat()))
    writer.write([{"p": 1, "n": 1}, {"p": 2, "n": 2}])
    writer.write([{"p": 1, "n": 3}])
    contents = {file.partition: gzip.decompress(fs.read_bytes(file.path)) for file in writer.finish_files()}
    assert contents == {"p=1": b'{"n":1}\n{"n":3}\n', "p=2": b'{"n":2}\n'}


# --- the sink of a job --------------------------------------------------------------------------------------------


class Insert:
    """One writer and the finalizer; the test says when checkpoints complete."""

    def __init__(self, fs: MemoryFileSystem, **options: Any) -> None:
        self.fs, self.sink, self.attempt = fs, StagedFileSink("t", **options), 0
        self.start(None, None)

    def start(self, writer: Checkpoint | None, finalizer: Checkpoint | None) -> None:
        self.attempt += 1
        made = {"fs": self.fs, "attempt": self.attempt}
        self.writer = Harness(StagingWriters(self.sink).create_operator(), restored=writer, **made)
        self.finalizer = Harness(StagingFinalizer(self.sink).create_operator(), restored=finalizer, **made)

    def write(self, *numbers: int) -> None:
        self.writer.process([{"n": number} for number in numbers])

    def checkpoint(self, checkpoint_id: int) -> Checkpoint:
        self.writer.snapshot(checkpoint_id)
        self.finalizer.process(self.writer.take_values())
        return self.finalizer.snapshot(checkpoint_id)

    def finish(self) -> None:
        self.writer.finish()
        self.finalizer.process(self.writer.take_values())
        self.finalizer.finish()

    def rows(self) -> list[int]:
        found = []
        for path, text in tree(self.fs).items():
            if not any(part.startswith((".", "_")) for part in path.split("/")):
                found += [json.loads(line)["n"] for line in text.splitlines()]
        return sorted(found)


def test_a_plan_waits_for_its_checkpoint() -> None:
    """Neither the end of the input, nor a checkpoint from before the end, makes rows visible."""
    job = Insert(MemoryFileSystem())
    job.write(1)
    job.checkpoint(1)
    job.write(2)
    job.finish()
    job.finalizer.complete(1)
    assert job.rows() == []
    job.checkpoint(2)
    assert job.rows() == []
    job.finalizer.complete(1)
    assert job.rows() == []
    job.finalizer.complete(2)
    assert job.rows() == [1, 2]
    assert not [name for name in job.fs.list_dir(TABLE) if name.startswith(".staging")]


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_job_that_goes_back_takes_its_rows_back(overwrite: bool) -> None:
    """After going back by one checkpoint, later rows come again; earlier ones are where they were staged."""
    fs = MemoryFileSystem()
    put(fs, f"{TABLE}/old", '{"n":0}\n')
    job = Insert(fs, overwrite=overwrite)
    old = [] if overwrite else [0]
    job.write(1)
    first = job.checkpoint(1)
    job.write(2)
    job.finish()
    job.finalizer.complete(job.checkpoint(2).id)
    assert job.rows() == [*old, 1, 2]

    job.start(first, first)
    assert job.rows() == old
    assert job.finalizer.counter("numCommittedFilesRetracted") == 2
    job.write(2)
    job.finish()
    job.finalizer.complete(job.checkpoint(3).id)
    assert job.rows() == [*old, 1, 2]


def test_what_was_taken_back_survives_a_power_failure() -> None:
    """The rows are where they were staged, or still in the table; the job needs them again."""
    fs = MemoryFileSystem()
    job = Insert(fs)
    job.write(1)
    first = job.checkpoint(1)
    job.finish()
    job.finalizer.complete(job.checkpoint(2).id)
    for _ in range(2):
        job.start(first, first)
        fs.crash()
    job.start(first, first)
    job.finish()
    job.finalizer.complete(job.checkpoint(3).id)
    fs.crash()
    assert job.rows() == [1]


def test_a_task_begins_with_an_empty_directory() -> None:
    """Files that a dead attempt of it has staged are deleted; other tasks keep theirs."""
    fs = MemoryFileSystem()
    put(fs, f"{STAGING}/task-3/p=1/dead", "x\n")
    put(fs, f"{STAGING}/task-1/p=1/alive", "y\n")
    writer = staging_writer(fs, PartitionColumns(["a", "p"], ["p"]))
    writer.open()
    writer.write([("z", 1)])
    writer.finish_files()
    assert sorted(tree(fs, STAGING).values()) == ["y\n", "z\n"]


def test_a_restored_plan_is_carried_out_at_once_and_only_once() -> None:
    """It does not matter whether it was begun; later files of other programs are not overwritten again."""
    fs = MemoryFileSystem()
    job = Insert(fs, overwrite=True)
    job.write(1)
    job.finish()
    last = job.checkpoint(1)
    job.start(last, last)
    assert job.rows() == [1]
    put(fs, f"{TABLE}/theirs", '{"n":7}\n')
    job.start(last, last)
    job.finish()
    job.finalizer.complete(job.checkpoint(2).id)
    assert job.rows() == [1, 7]


def test_a_commit_that_nobody_resumed_is_taken_back() -> None:
    """A job that starts from nothing finds half a commit of a dead one and takes it back: all or nothing."""
    fs = MemoryFileSystem()
    job = Insert(fs)
    job.write(1)
    job.checkpoint(1)
    job.write(2)
    job.finish()
    last = job.checkpoint(2)
    faulty = FaultInjectingFileSystem(fs, [FaultRule(FileFault.ERROR_BEFORE, "rename", path="*/part-*", at_call=2)])
    job.finalizer.operator._fs = faulty  # type: ignore[attr-defined]
    job.finalizer.operator._committer._fs = faulty  # type: ignore[attr-defined]
    with pytest.raises(StorageError):
        job.finalizer.complete(last.id)
    assert job.rows() == [1]
    job.start(None, None)
    assert job.rows() == []


def test_without_checkpoints_the_end_is_the_commit() -> None:
    """There is no checkpoint to wait for."""
    sink, fs = StagedFileSink("t"), MemoryFileSystem()
    finalizer = Harness(StagingFinalizer(sink).create_operator(), fs=fs, checkpointing_enabled=False)
    writer = Harness(StagingWriters(sink).create_operator(), fs=fs, checkpointing_enabled=False)
    writer.process([{"n": 1}])
    writer.finish()
    finalizer.process(writer.take_values())
    finalizer.finish()
    assert [name for name in fs.list_dir(TABLE) if not name.startswith(".")] == ["part-1-1-task-0-file-0"]


def test_an_empty_insert() -> None:
    """It overwrites a table without partitions, makes a static partition, and does not touch dynamic ones."""
    for options, left in (
        ({}, {"p=1/old"}),
        ({"partition_by": ["p"]}, {"p=1/old"}),
        ({"partition_by": ["p"], "static_partition": {"p": 1}}, set()),
    ):
        fs = MemoryFileSystem()
        put(fs, f"{TABLE}/p=1/old")
        job = Insert(fs, overwrite=True, **options)
        job.finish()
        job.finalizer.complete(job.checkpoint(1).id)
        assert {path for path in tree(fs) if not path.startswith(".")} == (left if options else set())
        assert fs.is_dir(f"{TABLE}/p=1") is bool(options)


def test_the_default_partition_can_be_called_otherwise() -> None:
    """It has that name in the path of a record and of a static column; the name may not be a hidden one."""
    fs = MemoryFileSystem()
    job = Insert(fs, partition_by=["p"], static_partition={"p": None}, default_partition="none")
    job.finish()
    job.finalizer.complete(job.checkpoint(1).id)
    assert fs.is_dir(f"{TABLE}/p=none")
    with pytest.raises(ConfigurationError, match="must not be hidden"):
        StagedFileSink("t", default_partition=".none")


def test_a_bad_record_is_named() -> None:
    """The error also names the operator, as does every error of a user's record."""
    job = Insert(MemoryFileSystem(), partition_by=["p"])
    with pytest.raises(UserFunctionError, match=r"partition_by(.|\n)*no partition column 'p'"):
        job.write(1)
    with pytest.raises(UserFunctionError, match="row format"):
        job.writer.process([{"p": 1, "n": object()}])


def test_a_damaged_note_is_an_error() -> None:
    """Its content is unknown."""
    fs = MemoryFileSystem()
    put(fs, f"{TABLE}/.staged-commit-op-uid", "{")
    with pytest.raises(StorageError, match="damaged"):
        Insert(fs)


def test_every_changed_byte_of_a_note_is_found() -> None:
    """The note names files to take back: a changed name would delete another program's file."""
    fs = MemoryFileSystem()
    job = Insert(fs)
    job.write(1, 2)
    job.finish()
    job.finalizer.complete(job.checkpoint(1).id)
    note = f"{TABLE}/.staged-commit-op-uid"
    content = fs.read_bytes(note)
    end = content.index(b'"checksum"')
    for at in range(len(content)):
        with fs.open_write(note) as file:
            file.write(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        if end <= at <= end + 9:
            continue  # the key itself: what is said is whole, as a note of an older version
        with pytest.raises(StorageError, match="damaged"):
            Insert(fs)


def test_nothing_staged_is_everything_or_nothing() -> None:
    """The partition without rows is known if no column is in the records."""
    assert nothing_staged([], {}) == {"": []}
    assert nothing_staged(["p"], {"p": None}) == {"p=__DEFAULT_PARTITION__": []}
    assert nothing_staged(["p"], {}) == {}
