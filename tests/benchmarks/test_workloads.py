"""The benchmarks' jobs: right at every setting they are measured at, and caught when they are wrong."""

from __future__ import annotations

import json
import sys
from random import Random

import pytest

from benchmarks import bare_model, explore, files, heap, kernel, keyed_sum, measure, pages, scale, studies, w2
from benchmarks.keyed_sum import KeyedSum, bare_loop, expected_sums, make_records
from benchmarks.w2 import ColumnarWindows, KeyedWindows
from engine.cli.cases import load_subject_and_scenario
from engine.explore.run import run_case
from engine.observe.trace import TraceDigest

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
    [("none", "_check_sums", "live state"), ("exactly-once", "check_checkpoint", "last checkpoint")],
)
def test_wrong_sums_are_caught(monkeypatch: pytest.MonkeyPatch, mode: str, check: str, message: str) -> None:
    """A benchmark of wrong results is an error: the sum of one key is enough."""
    right = expected_sums(COUNT)
    wrong = {**right, next(iter(right)): -1}
    for other in {"_check_sums", "check_checkpoint"} - {check}:
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


@pytest.mark.parametrize(
    "case",
    [
        KeyedWindows(COUNT),
        KeyedWindows(COUNT, sliding=True),
        KeyedWindows(COUNT, mode="none"),
        ColumnarWindows(COUNT, batch_size=300),
        ColumnarWindows(COUNT, sliding=True, watermark_every=200),
    ],
    ids=str,
)
def test_keyed_windows_are_right(case: KeyedWindows) -> None:
    """The job and the yardstick find the count of each window of each key."""
    assert case.time() > 0
    assert case.bare() > 0


def test_wrong_counts_of_windows_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of one window is enough."""
    right = w2.expected_counts(COUNT, False)
    monkeypatch.setattr(w2, "expected_counts", lambda *_: {**right, next(iter(right)): -1})

    with pytest.raises(AssertionError, match="counts of windows"):
        KeyedWindows(COUNT).time()


def test_both_kernels_run_the_whole_model() -> None:
    """Ours executes every event of both models; SimPy, when it is there, ends them too."""
    assert kernel._time_chain(3) > 0
    assert kernel._time_timeouts(3) > 0
    if "simpy" in sys.modules or kernel.find_spec("simpy"):
        assert kernel._time_simpy_chain(3) > 0
        assert kernel._time_simpy_timeouts(3) > 0


def test_studies_are_whole_and_their_yardstick_is_the_queue_that_it_says() -> None:
    """No record is missing, and the mean time of an M/M/1 queue at a load of 0.8 is five service times."""
    assert studies.mean_time_in_queue(100_000, Random(3)) == pytest.approx(0.5, rel=0.15)
    assert min(studies.queue(50), studies.spread(300), studies.tasks_in_a_row(50), studies.seconds_of_a_sweep(2)) > 0


def test_heap_and_dict_hold_the_same() -> None:
    """What the memory of is compared has the same keys and values."""
    backend, entries = heap.filled_backend(5_000), heap.filled_dict(5_000)
    state = backend.value_state(heap.ValueStateDescriptor("value"))

    assert dict(zip(entries, state.get_many(list(entries)), strict=True)) == entries
    assert backend.num_entries() == len(entries)


def test_file_benchmarks_read_and_write_every_row() -> None:
    """The file jobs check their rows themselves; one line comes back per case."""
    results = files.compare([(i, f"name-{i}", i / 2) for i in range(500)], rounds=1)

    assert [len(result.samples) for result in results] == [1] * 5


@pytest.mark.parametrize(("shape", "size", "subtasks", "channels"), [("all_to_all", 8, 16, 64), ("chains", 40, 40, 32)])
def test_large_graphs_are_what_they_say(shape: str, size: int, subtasks: int, channels: int) -> None:
    """Every subtask takes part in the one checkpoint, every record arrives, and the parts of the time add up."""
    run = scale.run_once(shape, size)

    assert (run.subtasks, run.channels) == (subtasks, channels)
    assert 0 < run.checkpoint_s < run.run_s < run.total_s
    assert run.peak_mib > 1


def test_a_checkpoint_without_everybody_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do lost records: the benchmark checks what it has measured."""
    monkeypatch.setattr(scale, "_RECORDS_PER_SOURCE", 3)
    plan, _ = scale.all_to_all(2)
    monkeypatch.setattr(scale, "all_to_all", lambda _: (plan, scale.CountedRecords()))

    with pytest.raises(AssertionError, match=r"^0$"):
        scale.run_once("all_to_all", 2)


def test_a_run_in_its_own_process_is_measured_by_the_same_clock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the process prints is what comes back, on the clock that is in use here."""
    monkeypatch.setattr(measure, "_clock", [measure.CLOCKS["wall"]])
    measure.use_clock("cpu")
    scale.print_run("chains", 10, measure.clock_in_use())

    assert measure.clock_in_use() == "cpu"
    assert scale.Measured(**json.loads(capsys.readouterr().out)).subtasks == 10


def test_scale_has_a_line_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick runs stop at ten thousand channels; full ones go to a million, with goals for time and memory."""
    asked: list[tuple[str, int]] = []

    def fake(shape: str, size: int) -> scale.Measured:
        asked.append((shape, size))
        return scale.Measured(2 * size, size * size, 0.5, 4.0, 2.0, 100.0)

    monkeypatch.setattr(scale, "_in_own_process", fake)
    quick, full = scale.measure(True), scale.measure(False)

    assert [size for shape, size in asked[:4]] == [10, 32, 100, 1_000]
    assert [result.goal.bound for result in full if result.goal is not None] == [12.0, 1600.0, 10.0]
    per_channel = [result for result in full if result.unit == "µs"]
    assert [result.median for result in per_channel] == [2e6 / (side * side) for side in (10, 32, 100, 316, 1_000)]
    assert [result.median for result in full[-3:]] == [2.0, 100.0, 4.5]
    assert all(result.goal is None for result in quick[:-1])


def test_the_bare_model_publishes_what_the_standard_scenario_does() -> None:
    """Whatever is next and wherever it crashes, its rows are those of the job; without alignment some are not."""
    subject, scenario = load_subject_and_scenario(explore.STANDARD, {})
    rows = [row for partition in run_case(subject, scenario.case()).committed.values() for row in partition]
    expected = bare_model.expected_rows()

    assert sorted(map(repr, expected)) == sorted(rows)
    assert all(bare_model.bare_case(seed) == expected for seed in range(100))
    assert any(bare_model.bare_case(seed, aligns=False) != expected for seed in range(100))


def test_a_recorded_run_is_the_run_that_it_is_set_against() -> None:
    """Both have one trace digest, so the ratio is of the recorder alone; and the page is about as long as asked for."""
    assert pages._run(20)[1] == pages._recorded_run(20)[1]
    recorder, execution = pages._recorded(20, TraceDigest())
    recorder.run(execution)
    assert 0.7 < recorder.entries / (2 * 20 * pages._EVENTS_OF_A_RECORD) < 1.5
