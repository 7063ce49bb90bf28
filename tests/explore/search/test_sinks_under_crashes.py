"""Every sink, and a death at every step of it: readers see a prefix of the output at any time, and all in the end.

Each case is judged by every invariant. Above all by V2, which looks at what readers see whenever a file gets another
name; by V17, which counts whether that is covered by a checkpoint; and by V1, in the end.
"""

from __future__ import annotations

import pytest

from examples import sinks
from tests.explore.search.sink_deaths import (
    MODES,
    PROCESS,
    RECOVERING,
    case_of,
    deaths,
    places,
    problem,
    ran,
    subject_of,
    visits,
)

FILES = tuple(name for name in sinks.SINKS if name not in ("collect", "foreach-batch", "log", "disk-log", "database",
                                                           "database-retracting", "upsert"))  # fmt: skip
QUICK = ("files", "files-open", "committing", "compacting", "bucketing-lengths", "partition-time-compacted", "staged",
         "disk-log", "database")  # fmt: skip
COMMITS = ("sink.rename", "sink.truncate", "sink.commit", "operator.prepare", "sink.request")

each_sink = pytest.mark.parametrize("sink", sinks.SINKS)
a_few_sinks = pytest.mark.parametrize("sink", QUICK)


@a_few_sinks
def test_the_process_dies_in_the_middle_of_commits(sink: str) -> None:
    """Between two renames or requests of one commit, in its last step, and before the notification."""
    subject = subject_of(sink)
    found = [place for place in places(subject, "aligned") if place.point in COMMITS and place.phase == "before"]
    assert len(found) > 3
    for death in deaths(found[1::2], (PROCESS,)):
        assert problem(subject, case_of("aligned", death)) is None


@a_few_sinks
def test_the_process_dies_again_while_it_recovers(sink: str) -> None:
    """In the middle of a restore, when some of it is committed and some of it is not."""
    subject = subject_of(sink)
    first = RECOVERING[1]
    found = [place for place in places(subject, "unaligned", first) if place.point == "restore.recover-and-commit"]
    assert found
    for death in deaths(found[:2], (PROCESS,)):
        assert problem(subject, case_of("unaligned", first, death)) is None


@a_few_sinks
def test_lost_notifications_and_another_parallelism(sink: str) -> None:
    """After a lost notification the next checkpoint commits; one of three subtasks commits what one of two has left."""
    subject = subject_of(sink)
    assert problem(subject, case_of("aligned", "lose:notify_checkpoint_complete *#1")) is None
    assert problem(subject, case_of("aligned", "rescale:process@before:notify.send#2=3")) is None


@a_few_sinks
def test_a_checkpoint_is_given_up_and_somebody_dies_behind_it(sink: str) -> None:
    """The next checkpoint covers the rows of an aborted one; a death at the news of the abort changes nothing."""
    lost = "lose:receive_acknowledge out*#1"
    settings = {"checkpoint_timeout_ns": 6_000, "tolerable_failures": 9}
    for death in ("crash:*@before:sink.abort#1", "crash:process@after:sink.abort#1"):
        assert problem(subject_of(sink), case_of("aligned", lost, death, **settings)) is None


@pytest.mark.parametrize("sink", FILES)
def test_readers_are_asked_in_the_middle_of_commits(sink: str) -> None:
    """Sinks of files come by their files, call by call; so the places above are there to die at."""
    seen = visits(subject_of(sink), "aligned")
    for point in ("sink.open", "sink.write", "sink.fsync", "sink.rename", "sink.commit", "sink.pre-commit"):
        assert seen.get((point, "before"), 0) > 1, point


def test_a_file_is_cut_where_it_was_open() -> None:
    """A bucketing sink that recovers truncates, and may die right there."""
    subject = subject_of("bucketing")
    seen = visits(subject, "aligned", RECOVERING[0])
    assert seen["sink.truncate", "before"] > visits(subject, "aligned").get(("sink.truncate", "before"), 0)


def test_what_is_said_of_a_partition_is_judged_with_its_rows() -> None:
    """An announcement by event time says how many rows there are: an early one would be another row than expected."""
    finished, _ = ran(subject_of("partition-time", 48), case_of("aligned"))
    told = finished.committed["out-partition-committer"]
    assert {line.split()[0] for line in told} == {"metastore", "success-file"}
    assert all(": 12 rows, checksum " in line for line in told)
    assert len(told) == 8


@pytest.mark.parametrize("sink", ["files", "partitions"])
def test_what_is_taken_back_file_by_file_is_no_row_too_many(sink: str) -> None:
    """Two damaged checkpoints are passed over: what they had committed goes while the writers start, and not before."""
    damaged = [f"bit-flip:open_read /checkpoints/sink-{sink}/chk-{number}/_metadata#1=104" for number in (2, 3)]
    case = case_of("aligned", "crash:*@before:notify.send#3", *damaged)
    assert problem(subject_of(sink), case) is None


@pytest.mark.parametrize("sink", ["files", "overwrite", "bucketing"])
def test_the_power_is_cut_between_a_rename_and_its_fsync(sink: str) -> None:
    """Readers have seen rows whose file has its old name again. The next process gives it the new one."""
    struck = 0
    for number in (2, 4, 5):
        death = f"crash:process@before:sink.rename#{number}"
        case = case_of("aligned", death, "lose-unsynced:/out/*#1")
        finished, _ = ran(subject_of(sink), case)
        assert finished.violations == []
        assert finished.outcome == "finished"
        struck += len(finished.faults) > 1
    assert struck


def test_a_checkpoint_that_nobody_saw_complete_covers_what_its_own_tasks_had_received() -> None:
    """It is durable, the process dies, and one with fewer tasks commits what it holds: no row too many."""
    for parallelism in (1, 3):
        rescaled = case_of("aligned", f"rescale:process@after:manifest.rename#2={parallelism}")
        assert problem(subject_of("partitions"), rescaled) is None


def test_an_announced_table_may_get_more_rows_from_an_at_least_once_job() -> None:
    """An announcement stays; the number of rows is open until the end."""
    assert problem(subject_of("partition-time"), case_of("at-least-once", "crash:*@after:ack.send#18")) is None


# --- everything -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@each_sink
def test_every_sink_survives_every_death(sink: str, mode: str) -> None:
    """The task at the step, or the whole process, dies at the first, a middle and the last visit of every step."""
    subject = subject_of(sink)
    problems = [problem(subject, case_of(mode, death)) for death in deaths(places(subject, mode))]
    assert len(problems) >= 100
    assert [one for one in problems if one is not None] == []
