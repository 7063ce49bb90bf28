"""The sink into a topic of Kafka, in three guarantees (Flink: ``KafkaSink``).

``exactly-once``   records wait in the state. When their checkpoint is complete they become one transaction, which also
                   stores the number of the checkpoint: see :mod:`operators.log.kafka.publisher`. A restore publishes
                   the records in its checkpoint, unless this mark shows that they are published;
``at-least-once``  the sink sends records as they come; every checkpoint waits until all of them are answered;
``none``           the sink sends records as they come and does not wait for answers.

Rules of exactly-once.

* A transactional id is ``{transactional_id_prefix}-{subtask}``, the same for every attempt. The successor of a subtask
  takes it over, which aborts a zombie's open transaction and fences it. After a rescale, a name belongs to the subtask
  whose number is the name's modulo the new parallelism. It publishes restored records under their old name, which has
  their mark. No other subtask may use that name: so the state is a union list, and each takes its own part.
* If a mark is newer than the restored checkpoint, later records are published already. The sink refuses to start,
  because a topic cannot take records back. Without state it refuses any mark, because another run has made it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, OutputAheadError, check_whole
from engine.elements.operator import Operator
from operators.basic import SinkOperator
from operators.log.kafka.client import check_settings, client_library, kafka_errors
from operators.log.kafka.publisher import Deliveries, OutRecord, Publisher
from operators.log.port import AT_LEAST_ONCE, DELIVERIES, EXACTLY_ONCE, NONE
from state_backends.base import binary, list_of, number as any_number, optional, row, whole

Encode = Callable[[Any], bytes | None]


def encode_value(record: Any) -> bytes | None:
    """Bytes as they are, text as UTF-8, ``None`` as a tombstone, everything else as JSON."""
    if record is None or type(record) is bytes:
        return record
    if type(record) is str:
        return record.encode()
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


class KafkaSink:
    """Describes a sink into a topic, which must exist.

    ``value``       ``record -> bytes``; by default see :func:`encode_value`;
    ``key``         ``record -> bytes | None``; by default records have no key;
    ``partition``   ``record -> number``; by default by the key, or else the subtask's number modulo ``partitions``;
    ``partitions``  the number in the topic, for records without a key;
    ``transactional_id_prefix``  for exactly-once; it must differ from that of any other job or run on the cluster;
    ``transaction_timeout_ms``   after this time the broker aborts a transaction; not above the broker's
                    ``transaction.max.timeout.ms``;
    ``answer_timeout_ms``, ``retries``  how long the sink waits for an answer, in real time, and how often it retries;
    ``settings``    of the client library (security, compression, ...).
    """

    name = "kafka-sink"

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        value: Encode = encode_value,
        key: Encode | None = None,
        partition: Callable[[Any], int] | None = None,
        partitions: int = 1,
        delivery: str = AT_LEAST_ONCE,
        transactional_id_prefix: str | None = None,
        transaction_timeout_ms: int = 60_000,
        answer_timeout_ms: int = 30_000,
        retries: int = 2,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.settings = dict(settings or {})
        check_settings(bootstrap_servers, topic, self.settings)
        if delivery not in DELIVERIES:
            raise ConfigurationError(f"delivery is {delivery!r}; it must be one of {', '.join(DELIVERIES)}")
        if delivery == EXACTLY_ONCE and not transactional_id_prefix:
            raise ConfigurationError(
                "delivery 'exactly-once' needs a transactional_id_prefix: producers with the same one fence each other,"
                " so it must be unlike that of any other job or run on the cluster"
            )
        check_whole("partitions", partitions)
        check_whole("transaction_timeout_ms", transaction_timeout_ms)
        check_whole("answer_timeout_ms", answer_timeout_ms)
        check_whole("retries", retries, 0)
        self.servers, self.topic, self.delivery = bootstrap_servers, topic, delivery
        self.value, self.key, self.partition, self.partitions = value, key, partition, partitions
        self.prefix, self.transaction_timeout_ms = transactional_id_prefix, transaction_timeout_ms
        self.answer_timeout_s, self.retries = answer_timeout_ms / 1000, retries
        self.parallelism: int | None = None
        """How many subtasks there must be, ``None`` = as the job says."""

    def create_operator(self) -> Operator:
        """One operator of one subtask. Raises :class:`engine.elements.errors.MissingDependencyError`."""
        client_library()
        return _TransactionalKafkaSink(self) if self.delivery == EXACTLY_ONCE else _PlainKafkaSink(self)


class _KafkaSinkOperator(SinkOperator):
    def __init__(self, spec: KafkaSink) -> None:
        self._spec = spec

    def _encoded(self, batch: Batch) -> list[OutRecord]:
        spec = self._spec
        default = -1 if spec.key is not None else self.context.subtask % spec.partitions
        times_ms = batch.timestamps or [-1] * len(batch)
        records = []
        for record, time_ms in zip(batch.values, times_ms, strict=True):
            try:
                key = None if spec.key is None else spec.key(record)
                partition = default if spec.partition is None else spec.partition(record)
                value = spec.value(record)
                if not (value is None or type(value) is bytes) or not (key is None or type(key) is bytes):
                    raise TypeError(f"value and key must be bytes or None, got {value!r} and {key!r}")
                if type(partition) is not int:
                    raise TypeError(f"{partition!r} is no number of a partition")
            except Exception as error:
                raise self.user_error("encoding", record, error) from error
            records.append(OutRecord(value, key, partition, max(time_ms, -1)))
        return records


class _PlainKafkaSink(_KafkaSinkOperator):
    """Without transactions."""

    def open(self) -> None:
        client, spec = client_library(), self._spec
        with kafka_errors(client, f"producer of sink {self.context.name!r}"):
            producer = client.Producer(
                {
                    "partitioner": "murmur2_random",
                    **spec.settings,
                    "bootstrap.servers": spec.servers,
                    "enable.idempotence": spec.delivery == AT_LEAST_ONCE,
                }
            )
        self._deliveries = Deliveries(producer, spec.topic, spec.answer_timeout_s)

    def process_batch(self, batch: Batch) -> None:
        self._deliveries.send(self._encoded(batch))
        if self.context.publish_at_once and self._spec.delivery != NONE:
            self._deliveries.wait()

    def snapshot_state(self, checkpoint_id: int) -> None:
        if self._spec.delivery != NONE:
            self._deliveries.wait()

    def finish(self) -> None:
        # Without this, records could be lost without any failure.
        self._deliveries.wait()


_RECORD = row(optional(binary), optional(binary), any_number, any_number)
_PENDING = row(whole, list_of(row(whole, list_of(_RECORD))))
"""The pending records of one subtask: its number, and the records by checkpoint."""


class _TransactionalKafkaSink(_KafkaSinkOperator):
    def __init__(self, spec: KafkaSink) -> None:
        super().__init__(spec)
        self._current: list[OutRecord] = []
        self._pending: dict[int, list[OutRecord]] = {}
        """By checkpoint."""
        self._publishers: dict[int, Publisher] = {}
        """By subtask: this one, and those whose records it has restored."""

    def initialize_state(self) -> None:
        self._state = self.context.operator_backend().union_list_state("pending-records", _PENDING)
        mine, parallelism = self.context.subtask, self.context.parallelism
        restored = {subtask: dict(pending) for subtask, pending in self._state.get()}
        for subtask in dict.fromkeys([mine, *(one for one in sorted(restored) if one % parallelism == mine)]):
            self._take_over(subtask, restored.get(subtask, {}))
        for subtask in [one for one in self._publishers if one != mine]:
            self._publishers.pop(subtask).close()

    def _take_over(self, subtask: int, pending: Mapping[int, list[Any]]) -> None:
        context, spec = self.context, self._spec
        publisher = self._publishers[subtask] = Publisher(
            spec.servers,
            spec.topic,
            f"{spec.prefix}-{subtask}",
            timeout_ms=spec.transaction_timeout_ms,
            retries=spec.retries,
            answer_timeout_s=spec.answer_timeout_s,
            settings=spec.settings,
        )
        if not context.checkpointing_enabled:
            return
        mark, restored = publisher.newest_mark(), context.restored_checkpoint_id()
        if mark is not None and (restored is None or mark > restored):
            begins = "from nothing" if restored is None else f"from checkpoint {restored}"
            raise OutputAheadError(
                f"sink {context.name!r} starts {begins}, but {spec.prefix}-{subtask} has published checkpoint {mark} in"
                f" topic {spec.topic!r} already: its records would appear twice\n  fix: start from checkpoint {mark} or"
                " a newer one; for another run, use another transactional_id_prefix"
            )
        for number in sorted(pending):
            if mark is not None and number <= mark:
                context.metrics.count("numTransactionsCommittedBefore")
                continue
            publisher.publish([OutRecord(*record) for record in pending[number]], number)
            context.metrics.count("numTransactionsRecovered")

    def process_batch(self, batch: Batch) -> None:
        self._current += self._encoded(batch)

    def snapshot_state(self, checkpoint_id: int) -> None:
        if self._current:
            self._pending[checkpoint_id], self._current = self._current, []
        pending = [(number, [tuple(one) for one in records]) for number, records in sorted(self._pending.items())]
        self._state.update([(self.context.subtask, pending)])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        for number in sorted(self._pending):
            if number <= checkpoint_id:
                self._publishers[self.context.subtask].publish(self._pending.pop(number), number)

    def finish(self) -> None:
        if not self.context.checkpointing_enabled and self._current:
            records, self._current = self._current, []
            self._publishers[self.context.subtask].publish(records, None)

    def close(self) -> None:
        for publisher in self._publishers.values():
            publisher.close()
        self._publishers.clear()

    def abandon(self) -> None:
        self.close()

    def fingerprint(self) -> object:
        return list(self._current), sorted(self._pending.items())
