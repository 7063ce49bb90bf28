"""Findings of searches: cases that once went wrong, or were once false alarms."""

from __future__ import annotations

from pathlib import Path

from engine.cli.cases import load_subject
from engine.explore.cases import Case, Setting
from engine.explore.invariants import invariants_for
from engine.explore.run import FinishedCase, Subject, run_case
from engine.faults.fault import FaultMix, parse_fault
from engine.graph.job import Job
from operators.basic import CollectedResults
from operators.files.formats import TextFormat
from operators.files.reading import FileSource
from operators.files.sinks import FileSink
from operators.files.writing import attempt_of
from operators.sources import SequenceSource
from state_backends.files import MemoryFileSystem

EXAMPLES = Path(__file__).parents[3] / "examples" / "teaching"
SCENARIOS = EXAMPLES.parent / "scenarios"


def judged(subject: Subject, case: Case) -> FinishedCase:
    return run_case(subject, case, invariants_for(None))


def example(name: str, case: Case) -> FinishedCase:
    """The same for a teaching scenario."""
    return judged(load_subject(str(EXAMPLES / name), {}), case)


def test_a_checkpoint_that_the_disk_has_lost_need_not_be_committed() -> None:
    """Its file is gone before the sink has heard of it; the job begins again, and commits the records otherwise."""
    faults = ("delete-referenced:*@5301ns=13", "pause:out[0]@before:sink.commit#1~4001ns")
    config: dict[str, Setting] = {
        "mode": "unaligned",
        "batch_size": 1,
        "output_capacity": 4,
        "cost.source_record_ns": 300,
        "cost.link_latency_ns": 5_000,
        "cost.storage_latency_ns": 8_000,
        "checkpoint_interval": "2rec",
        "heartbeat_timeout_ns": 1_001,
        "retained": 1,
    }
    finished = example("finishing.py", Case("qd/1170", config, tuple(map(parse_fault, faults))))

    assert sorted(map(str, finished.faults)) == list(faults)
    assert (finished.outcome, finished.incarnations) == ("finished", 2)
    assert finished.violations == []


def test_a_sink_that_is_ahead_of_the_job_ends_it_at_once() -> None:
    """The newest checkpoint is damaged after its commit: the sink refuses the older one, as often as it is asked."""
    config: dict[str, Setting] = {"batch_size": 1, "checkpoint_interval": "1rec", "cost.link_latency_ns": 5_000}
    config |= {"retained": 2, "cost.record_ns": 200, "inline_state_bytes": 0, "max_concurrent": 2}
    case = Case("0", config, (parse_fault("delete-referenced:*@16601ns=15"), parse_fault("crash:out[0]@17us")))
    finished = example("two_phase_commit.py", case)

    assert finished.outcome == "failed"
    assert "is committed in the log already" in str(finished.error)
    assert max(result.attempts for result in finished.results) == 2
    assert finished.violations == []


def test_a_last_checkpoint_that_fails_is_made_up_for_by_the_next_one() -> None:
    """Also when no task may finish early: checkpoints go on, and the job does not take thousands of them to end."""
    config: dict[str, Setting] = {"mode": "aligned", "checkpoint_interval": "1333ns", "batch_size": 2}
    config |= {"checkpoints_after_tasks_finish": False, "inline_state_bytes": 0}
    config |= {"tolerable_failures": 3, "cost.link_latency_ns": 5_000}
    mix = FaultMix({"torn-write": 50_000}, 1)
    finished = [example("counting.py", Case(str(seed), config, mix=mix)) for seed in range(12)]

    assert sum(any("failed in" in note for note in one.view.execution.manager.job.notes) for one in finished) >= 3
    for one in finished:
        assert one.outcome == "finished"
        assert one.violations == []
        assert one.events < 2_000


def test_what_a_zombie_begins_behind_its_successors_back_is_no_orphan() -> None:
    """The successor has cleaned up when it wakes and opens one more file."""

    def build(_parallelism: int | None) -> Job:
        job = Job("files")
        numbers = job.source(SequenceSource(0, 24), name="numbers", uid="numbers", parallelism=1)
        numbers.sink(FileSink("rows"), name="out", uid="out", parallelism=1, chain=False)
        return job

    config: dict[str, Setting] = {"batch_size": 4, "checkpoint_interval": "8rec", "heartbeat_timeout_ns": 5_000}
    config |= {"cost.record_ns": 2_000, "cost.storage_latency_ns": 900, "inline_state_bytes": 0}
    case = Case("0", config, (parse_fault("pause:out[0]@after:snapshot.async.write#7~20us"),), scheduler="fifo")
    finished = judged(Subject(build, label="files"), case)

    left = [path for path in finished.view.world.files.walk_files("/out/rows") if "/." in path]
    assert left, "or there is nothing to be mistaken about"
    assert all(attempt_of(path.rpartition(".")[2]) == (1, 1) for path in left)
    assert finished.violations == []


def test_input_files_lie_in_every_world_as_they_were_at_first(tmp_path: Path) -> None:
    """They are read from disk once: what becomes of them later changes no case."""
    (tmp_path / "a.txt").write_text("1\n2\n")
    (tmp_path / "b.txt").write_text("3\n")

    def build(_parallelism: int | None) -> Job:
        job = Job("reading")
        lines = job.source(FileSource(str(tmp_path), TextFormat()), name="lines", uid="lines", parallelism=2)
        lines.collect(CollectedResults(), name="out", uid="out", parallelism=1)
        return job

    subject = Subject(build, label="reading")
    first = judged(subject, Case("0"))
    (tmp_path / "a.txt").write_text("4\n")
    second = judged(subject, Case("1", faults=(parse_fault("crash:process@before:complete.decide#1"),)))

    assert sorted(first.committed["out"]) == sorted(second.committed["out"]) == ["'1'", "'2'", "'3'"]
    assert second.incarnations == 2
    assert first.violations == second.violations == []
    files = first.view.world.files
    assert isinstance(files, MemoryFileSystem)
    left = files.survivors()
    assert left.read_bytes(str(tmp_path / "a.txt")) == b"1\n2\n", "a crash takes none of them"


def test_records_in_flight_of_another_region_are_not_those_of_the_checkpoint() -> None:
    """One pipeline restarts and the others go on: their channels hold newer records, which is no violation."""
    subject = load_subject(str(SCENARIOS / "fenced_writers.py"), {})
    config: dict[str, Setting] = {"mode": "unaligned", "failover": "region", "batch_size": 2, "cost.record_ns": 500}
    config |= {"cost.link_latency_ns": 300, "checkpoint_interval": "5rec", "channel_capacity": 6}
    restored = 0
    for at_us in range(8, 16):
        case = Case("0", config, (parse_fault(f"crash:files[0]@{at_us}us"),), scheduler="fifo")
        finished = judged(subject, case)
        restored += finished.results[0].attempts > 1
        assert finished.violations == []
    assert restored >= 4


def test_a_region_that_fails_while_the_others_finish_takes_them_along() -> None:
    """Where no checkpoint is taken once tasks have finished: alone, it could never commit its last rows."""
    subject = load_subject(str(SCENARIOS / "fenced_writers.py"), {})
    config: dict[str, Setting] = {"failover": "region", "checkpoints_after_tasks_finish": False, "batch_size": 2}
    config |= {"checkpoint_interval": "5rec"}
    finished = judged(subject, Case("0", config, (parse_fault("crash:*@before:user.close#1"),), scheduler="fifo"))

    assert len(finished.faults) == 1
    assert finished.outcome == "finished"
    assert finished.violations == []
