"""Two sinks of one job whose files would have the same names."""

from __future__ import annotations

from typing import Any

import pytest

from engine import (
    BucketingSink,
    CollectionSource,
    FileSink,
    Job,
    JobGraphError,
    PartitionCommit,
    PartitionedFileSink,
    StagedFileSink,
    SuccessFilePolicy,
)


def sinks_of_the_same_names() -> list[tuple[Any, Any]]:
    """Two sinks each, which would write files of the same names."""
    announced = PartitionCommit(policies=(SuccessFilePolicy(),))
    table: dict[str, Any] = {"partition_by": ("day",), "commit": announced}
    return [
        (FileSink("rows"), FileSink("./rows/")),
        (FileSink("rows"), FileSink("rows").with_committer()),
        (FileSink("rows"), BucketingSink("rows")),
        (PartitionedFileSink("rows", **table), PartitionedFileSink("rows", **table)),
        (StagedFileSink("rows"), StagedFileSink("rows")),
    ]


@pytest.mark.parametrize("pair", range(5))
def test_two_sinks_with_files_of_the_same_names_are_refused(pair: int) -> None:
    """Each would delete or replace the files of the other, and rows would be lost; the error names the files."""
    first, second = sinks_of_the_same_names()[pair]
    numbers = Job("two").source(CollectionSource(range(3)))
    numbers.sink(first)
    with pytest.raises(JobGraphError, match=r"two sinks of job 'two' write files named rows/part-\*(?s:.*)fix: give"):
        numbers.sink(second)


def test_sinks_with_other_prefixes_share_a_directory() -> None:
    """Their files have other names."""
    numbers = Job("two").source(CollectionSource(range(3)))
    numbers.sink(FileSink("rows"))
    numbers.sink(FileSink("rows", prefix="other"))
