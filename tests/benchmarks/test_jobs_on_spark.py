"""The benchmarks of jobs on Spark: what is timed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks import spark
from benchmarks.spark import Laps


def test_a_batch_is_set_beside_the_reference_before_and_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch starts workers, and is left out; the reference is in no batch's time."""
    clock = iter([0.0, 50.0, 51.0, 53.0, 54.0, 60.0, 61.0, 65.0, 66.0, 71.0, 71.0, 72.0, 72.0])
    monkeypatch.setattr(spark, "time", SimpleNamespace(perf_counter=lambda: next(clock), process_time=lambda: 0.0))
    laps = Laps(lambda: None)
    laps.begin()
    for _ in range(3):
        laps.batch_over()

    assert laps.seconds == [50.0, 6.0, 5.0]
    assert laps.warm(2).seconds == (6.0, 5.0)
    assert laps.warm(2).reference_seconds == (3.0, 2.5)


def test_batches_that_are_missing_do_not_count() -> None:
    """A query of fewer batches than it was to be measured by is an error."""
    with pytest.raises(AssertionError, match=r"0, 1"):
        Laps(lambda: None).warm(1)
