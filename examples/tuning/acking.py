"""Record acking: what its messages cost while nothing fails, and what a failure costs then, against barriers.

Calls come at 100 per second and go through one task, or through three in a row, each 50 ms away. Without failures the
control messages are counted. In a second run a task dies, a fifth of the run after its last checkpoint. ::

    python -m examples.tuning.acking
"""

from __future__ import annotations

from functools import partial
from typing import Any

from engine import CountingSink, Job, RunResult
from engine.observe.metrics import MessageCounter
from engine.report.message_counts import message_counts
from engine.report.units import format_ns
from engine.study import Arrivals, Periodic, StudyTable, sweep
from examples.tuning.lesson import Lesson, mean

RATE, TASKS = 100, [1, 3]
BARRIERS = "aligned"
PROTOCOLS = [BARRIERS, "acking 1s", "acking 10s"]
"""With the timeout of a record."""


def calls(protocol: str, tasks: int, seconds: int, **settings: Any) -> RunResult:
    """A run of so many seconds; with barriers it has four checkpoints."""
    job = Job("calls")
    stream = job.source(Arrivals(Periodic(f"{RATE}/s"), count=RATE * seconds), name="calls")
    for number in range(1, tasks):
        stream = stream.map(lambda n: n, name=f"step{number}", chain=False)
    stream.sink(CountingSink(), name="end", chain=False)
    mode, _, timeout = protocol.partition(" ")
    return job.run(
        mode=mode, checkpoint_interval=f"{seconds * 250}ms", latency=mode == BARRIERS,
        acking={"timeout": timeout or "30s"}, **settings,
        cost={"source_record": "0s", "record": "2ms", "link_latency": "50ms"},
    )  # fmt: skip


def study(protocol: str, tasks: int, seconds: int) -> dict[str, Any]:
    """Control messages per record without a failure; with one, records that are sent again and the longest wait."""
    counter = MessageCounter()
    calm = calls(protocol, tasks, seconds, instruments=[counter])
    killed = calls(protocol, tasks, seconds, kills=[f"end@{seconds * 450}ms"])
    acked = killed.execution.acking
    return {
        "messages": message_counts(calm.execution, counter).control / calm.source_records,
        "sent_again": killed.replayed_records,
        "longest_ns": max(killed.latency["max_ns"]) if acked is None else acked.latency_max_ns,
    }


def measure(quick: bool, jobs: int) -> StudyTable:
    """Each protocol and timeout, with few tasks and with more."""
    return sweep(study, protocol=PROTOCOLS, tasks=TASKS, seconds=4 if quick else 20, jobs=jobs)


def conclude(table: StudyTable) -> str:
    """Messages of one task and of more; what is sent again after a failure, and the longest wait."""
    few, many = (partial(mean, table, tasks=tasks) for tasks in TASKS)
    short, long = PROTOCOLS[1:]
    waits = [format_ns(few("longest_ns", protocol=protocol)) for protocol in PROTOCOLS]
    return (
        f"Acking sends {few('messages', protocol=short):.0f} control messages per record with one task and"
        f" {many('messages', protocol=short):.0f} with {TASKS[1]}: one at the beginning, one per task, one at the end."
        f" Barriers send {few('messages', protocol=BARRIERS):.2f}, and fewer at a longer interval.\n"
        f"After a failure acking sends {few('sent_again', protocol=short):.0f} records again, those under way;"
        f" barriers {few('sent_again', protocol=BARRIERS):.0f}, all since the last checkpoint. But acking waits for the"
        f" timeout first: a record takes up to {waits[1]} ({short}) and {waits[2]} ({long}), with barriers {waits[0]}."
    )


LESSON = Lesson(
    "Record acking", measure, ("messages", "sent_again", "longest_ns"), conclude,
    {"measure": ["messages", "sent_again", "longest"], "x": "protocol", "by": "tasks", "bars": True},
)  # fmt: skip

if __name__ == "__main__":
    LESSON.main()
