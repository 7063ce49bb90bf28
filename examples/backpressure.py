"""One backpressured job under every mode: the cost of a checkpoint, its stored data, and the effect of a crash.

A source is faster than the sink after it, so the channels are full and barriers wait in their queues. Run it with::

    python -m examples.backpressure
    weir explore examples/backpressure.py --time 60s    # thousands of ways to go wrong, with fewer records
"""

from __future__ import annotations

from collections.abc import Sequence

from engine import CollectedResults, ExecutionResult, Job
from engine.observe.cut_oracle import CutOracle
from operators.sources import SequenceSource

RECORDS = 20_000
KEYS = 50
MS = 1_000_000
MODES = ("aligned", "aligned-timeout", "unaligned", "at-least-once")


SCENARIO = {
    "channel_capacity": 8,
    "checkpoint_interval": "20rec",
    "cost.record_ns": 1_000,
    "cost.stragglers.write": 4,
    "params": {"records": "60"},
}


def job(counts: CollectedResults | None = None, records: str = str(RECORDS)) -> Job:
    """Two sources, two counters, two slow writers; each count is emitted as ``(key, how many so far)``."""
    made = Job("backpressure", parallelism=2, max_parallelism=64)
    numbers = made.source(SequenceSource(0, int(records)), name="numbers")
    counted = numbers.key_by(lambda number: number % KEYS, value=lambda number: (number % KEYS, 1)).reduce(
        lambda total, one: (total[0], total[1] + one[1]), name="count"
    )
    written = counted.rebalance().map(lambda total: total, name="write", chain=False)
    written.collect(CollectedResults() if counts is None else counts, name="out")
    return made


def run(mode: str, *, slowdown: float, kills: Sequence[str] = ()) -> tuple[ExecutionResult, CutOracle, int]:
    """One run. ``slowdown``: how much slower than the sources the writers are. Also returns how many records were
    counted at the end: the sum of the last counts of all keys."""
    counts, oracle = CollectedResults(), CutOracle()
    result = job(counts).run(
        mode=mode,
        seed=1,
        batch_size=32,
        channel_capacity=256,
        checkpoint_interval="4ms",
        aligned_timeout="500us" if mode == "aligned-timeout" else None,
        cost={"record": "1us", "stragglers": {"write": slowdown, "out": 0}, "slow_links": {"numbers[1]": "200us"}},
        kills=kills,
        instruments=[oracle],
    ).execution
    last: dict[int, int] = {}
    for key, total in counts.records:
        last[key] = max(total, last.get(key, 0))
    return result, oracle, sum(last.values())


def main() -> None:
    """Print the comparison."""
    print(f"{RECORDS:,} records through two counters into slow writers; numbers[1] sends over a link slower by 200 us.")
    print("The longest checkpoint and the most bytes of records in flight in one, by how slow the writers are; then")
    print("what becomes of the counts when count[0] is killed at 14 ms, with writers as fast as the sources.\n")
    print(f"{'mode':<16}{'4x slower':>18}{'40x slower':>20}    after a restore from checkpoint")
    for mode in MODES:
        cells = [_cell(run(mode, slowdown=slowdown)[0]) for slowdown in (4.0, 40.0)]
        result, oracle, counted = run(mode, slowdown=1.0, kills=["count[0]@14ms"])
        restored = result.restores[-1].checkpoint_id
        assert restored is not None
        verdict = oracle.verdict(restored)
        assert verdict is not None
        twice = f"{counted - RECORDS:,} twice ({verdict.orphans:,} foretold)" if verdict.orphans else "each once"
        print(f"{mode:<16}{cells[0]:>18}{cells[1]:>20}    {restored}: {counted:,}, {twice}")


def _cell(result: ExecutionResult) -> str:
    rows = [row for row in result.checkpoints.rows() if row.end_to_end_ns is not None]
    longest_ns = max(row.end_to_end_ns or 0 for row in rows)
    stored = max(row.persisted_bytes for row in rows)
    return f"{longest_ns / MS:.2f} ms {stored / 1024:4.1f} KiB"


if __name__ == "__main__":
    main()
