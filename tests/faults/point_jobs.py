"""Small jobs that visit every named point, and their expected output."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from engine.explore.cases import Case, Setting
from engine.explore.run import FinishedCase, Subject, run_case
from engine.faults.fault import Fault
from engine.faults.injector import FaultInjector
from engine.graph.job import Job
from operators.basic import CollectedResults, KeyedProcessContext, KeyedProcessFunction
from operators.sources import SequenceSource
from tests.faults.two_sources import counted_by_key, expected_by_key

RECORDS, KEYS = 16, 3
MODES = ("aligned", "unaligned", "aligned-timeout")
SETTINGS: dict[str, Setting] = {
    "batch_size": 4,
    "channel_capacity": 8,
    "output_capacity": 20,
    "checkpoint_interval": "17us",
    "master_recovery_ns": 1_000,
    "inline_state_bytes": 0,
    "cost.record_ns": 700,
    "cost.storage_latency_ns": 900,
    "cost.slow_links.far": 6_000,
}
EXPECTED = Counter(map(repr, expected_by_key(RECORDS, KEYS).elements()))


def counting(parallelism: int | None = None) -> Job:
    """One of its two sources is on a slow link."""
    return counted_by_key(CollectedResults(), RECORDS, KEYS, parallelism or 2)


class Ticking(KeyedProcessFunction):
    """Passes records on, and sets a timer one millisecond after each."""

    def process_element(self, value: int, ctx: KeyedProcessContext) -> list[int]:
        ctx.register_processing_time_timer(ctx.processing_time_ms() + 1)
        return [value]


def ticking(parallelism: int | None = None) -> Job:
    job = Job("ticking", max_parallelism=8)
    numbers = job.source(SequenceSource(0, RECORDS), name="numbers").key_by(lambda number: number % KEYS)
    numbers.process(Ticking(), name="tick", parallelism=parallelism).collect(CollectedResults(), name="out")
    return job


COUNTING = Subject(counting)


def case_of(mode: str, *faults: Fault, **settings: Any) -> Case:
    config = {**SETTINGS, "mode": mode, **settings}
    if mode == "aligned-timeout":
        config["aligned_timeout_ns"] = 4_000
    return Case(config=config, faults=faults)


def ran(mode: str, *faults: Fault, **settings: Any) -> tuple[FinishedCase, FaultInjector]:
    """The counting job, run to its end."""
    injector = FaultInjector(faults)
    return run_case(COUNTING, case_of(mode, *faults, **settings), interference=injector), injector


def output(finished: FinishedCase) -> Counter[str]:
    return Counter(row for rows in finished.committed.values() for row in rows)


def without_amount(faults: tuple[Fault, ...]) -> list[Fault]:
    """The faults as they were requested: how much of a torn write is left was drawn."""
    return [replace(fault, amount=0) if fault.phase == "torn" else fault for fault in faults]
