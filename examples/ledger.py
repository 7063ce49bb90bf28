"""Which records were counted twice, in which cell, and by which crash: one job, one crash, three modes, three ledgers.

Two sources feed a running count; the link of one is slow, so its barriers come late. Meanwhile the counter takes
records that the other source has sent after its own barrier. In mode at-least-once their effects get into the
checkpoint, and after a crash the source reads them again. Run it with::

    python -m examples.ledger
    weir explore examples/ledger.py --time 60s    # the same job with fewer records, in thousands of ways
"""

from __future__ import annotations

from textwrap import fill

from engine import CheckpointInterval, CollectedResults, CostModel, Job, RunConfig, SequenceSource
from engine.explore.ledger import EffectLedger, Findings, findings, reference
from engine.faults import FaultPlan
from engine.runtime.execution import Execution
from state_backends import MemoryFileSystem

MODES = ("aligned", "unaligned", "at-least-once")


SCENARIO = {"checkpoint_interval": "12rec", "cost.slow_links.numbers[1]": 3_000, "params": {"records": "40"}}


def job(records: str = "4000") -> Job:
    """The count of numbers so far by remainder modulo 3."""
    made = Job("counting")
    numbers = made.source(SequenceSource(0, int(records), splits=2), name="numbers", parallelism=2)
    ones = numbers.map(lambda number: (number % 3, 1), name="ones", parallelism=2)
    counts = ones.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]), name="count")
    counts.collect(CollectedResults(), name="counts")
    return made


def audited(mode: str, *kills: str) -> tuple[EffectLedger, Findings]:
    """Run the job in a mode, with these kills, and compare its effects with those of runs without kills."""
    config = RunConfig(
        mode=mode,
        batch_size=20,
        checkpoint_interval=CheckpointInterval.parse("400us"),
        cost=CostModel(slow_links={"numbers[1]": 60_000}),
    )
    plan, ledger = job().plan(), EffectLedger(keeps_rows=False)
    execution = Execution(plan, config, file_system=MemoryFileSystem(), output_dir="/out", provenance=ledger)
    FaultPlan.parse(kills).install(execution)
    execution.run().raise_on_failure()
    return ledger, findings(ledger, reference(plan, config))


def main() -> None:
    """Print for each mode the findings of its ledger."""
    for mode in MODES:
        ledger, found = audited(mode, "count[0]@1400us")
        effects = sum(one.total() for place, one in ledger.effects().items() if place.kind == "key")
        print(f"{mode}: {effects} effects on the counts")
        for paragraph in found.paragraphs(ledger):
            print(fill(paragraph, 110, initial_indent="  ", subsequent_indent="    "))


if __name__ == "__main__":
    main()
