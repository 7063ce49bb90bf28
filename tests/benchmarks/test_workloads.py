"""The benchmarks' jobs: right at every setting they are measured at, and caught when they are wrong."""

from __future__ import annotations

import sys

import pytest

from benchmarks import files, heap, kernel, keyed_sum
from benchmarks.keyed_sum import KeyedSum, bare_loop, expected_sums, make_records

COUNT = 12_000


def test_job_and_yardstick_have_the_same_records() -> None:
    """The sums of the generated records are those of the bare loop, and the job doubles them."""
    sums: dict[int, int] = {}
    for key, value in make_records(0, COUNT):
        sums[key] = sums.get(key, 0) + value

    assert sums == bare_loop(COUNT)
    assert expected_sums(COUNT) == {key: 2 * total for key, total in sums.items()}


@pytest.mark.parametrize(
    "case",
    [
        KeyedSum(COUNT),
        KeyedSum(COUNT, parallelism=4),
        KeyedSum(COUNT, batch_size=256, tuples=True),
        KeyedSum(COUNT, mode="none", parallelism=4),
    ],
    ids=str,
)
def test_keyed_sum_is_right(case: KeyedSum) -> None:
    """Each way of running the job finds every sum, in live state and in the last checkpoint, and takes checkpoints."""
    assert case.time() > 0


@pytest.mark.parametrize(
    ("mode", "check", "message"),
    [("none", "_check_sums", "live state"), ("exactly-once", "_check_checkpoint", "last checkpoint")],
)
def test_wrong_sums_are_caught(monkeypatch: pytest.MonkeyPatch, mode: str, check: str, message: str) -> None:
    """A benchmark of wrong results is an error: the sum of one key is enough."""
    right = expected_sums(COUNT)
    wrong = {**right, next(iter(right)): -1}
    for other in {"_check_sums", "_check_checkpoint"} - {check}:
        monkeypatch.setattr(KeyedSum, other, lambda *_: None)
    monkeypatch.setattr(keyed_sum, "expected_sums", lambda _: wrong)

    with pytest.raises(AssertionError, match=message):
        KeyedSum(COUNT, mode=mode).time()


def test_too_few_checkpoints_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that took fewer checkpoints than it was to be charged for does not count."""
    rare = keyed_sum.CheckpointInterval(time_ns=10**15)
    monkeypatch.setattr(keyed_sum, "CheckpointInterval", lambda **_: rare)

    with pytest.raises(AssertionError, match=r"^1$"):
        KeyedSum(COUNT).time()


def test_both_kernels_run_the_whole_model() -> None:
    """Ours executes every event of both models; SimPy, when it is there, ends them too."""
    assert kernel._time_chain(3) > 0
    assert kernel._time_timeouts(3) > 0
    if "simpy" in sys.modules or kernel.find_spec("simpy"):
        assert kernel._time_simpy_chain(3) > 0
        assert kernel._time_simpy_timeouts(3) > 0


def test_heap_and_dict_hold_the_same() -> None:
    """What the memory of is compared has the same keys and values."""
    backend, entries = heap.filled_backend(5_000), heap.filled_dict(5_000)
    state = backend.value_state(heap.ValueStateDescriptor("value"))

    assert dict(zip(entries, state.get_many(list(entries)), strict=True)) == entries
    assert backend.num_entries() == len(entries)


def test_file_benchmarks_read_and_write_every_row() -> None:
    """The file jobs check their rows themselves; one line comes back per case."""
    results = files.compare([(i, f"name-{i}", i / 2) for i in range(500)], rounds=1)

    assert [len(result.samples) for result in results] == [1] * 4
