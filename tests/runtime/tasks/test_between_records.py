"""Everything but death waits for the record in service, whether the cost model or an operator charges its time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from engine.checkpoint.restore import NoRestart
from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.graph.job import Job
from engine.observe.trace_events import TaskState
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.kernel import START_NS
from operators.sources import SequenceSource
from state_backends.files import MemoryFileSystem
from tests.runtime.support import US, Trace, execution, storage_in
from tests.runtime.tasks.in_flight import TriggerAt

SERVICE_NS = 7 * US
BATCH = 64
RECORDS = 5 * BATCH
ALARM_NS = 500 * US
CHARGED_BY = ["cost model", "operator"]


class Service(Operator):
    """Spends ``cost_ns`` on each record, and notes when it takes snapshots, with how many records done."""

    def __init__(self, cost_ns: int, notes: list[tuple[int, int]]) -> None:
        self._cost_ns = cost_ns
        self._notes = notes
        self._done = 0

    def process_batch(self, batch: Batch) -> None:
        for _ in batch.values:
            self._done += 1
            if self._cost_ns:
                self.context.spend(self._cost_ns)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._notes.append((self.context.processing_time_ns() - START_NS, self._done))


class Requests(Service):
    """The time is that of one request for the whole batch."""

    spends_per_batch = True


class Alarmed(Service):
    """Notes the same when a timer fires."""

    def open(self) -> None:
        self.context.register_processing_timer_ns(START_NS + ALARM_NS)

    def on_processing_time_ns(self, time_ns: int) -> None:
        self.snapshot_state(0)


@dataclass
class Served:
    """``notes``: instants from the start of the run, with records done; ``died_ns``: of the service."""

    notes: list[tuple[int, int]]
    died_ns: list[int]
    ended_ns: int


def serve(
    charged_by: str, at_ns: Iterable[int], *, kind: type[Service] = Service, kill_ns: int | None = None
) -> Served:
    """A source that is faster than its channel fills the queue of a slow service, in batches."""
    job, trace = Job("service"), Trace()
    notes: list[tuple[int, int]] = []
    by_model = charged_by == "cost model"
    numbers = job.source(SequenceSource(0, RECORDS), name="numbers").rebalance()
    numbers.via(lambda: kind(0 if by_model else SERVICE_NS, notes), name="service").collect([])
    config = RunConfig(
        mode="unaligned",
        batch_size=BATCH,
        channel_capacity=BATCH,
        output_capacity=BATCH,
        checkpoint_interval=None,
        seeded_schedule=False,
        restart=NoRestart(),
        cost=CostModel(source_record_ns=0, record_ns=SERVICE_NS if by_model else 0),
    )
    files = MemoryFileSystem()
    made = Execution(
        job.plan(), config, storage=storage_in(files, job.name, config), file_system=files, instruments=[trace]
    )
    if kill_ns is not None:
        made.kill("service", kill_ns)
    TriggerAt(made, list(at_ns))
    made.run()
    states = [one for one in trace.of(TaskState) if one.task.startswith("service")]
    died = [one.time_ns - START_NS for one in states if one.state == "failed"]
    return Served(notes, died, trace.events[-1].time_ns - START_NS)


def at_the_end_of_the_record(at_ns: int) -> tuple[int, int]:
    """When a service without pauses finishes the record that it has in hand at ``at_ns``, and how many are done."""
    done = -(-at_ns // SERVICE_NS)
    return done * SERVICE_NS, done


@pytest.mark.parametrize("charged_by", CHARGED_BY)
def test_a_barrier_that_overtakes_waits_for_the_record_in_service_and_no_other(charged_by: str) -> None:
    """At most one record's time after its arrival, whatever charges the time; the record is in the snapshot."""
    triggers_ns = [500 * US, 700_001, 905 * US, 1_000_999]

    served = serve(charged_by, triggers_ns)

    assert served.notes[:4] == [at_the_end_of_the_record(at_ns) for at_ns in triggers_ns]


@pytest.mark.parametrize("charged_by", CHARGED_BY)
def test_mail_waits_for_the_record_in_service(charged_by: str) -> None:
    """The mail is a timer here: the record is done when it fires."""
    served = serve(charged_by, [], kind=Alarmed)

    assert served.notes[:1] == [at_the_end_of_the_record(ALARM_NS)]


@pytest.mark.parametrize("charged_by", CHARGED_BY)
def test_death_waits_for_nothing(charged_by: str) -> None:
    """A task dies at the instant of the kill, in the middle of a record, however much mail waits."""
    served = serve(charged_by, [500 * US], kill_ns=501 * US)

    assert served.died_ns == [501 * US]
    assert served.notes == []


def test_the_time_of_a_whole_batch_is_waited_for() -> None:
    """An operator that makes one request for its batch is busy until the time of that request is over."""
    served = serve("operator", [500 * US], kind=Requests)

    assert served.notes[0] == (2 * BATCH * SERVICE_NS, 2 * BATCH)


@pytest.mark.parametrize("charged_by", CHARGED_BY)
def test_barriers_do_not_make_a_service_slower(charged_by: str) -> None:
    """However often they come: the time that a record has used so far is not charged again."""
    often = serve(charged_by, range(450 * US, 2_000 * US, 3 * US))

    assert len(often.notes) > 100
    assert often.ended_ns == serve(charged_by, []).ended_ns == RECORDS * SERVICE_NS


def test_that_a_task_takes_single_records_is_part_of_what_tells_its_states_apart() -> None:
    """Single records decide how the task goes on, so a search must not take it for a task that takes batches."""
    made = execution(Job("small").source(SequenceSource(0, 3)).rebalance().collect([]))
    made.run()
    task = next(iter(made.manager.tasks.values()))

    before = task.fingerprint()
    task.takes_single_records = not task.takes_single_records

    assert task.fingerprint() != before
