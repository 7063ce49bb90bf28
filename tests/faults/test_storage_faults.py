"""Disks that refuse, report wrong results, forget or lose files under a running job, and processes that die on them."""

from __future__ import annotations

import errno
from collections import Counter

import pytest

from engine.explore.cases import Case, Setting
from engine.explore.run import FinishedCase, Subject, run_case
from engine.faults.disk_faults import MAY_END_THE_JOB, StorageFaults, referenced_files
from engine.faults.fault import Fault, FaultMix, parse_fault
from engine.faults.injector import FaultInjector
from engine.faults.opportunities import Struck
from engine.observe.trace_events import CheckpointAborted, CheckpointCompleted
from engine.runtime.kernel import ChoiceRecorder
from operators.basic import CollectedResults
from state_backends.files import FileSystem, MemoryFileSystem
from tests.explore.subjects import case_with
from tests.faults.disturbed import EXACTLY_ONCE, EXPECTED, MODES, VIRTUAL_BOUND_NS, counting, disturbed

US = 1_000
WRITING = ("torn-write", "write-error", "disk-full", "read-only")
READING = ("read-error", "bit-flip", "truncate", "missing")
MANIFEST_POINTS = ("after:manifest.rename", "before:manifest.rename", "after:manifest.write", "after:ack.send")
ROWS = sorted(repr(record) for record in EXPECTED.elements())
SUBJECT = Subject(lambda parallelism: counting(CollectedResults()), label="counting")
SETTINGS: dict[str, Setting] = {
    "batch_size": 4,
    "channel_capacity": 8,
    "checkpoint_interval": "17us",
    "cost.record_ns": 700,
    "cost.storage_latency_ns": 900,
    "inline_state_bytes": 0,
    "cost.slow_links.far": 6_000,
    "tolerable_failures": 1_000,
    "retained": 3,
}


def wrapped(*texts: str, mix: FaultMix | None = None) -> tuple[FileSystem, Struck]:
    """A disk in memory with these faults in front of it."""
    mix = FaultMix() if mix is None else mix
    struck = Struck(mix, ChoiceRecorder())
    return StorageFaults([parse_fault(text) for text in texts], mix, struck).wrap(MemoryFileSystem(), "files"), struck


def put(disk: FileSystem, path: str, data: bytes) -> None:
    with disk.open_write(path) as file:
        file.write(data)


def case(*faults: str, mode: str = "aligned", seed: str = "1", mix: FaultMix | None = None) -> Case:
    return case_with({**SETTINGS, "mode": mode}, *faults, mix=mix, seed=seed)


def rows(finished: FinishedCase) -> list[str]:
    (found,) = finished.committed.values()
    return sorted(found)


# -- calls ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("write-error:write /a#2", errno.EIO),
        ("torn-write:/a#2=3", errno.EIO),
        ("disk-full:write /a#2=3", errno.ENOSPC),
        ("read-only:write *#2", errno.EROFS),
    ],
)
def test_an_exact_fault_strikes_one_call(text: str, code: int) -> None:
    """The second write to that file fails in the way of its kind; the fault's part of the data is left."""
    disk, struck = wrapped(text)
    put(disk, "/b", b"other")

    with disk.open_write("/a") as file:
        if not text.startswith("read-only"):
            file.write(b"first ")
        with pytest.raises(OSError, match=r"\[Errno") as failed:
            file.write(b"second")
        file.write(b"!")

    assert failed.value.errno == code
    kept = b"sec" if "=3" in text else b""
    assert disk.read_bytes("/a") == (b"" if text.startswith("read-only") else b"first ") + kept + b"!"
    assert struck.faults == [parse_fault(text)]


def test_an_error_may_come_although_it_was_done() -> None:
    """With an amount the rename has happened, and its caller is told that it has not."""
    disk, _ = wrapped("write-error:rename */b#1=1")
    put(disk, "/a", b"x")

    with pytest.raises(OSError, match="Input/output error"):
        disk.rename("/a", "/b")

    assert disk.read_bytes("/b") == b"x"


@pytest.mark.parametrize(
    ("text", "found"), [("bit-flip:/a#2=9", b"a`c"), ("truncate:/a#2=1", b"a"), ("missing:open_read /a#2", None)]
)
def test_a_file_is_read_otherwise_than_it_was_written(text: str, found: bytes | None) -> None:
    """Once: the file itself is unchanged."""
    disk, _ = wrapped(text)
    put(disk, "/a", b"abc")

    assert disk.read_bytes("/a") == b"abc"
    if found is None:
        with pytest.raises(FileNotFoundError):
            disk.read_bytes("/a")
    else:
        assert disk.read_bytes("/a") == found
    assert disk.read_bytes("/a") == b"abc"


def test_a_stale_listing_lacks_the_newest_names() -> None:
    """As many as it says, in the order in which they got their names; the files themselves are there."""
    disk, _ = wrapped("stale-listing:/d#1=2")
    disk.make_dirs("/d")
    for name in ("z", "b", "a"):
        put(disk, f"/d/{name}.tmp", b"")
        disk.rename(f"/d/{name}.tmp", f"/d/{name}")

    assert disk.list_dir("/d") == ["z"]
    assert disk.exists("/d/a")
    assert disk.list_dir("/d") == ["a", "b", "z"]


def test_without_faults_of_storage_nothing_is_wrapped() -> None:
    """A run without faults of storage pays nothing for them."""
    memory = MemoryFileSystem()
    struck = Struck(FaultMix(), ChoiceRecorder())

    assert StorageFaults([parse_fault("lose:*#1")], FaultMix(), struck).wrap(memory, "files") is memory


# -- running jobs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*WRITING, *READING, "delete-referenced"])
def test_drawn_faults_of_a_disk_cost_checkpoints_and_nothing_else(kind: str) -> None:
    """The job counts each record once or fails with the reason; repeated as exact faults, the run is the same."""
    struck, ends = Counter[str](), Counter[str]()
    chance = 30_000 if kind in WRITING else 300_000 if kind == "delete-referenced" else 40_000
    for number in range(6):
        mode = EXACTLY_ONCE[number % 3]
        settings = {"mode": mode, "seed": f"{kind}{number}", "kills": [("count[1]", 45 * US)], "retained": 3}
        run = disturbed(mix=FaultMix({kind: chance}, most=5 if kind in WRITING else 2), **settings)  # type: ignore[arg-type]
        struck.update(fault.kind for fault in run.struck)
        ends[run.result.state] += 1

        if run.result.state == "failed":
            assert kind in MAY_END_THE_JOB - set(WRITING)
            assert "no state to restart from" in str(run.result.error)
        else:
            assert run.records == EXPECTED, run.struck
            assert run.oracle.held
            assert run.took_ns <= VIRTUAL_BOUND_NS
        assert disturbed(*run.struck, **settings).trace == run.trace  # type: ignore[arg-type]
    assert struck[kind] >= 2
    assert ends["finished"] >= 2


@pytest.mark.parametrize("kind", ["disk-full", "read-only"])
def test_checkpoints_fail_while_a_disk_is_full_and_complete_behind_that(kind: str) -> None:
    """No checkpoint completes meanwhile, the job goes on, and afterwards checkpoints complete."""
    run = disturbed(f"{kind}:*@10us~40us", checkpoint_timeout_ns=20 * US)

    completed = [event.time_ns - run.result.started_ns for event in run.trace if isinstance(event, CheckpointCompleted)]
    assert run.records == EXPECTED
    assert any(isinstance(event, CheckpointAborted) for event in run.trace)
    assert not [at for at in completed if 10 * US <= at < 50 * US]
    assert [at for at in completed if at >= 50 * US]


def test_going_back_behind_what_was_committed_takes_it_back() -> None:
    """The newest checkpoint cannot be read when its job restarts: its committed rows come again, once."""
    kills = [("count[1]", 50 * US)]
    usual = disturbed(kills=kills, retained=3)
    newest = usual.result.restores[-1].checkpoint_id
    assert newest is not None
    assert newest > 1

    run = disturbed(f"bit-flip:*/chk-{newest}/_metadata#1=77", kills=kills, retained=3)

    assert run.struck
    assert run.result.restores[-1].checkpoint_id == newest - 1
    assert run.records == EXPECTED
    retracted = sum(counted.get("numCommittedRecordsRetracted", 0) for counted in run.result.counters.values())
    assert retracted


def test_somebody_deletes_a_file_that_a_checkpoint_needs() -> None:
    """It is gone from a completed checkpoint; the loss has no effect unless the file is needed."""
    disk = MemoryFileSystem()
    run = disturbed("delete-referenced:*@30us=1", checkpoints=disk, retained=3)

    assert run.struck == (parse_fault("delete-referenced:*@30us=1"),)
    assert run.records == EXPECTED
    assert referenced_files(disk)


# -- dying processes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_what_was_not_durable_may_be_lost_with_the_machine(mode: str) -> None:
    """A draw decides for each change not fsynced whether it survives: the resumed job commits each row once."""
    lost = 0
    for number in range(1, 9):
        crash = f"crash:process@{MANIFEST_POINTS[number % 4]}#{1 + number // 5}"
        mix = FaultMix({"lose-unsynced": 1_000_000}, most=2)
        finished = run_case(SUBJECT, case(crash, mode=mode, seed=str(number), mix=mix))

        assert not finished.violations, finished.violations
        assert finished.incarnations == 2
        assert rows(finished) == ROWS
        lost += sum(fault.kind == "lose-unsynced" for fault in finished.faults)
        again = run_case(SUBJECT, case(*map(str, finished.faults), mode=mode, seed=str(number)))
        assert again.committed == finished.committed
        assert again.faults == finished.faults
    assert lost


def test_nothing_is_lost_when_only_the_process_dies() -> None:
    """All written data is in the files, fsynced or not; open files and locks are gone."""
    injector, disk = FaultInjector(), MemoryFileSystem()
    put(disk, "/a", b"never synced")
    lock = disk.lock_directory("/d")
    open_file = disk.open_append("/a")

    injector.storage.process_died({"checkpoints": disk})

    assert disk.read_bytes("/a") == b"never synced"
    disk.lock_directory("/d")
    lock.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        open_file.write(b"x")


@pytest.mark.parametrize("survives", [True, False])
def test_exactly_what_is_named_is_lost_with_the_machine(survives: bool) -> None:
    """At the second death: its own number, and its own files."""
    fault = Fault("lose-unsynced", "/d/*", number=2)
    injector, disk = FaultInjector([fault]), MemoryFileSystem()
    disk.make_dirs("/d")
    disk.make_dirs("/e")
    injector.storage.process_died({"checkpoints": disk})
    put(disk, "/d/a", b"x")
    put(disk, "/e/a", b"x")
    if survives:
        disk.fsync_dir("/d")
        with disk.open_append("/d/a") as file:
            file.fsync()

    injector.storage.process_died({"checkpoints": disk})

    assert disk.exists("/d/a") is survives
    assert disk.exists("/e/a")
    assert injector.unused == (() if not survives else (fault,))


@pytest.mark.parametrize("kind", READING)
def test_a_job_that_ended_over_a_bad_disk_is_resumed_once_it_is_well(kind: str) -> None:
    """It and some resumes fail; the first one on a good disk goes on from the checkpoint that they should have used."""
    faults = (f"{kind}:*/_metadata#{number}=3" for number in range(1, 9))
    finished = run_case(SUBJECT, case("crash:count[1]@45us", *faults))

    assert finished.outcome == "finished"
    assert not finished.violations
    assert not finished.unused
    assert finished.incarnations >= 2
    assert rows(finished) == ROWS
