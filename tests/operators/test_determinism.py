"""The same input gives the same output, state bytes and files in every process, whatever its hash seed."""

from __future__ import annotations

import hashlib

from operators.basic import KeyedBroadcastProcessOperator, KeyedCoProcessOperator, KeyedProcessOperator, aggregates
from operators.files.sinks import FileSink
from operators.windows import (
    ContinuousEventTimeTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingWindowOperator,
    TriggeredWindowOperator,
    TumblingEventTimeWindows,
    WindowOperator,
)
from state_backends.files import MemoryFileSystem
from tests.hash_seeds import printed
from tests.operators.basic.test_broadcast_process import Thresholds
from tests.operators.basic.test_co_process import Join
from tests.operators.basic.test_keyed_process import CountUntilQuiet
from tests.operators.harness import Harness


def digest() -> str:
    """Digest of all results of windows, timers, two inputs and a file sink with buckets for a fixed input."""
    records = [(f"key-{number * 7 % 40}", number) for number in range(200)]
    stamps = [number * 3 % 101 for number in range(200)]
    fs = MemoryFileSystem()
    windows = WindowOperator(TumblingEventTimeWindows.of(10), aggregates.count(), late_tag="late")
    sliding = SlidingWindowOperator(SlidingEventTimeWindows.of(10, 4), aggregates.count(), late_tag="late")
    sessions = TriggeredWindowOperator(
        EventTimeSessionWindows.with_gap(3), aggregates.count(), trigger=ContinuousEventTimeTrigger.of(2)
    )
    connected = (KeyedCoProcessOperator(Join), KeyedBroadcastProcessOperator(Thresholds, ["limits"]))
    results: list[object] = []
    for operator in (windows, sliding, sessions, KeyedProcessOperator(CountUntilQuiet()), *connected):
        harness = Harness(operator, key=lambda record: record[0])
        if isinstance(operator, KeyedBroadcastProcessOperator):
            harness.process_2([(f"key-{number}", number % 3) for number in range(40)])
        for start in range(0, 200, 50):
            harness.process(records[start : start + 50], stamps[start : start + 50])
            harness.watermark(start // 4)
        checkpoint = harness.snapshot(1)
        results += [harness.take(), operator.fingerprint(), checkpoint.keyed, checkpoint.operator]
        results += [harness.context.keyed.fingerprint(), harness.context.operator.fingerprint()]
    sink = Harness(FileSink("rows", bucket=lambda record: record[0]).create_operator(), fs=fs)
    sink.process(records)
    results += [sink.operator.fingerprint(), sink.snapshot(1).operator]
    sink.complete(1)
    results += [(path, fs.read_bytes(path)) for path in fs.walk_files("/out")]
    return hashlib.sha256(repr(results).encode()).hexdigest()


def test_hash_seed_changes_nothing() -> None:
    """Two processes with different hash seeds compute one digest."""
    program = "from tests.operators.test_determinism import digest; print(digest())"
    assert {printed(program, seed) for seed in ("1", "2")} == {digest() + "\n"}
