"""The output of the example of partition commit agrees with its text."""

from __future__ import annotations

import pytest

from examples import partition_commit


def test_an_hour_is_marked_only_when_all_its_rows_in_time_are_there() -> None:
    """Twenty clicks each; the late one comes into an hour that was marked long before."""
    result, reader, files = partition_commit.run()
    marked = [note.split("hour=")[1] for note in reader.notes if "_SUCCESS" in note]

    assert [" ".join(note.split()) for note in marked] == [
        "07 20 rows _SUCCESS",
        "08 20 rows _SUCCESS",
        "07 21 rows _SUCCESS",
        "09 20 rows _SUCCESS",
    ]
    assert reader.look().keys() == {"07", "08", "09"}
    assert sum(files.read_bytes(path).count(b'"late"') for path in files.walk_files("/out/clicks")) == 1
    counters = [dict(of_task) for of_task in result.counters.values()]
    assert sum(of_task.get("numPartitionsCommittedAgain", 0) for of_task in counters) == 1


def test_the_moments_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The rows that the reader saw, the files, and the counters."""
    partition_commit.main()
    out = capsys.readouterr().out

    assert "What a reader sees" in out
    assert "day=2020-05-03/hour=07/part-0-0\n" in out
    assert out.endswith("numPartitionsCommitted: 3\nnumPartitionsCommittedAgain: 1\n")
