"""Publishes the records of checkpoints to Kafka, each exactly once, by one transactional id.

The same transaction holds the records and a *mark*: the number of the checkpoint, as the committed offset of a consumer
group that never reads (``send_offsets_to_transaction``, KIP-447). Either both exist or neither does. After a crash
during a commit, the mark tells whether the commit happened; if not, the publisher repeats it.

Flink pre-commits the transaction at the checkpoint and *resumes* it after a failure, by the number and epoch of its
producer. The Python client has no such call: ``init_transactions`` of a successor aborts the pre-committed transaction.
So records wait in the state until their checkpoint is complete, and only then become a transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from operators.log.kafka.client import client_library, kafka_errors, translated
from operators.log.port import LogTimeoutError, ProducerFencedError, TransactionLogError


class OutRecord(NamedTuple):
    """``partition`` -1: by the key, as the client does; ``time_ms`` -1: the time of the broker or client."""

    value: bytes | None
    key: bytes | None = None
    partition: int = -1
    time_ms: int = -1


class Deliveries:
    """Hands records to a producer, and collects the outcomes."""

    def __init__(self, producer: Any, topic: str, timeout_s: float) -> None:
        self._producer, self._topic, self._timeout_s = producer, topic, timeout_s
        self._error: Any = None

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._error is None:
            self._error = error

    def send(self, records: Sequence[OutRecord]) -> None:
        """Put records into the queue of the producer; waits while that is full."""
        with kafka_errors(client_library(), f"a record for topic {self._topic!r}"):
            self._send(records)
        self._producer.poll(0)
        self._raise()

    def _send(self, records: Sequence[OutRecord]) -> None:
        for record in records:
            options: dict[str, Any] = {} if record.partition < 0 else {"partition": record.partition}
            if record.time_ms >= 0:
                options["timestamp"] = record.time_ms
            while True:
                try:
                    self._producer.produce(
                        self._topic, record.value, record.key, on_delivery=self._delivered, **options
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)

    def wait(self) -> None:
        """Wait until every record is answered. Raises the first error."""
        if self._producer.flush(self._timeout_s):
            raise LogTimeoutError(
                f"records for topic {self._topic!r} were not answered for in {self._timeout_s} s\n"
                "  fix: check that the servers given are right and can be reached, or set a longer answer_timeout_ms="
            )
        self._raise()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise translated(error, f"a record for topic {self._topic!r} was not delivered")


class Publisher:
    """See the module. Creating it fences the earlier owner of the transactional id and ends its open transaction."""

    def __init__(
        self,
        servers: str,
        topic: str,
        transactional_id: str,
        *,
        timeout_ms: int,
        retries: int,
        answer_timeout_s: float,
        settings: Mapping[str, Any],
    ) -> None:
        self._client = client_library()
        self._topic, self._id = topic, transactional_id
        self._retries, self._timeout_s = retries, answer_timeout_s
        with kafka_errors(self._client, f"producer {transactional_id!r}"):
            self._producer = self._client.Producer(
                {
                    "partitioner": "murmur2_random",
                    **settings,
                    "bootstrap.servers": servers,
                    "transactional.id": transactional_id,
                    "transaction.timeout.ms": timeout_ms,
                }
            )
            self._marks = self._client.Consumer(
                {
                    **settings,
                    "bootstrap.servers": servers,
                    "group.id": transactional_id,
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                }
            )
        self._deliveries = Deliveries(self._producer, topic, answer_timeout_s)
        what = "taking over the transactional id"
        try:
            self._repeated(lambda: self._producer.init_transactions(self._timeout_s), what)
        except BaseException:
            self.close()
            raise

    def newest_mark(self) -> int | None:
        """The highest checkpoint that was published, ``None`` if none was."""
        place = self._client.TopicPartition(self._topic, 0)
        found: list[Any] = []

        def ask() -> None:
            found[:] = self._marks.committed([place], timeout=self._timeout_s)

        self._repeated(ask, "reading which checkpoint was published")
        if found[0].error is not None:
            raise translated(found[0].error, f"reading what {self._id!r} has published")
        return int(found[0].offset) if found[0].offset >= 0 else None

    def publish(self, records: Sequence[OutRecord], checkpoint_id: int | None) -> None:
        """Publish all records and the mark, or nothing. A failed commit leaves this unknown: start again."""
        with kafka_errors(self._client, f"transaction of {self._id!r}"):
            self._producer.begin_transaction()
        try:
            self._deliveries.send(records)
            self._deliveries.wait()
            if checkpoint_id is not None:
                place = self._client.TopicPartition(self._topic, 0, checkpoint_id)
                group = self._marks.consumer_group_metadata()
                self._repeated(
                    lambda: self._producer.send_offsets_to_transaction([place], group, self._timeout_s),
                    "marking the checkpoint",
                )
        except ProducerFencedError:
            raise
        except TransactionLogError:
            self._abort()
            raise
        self._repeated(lambda: self._producer.commit_transaction(self._timeout_s), "committing")

    def _repeated(self, ask: Any, what: str) -> None:
        """Retry when no answer came; the client knows the transaction."""
        for attempt in range(self._retries + 1):
            try:
                with kafka_errors(self._client, f"{what}, as {self._id!r}"):
                    ask()
                return
            except LogTimeoutError:
                if attempt == self._retries:
                    raise

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(self._timeout_s)
        except self._client.KafkaException:
            # The broker aborts it when the next producer of this name comes, or after the timeout.
            return

    def close(self) -> None:
        """The broker aborts an open transaction."""
        self._marks.close()
