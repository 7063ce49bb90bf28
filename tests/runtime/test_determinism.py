"""Determinism: one seed means one run, to the byte; watching a run does not change it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace import TraceDigest
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import Execution, Progress
from engine.runtime.kernel import ChoiceRecorder
from operators.basic import CollectedResults
from operators.files.sinks import FileSink
from operators.sources import SequenceSource
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows
from state_backends.files import MemoryFileSystem
from tests.hash_seeds import printed
from tests.runtime.support import US, Trace, every, execution, files_below, run

ROOT = Path(__file__).resolve().parents[2]


def rich_job(into: Any) -> Job:
    """Sources with watermarks, windows, keyed state, side effects in files and in memory, parallelism."""
    job = Job("rich", parallelism=2)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(3, lambda number: number).with_interval_ns(20 * US)
    numbers = job.source(SequenceSource(0, 300, splits=3), watermarks=strategy, name="numbers")
    keyed = numbers.map(lambda number: (f"key {number % 7}", number)).key_by(lambda pair: pair[0])
    keyed.window(TumblingEventTimeWindows.of(25)).reduce(lambda a, b: (a[0], a[1] + b[1])).collect(into)
    keyed.reduce(lambda a, b: (a[0], max(a[1], b[1])), name="maximum").sink(FileSink("rows"), name="files")
    return job


class Outcome:
    """The files, results, choices and trace of a run."""

    def __init__(self, seed: str = "1", **settings: Any) -> None:
        self.digest, results, files = TraceDigest(), CollectedResults(), MemoryFileSystem()
        defaults: dict[str, Any] = {
            "kills": [("maximum[1]", 130 * US)],
            "batch_size": 8,
            "checkpoint_interval": every(ns=40 * US),
            "restart": FixedDelayRestart(None, 5 * US),
            "inline_state_bytes": 0,
            "retained": 50,
            "cost": CostModel(slow_links={"numbers": 11 * US}, storage_latency_ns=3 * US),
            "instruments": [self.digest],
        }
        self.made = execution(rich_job(results), seed=seed, file_system=files, **(defaults | settings))
        self.result = self.made.run().raise_on_failure()
        self.records = results.records
        self.files = files_below(files)
        self.output = files_below(files, "/out")

    def trace(self) -> tuple[str, int]:
        return self.digest.hexdigest(), self.digest.events


def test_one_seed_is_one_run() -> None:
    """The same seed gives the same trace, choices, checkpoint files, output files and results, byte for byte."""
    one, other = Outcome(), Outcome()

    assert one.trace() == other.trace()
    assert one.result.choices.digest() == other.result.choices.digest()
    assert one.records == other.records
    assert len(one.files) > 20
    assert one.files == other.files
    assert one.output == other.output


def test_seeds_differ_in_their_course_but_not_in_their_outcome() -> None:
    """Ten seeds give ten traces and one committed output."""
    outcomes = [Outcome(str(seed)) for seed in range(10)]

    assert len({outcome.trace() for outcome in outcomes}) == 10
    assert len({outcome.result.choices.digest() for outcome in outcomes}) == 10
    assert all(Counter(outcome.records) == Counter(outcomes[0].records) for outcome in outcomes)


def test_a_recording_replays_the_run_without_its_seed() -> None:
    """The choices of one run, replayed under another seed, give the same trace."""
    recorded = Outcome("original")
    digest, results, files = TraceDigest(), CollectedResults(), MemoryFileSystem()
    made = recorded.made
    replay = Execution(
        rich_job(results).plan(),
        made.config,
        file_system=files,
        output_dir="/out",
        instruments=[digest],
        choices=ChoiceRecorder("another", replay=recorded.result.choices.log),
    )
    replay.kill("maximum[1]", 130 * US)

    result = replay.run().raise_on_failure()

    assert result.choices.digest() == recorded.result.choices.digest()
    assert digest.hexdigest() == recorded.digest.hexdigest()


def test_an_unseeded_schedule_draws_nothing() -> None:
    """Without a seeded schedule tasks run in the order they were woken, the same for every seed."""
    one, other = Outcome("1", seeded_schedule=False), Outcome("2", seeded_schedule=False)

    assert one.result.choices.log == other.result.choices.log == []
    assert one.files == other.files
    assert one.records == other.records


def test_watching_does_not_change_the_run() -> None:
    """Instruments and progress reports leave the choices and every file as they would be without them."""
    plain = Outcome(instruments=[])
    watched = Outcome(instruments=[Trace(), CutOracle(), TraceDigest()])
    seen: list[Progress] = []
    digest = TraceDigest()
    files, results = MemoryFileSystem(), CollectedResults()
    reported = execution(
        rich_job(results),
        seed="1",
        file_system=files,
        instruments=[digest],
        kills=[("maximum[1]", 130 * US)],
        batch_size=8,
        checkpoint_interval=every(ns=40 * US),
        restart=FixedDelayRestart(None, 5 * US),
        inline_state_bytes=0,
        retained=50,
        cost=plain.made.config.cost,
    )
    result = reported.run(seen.append)

    assert plain.result.choices.digest() == watched.result.choices.digest() == result.choices.digest()
    assert plain.files == watched.files == files_below(files)
    assert plain.result.events_executed == watched.result.events_executed == result.events_executed
    assert digest.hexdigest() == Outcome().digest.hexdigest()


def test_progress_is_reported_now_and_then() -> None:
    """A long run reports how far it is, in growing numbers."""
    seen: list[Progress] = []
    job = Job("long").source(SequenceSource(0, 20_000)).rebalance().collect([])

    execution(job, batch_size=2, checkpoint_interval=every(ns=1_000 * US)).run(seen.append)

    assert len(seen) >= 3
    assert [one.source_records for one in seen] == sorted({one.source_records for one in seen})
    assert [one.virtual_ns for one in seen] == sorted(one.virtual_ns for one in seen)
    assert {one.attempt for one in seen} == {1}
    assert seen[-1].checkpoints_completed > 0


def test_fingerprints_follow_the_run() -> None:
    """Two runs of one seed have one fingerprint after every event; runs of other seeds soon have others."""

    def fingerprints(seed: str) -> list[str]:
        made = execution(rich_job(CollectedResults()), seed=seed, batch_size=8, checkpoint_interval=every(ns=40 * US))
        found: list[str] = []

        def step(_progress: Any) -> None:
            while made.kernel.run(1) and not made.kernel.stopped:
                if len(found) < 300:
                    found.append(repr(made.fingerprint()))

        made._run_kernel = step  # type: ignore[method-assign, assignment]
        made.run().raise_on_failure()
        return found

    first, again, other = fingerprints("1"), fingerprints("1"), fingerprints("2")

    assert first == again
    assert len(set(first)) > 250
    assert first != other


SCRIPT = """
import hashlib
from tests.runtime.test_determinism import Outcome
outcome = Outcome()
files = hashlib.sha256(repr(sorted(outcome.files.items())).encode()).hexdigest()
output = hashlib.sha256(repr(sorted(outcome.output.items())).encode()).hexdigest()
print(*outcome.trace(), outcome.result.choices.digest(), files, output, outcome.records)
"""


def test_processes_and_hash_seeds_make_no_difference() -> None:
    """Fresh processes under different hash seeds write the same bytes and trace the same events."""
    assert printed(SCRIPT, "0") == printed(SCRIPT, "4242")


@pytest.mark.parametrize("seed", ["0", "a", "Ω"])
def test_any_text_is_a_seed(seed: str) -> None:
    """Seeds are text, with any characters in it."""
    results = CollectedResults()

    run(Job("seeded").source(SequenceSource(0, 9)).collect(results), seed=seed)

    assert results.records == list(range(9))


def test_the_default_configuration_is_seeded() -> None:
    """A run without settings is as repeatable as one with a seed."""
    assert RunConfig().seed == "0"
    assert RunConfig().seeded_schedule
