"""V17: the files of four incremental checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from tests.state_backends.rows.support import job_over, names
from tests.validation.targets import Figure, Size, assert_plausible, target

CHECKPOINTS = (("1", "2"), ("1", "2", "3", "4"), ("123", "4", "5"), ("123", "456"))
"""The store's files at each checkpoint: 1, 2 and 3 are compacted before the third, 4, 5 and 6 before the fourth."""


def files_of_checkpoints() -> list[tuple[int, int]]:
    """Files uploaded by each checkpoint, and files in storage after it, where two are retained."""
    job, store = job_over("1.sst", "2.sst", retain=2)
    found = []
    for number, files in enumerate(CHECKPOINTS, start=1):
        store.names = tuple(f"{one}.sst" for one in files)
        uploaded = names(job.checkpoint(number), uploaded=True)
        job.verify()
        found.append((len(uploaded), len(job.shared_files())))
    return found


@target("V17", "which files does an incremental checkpoint keep?", study=[files_of_checkpoints])
def kept(size: Size) -> Iterator[Figure]:
    """The names of the files are compared where shared files are tested; here are their numbers."""
    for number, (expected, found) in enumerate(
        zip(((2, 2), (2, 4), (2, 6), (1, 4)), files_of_checkpoints(), strict=True), start=1
    ):
        yield Figure(f"CP{number}: files uploaded", expected[0], found[0], 0)
        yield Figure(f"CP{number}: files in storage", expected[1], found[1], 0)


def test_files_are_deleted_with_the_last_checkpoint_that_refers_to_them() -> None:
    """CP1 {1, 2}, CP2 {1, 2, 3, 4}, CP3 {(1,2,3), 4, 5}, CP4 {(1,2,3), (4,5,6)}; CP1 is dropped at CP3, CP2 at CP4, and
    with it 1, 2 and 3 (S. Richter and C. Ward: Managing large state in Apache Flink, Flink blog of 2018-01-30).
    """
    assert_plausible(kept)
