"""The source that reads a topic of Kafka (Flink: ``KafkaSource``).

Rules.

* One split per partition, assigned, never subscribed: the state decides where to resume, not a group. With a ``group``
  the source commits the offsets of completed checkpoints to it, for monitoring from outside. A failed commit is counted
  (``commitsFailed``), and the job goes on.
* The start offset, and the end of a bounded source, are determined once, when a split is first opened. Both are part
  of the position. The high watermark counts transaction markers too. So a bounded split ends when the broker reports
  the end of the partition, or at the first record at or after its end.
* If the broker no longer has an offset, or does not have it yet, data is lost: the source does not skip records.
* A read waits up to ``wait_ms`` of real time for records; runs are as repeatable as the topic is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, DataLossError, UserFunctionError, check_whole
from engine.elements.operator import OperatorFactory
from engine.elements.source import SourceCheckpointListener, SourceContext, SplitReader
from operators.log.connectors import EARLIEST, check_offsets, check_start
from operators.log.disk import COMMITS_FAILED, COMMITS_SUCCEEDED
from operators.log.kafka.client import check_settings, client_library, kafka_errors, translated
from operators.log.port import READ_COMMITTED, check_isolation
from operators.sources import check_discovery, discovering_factory
from state_backends.base import optional, row, whole

if TYPE_CHECKING:
    from operators.time import WatermarkStrategy

_GROUP = "weir-source"
"""The client needs a group; nothing is committed to this one."""


class KafkaSource:
    """The records of a topic.

    ``value``      ``bytes -> record``; by default the bytes themselves, ``None`` for a tombstone;
    ``isolation``  ``"read_committed"`` or ``"read_uncommitted"``;
    ``start``      ``"earliest"``, ``"latest"``, or offsets by partition (others begin with the earliest);
    ``bounded``    whether a split ends where the topic ended when it was first opened;
    ``discovery_interval_ms``  look for new partitions in intervals of virtual time; ``None`` = only at the job's start;
    ``wait_ms``    how long a read waits for records, in real time; ``answer_timeout_ms``: for other answers;
    ``group``      the group that offsets are committed to, ``None`` = no group;
    ``settings``   of the client library (security, ...).
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        value: Callable[[bytes | None], Any] | None = None,
        isolation: str = READ_COMMITTED,
        start: str | Mapping[int, int] = EARLIEST,
        bounded: bool = False,
        discovery_interval_ms: int | None = None,
        wait_ms: int = 100,
        answer_timeout_ms: int = 30_000,
        group: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = dict(settings or {})
        check_settings(bootstrap_servers, topic, self._settings)
        check_isolation(isolation)
        check_start(start)
        check_discovery(discovery_interval_ms, bounded=bounded)
        check_whole("wait_ms", wait_ms)
        check_whole("answer_timeout_ms", answer_timeout_ms)
        if group == "":
            raise ConfigurationError("group is ''; it must be the name of a consumer group, or None")
        self.group, self.discovery_interval_ms = group, discovery_interval_ms
        self._servers, self._topic, self._value = bootstrap_servers, topic, value
        self._isolation, self._start, self._is_bounded = isolation, start, bounded
        self._wait_s, self._timeout_s = wait_ms / 1000, answer_timeout_ms / 1000

    def _consumer(self, client: Any) -> Any:
        return client.Consumer(
            {
                **self._settings,
                "bootstrap.servers": self._servers,
                "group.id": _GROUP if self.group is None else self.group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": self._isolation,
            }
        )

    def checkpoint_listener(self, context: SourceContext) -> SourceCheckpointListener | None:
        """Commits offsets to the group, if there is one."""
        return None if self.group is None else _GroupCommits(self, context)

    def operator_factory(self, watermarks: WatermarkStrategy | None) -> OperatorFactory | None:
        """The factory of operators that look for new partitions; ``None`` if they do not."""
        return discovering_factory(self, watermarks)

    gained_position = (None, None)
    """For partitions added to the topic since the job began: no record of them has been read."""

    position_shape = staticmethod(row(optional(whole), optional(whole)))

    def splits(self, context: SourceContext) -> Sequence[str]:
        """``topic-0`` .., one per partition. Raises :class:`ConfigurationError` when the topic does not exist."""
        client, what = client_library(), f"source {context.name!r}"
        with kafka_errors(client, what):
            consumer = self._consumer(client)
            try:
                found = consumer.list_topics(self._topic, self._timeout_s).topics[self._topic]
            finally:
                consumer.close()
        if found.error is not None:
            raise translated(found.error, f"{what}, topic {self._topic!r}")
        numbers = sorted(found.partitions)
        check_offsets(what, self._topic, self._start, numbers)
        return [f"{self._topic}-{number}" for number in numbers]

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """A reader of a partition. A position is ``(offset, end offset)``. Raises :class:`DataLossError` when the
        broker does not have the offset."""
        client, number = client_library(), int(split.rpartition("-")[2])
        what = f"partition {split} of source {context.name!r}"
        with kafka_errors(client, what):
            consumer = self._consumer(client)
            try:
                offset, end = self._where_to_go_on(client, consumer, what, number, position)
                consumer.assign([client.TopicPartition(self._topic, number, offset)])
            except BaseException:
                consumer.close()
                raise
        return _KafkaReader(client, consumer, what, self, context, offset, end)

    def _where_to_go_on(
        self, client: Any, consumer: Any, what: str, number: int, position: Any
    ) -> tuple[int, int | None]:
        place = client.TopicPartition(self._topic, number)
        low, high = consumer.get_watermark_offsets(place, self._timeout_s, False)
        if position is not None and position[0] is not None:
            offset, end = position
            if not low <= offset <= high:
                raise _loss(what, f"offset {offset} is not there: the partition has {low} to {high}")
            return offset, end
        offset = self._first_offset(number, low, high) if position is None else low
        if not low <= offset <= high:
            raise ConfigurationError(
                f"{what}: start says offset {offset}, and the partition has {low} to {high}\n  fix: begin with one of"
                " these, or with 'earliest' or 'latest'"
            )
        return offset, high if self._is_bounded else None

    def _first_offset(self, number: int, low: int, high: int) -> int:
        if isinstance(self._start, str):
            return low if self._start == EARLIEST else high
        return self._start.get(number, low)


class _GroupCommits:
    """Commits the offsets in completed checkpoints. It has its own consumer, because a split closes its consumer."""

    def __init__(self, spec: KafkaSource, context: SourceContext) -> None:
        self._spec, self._context = spec, context
        self._consumer: Any = None

    def notify_checkpoint_complete(self, checkpoint_id: int, positions: Mapping[str, Any]) -> None:
        client, topic = client_library(), self._spec._topic
        try:
            if self._consumer is None:
                self._consumer = self._spec._consumer(client)
            places = [
                client.TopicPartition(topic, int(split.rpartition("-")[2]), offset)
                for split, (offset, *_) in positions.items()
                if offset is not None
            ]
            committed = self._consumer.commit(offsets=places, asynchronous=False)
        except client.KafkaException:
            self._context.count(COMMITS_FAILED)
            return
        failed = any(place.error is not None for place in committed or ())
        self._context.count(COMMITS_FAILED if failed else COMMITS_SUCCEEDED)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


class _KafkaReader:
    def __init__(
        self,
        client: Any,
        consumer: Any,
        what: str,
        spec: KafkaSource,
        context: SourceContext,
        offset: int,
        end: int | None,
    ) -> None:
        self._client, self._consumer, self._what, self._context = client, consumer, what, context
        self._value, self._wait_s = spec._value, spec._wait_s
        self._offset, self._end = offset, end
        self._is_over = end is not None and offset >= end

    def read(self, max_records: int) -> Batch | None:
        values: list[Any] = []
        times_ms: list[int] = []
        if not self._is_over:
            with kafka_errors(self._client, self._what):
                messages = self._consumer.consume(max_records, self._wait_s)
            for message in messages:
                if message.error() is not None:
                    self._take_error(message.error())
                elif self._end is not None and message.offset() >= self._end:
                    self._is_over = True
                    break
                else:
                    values.append(self._decoded(message))
                    times_ms.append(message.timestamp()[1])
                    self._offset = message.offset() + 1
            if self._end is not None and self._offset >= self._end:
                self._is_over = True
        return Batch(values, times_ms) if values or not self._is_over else None

    def _take_error(self, error: Any) -> None:
        if error.code() == self._client.KafkaError._PARTITION_EOF:
            self._is_over = self._end is not None
        elif error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            raise _loss(self._what, f"offset {self._offset} is not there any more: {error.str()}")
        else:
            raise translated(error, self._what)

    def _decoded(self, message: Any) -> Any:
        if self._value is None:
            return message.value()
        try:
            return self._value(message.value())
        except Exception as error:
            context, what = self._context, f"value, at offset {message.offset()} of {self._what},"
            raise UserFunctionError(context.name, what, message.value(), context.attempt, error) from error

    def position(self) -> Any:
        return (self._offset, self._end)

    def available_at_ns(self, now_ns: int) -> int:
        # The wait took real time. Virtual time must advance too, or it would never pass.
        return now_ns + int(self._wait_s * 1_000_000_000)

    def close(self) -> None:
        self._consumer.close()


def _loss(what: str, why: str) -> DataLossError:
    return DataLossError(
        f"{what} cannot be read on: {why}\n  what it has not read is lost; fix: have the topic keep more than a job can"
        " fall behind, or start the job anew in another storage directory"
    )
