"""How long studies take, which run record by record with random times.

``M/M/1``: a queue of one server at a load of 0.8, with the time of each record measured. ``50 subtasks``: sources that
are connected with as many slow sinks, all to all, and unaligned checkpoints under back pressure. ``four tasks``: one
behind the other, with checkpoints. Each is measured in turns with the yardstick, which is the plainest event loop over
an M/M/1 queue of as many records: machines differ in seconds, and much less in the ratio. Two questions are asked at
full size: a million records, and a sweep over 400 seeds in two processes, by the wall clock.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from heapq import heappop, heappush
from random import Random

from benchmarks.measure import Result, Trial, below, interleaved, now, per_second
from engine import CountedRecords, CountingSink, Job, RunResult, SequenceSource
from engine.study import Arrivals, Exponential, Poisson, sweep

_SUBTASKS = 50
_CHECKPOINTS = 5
_SEEDS, _RECORDS_PER_SEED = 400, 200
_MILLION = 1_000_000
_SERVICE_S, _BETWEEN_S = 0.1, 0.125


def measure(quick: bool) -> list[Result]:
    """The lines of the table."""
    rounds, records = (3, 4_000) if quick else (5, 20_000)
    results = [
        _beside_the_loop("M/M/1", queue, records, rounds),
        _beside_the_loop(f"{_SUBTASKS} subtasks", spread, records, rounds),
        _beside_the_loop("four tasks", tasks_in_a_row, records, rounds),
    ]
    count, seeds = (20_000, 20) if quick else (_MILLION, _SEEDS)
    results.append(Result(f"studies, M/M/1 of {count:,} records", "s", (queue(count),), below(60.0)))
    case = f"studies, four tasks, {seeds} seeds of {_RECORDS_PER_SEED} records in 2 processes"
    results.append(Result(case, "s (wall)", (seconds_of_a_sweep(seeds),), below(60.0)))
    return results


def _beside_the_loop(case: str, study: Trial, records: int, rounds: int) -> Result:
    trials = {case: partial(study, records)}
    (paired,) = interleaved(partial(bare_queue, records), trials, rounds).values()
    details = {"records_per_s": per_second(records, paired.seconds)}
    return Result(f"studies, {case}", "× bare loop", paired.speed_ratios, None, details)


# --- the yardstick ------------------------------------------------------------------------------------------------


def bare_queue(records: int) -> float:
    """Seconds for an M/M/1 queue whose events are pairs in a heap."""
    start = now()
    mean_s = mean_time_in_queue(records, Random(1))
    seconds = now() - start
    assert 0 < mean_s < 100 * _SERVICE_S, mean_s
    return seconds


def mean_time_in_queue(records: int, random: Random) -> float:
    """Of all records, in seconds; 0.5 in a long run."""
    events, waiting = [(random.expovariate(1 / _BETWEEN_S), True)], deque[float]()
    total_s, left, busy = 0.0, records, False
    while events:
        at_s, is_arrival = heappop(events)
        if is_arrival:
            waiting.append(at_s)
            left -= 1
            if left:
                heappush(events, (at_s + random.expovariate(1 / _BETWEEN_S), True))
        else:
            total_s += at_s - waiting.popleft()
            busy = False
        if waiting and not busy:
            busy = True
            heappush(events, (at_s + random.expovariate(1 / _SERVICE_S), False))
    return total_s / records


# --- the studies --------------------------------------------------------------------------------------------------


def queue(records: int) -> float:
    """Seconds for an M/M/1 queue."""
    job = Job("queue")
    calls = job.source(Arrivals(Poisson("8/s"), count=records), name="calls")
    calls.sink(CountingSink(), name="server", chain=False)
    start = now()
    result = job.run(
        mode="none", service={"server": Exponential("100ms")}, cost={"source_record": "0s"}, channel_capacity=_MILLION
    )
    seconds = now() - start
    assert result.latencies is not None
    assert result.latencies.sojourns["server"].count == records, result.latencies.sojourns
    return seconds


def spread(records: int) -> float:
    """Seconds for records that wait before slow sinks, with checkpoints that store them."""
    job, count = Job("spread", parallelism=_SUBTASKS), CountedRecords()
    source = job.source(SequenceSource(0, records, splits=_SUBTASKS), name="from")
    source.rebalance().sink(CountingSink(count), name="slow")
    start = now()
    result = job.run(
        mode="unaligned", batch_size=1, channel_capacity=2, floating_credit=8, service={"slow": Exponential("1ms")},
        checkpoint_interval=f"{max(1, records // _SUBTASKS // _CHECKPOINTS)}ms",
    )  # fmt: skip
    seconds = now() - start
    assert count.total == records, count.total
    assert len(result.checkpoints) >= _CHECKPOINTS, result.checkpoints
    return seconds


def four_tasks(records: int, seed: int) -> RunResult:
    """A source, two operators and a sink."""
    job = Job("four tasks")
    stream = job.source(Arrivals(Poisson("8/s"), count=records), name="calls")
    for name in ("first", "second"):
        stream = stream.map(_same, name=name, chain=False)
    stream.sink(CountingSink(), name="third", chain=False)
    times = {"first": Exponential("50ms"), "second": Exponential("50ms"), "third": Exponential("100ms")}
    return job.run(seed=seed, service=times, checkpoint_interval="5s")


def _same(number: int) -> int:
    return number


def tasks_in_a_row(records: int) -> float:
    """Seconds for one run."""
    start = now()
    result = four_tasks(records, 0)
    seconds = now() - start
    assert result.source_records == records, result.source_records
    return seconds


def seconds_of_a_sweep(seeds: int) -> float:
    """Seconds for as many runs, in two processes of this machine."""

    def study(seed: int) -> RunResult:
        return four_tasks(_RECORDS_PER_SEED, seed)

    start = time.perf_counter()
    table = sweep(study, seed=range(seeds), jobs=2)
    seconds = time.perf_counter() - start
    assert not table.failed, table.failed[0]
    assert len(table) == seeds, len(table)
    return seconds
