"""The Kafka connector: against a broker in memory with its rules, and against the mock cluster of the client library,
which speaks the real protocol and knows neither fencing nor isolation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import (
    ConfigurationError,
    DataLossError,
    MissingDependencyError,
    OutputAheadError,
    UserFunctionError,
)
from operators.log.kafka import client as kafka_client
from operators.log.kafka.kafka_sink import KafkaSink, encode_value
from operators.log.kafka.kafka_source import KafkaSource
from operators.log.port.transaction_log import LogTimeoutError, ProducerFencedError, TransactionLogError
from operators.sources import SourceOperator
from tests.operators.harness import Checkpoint, Harness
from tests.operators.log.kafka.fake_kafka import Broker, FakeClient, KafkaError, Stored


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    client = FakeClient()
    monkeypatch.setitem(sys.modules, "confluent_kafka", client)
    return client.broker


def sink(**options: Any) -> KafkaSink:
    given: dict[str, Any] = {"delivery": "exactly-once", "transactional_id_prefix": "p", **options}
    return KafkaSink("host:1", "out", **given)


class Job:
    """Subtasks of one sink; records are numbers, each goes to the subtask of its number."""

    def __init__(self, parallelism: int = 1, **options: Any) -> None:
        self.sink, self.completed, self.next_id, self.attempt = sink(**options), None, 1, 0
        self.tasks: list[Harness] = []
        self.start(parallelism)

    completed: Checkpoint | None

    def start(self, parallelism: int | None = None) -> list[Harness]:
        """A new attempt from the last completed checkpoint; returns the zombies of the one before."""
        zombies, count = self.tasks, len(self.tasks) if parallelism is None else parallelism
        self.attempt += 1
        self.tasks = [
            Harness(
                self.sink.create_operator(),
                subtask=subtask,
                parallelism=count,
                attempt=self.attempt,
                restored=self.completed,
            )
            for subtask in range(count)
        ]
        return zombies

    def write(self, *values: int) -> None:
        for value in values:
            self.tasks[value % len(self.tasks)].process([str(value)])

    def checkpoint(self, *, complete: bool = True, notify: bool = True) -> Checkpoint:
        checkpoint = Checkpoint(self.next_id)
        self.next_id += 1
        for task in self.tasks:
            task.snapshot(checkpoint.id, checkpoint)
        if complete:
            self.completed = checkpoint
            if notify:
                for task in self.tasks:
                    task.complete(checkpoint.id)
        return checkpoint


def numbers(broker: Broker) -> list[int]:
    return sorted(int(value) for value in broker.visible() if value is not None)


# --- exactly once -------------------------------------------------------------------------------------------------


def test_records_are_published_when_their_checkpoint_is_complete(broker: Broker) -> None:
    """They are not published before that; they come in one transaction with the mark, in order."""
    job = Job()
    job.write(1, 2)
    job.checkpoint(notify=False)
    assert (broker.visible(), broker.offsets) == ([], {})
    job.tasks[0].complete(1)
    assert (broker.visible(), broker.offsets) == ([b"1", b"2"], {"p-0": 1})


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_in_the_commit_is_made_up_for_by_the_restore(broker: Broker, after: bool) -> None:
    """The mark tells whether the commit was carried out; nothing is lost, nothing is there twice."""
    job = Job(retries=0)
    job.write(1, 2)
    error = KafkaError("_TIMED_OUT", retriable=True)
    broker.fail = lambda request: (("after", error) if after else error) if request == "commit" else None
    with pytest.raises(LogTimeoutError):
        job.checkpoint()
    broker.fail = lambda request: None
    job.start()
    assert numbers(broker) == [1, 2]
    counter = "numTransactionsCommittedBefore" if after else "numTransactionsRecovered"
    assert job.tasks[0].counter(counter) == 1
    job.start()
    assert numbers(broker) == [1, 2]


def test_an_answer_that_is_late_is_asked_for_again(broker: Broker) -> None:
    """The client knows which transaction is meant, so the commit may be repeated at once."""
    job = Job(retries=1)
    job.write(1)
    failures = iter([("after", KafkaError("_TIMED_OUT", retriable=True))])
    broker.fail = lambda request: next(failures, None) if request == "commit" else None
    job.checkpoint()
    assert numbers(broker) == [1]
    assert broker.requests.count("commit") == 2


def test_a_zombie_is_fenced(broker: Broker) -> None:
    """The successor takes over the transactional id, and publishes what the zombie was going to publish."""
    job = Job()
    job.write(1)
    job.checkpoint(notify=False)
    zombie = job.start()[0]
    assert numbers(broker) == [1]
    with pytest.raises(ProducerFencedError, match="another producer has this transactional id"):
        zombie.complete(1)
    assert numbers(broker) == [1]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (3, 1), (2, 3), (3, 2)])
def test_another_parallelism_publishes_what_was_restored_once(broker: Broker, before: int, after: int) -> None:
    """The owner of its name publishes each waiting checkpoint, and no living producer is fenced."""
    job = Job(before)
    job.write(*range(6))
    job.checkpoint(notify=False)
    job.write(*range(6, 12))
    checkpoint = job.checkpoint(notify=False)
    job.tasks[0].complete(1)
    job.start(after)
    assert numbers(broker) == list(range(12))
    job.write(*range(12, 18))
    job.checkpoint()
    assert numbers(broker) == list(range(18))
    assert checkpoint.id == 2


def test_a_restore_from_before_what_is_published_is_refused(broker: Broker) -> None:
    """A start from nothing, under a prefix that has published, is refused, too."""
    job = Job()
    job.write(1)
    first = job.checkpoint()
    job.write(2)
    job.checkpoint()
    job.completed = first
    with pytest.raises(OutputAheadError, match="starts from checkpoint 1, but p-0 has published checkpoint 2"):
        job.start()
    job.completed = None
    with pytest.raises(OutputAheadError, match="starts from nothing"):
        job.start()
    Job(transactional_id_prefix="another")


def test_records_that_are_not_delivered_abort_the_transaction(broker: Broker) -> None:
    """The error names the topic; the next attempt publishes them."""
    job = Job()
    job.write(1, 2)
    failures = iter([None, KafkaError("MSG_SIZE_TOO_LARGE")])
    broker.fail = lambda request: next(failures, None) if request == "produce" else None
    with pytest.raises(TransactionLogError, match="a record for topic 'out' was not delivered"):
        job.checkpoint()
    assert "abort" in broker.requests
    broker.fail = lambda request: None
    job.start()
    assert numbers(broker) == [1, 2]


def test_without_checkpoints_everything_is_published_at_the_end(broker: Broker) -> None:
    """One transaction without a mark publishes everything."""
    task = Harness(sink().create_operator(), checkpointing_enabled=False)
    task.process(["1", "2"])
    assert broker.visible() == []
    task.finish()
    assert (broker.visible(), broker.offsets) == ([b"1", b"2"], {})
    task.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(["write", "checkpoint", "lost notification", "incomplete", "crash", "rescale"]), max_size=25
    ),
    st.lists(st.tuples(st.sampled_from(["init", "mark", "commit", "committed"]), st.booleans()), max_size=4),
    st.integers(1, 6),
)
def test_whatever_fails_every_record_is_there_once(
    script: list[str], faults: list[tuple[str, bool]], every: int
) -> None:
    """Requests that are lost or unanswered, crashes, changes of parallelism: at the end exactly what completed
    checkpoints cover is visible."""
    client = FakeClient()
    broker = client.broker
    left, count = list(faults), [0]

    def fail(request: str) -> Any:
        count[0] += 1
        if left and left[0][0] == request and count[0] % every == 0:
            _, after = left.pop(0)
            error = KafkaError("_TIMED_OUT", retriable=True)
            return ("after", error) if after else error
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "confluent_kafka", client)
        job = Job(2, retries=0)
        broker.fail = fail
        written, covered, current = 0, 0, 0

        def restart(parallelism: int | None = None) -> None:
            nonlocal written
            written = covered
            while True:
                try:
                    job.start(parallelism)
                    return
                except LogTimeoutError:
                    continue

        for step in script:
            if step == "write":
                job.write(written)
                written += 1
                continue
            if step in ("crash", "rescale"):
                current += 1
                restart(current % 3 + 1 if step == "rescale" else None)
                continue
            if step == "incomplete":
                job.checkpoint(complete=False)
                continue
            covered = written
            try:
                job.checkpoint(notify=step == "checkpoint")
            except LogTimeoutError:
                restart()
        broker.fail = lambda request: None
        restart()
        assert numbers(broker) == list(range(covered))


# --- the other guarantees -----------------------------------------------------------------------------------------


def test_at_least_once_waits_at_checkpoints(broker: Broker) -> None:
    """Records are visible at once, and a checkpoint fails while one of them is unanswered."""
    task = Harness(sink(delivery="at-least-once").create_operator())
    task.process(["1"])
    assert broker.visible() == [b"1"]
    broker.fail = lambda request: KafkaError("x") if request == "flush" else None
    with pytest.raises(LogTimeoutError, match=r"not answered for.*\n  fix: check that the servers"):
        task.snapshot(1)
    broker.fail = lambda request: KafkaError("_MSG_TIMED_OUT") if request == "produce" else None
    with pytest.raises(TransactionLogError, match="was not delivered"):
        task.process(["2"])


def test_at_least_once_waits_at_once_where_no_checkpoint_comes(broker: Broker) -> None:
    """A record counts as handled when the sink returns, and never comes again."""
    task = Harness(sink(delivery="at-least-once").create_operator())
    task.context.publish_at_once = True
    task.process(["1"])
    broker.fail = lambda request: KafkaError("x") if request == "flush" else None
    with pytest.raises(LogTimeoutError, match=r"not answered for.*\n  fix: check that the servers"):
        task.process(["2"])


def test_keys_values_partitions_and_times(broker: Broker) -> None:
    """The functions give them; the error of a failing function names it and its record."""
    broker.topics["out"] = [[], [], []]
    options: dict[str, Any] = {"delivery": "none", "partition": lambda record: record["n"] % 3}
    task = Harness(sink(key=lambda record: b"k%d" % record["n"], **options).create_operator())
    task.process([{"n": 4}], [77])
    assert broker.topics["out"][1] == [Stored(b'{"n":4}', b"k4", 77, None, "committed")]
    with pytest.raises(UserFunctionError, match="encoding of operator 'op'"):
        task.process([{"m": 1}])
    assert [encode_value(one) for one in (None, b"x", "é", (1, 2))] == [None, b"x", "é".encode(), b"[1,2]"]


# --- reading ------------------------------------------------------------------------------------------------------


def source(restored: Checkpoint | None = None, **options: Any) -> Harness:
    return Harness(SourceOperator(KafkaSource("host:1", "out", **options)), restored=restored)


def read(task: Harness, turns: int = 6, count: int = 100) -> list[Any]:
    operator = task.operator
    assert isinstance(operator, SourceOperator)
    for _ in range(turns):
        if operator.emit_next(count) is None:
            break
        task.advance_ms(200)
    return task.take_values()


def fill(broker: Broker, *states: str) -> None:
    broker.topics["out"][0] += [Stored(b"%d" % n, None, n, ("x", n), state) for n, state in enumerate(states)]


def test_a_source_reads_what_is_committed_and_goes_on_from_its_state(broker: Broker) -> None:
    """Aborted records are skipped, the time of a record is its timestamp, and nothing is committed to a group."""
    fill(broker, "committed", "aborted", "committed", "open", "committed")
    task = source()
    assert read(task) == [b"0", b"2"]
    checkpoint = task.snapshot(1)
    broker.topics["out"][0][3].state = "committed"
    restored = source(checkpoint, value=lambda value: int(value or 0))
    assert restored.operator is not None
    read(restored, turns=0)
    assert isinstance(restored.operator, SourceOperator)
    restored.operator.emit_next(10)
    batches = [one for one in restored.take() if isinstance(one, Batch)]
    assert [(batch.values, batch.timestamps) for batch in batches] == [([3, 4], [3, 4])]
    assert broker.offsets == {}


def test_a_bounded_source_ends(broker: Broker) -> None:
    """It ends with the records there were, markers at the end or not; from the latest there is nothing to read."""
    fill(broker, "committed", "committed", "marker")
    task = source(bounded=True)
    assert read(task) == [b"0", b"1"]
    assert isinstance(task.operator, SourceOperator)
    assert task.operator.emit_next(1) is None
    assert read(source(bounded=True, start="latest")) == []
    assert read(source(bounded=True, start={0: 1})) == [b"1"]


def test_offsets_that_are_not_there_are_lost_data(broker: Broker) -> None:
    """They were deleted before the source came back, or while it reads; or the topic is shorter than what was read."""
    fill(broker, "committed", "committed", "committed")
    task = source()
    assert read(task, count=1, turns=1) == [b"0"]
    checkpoint = task.snapshot(1)
    broker.deleted_below = 2
    with pytest.raises(DataLossError, match="offset 1 is not there: the partition has 2 to 3"):
        read(source(checkpoint))
    with pytest.raises(DataLossError, match="is not there any more"):
        read(task)
    broker.deleted_below = 0
    broker.topics["out"][0].clear()
    with pytest.raises(DataLossError, match="the partition has 0 to 0"):
        read(source(checkpoint))


def test_an_offset_to_begin_with_that_is_not_there_is_told(broker: Broker) -> None:
    """Only the option is wrong, and nothing is lost. The same holds for a partition that the topic does not have."""
    broker.topics["out"] = [[]]
    with pytest.raises(ConfigurationError, match="start says offset 1, and the partition has 0 to 0"):
        read(source(start={0: 1}))
    with pytest.raises(ConfigurationError, match=r"partition 1 of topic 'out', which is not read \(it reads 0\)"):
        source(start={1: 0})
    with pytest.raises(ConfigurationError, match="it must be an offset from 0"):
        source(start={0: -1})
    assert broker.consumers == 0


@pytest.mark.parametrize("request_that_fails", ["watermarks", "init"])
def test_clients_whose_first_request_fails_are_closed(broker: Broker, request_that_fails: str) -> None:
    """Each attempt makes new ones, and they have threads of their own."""
    broker.topics["out"] = [[]]
    broker.fail = lambda asked: KafkaError("_TIMED_OUT") if asked == request_that_fails else None
    with pytest.raises(LogTimeoutError):
        read(source()) if request_that_fails == "watermarks" else Job()
    assert broker.consumers == 0


def test_offsets_of_completed_checkpoints_go_to_the_group(broker: Broker) -> None:
    """No later ones are committed. A failed commit is counted, and reading goes on. Without a group there is none."""
    fill(broker, *["committed"] * 5)
    task = source(group="watched")
    assert read(task, count=2, turns=1) == [b"0", b"1"]
    task.snapshot(1)
    assert read(task, count=1, turns=1) == [b"2"]
    assert broker.group_offsets == {}
    task.complete(1)
    assert broker.group_offsets == {("watched", "out", 0): 2}
    task.snapshot(2)
    broker.fail = lambda request: KafkaError("COORDINATOR_NOT_AVAILABLE") if request == "commit-offsets" else None
    task.complete(2)
    assert (task.counter("commitsSucceeded"), task.counter("commitsFailed")) == (1, 1)
    assert read(task, count=1, turns=1) == [b"3"]
    task.close()
    assert broker.consumers == 0
    quiet = source()
    read(quiet, count=1, turns=1)
    quiet.checkpoint(1)
    assert list(broker.group_offsets.values()) == [2]
    with pytest.raises(ConfigurationError, match="group is ''"):
        source(group="")


def test_a_topic_that_does_not_exist_is_named(broker: Broker) -> None:
    """The error comes when the job starts."""
    del broker.topics["out"]
    with pytest.raises(ConfigurationError, match="topic 'out'"):
        source()


def test_a_value_that_cannot_be_decoded_is_named(broker: Broker) -> None:
    """The error also shows the bytes."""
    fill(broker, "committed")
    with pytest.raises(UserFunctionError, match=r"value, at offset 0 of partition out-0 of source 'op', of operator"):
        read(source(value=lambda value: {}[value]))


# --- settings and errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"transactional_id_prefix": None}, "needs a transactional_id_prefix"),
        ({"delivery": "twice"}, "delivery is 'twice'"),
        ({"settings": {"transactional.id": "x"}}, "is made by the connector"),
        ({"retries": -1}, "retries is -1"),
        ({"transaction_timeout_ms": 0}, "transaction_timeout_ms is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    """They are refused when the job is built, with or without the client library."""
    with pytest.raises(ConfigurationError, match=words):
        sink(**options)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KafkaError("_FENCED", fatal=True), ProducerFencedError),
        (KafkaError("INVALID_PRODUCER_EPOCH"), ProducerFencedError),
        (KafkaError("UNKNOWN_TOPIC_OR_PART"), ConfigurationError),
        (KafkaError("TOPIC_AUTHORIZATION_FAILED"), ConfigurationError),
        (KafkaError("_TIMED_OUT"), LogTimeoutError),
        (KafkaError("NOT_ENOUGH_REPLICAS", retriable=True), LogTimeoutError),
        (KafkaError("X", retriable=True, abort=True), TransactionLogError),
        (KafkaError("Y", fatal=True), TransactionLogError),
    ],
)
def test_errors_of_the_client_become_ours(error: KafkaError, expected: type[Exception]) -> None:
    """Their kind depends on what can be done about them."""
    found = kafka_client.translated(error, "asking")
    assert type(found) is expected
    assert ("  fix: " in str(found)) == (expected in (ConfigurationError, LogTimeoutError))


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes when the sink is made, not at import."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingDependencyError, match=r"weirstream\[kafka\]"):
        sink().create_operator()


# --- the real client ----------------------------------------------------------------------------------------------


@pytest.fixture
def mock_cluster() -> Iterator[str]:
    kafka = pytest.importorskip("confluent_kafka")
    holder = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "-", "log_level": 0})
    found = holder.list_topics("out", timeout=10)
    yield ",".join(f"{one.host}:{one.port}" for one in found.brokers.values())
    del holder


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_records_go_through_the_real_client(mock_cluster: str, delivery: str) -> None:
    """Written in checkpoints, read by a bounded source from every partition, with the wire protocol in between."""
    quiet = {"log_level": 0}
    options: dict[str, Any] = {"delivery": delivery, "transactional_id_prefix": "p", "settings": quiet}
    spec = KafkaSink(mock_cluster, "out", partition=lambda record: int(record) % 3, **options)
    task = Harness(spec.create_operator())
    task.process(["0", "1"])
    task.checkpoint(1)
    task.process(["2", "3"])
    task.checkpoint(2)
    task.finish()
    task.close()

    operator = SourceOperator(KafkaSource(mock_cluster, "out", bounded=True, group="watched", settings=quiet))
    reader = Harness(operator)
    for _ in range(200):
        if operator.emit_next(10) is None:
            break
        reader.advance_ms(200)
    assert sorted(reader.take_values()) == [b"0", b"1", b"2", b"3"]
    reader.checkpoint(1)
    assert reader.counter("commitsSucceeded") == 1
    kafka = pytest.importorskip("confluent_kafka")
    watcher = kafka.Consumer({"bootstrap.servers": mock_cluster, "group.id": "watched", "log_level": 0})
    committed = watcher.committed([kafka.TopicPartition("out", number) for number in range(4)], timeout=10)
    positions = {int(split[-1]): position[0] for split, (position, _) in operator.positions().items()}
    assert {place.partition: place.offset for place in committed} == positions
    watcher.close()
    with suppress(Exception):
        reader.close()
