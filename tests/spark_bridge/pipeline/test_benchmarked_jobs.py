"""The jobs that `benchmarks spark` times, small."""

from __future__ import annotations

import pytest

from benchmarks import keyed_sum, spark


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_all_jobs_on_spark_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finds its sums, and one that does not is caught."""
    assert len([*spark._rows(4_000, 2), *spark._columns(4_000, 2)]) == 3
    assert len(spark._native(4_000, 2).samples) == 2
    assert len(spark._large_state(2_000, 4_000, 2).samples) == 2
    assert len(spark._almost_empty(2).samples) == 2
    right = keyed_sum.expected_sums(12_000)
    monkeypatch.setattr(keyed_sum, "expected_sums", lambda _: {**right, next(iter(right)): -1})
    with pytest.raises(AssertionError, match="last checkpoint"):
        list(spark._rows(4_000, 2))
