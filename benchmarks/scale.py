"""How far the graph may grow: one aligned checkpoint across up to a million channels, and ten thousand subtasks.

* *All to all*: ``side`` sources, each connected with each of ``side`` keyed sums. Almost all that happens is control
  events: every source sends a watermark, the end of its data, a barrier and the end of its partition on every channel,
  and every sum aligns ``side`` barriers. Measured from the trigger of the checkpoint until it is durable, and as a
  whole, from the job to the end of the run.
* *Chains*: vertices one behind the other, connected forward, so that there are as many regions as subtasks in a vertex.

State is tiny and checkpoints are kept in memory: no disk has a part in this. Every case runs in a process of its own,
because what an interpreter has freed once it does not give back; its memory is the most that was ever resident.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Result, below, clock_in_use, now, use_clock
from engine.checkpoint.coordinator import CheckpointStatistics
from engine.graph.job import Job
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution
from operators.basic import CountedRecords, CountingSink
from operators.sources import SequenceSource

if TYPE_CHECKING:
    from engine.graph.plan import ExecutionPlan

_SIDES = (10, 32, 100, 316, 1_000)
_LENGTH = 5
_SUBTASKS = 10_000
_RECORDS_PER_SOURCE = 2
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Measured:
    """One run.

    ``plan_s``        to expand the graph; ``run_s`` to deploy it and run it to its end;
    ``checkpoint_s``  the part of that between trigger and completion of its one checkpoint.
    """

    subtasks: int
    channels: int
    plan_s: float
    run_s: float
    checkpoint_s: float
    peak_mib: float

    @property
    def total_s(self) -> float:
        """From the job to the end of the run."""
        return self.plan_s + self.run_s


def measure(quick: bool) -> list[Result]:
    """Checkpoints by number of channels, memory of the largest graph, and the chains."""
    sides, subtasks, rounds = (_SIDES[:3], 1_000, 1) if quick else (_SIDES, _SUBTASKS, 3)
    results: list[Result] = []
    for side in sides:
        runs = [_in_own_process("all_to_all", side) for _ in range(1 if side == max(_SIDES) else rounds)]
        results += _by_channels(side, runs)
    runs = [_in_own_process("chains", subtasks) for _ in range(rounds)]
    case = f"{subtasks:,} subtasks in {_LENGTH} forward vertices, whole run"
    results.append(Result(case, "s", tuple(run.total_s for run in runs), below(10.0), _details(runs[-1])))
    return results


def _by_channels(side: int, runs: list[Measured]) -> list[Result]:
    is_largest = side == max(_SIDES)
    channels = runs[0].channels
    case = f"aligned checkpoint, {side:,} × {side:,}, {channels:,} channels"
    per_channel = tuple(1e6 * run.checkpoint_s / channels for run in runs)
    results = [Result(f"{case}, per channel", "µs", per_channel, details=_details(runs[-1]))]
    if is_largest:
        seconds = tuple(run.checkpoint_s for run in runs)
        results.append(Result(case, "s", seconds, below(12.0)))
        peaks = tuple(run.peak_mib for run in runs)
        results.append(Result(f"memory of {channels:,} channels, whole run", "MiB (peak RSS)", peaks, below(1600.0)))
    return results


def _details(run: Measured) -> dict[str, Any]:
    return {"s_planned": round(run.plan_s, 2), "s_run": round(run.run_s, 2), "peak_mib": round(run.peak_mib)}


# --- one run ------------------------------------------------------------------------------------------------------


def all_to_all(side: int) -> tuple[ExecutionPlan, CountedRecords]:
    """``side`` sources, and ``side`` keyed sums with a sink chained to each."""
    outputs = CountedRecords()
    job = Job("all-to-all", parallelism=side, max_parallelism=max(128, 1 << (side - 1).bit_length()))
    numbers = job.source(SequenceSource(0, side * _RECORDS_PER_SOURCE, splits=side), name="numbers")
    sums = numbers.key_by(lambda number: number).reduce(lambda left, right: left + right, name="sum")
    sums.sink(CountingSink(outputs))
    return job.plan(), outputs


def chains(subtasks: int) -> tuple[ExecutionPlan, CountedRecords]:
    """Sources, copies and sinks in ``_LENGTH`` vertices, connected forward and not chained."""
    outputs, parallelism = CountedRecords(), subtasks // _LENGTH
    job = Job("chains", parallelism=parallelism, max_parallelism=max(128, 1 << (parallelism - 1).bit_length()))
    stream = job.source(SequenceSource(0, parallelism * _RECORDS_PER_SOURCE, splits=parallelism), name="numbers")
    for number in range(_LENGTH - 2):
        stream = stream.map(_copy, name=f"copy-{number + 1}", chain=False)
    stream.sink(CountingSink(outputs))
    return job.plan(), outputs


def _copy(number: int) -> int:
    return number


class _Stopwatch:
    """Notes the wall clock when the checkpoint is triggered and when it is complete. Statistics only listen, so the run
    is the same as without it."""

    def __init__(self, statistics: CheckpointStatistics) -> None:
        self.seconds = 0.0
        self._started = 0.0
        self._on_triggered, self._on_completed = statistics.on_triggered, statistics.on_completed
        statistics.on_triggered = self._triggered  # type: ignore[method-assign]
        statistics.on_completed = self._completed  # type: ignore[method-assign]

    def _triggered(self, *arguments: Any, **more: Any) -> None:
        self._started = now()
        self._on_triggered(*arguments, **more)

    def _completed(self, *arguments: Any, **more: Any) -> None:
        self._on_completed(*arguments, **more)
        self.seconds = now() - self._started


def run_once(shape: str, size: int) -> Measured:
    """Plan, deploy and run one graph, and check that its one checkpoint had everybody in it."""
    start = now()
    plan, outputs = {"all_to_all": all_to_all, "chains": chains}[shape](size)
    planned = now()
    execution = Execution(plan, RunConfig(checkpoint_interval=None))
    statistics = execution.manager.coordinator.statistics
    stopwatch = _Stopwatch(statistics)
    result = execution.run()
    ended = now()
    result.raise_on_failure()
    (row,) = statistics.rows()
    assert row.acknowledged == row.task_count == len(plan.subtasks), row.acknowledged
    sources = sum(vertex.parallelism for vertex in plan.vertices if vertex.is_source)
    assert outputs.total == sources * _RECORDS_PER_SOURCE, outputs.total
    peak_mib = _peak_bytes() / _MIB
    return Measured(
        len(plan.subtasks), len(plan.channels), planned - start, ended - planned, stopwatch.seconds, peak_mib
    )


def print_run(shape: str, size: int, clock: str) -> None:
    """What the process of one case does."""
    use_clock(clock)
    print(json.dumps(asdict(run_once(shape, size))))


def _in_own_process(shape: str, size: int) -> Measured:
    script = f"from benchmarks import scale; scale.print_run({shape!r}, {size}, {clock_in_use()!r})"
    root = Path(__file__).resolve().parents[1]
    finished = subprocess.run([sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return Measured(**json.loads(finished.stdout))


def _peak_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        # Of this program alone: getrusage also remembers what its parent had when it was started.
        line = next(line for line in status.read_text("ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
